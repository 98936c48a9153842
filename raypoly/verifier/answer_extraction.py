"""Finds the answer in a response to a problem that asks for a value (tests of kind `answer`).

    extract_answer("f adds one.\\n[ANSWER]\\nassert f(2) == 3\\n[/ANSWER]")       # "assert f(2) == 3"

Nothing is parsed here, and the time is linear in any response: `raypoly.verifier.sandbox.answer_verdict` reads the
value.
"""

from __future__ import annotations

from collections.abc import Sequence

_OPEN, _CLOSE = "[ANSWER]", "[/ANSWER]"


def extract_answer(response: str) -> str | None:
    """The text of the answer; None if there is none.

    It is in the last `[ANSWER]` element that is not blank, which may lack its end, or its start where the prompt ends
    in that; else anywhere. There the last assertion counts, up to a blank line or a fence; else the last fenced block;
    else the whole element, or without one the response's last line, less the marks of Markdown around it.
    """
    opened = response.split(_OPEN)
    elements = [part.partition(_CLOSE)[0] for part in (opened[1:] or opened[:1])]
    element = next((part for part in reversed(elements) if part.strip()), "")
    lines = element.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "").strip().strip("`*")
    whole = element if _OPEN in response or _CLOSE in response else last
    return (_last_assertion(lines) or _last_block(lines) or whole).strip() or None


def _last_assertion(lines: Sequence[str]) -> str:
    """From the last line that begins one; empty if none does."""
    begins = ("assert ", "assert(")
    start = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].lstrip().startswith(begins)), len(lines))
    end = next((at for at in range(start, len(lines)) if not lines[at].strip() or _is_fence(lines[at])), len(lines))
    return "\n".join(lines[start:end])


def _last_block(lines: Sequence[str]) -> str:
    """The last fenced block that is not blank; it may lack its end. Empty if there is none."""
    found, block = "", list[str]()
    inside = False
    for line in [*lines, "```"]:
        if _is_fence(line):
            found = "\n".join(block) if "".join(block).strip() else found
            block, inside = [], not inside
        elif inside:
            block.append(line)
    return found


def _is_fence(line: str) -> bool:
    return line.lstrip().startswith("```")
