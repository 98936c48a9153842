"""Python source of a data set, looked at and never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from typing import Any

LONGEST = 1_000_000
"""Characters: a syntax tree takes up to 500 bytes and 5 microseconds for each."""

# A program as a model writes it, which is how DeepCoder has its solutions.
_FENCED = re.compile(r"\s*```(?:python3?|py)?[ \t]*\n(.*?\n)```\s*", re.DOTALL)
_SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def parse_python(source: str, column: str) -> ast.Module:
    if len(source) > LONGEST:
        raise ValueError(f"{column}: more than {LONGEST:,} characters of Python, too many to be taken apart")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes, which such sources are full of
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{column}: not Python: {type(error).__name__}: {error}") from None


def parse_literal(source: str, column: str) -> Any:
    """The value of a Python literal, which is not run. Raises `ValueError` that names the column."""
    body = parse_python(source.strip(), column).body
    try:
        if len(body) == 1 and isinstance(body[0], ast.Expr):
            return ast.literal_eval(body[0].value)
    except (TypeError, ValueError):
        pass  # an expression that is no literal: refused below, as is a statement
    raise ValueError(f"{column}: neither JSON nor a Python literal")


def first_program(programs: Iterable[object]) -> str:
    """The first that is Python 3, or nothing: data sets mix in Python 2 and other languages."""
    for program in programs:
        if isinstance(program, str) and program.strip():
            fenced = _FENCED.fullmatch(program)
            program = fenced[1] if fenced else program
            try:
                program.encode()  # refuses half a surrogate pair
                parse_python(program, "solution")
            except ValueError:
                continue
            return program
    return ""


def entry_point_of(starter: str, name: str) -> str:
    """The entry point: a method of `Solution` where the code to be completed is such a class. Raises `ValueError`."""
    if not name.isidentifier():
        raise ValueError(f"{name[:80]!r} is not the name of a function")
    return f"Solution().{name}" if re.search(r"^[ \t]*class[ \t]+Solution\b", starter, re.MULTILINE) else name


def prelude_without(prelude: str, entry_point: str) -> str:
    """The prelude, less an imported name that is the function under test: `add` is never to be `operator.add`."""
    if entry_point.isidentifier():
        name = re.compile(rf"\*|\b{entry_point}\b")
        if any("import" in line and name.search(line) for line in prelude.splitlines()):
            return f"{prelude.rstrip()}\nglobals().pop({entry_point!r}, None)\n"
    return prelude


def names_bound(statements: Iterable[ast.AST]) -> set[str]:
    """Names bound anywhere within: by assignment, definition, import or as a parameter."""
    return {name for statement in statements for node in ast.walk(statement) for name in _bound_by(node)}


def names_defined(module: ast.Module) -> set[str]:
    """Names that the module itself binds, not the functions and classes in it."""
    names: set[str] = set()
    todo: list[ast.AST] = list(module.body)
    while todo:
        node = todo.pop()
        names.update(_bound_by(node))
        if not isinstance(node, _SCOPES):
            todo.extend(ast.iter_child_nodes(node))
    return names


def names_read(statements: Iterable[ast.AST]) -> dict[str, None]:
    """Names read, each once, in order."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id: None for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bound_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    return []
