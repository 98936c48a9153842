"""Compare what a program printed, or what a function returned, with what is expected.

    same_output("1.4142135623730951\\n", "1.41421356\\n", "tolerance")
    same_value((1, 2.0), [1, 2], "json")

              standard output                                               values
    exact     the text, up to blanks at its end                             Python's ==
    lines     stripped lines; lines of numbers by value (LiveCodeBench)     JSON's: a tuple is a list
    tolerance as lines, floats by numpy.allclose's rule (APPS, TACO, verl)  as lines, floats by the same rule
    tokens    words in any case, floats within 1e-5 (CodeContests)          as tolerance
    json                                                                    as tolerance

These data sets' graders are followed but for two rules. An expected integer literal is text: 7 may be printed as 7.0,
but not as 007, +7, 7e0, 7.000001 or in other digits, and 007 as nothing else. And for `lines` and `tolerance` words and
signs that are to stand deeper than other lines have to: they draw a figure.

What is compared was made by a hostile program: every function takes linear time, and raises nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from raypoly.core.values import Comparison

# an output this much longer than the expected one is wrong unread: splitting takes many times its memory
_LONGER, _SMALL_OUTPUT = 16, 1 << 16
_BLANK = " \t\r\n"  # str.split() splits at 25 others too, such as a form feed
_TOKEN = re.compile(r"[^ \t\r\n]+")
# Decimal() and float() also take underscores, and the digits of every script
_INTEGER = re.compile(r"[+-]?[0-9]+")
_WHOLE_FLOAT = re.compile(r"(-?(?:0|[1-9][0-9]*+))\.0*+")
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[+-]?[0-9]++)?|inf(?:inity)?)", re.A | re.I)
_JSON_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_RTOL, _ATOL = 1e-5, 1e-8  # numpy.allclose's
_TOKENS_ATOL = 1e-5  # CodeContests'
Same = Callable[[str, str], bool]


def same_output(printed: str, expected: str, comparison: Comparison) -> bool:
    """Whether a program's standard output is the expected one."""
    if printed.rstrip(_BLANK) == expected.rstrip(_BLANK):
        return True
    if comparison == "exact" or len(printed) > _LONGER * len(expected) + _SMALL_OUTPUT:
        return False
    if comparison == "tokens":
        return _same_tokens(_TOKEN.findall(printed), _TOKEN.findall(expected), _same_word)
    left, right = _lines(printed, comparison), _lines(expected, comparison)
    if len(left) != len(right) or not _keeps_figure(left, right):
        return False
    return all(map(_SAME_LINE[comparison], left, right))


def same_value(result: Any, expected: Any, comparison: Comparison) -> bool:
    """Whether plain data equals the expected value."""
    try:
        if result == expected:
            return True
        return comparison != "exact" and _same_json(result, expected, close=comparison != "lines")
    except (RecursionError, OverflowError):  # too deep, or a number beyond floats
        return False


def _lines(text: str, comparison: Comparison) -> list[str]:
    """Without blank lines around them, and with a tolerance in between; the first line keeps its indentation."""
    lines = [line.rstrip(_BLANK) for line in text.rstrip(_BLANK).split("\n")]
    if comparison == "tolerance":
        return list(filter(None, lines))
    return lines[next((place for place, line in enumerate(lines) if line), len(lines)) :]


def _keeps_figure(printed: list[str], expected: list[str]) -> bool:
    # the first line may be stripped, as data sets do, and lines of numbers are often indented by accident
    least = min((len(_indentation(line)) for line in expected if line), default=0)
    return all(
        len(_indentation(wanted)) <= least
        or _indentation(line) == _indentation(wanted)
        or all(map(_NUMBER.fullmatch, wanted.split()))
        for line, wanted in zip(printed, expected, strict=True)
    )


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _same_line(enough: Callable[[Iterable[object]], bool], same: Same, printed: str, expected: str) -> bool:
    left, right = _TOKEN.findall(printed), _TOKEN.findall(expected)
    if enough(map(_NUMBER.fullmatch, right)):
        return _same_tokens(left, right, same)
    return printed.strip(_BLANK) == expected.strip(_BLANK)


def _same_tokens(printed: list[str], expected: list[str], same: Same) -> bool:
    return len(printed) == len(expected) and all(map(same, printed, expected))


def _same_word(printed: str, expected: str) -> bool:
    if printed.isascii() and expected.isascii():
        printed, expected = printed.lower(), expected.lower()
    return _same_token(_near, printed, expected)


def _same_token(close: Same, printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    if _INTEGER.fullmatch(expected):
        whole = _WHOLE_FLOAT.fullmatch(printed)
        return whole is not None and (whole[1] == expected or (whole[1], expected) == ("-0", "0"))
    numbers = _NUMBER.fullmatch(printed) and _NUMBER.fullmatch(expected)
    return numbers is not None and close(printed, expected)


def _equal(printed: str, expected: str) -> bool:
    try:
        return Decimal(printed) == Decimal(expected)
    except InvalidOperation:  # an exponent of more than 18 digits
        return False


def _close(printed: str, expected: str) -> bool:
    got, wanted = float(printed), float(expected)
    if math.isinf(got) or math.isinf(wanted):
        return _equal(printed, expected)
    return abs(got - wanted) <= _ATOL + _RTOL * abs(wanted)


def _near(printed: str, expected: str) -> bool:
    got, wanted = float(printed), float(expected)
    if math.isinf(got) or math.isinf(wanted):
        return _equal(printed, expected)
    return abs(got - wanted) < _TOKENS_ATOL


_SAME_LINE = {
    "lines": partial(_same_line, all, partial(_same_token, _equal)),
    "tolerance": partial(_same_line, any, partial(_same_token, _close)),
}


def _same_json(result: Any, expected: Any, close: bool) -> bool:
    kind = type(expected)
    if kind is list or kind is tuple:
        is_list = type(result) in (list, tuple) and len(result) == len(expected)
        return is_list and all(_same_json(got, wanted, close) for got, wanted in zip(result, expected, strict=True))
    if kind is dict:
        is_dict = isinstance(result, dict) and len(result) == len(expected)
        places = ((_key(result, key, close), wanted) for key, wanted in expected.items()) if is_dict else ()
        return is_dict and all(key in result and _same_json(result[key], wanted, close) for key, wanted in places)
    if close and kind is float and type(result) in (int, float) and math.isfinite(expected):
        return bool(abs(result - expected) <= _ATOL + _RTOL * abs(expected))
    return bool(result == expected)


def _key(result: Any, key: Any, close: bool) -> Any:
    # JSON has no numbers for keys; APPS' grader makes them of texts
    is_number = close and key not in result and type(key) is str and _JSON_INTEGER.fullmatch(key)
    return int(key) if is_number else key
