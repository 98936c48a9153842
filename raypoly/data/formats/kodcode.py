"""KodCode: pytest functions that test what they import `from solution`.

Their bodies become the body of one `check(candidate)`, a parametrized one as a loop over its values. A stand-in has
what they use of pytest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.mbpp import check_of
from raypoly.data.formats.python_source import names_read, parse_python
from raypoly.data.formats.row_fields import Identifier, SourceRow, Text, prompt_of

_PYTEST = """
class pytest:
    class raises:
        def __init__(self, expected, *call, match=None, **named):
            self.expected, self.match = expected, match
            if call:
                with self:
                    call[0](*call[1:], **named)

        def __enter__(self):
            return self

        def __exit__(self, kind, error, at):
            import re
            if kind is None:
                raise AssertionError("no exception, and one was expected")
            self.type, self.value = kind, error
            return issubclass(kind, self.expected) and re.search(self.match or "", str(error)) is not None

    class approx:
        def __init__(self, expected, rel=None, abs=None, nan_ok=False):
            self.expected, self.rel, self.abs = expected, rel, abs

        def __eq__(self, got):
            if isinstance(self.expected, dict):
                pairs = [(got.get(key), value) for key, value in self.expected.items()]
                return len(got) == len(pairs) and all(map(self._is_close, pairs))
            if isinstance(self.expected, (list, tuple)):
                return len(got) == len(self.expected) and all(map(self._is_close, zip(got, self.expected)))
            return self._is_close((got, self.expected))

        def _is_close(self, pair):
            got, expected = pair
            rel = (1e-6 if self.abs is None else 0) if self.rel is None else self.rel
            tolerance = max(rel * abs(expected), 1e-12 if self.abs is None else self.abs)
            return got == expected or abs(got - expected) <= tolerance

    def param(*values, **_):
        return values if len(values) > 1 else values[0]

    def fail(reason=""):
        raise AssertionError(reason)
"""


class _Row(SourceRow):
    question_id: Identifier
    question: Text = ""
    solution: Text = ""
    test: str
    test_info: Any = None


def recognises(row: Mapping[str, Any]) -> bool:
    return {"question_id", "question", "test"} <= row.keys() and "from solution import" in str(row["test"])


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    body = list(_statements(parse_python(it.test, "test").body))
    if "pytest" in names_read(body):
        body = [*ast.parse(_PYTEST).body, *body]
    tests = ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
    name, prelude, check = check_of(tests, "", "", it.solution)
    prompt = prompt_of(it.question, _declaration(it.test_info, name))
    return it.make_problem(it.question_id, prompt, TestSuite("check", check), name, prelude, solution=it.solution)


def _declaration(test_info: Any, name: str) -> str:
    rows = test_info if isinstance(test_info, list) else []
    told = [row for row in rows if isinstance(row, Mapping) and row.get("function_name") == name]
    line = told[0].get("function_declaration") if told else None
    return line if isinstance(line, str) else ""


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.ClassDef) and any(map(_is_test, [statement, *statement.body])):
            raise ValueError(f"test: {statement.name} is a class of tests, and functions alone are read")
        if isinstance(statement, ast.AsyncFunctionDef) and _is_test(statement):
            raise ValueError(f"test: {statement.name} is asynchronous, and plain functions alone are read")
        if isinstance(statement, ast.If) and "__name__" not in ast.unparse(statement.test):
            raise ValueError(f"test: what depends on {ast.unparse(statement.test)} can't be read")
        if isinstance(statement, ast.FunctionDef) and _is_test(statement):
            yield from _test_body(statement)
        elif not _is_import_of(statement, ("solution", "pytest")) and not isinstance(statement, ast.If):
            yield statement


def _is_test(statement: ast.stmt) -> bool:
    return getattr(statement, "name", "").lower().startswith("test")


def _is_import_of(statement: ast.stmt, modules: tuple[str, ...]) -> bool:
    if isinstance(statement, ast.ImportFrom):
        if statement.module == "solution" and any(alias.asname or alias.name == "*" for alias in statement.names):
            raise ValueError(f"test: what it tests has another name there: {ast.unparse(statement)}")
        return statement.module == "solution"
    return isinstance(statement, ast.Import) and all(alias.name in modules for alias in statement.names)


def _test_body(test: ast.FunctionDef) -> list[ast.stmt]:
    body: list[ast.stmt] = list(test.body)
    if any(isinstance(node, ast.Return | ast.Yield) for node in ast.walk(test)):
        plain = ast.FunctionDef(test.name, test.args, test.body, [])
        names: list[ast.expr] = [ast.Name(argument.arg, ast.Load()) for argument in test.args.args]
        body = [plain, ast.Expr(ast.Call(ast.Name(test.name, ast.Load()), names, []))]
    given: set[str] = set()
    for decorator in reversed(test.decorator_list):
        if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.parametrize":
            raise ValueError(f"test: {test.name} is decorated by {ast.unparse(decorator)[:80]}")
        names_given, values = _parametrized(decorator, test.name)
        given.update(names_given)
        loop = ast.parse(f"for {', '.join(names_given)} in (): pass").body[0]
        assert isinstance(loop, ast.For)
        loop.iter, loop.body, body = values, body, [loop]
    if missing := [argument.arg for argument in test.args.args if argument.arg not in given]:
        raise ValueError(f"test: {test.name} uses the fixture {missing[0]}, and there is no pytest here")
    return body


def _parametrized(decorator: ast.Call, test: str) -> tuple[list[str], ast.expr]:
    try:
        names = ast.literal_eval(decorator.args[0])
        values = decorator.args[1]
    except (ValueError, IndexError):
        raise ValueError(f"test: {test} has parameters that can't be read") from None
    return [name.strip() for name in (names.split(",") if isinstance(names, str) else names)], values
