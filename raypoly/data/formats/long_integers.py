"""JSON with whole numbers of up to 100,000 digits, which some data sets have and Python refuses beyond 4300.

loads("[" + "9" * 5000 + "]")
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DIGITS = 100_000  # A tenth of a second each: to read a number takes time in the square of its digits
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
    """Parse JSON. Raises `ValueError`."""
    with long_integers():
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None


def dumps(value: Any) -> str:
    """`value` as JSON in ASCII. Raises `ValueError`."""
    with long_integers():
        try:
            return json.dumps(value)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except TypeError as error:
            raise ValueError(f"no JSON value: {error}") from None
