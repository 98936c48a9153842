"""JSON with whole numbers of up to 100,000 digits, which some data sets have and Python refuses beyond 4300; and of a
bounded number of values.

loads("[" + "9" * 5000 + "]")
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

_DIGITS = 100_000  # A tenth of a second each: to read a number takes time in the square of its digits
MOST_VALUES = 1 << 21
"""A value takes 50 to 250 bytes, and three characters: without a bound, 100 KB of gzip became 2.6 GB."""
_PART = r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[,\[{]'  # a text, or what each further value comes after
_PARTS, _BYTE_PARTS = re.compile(_PART, re.DOTALL), re.compile(_PART.encode(), re.DOTALL)
_lock = threading.RLock()


@contextmanager
def long_integers() -> Iterator[None]:
    """Lift Python's limit of digits, and put it back as it was. One thread at a time, or another's could stay."""
    with _lock:
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(_DIGITS)
        try:
            yield
        finally:
            sys.set_int_max_str_digits(before)


def loads(text: str | bytes) -> Any:
    check_size(text)
    with long_integers():
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None


class TooManyValues(ValueError):
    """JSON that would take too much memory."""


def check_size(text: str | bytes) -> None:
    """Raises `TooManyValues`; those that a text within holds do not count."""
    found: Iterator[Any]
    if isinstance(text, str):
        at_most, found = sum(map(text.count, ",[{")), _PARTS.finditer(text)
    else:
        at_most, found = sum(map(text.count, (b",", b"[", b"{"))), _BYTE_PARTS.finditer(text)
    separators = (part for part in found if part.end() - part.start() == 1)
    if at_most > MOST_VALUES and next(islice(separators, MOST_VALUES, None), None) is not None:
        raise TooManyValues(f"more than {MOST_VALUES:,} values, which would take too much memory")


def dumps(value: Any) -> str:
    """`value` as JSON in ASCII. Raises `ValueError`."""
    with long_integers():
        try:
            return json.dumps(value)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except TypeError as error:
            raise ValueError(f"no JSON value: {error}") from None
