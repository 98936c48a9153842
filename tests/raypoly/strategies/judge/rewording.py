"""Say a program in other words: other names throughout, other layout, comments, docstrings and types; nothing else.

    other = reworded(source, random.Random(7), kept=frozenset({"Solution", "twoSum"}))

Beside `raypoly.strategies.judge.program_transforms`, whose changes keep a program's text and are one at a time:
here all are made at once, and names of helpers, classes and fields change as well.
"""

from __future__ import annotations

import ast
import builtins
import copy
import random
import re
import symtable
from collections import deque
from collections.abc import Callable, Iterator

_WORDS = ("heap", "dp", "memo", "stack", "queue", "left", "graph", "total", "x", "i", "value", "two_pointers", "seen")
_TYPES = ("int", "List[int]", "Dict[str, int]", "Optional[int]", "'Node'", "list[list[int]]")
_REMARKS = (
    "binary search over the answer",
    "O(n log n)",
    "cluster 7",
    "a heap keeps the k largest",
    "type: ignore",
    "",
)
_FOREIGN = {"val", "next", "left", "right", "random", "neighbors", "children"}.union(
    *(dir(kind) for kind in (list, dict, set, str, int, float, bytes, tuple, deque))
)
_SIMPLE = re.compile(
    r"( *)(?!(?:if|for|while|def|class|with|try|else|elif|except|finally|match|case|async|@)\b)(?!@)\S.*"
)


def reworded(source: str, rng: random.Random, kept: frozenset[str]) -> str:
    """The same program; names in `kept` stay. Raises `SyntaxError` where it does not parse."""
    tree = ast.parse(source)
    _retyped(tree, rng)
    _renamed(tree, source, rng, kept)
    plain = ast.unparse(ast.fix_missing_locations(tree))
    wanted = ast.dump(ast.parse(plain))
    text = plain
    for change in rng.sample(_LAYOUTS, rng.randint(1, len(_LAYOUTS))):
        changed = change(text, rng)
        try:
            same = ast.dump(ast.parse(changed)) == wanted
        except SyntaxError:
            same = False
        text = changed if same else text
    return text


def _renamed(tree: ast.Module, source: str, rng: random.Random, kept: frozenset[str]) -> None:
    names, fields = _own(tree, source)
    numbers = iter(range(1, 1 << 30))
    taken = set(re.findall(r"\w+", source)) | set(dir(builtins))
    fresh: Iterator[str] = (f"{rng.choice(_WORDS)}_{number}" for number in numbers)
    new = {name: next(w for w in fresh if w not in taken) for name in sorted(names - kept)}
    new_fields = {name: next(w for w in fresh if w not in taken) for name in sorted(fields - kept)}
    methods = {id(m) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for m in c.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            node.attr = new_fields.get(node.attr, node.attr)
        for name in ("id", "arg", "name", "rest"):
            if isinstance(getattr(node, name, None), str) and not isinstance(node, (ast.keyword, ast.alias)):
                among = new_fields if id(node) in methods and name == "name" else new
                setattr(node, name, among.get(getattr(node, name), getattr(node, name)))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [new.get(name, name) for name in node.names]


def _own(tree: ast.Module, source: str) -> tuple[set[str], set[str]]:
    """Names that mean something of the program's own wherever they stand, and such fields and methods."""
    own: set[str] = set()
    foreign = {keyword.arg for keyword in ast.walk(tree) if isinstance(keyword, ast.keyword) and keyword.arg}
    top = {s.get_name() for s in symtable.symtable(source, "", "exec").get_symbols() if s.is_assigned()}
    for table in _tables(symtable.symtable(source, "", "exec")):
        for symbol in table.get_symbols():
            name = symbol.get_name()
            elsewhere = symbol.is_global() and name not in top
            if symbol.is_imported() or elsewhere or table.get_type() == "class" or name.startswith(("__", ".")):
                foreign.add(name)
            else:
                own.add(name)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    if any(c.bases or c.decorator_list for c in classes):
        return own - foreign, set()
    methods = [m for c in classes for m in c.body if isinstance(m, ast.FunctionDef)]
    handles = {m.args.args[0].arg for m in methods if m.args.args}
    fields = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and getattr(n.value, "id", "") in handles
    } | {m.name for m in methods if not m.name.startswith("__")}
    said = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return own - foreign, fields - _FOREIGN - said


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _retyped(tree: ast.Module, rng: random.Random) -> None:
    """Type hints and docstrings come and go."""

    def hint() -> ast.expr | None:
        return ast.parse(rng.choice(_TYPES), mode="eval").body if rng.random() < 0.5 else None

    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = hint()
        elif isinstance(node, ast.FunctionDef):
            node.returns = hint()
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            if rng.random() < 0.5:
                node.body = [ast.Expr(ast.Constant(f"{rng.choice(_REMARKS)}.")), *node.body]
            declared = {n for s in ast.walk(node) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
            node.body = [_annotated(stmt, hint(), declared) for stmt in node.body]


def _annotated(stmt: ast.stmt, hint: ast.expr | None, declared: set[str]) -> ast.stmt:
    if hint is None or not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return stmt
    target = stmt.targets[0]
    if not isinstance(target, ast.Name) or target.id in declared:
        return stmt
    return ast.AnnAssign(copy.deepcopy(target), hint, stmt.value, simple=1)


def _remarks(text: str, rng: random.Random) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        if rng.random() < 0.3:
            lines.append(f"{' ' * rng.randint(0, 9)}# {rng.choice(_REMARKS)}")
        lines.append(f"{line}  # {rng.choice(_REMARKS)}" if rng.random() < 0.2 else line)
    return "\n".join(lines)


def _blank_lines(text: str, rng: random.Random) -> str:
    return "\n".join(line + "\n" * rng.choice((0, 0, 1, 2)) for line in text.split("\n"))


def _semicolons(text: str, rng: random.Random) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        before, now = (_SIMPLE.fullmatch(lines[-1]) if lines else None), _SIMPLE.fullmatch(line)
        if before and now and before[1] == now[1] and "#" not in lines[-1] and rng.random() < 0.3:
            lines[-1] += "; " + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines)


def _brackets(text: str, rng: random.Random) -> str:
    return re.sub(
        r"^( *return )([^#;]+)$", lambda m: f"{m[1]}({m[2]})" if rng.random() < 0.7 else m[0], text, flags=re.MULTILINE
    )


def _continuation(text: str, rng: random.Random) -> str:
    return re.sub(
        r"^([^#\"']*?\w) (=|\+=|and|or|in) ",
        lambda m: f"{m[1]} \\\n   {m[2]} " if rng.random() < 0.3 else m[0],
        text,
        flags=re.MULTILINE,
    )


def _quotes(text: str, rng: random.Random) -> str:
    return re.sub(r"'([^'\"\\\n]*)'", r'"\1"', text)


def _indentation(text: str, rng: random.Random) -> str:
    unit = rng.choice((" ", "  ", "   ", "\t"))
    return re.sub(r"^((?:    )+)", lambda m: unit * (len(m[1]) // 4), text, flags=re.MULTILINE)


_LAYOUTS: list[Callable[[str, random.Random], str]] = [
    _indentation, _remarks, _blank_lines, _semicolons, _brackets, _continuation, _quotes,
]  # fmt: skip
