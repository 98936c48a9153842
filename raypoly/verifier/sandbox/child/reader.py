"""Read one program after the other and run none.

A question is `("compile", code)`, answered by the refusal that the program's own process would give, or None; or
`("source", code, entry_point, features)`, answered by what `read_source` finds. A program that can't be read ends this
process.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from raypoly.strategies.traced_runs.observe import read_source
from raypoly.verifier.sandbox.child import budget, candidate, frames, plain_data


def serve(channel: int) -> NoReturn:
    """Answer each message until the channel ends."""
    sys.set_int_max_str_digits(0)  # how long a number may be depends on the program's kind
    while True:
        kind, *arguments = plain_data.unpack(frames.receive(channel))
        answer = _refusal(*arguments) if kind == "compile" else read_source(*arguments)
        frames.send(channel, plain_data.encode(answer))


def _refusal(code: str) -> tuple[Any, ...] | None:
    try:
        compile(code, budget.FILE, "exec", dont_inherit=True)
    except Exception as error:  # noqa: BLE001 - too deep, too large, or no text: the program's own process decides
        if isinstance(error, SyntaxError) and error.filename == budget.FILE:
            return "syntax", type(error).__name__, candidate.text_of(error)
    return None
