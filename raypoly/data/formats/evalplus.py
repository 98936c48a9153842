"""evalplus' own files, HumanEvalPlus and MbppPlus: inputs, and a solution that says what is right of each.

Their grader runs program and solution on the same inputs. So does the check made here, and compares as it does: equal,
or of one kind and within a tolerance where the solution gives floats; a few problems otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from raypoly.core.values import Problem
from raypoly.data.formats import humaneval
from raypoly.data.formats.long_integers import long_integers
from raypoly.data.formats.python_source import parse_python
from raypoly.data.formats.row_fields import EntryPoint, Identifier, SourceRow, Text, check_suite, prompt_of

_FLOAT_TOLERANCE = 1e-6
"""Of floats, where the row states none; beside it 1e-7 of the value."""
_SETS = frozenset(("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum"))
_SETS |= {"intersection_array", "find_dissimilar", "Diff"}
_FOUND_OR_NOT = frozenset(("check_str", "text_match_three", "text_starta_endb"))
_CHECK = """
from copy import deepcopy as _copied
from math import isclose as _isclose
inf, nan = float("inf"), float("nan")
_right = globals()[{name!r}]


def _are_floats(value):
    return type(value) is float or (type(value) in (list, tuple) and value and all(type(v) is float for v in value))


def _close(got, right, tolerance):
    if type(right) in (list, tuple):
        return len(got) == len(right) and all(_close(g, r, tolerance) for g, r in zip(got, right))
    return got == right or _isclose(got, right, rel_tol=1e-7, abs_tol=tolerance)


def _same(got, right, tolerance):
    if got == right:
        return True
    tolerance = tolerance or (_are_floats(right) and {tolerance})
    return bool(tolerance) and type(got) is type(right) and _close(got, right, tolerance)


def check(candidate):
    for _args in {inputs}:
        _given = _copied(_args)
        assert {condition}
"""


class _Row(SourceRow):
    task_id: Identifier
    prompt: str
    entry_point: EntryPoint
    canonical_solution: str
    base_input: list[list[Any]] = Field(min_length=1)
    plus_input: list[list[Any]] = Field(default_factory=list)
    atol: float = 0.0
    assertion: Text = ""


def recognises(row: Mapping[str, Any]) -> bool:
    return "base_input" in row


def to_problem(row: Mapping[str, Any]) -> Problem:
    it = _Row.model_validate(row)
    solution = f"{it.prompt}{it.canonical_solution}"
    parse_python(solution, "canonical_solution")
    check = f"{solution}\n{_check_of(it)}"
    if f"def {it.entry_point}" in it.prompt:
        return humaneval.to_problem({**row, "test": check})
    prompt = prompt_of(it.prompt.strip().strip('"'))
    return it.make_problem(it.task_id, prompt, check_suite(check), it.entry_point, solution=it.canonical_solution)


def _check_of(it: _Row) -> str:
    got = "candidate(*_args)"
    condition = f"_same({got}, _right(*_given), {it.atol!r})"
    if it.entry_point == "find_zero":  # several roots are right
        condition = f"abs(poly(*_given, {got})) <= {it.atol or _FLOAT_TOLERANCE!r}"
    elif it.entry_point in _SETS:
        condition = f"set({got}) == set(_right(*_given))"
    elif it.entry_point in _FOUND_OR_NOT:
        condition = f"bool({got}) == (_right(*_given) not in (None, False))"
    elif it.entry_point == "sum_div":
        condition = f"{got} in (_right(*_given), 0)"
    shapes = _asserted_arguments(it)
    rows = [[_like(v, *shapes[n : n + 1]) for n, v in enumerate(args)] for args in (*it.base_input, *it.plus_input)]
    with long_integers():
        return _CHECK.format(name=it.entry_point, inputs=repr(rows), condition=condition, tolerance=_FLOAT_TOLERANCE)


def _asserted_arguments(it: _Row) -> list[Any]:
    """Arguments of the statement's first assertion, with the tuples, sets and complex numbers that JSON has not."""
    for node in ast.walk(parse_python(it.assertion, "assertion")):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == it.entry_point:
            try:
                return [ast.literal_eval(argument) for argument in node.args]
            except ValueError:
                break
    return []


def _like(value: Any, *shape: Any) -> Any:
    if not shape:
        return value
    kind, parts = type(shape[0]), shape[0]
    if kind is complex and isinstance(value, str):
        return complex(value)
    if isinstance(value, dict) and kind is dict:
        first = list(parts.values())[:1]
        return {key: _like(item, *first) for key, item in value.items()}
    if not isinstance(value, list) or kind not in (list, tuple, set, frozenset):
        return value
    parts = list(parts)
    alike = parts if kind is tuple and len(parts) == len(value) else parts[:1] * len(value)
    items = [_like(item, *alike[n : n + 1]) for n, item in enumerate(value)]
    return items if kind is list else kind(items)
