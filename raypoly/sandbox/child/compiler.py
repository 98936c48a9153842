"""Compile one program after the other and run none.

Each message is a program's code; the answer is what its own process would say of code that can't be compiled
(`candidate.py`), or nothing where it has to decide that itself.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from raypoly.sandbox.child import budget, candidate, frames, plain_data


def serve(channel: int) -> NoReturn:
    """Answer until the parent is gone."""
    sys.set_int_max_str_digits(0)  # how long a number may be depends on the program's kind
    while True:
        frames.send(channel, _refusal(frames.receive(channel)))


def _refusal(code: bytes) -> bytes:
    try:
        compile(code.decode("utf-8", "surrogatepass"), budget.FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        if error.filename == budget.FILE:
            return plain_data.encode(("syntax", type(error).__name__, candidate.text_of(error)))
    except Exception:  # noqa: BLE001 - too deep, too large, or no text: what that means is the process's own to say
        return b""
    return b""
