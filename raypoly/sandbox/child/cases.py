"""Read a plain `check(candidate)` as cases: arguments, and what is expected. Most are a list of simple assertions.

Done once a problem in a confined child (the source is internet data). With cases in hand no checker process is
needed, and the comparison is made on plain data by the parent.
"""

from __future__ import annotations

import ast
from typing import Any

SAME = {"is_same_list": "ListNode", "is_same_tree": "TreeNode"}


def read_cases(namespace: dict[str, Any], source: str) -> list[tuple[Any, ...]] | None:
    """`[(args, kwargs, expected), ...]`, None where `check` is more than assertions that compare one call.

    Understood: `assert candidate(...) == VALUE` and `assert is_same_list(candidate(...), VALUE)` (and `is_same_tree`)
    with the helpers of the prelude, which has run in `namespace`.
    """
    body = _assertions(ast.parse(source))
    if body is None:
        return None
    exec(compile(source, "<check>", "exec", dont_inherit=True), namespace)
    found: list[tuple[Any, ...]] = []
    for assertion in body:
        if isinstance(assertion.test, ast.Constant) and assertion.test.value:
            continue
        parts = _call_and_expected(assertion.test)
        if parts is None:
            return None
        call, expected, kind = parts
        if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
            return None
        args = tuple(_value(argument, namespace) for argument in call.args)
        kwargs = {str(keyword.arg): _value(keyword.value, namespace) for keyword in call.keywords}
        value = _value(expected, namespace)
        if kind is None and type(value).__name__ in SAME.values():
            return None  # `==` on nodes is identity, which no value can stand for
        found.append((args, kwargs, value))
    return found or None


def _assertions(tree: ast.Module) -> list[ast.Assert] | None:
    """The assertions of `check`, None where it does anything else."""
    checks = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "check"]
    if len(checks) != 1 or checks[0].decorator_list:
        return None
    body = [part for part in checks[0].body if not isinstance(part, ast.Pass)]
    assertions = [statement for statement in body if isinstance(statement, ast.Assert)]
    return assertions if len(assertions) == len(body) else None


def _call_and_expected(test: ast.expr) -> tuple[ast.Call, ast.expr, str | None] | None:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left, right, kind = test.left, test.comparators[0], None
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and len(test.args) == 2 and not test.keywords:
        kind = SAME.get(test.func.id)
        left, right = test.args
        if kind is None:
            return None
    else:
        return None
    if not _is_candidate(left) or any(_is_candidate(node) for node in ast.walk(right)):
        return None
    assert isinstance(left, ast.Call)
    return left, right, kind


def _is_candidate(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "candidate"


def _value(node: ast.expr, namespace: dict[str, Any]) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        code = compile(ast.Expression(node), "<check>", "eval", dont_inherit=True)
        return eval(code, namespace)
