"""MBPP, its sanitized part and MBPP+: assertions that call a function by its name; `code` is a solution.

The assertions become a `check(candidate)` that calls a stand-in:

    assert double(2) == 4   ->   def check(candidate):
                                     assert candidate(2) == 4
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.long_integers import long_integers
from raypoly.data.formats.python_source import names_bound, names_defined, names_read, parse_python
from raypoly.data.formats.row_fields import Identifier, SourceRow, Text, prompt_of

_BUILTINS = frozenset(dir(builtins)) | {"__name__"}
_IMPORTS = (ast.Import, ast.ImportFrom)


class _Row(SourceRow):
    task_id: Identifier
    test_list: list[str] = Field(min_length=1)
    text: Text = ""
    prompt: Text = ""
    code: Text = ""
    test_setup_code: Text = ""
    test_imports: list[str] = Field(default_factory=list)
    test: Text = ""


def recognises(row: Mapping[str, Any]) -> bool:
    return "test_list" in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    """MBPP+ has a longer program of tests in `test`, which is run in place of `test_list`; the policy sees the list."""
    it = _Row.model_validate(row)
    shown = "\n".join(it.test_list)
    name, prelude, check = check_of(it.test or shown, "\n".join(it.test_imports), it.test_setup_code, it.code)
    description = it.text or it.prompt
    if description.strip():
        description = f"{description.strip()}\n\nYour code should pass these tests:\n```python\n{shown}\n```"
    tests = TestSuite("check", check)
    return it.make_problem(it.task_id, prompt_of(description), tests, name, prelude, solution=it.code)


def check_of(tests: str, imports: str, setup: str, code: str) -> tuple[str, str, str]:
    """(entry point, imports of the data set for program and tests, source of `check(candidate)`) of one row.

    `code` is a known solution, which says what the program has to define. Raises `ValueError` where the tests need more
    of the program than one function.
    """
    with long_integers():
        given = [*parse_python(imports, "test_imports").body, *parse_python(setup, "test_setup_code").body]
        asserts = parse_python(tests, "tests").body
        solution = parse_python(code, "code") if code.strip() else None
        prelude: list[ast.stmt] = [statement for statement in given if isinstance(statement, _IMPORTS)]
        body = [statement for statement in given if not isinstance(statement, _IMPORTS)] + asserts
        names = names_read(body).keys() - names_bound(body) - names_bound(prelude)
        taken = _imports_used(solution, names)
        starred = any(map(_is_star, prelude + body + taken))
        name = _entry_point([n for n in names_read(body) if n in names - names_bound(taken)], solution, starred)
        if solution is None and name[0].isupper() and _uses_object(name, body):
            raise ValueError(f"tests: they build objects of {name}, a class that only the program defines")
        head = sorted(taken + [s for s in body if _is_head(s)], key=_is_future, reverse=True)
        return name, _text(prelude), _text([*head, _function(name, body)])


def _uses_object(name: str, body: list[ast.stmt]) -> bool:
    """Whether it keeps, or asks, what a call of `name` returns."""
    nodes = (node for statement in body for node in ast.walk(statement))
    made = (node.value for node in nodes if isinstance(node, ast.Attribute | ast.Assign))
    return any(isinstance(it, ast.Call) and isinstance(it.func, ast.Name) and it.func.id == name for it in made)


def _imports_used(solution: ast.Module | None, names: set[str]) -> list[ast.stmt]:
    # The authors run the solution and the tests in one module, so tests may lean on its imports.
    found = [s for s in solution.body if isinstance(s, _IMPORTS)] if solution else []
    return [s for s in found if not _is_future(s) and (_is_star(s) or names_bound([s]) & names)]


def _entry_point(names: list[str], solution: ast.Module | None, starred: bool) -> str:
    """The one of these names, read by the tests, that the program defines; `starred`: a star import may bind some."""
    if solution is None:
        wanted = [name for name in names if name not in _BUILTINS]
    else:
        made = names_defined(solution)
        missing = [name for name in names if name not in made | _BUILTINS]
        if missing and not starred:
            raise ValueError(f"tests: {missing[0]} is defined neither by them nor by code")
        wanted = [name for name in names if name in made]
        classes = {statement.name for statement in solution.body if isinstance(statement, ast.ClassDef)}
        if built := [name for name in wanted if name in classes]:
            raise ValueError(f"tests: they build objects of {built[0]}, a class that only the program defines")
    if not wanted:
        raise ValueError("tests: they call nothing that the program defines")
    if len(wanted) > 1:
        raise ValueError(f"tests: they use {' and '.join(wanted[:3])} of the program; only one function can be called")
    return wanted[0]


def _function(name: str, body: list[ast.stmt]) -> ast.stmt:
    if "candidate" in names_bound(body):
        raise ValueError("tests: they define candidate, which is the name of the function under test")
    renamed = [_Renamed(name).visit(statement) for statement in body if not _is_head(statement)]
    function = ast.parse("def check(candidate):\n    pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = renamed or function.body
    return function


class _Renamed(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("candidate", node.ctx) if node.id == self._name else node


def _text(statements: list[ast.stmt]) -> str:
    module = ast.fix_missing_locations(ast.Module(statements, []))
    return f"{ast.unparse(module)}\n" if statements else ""


def _is_star(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_head(statement: ast.stmt) -> bool:
    """Whether it may only stand outside a function."""
    return _is_star(statement) or _is_future(statement)
