"""The judge's prompt: instructions and worked examples that never change, then the problem and its programs.

    messages = render_messages(instructions, "Sum the even numbers.", ["def f(n): ...", "..."])

What never changes comes first, for servers that cache prefixes. Every border carries a key that occurs in none of the
texts, so no program can end its own text or begin another.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.strategies.judge.openai.judge_reply import answer_schema
from raypoly.verifier.code_extraction import extract_code

Message = dict[str, str]
_LEAST = 60  # characters that must remain of a statement, else all of it is shown
_HEAD = re.compile(r"[ \t#*_]*([A-Za-z][A-Za-z -]{2,24}?)[ \t]*\d*[ \t]*[*_]*:[ \t*_]*(.*)")
_LEFT_OUT = frozenset(
    {
        "answer", "constraint", "constraints", "example", "examples", "explanation", "format", "input", "output",
        "sample", "sample input", "sample output",
    }
)  # fmt: skip
_BEGINS = re.compile(r"^[ \t#*_]*(?:question|problem|task|description)[ \t]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(r"(?:^[^\n]*:[ \t]*\n)?^[ \t]*```.*?(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_SLOT = re.compile(r"\{(problem|programs|count)\}")
_BLANKS = re.compile(r"\s*\n\s*")

INSTRUCTIONS = Path(__file__).with_name("program_instructions.txt").read_text()
TEXT_INSTRUCTIONS = Path(__file__).with_name("text_instructions.txt").read_text()
"""For problems without tests, whose answers are texts."""
GRADE_INSTRUCTIONS = Path(__file__).with_name("grade_instructions.txt").read_text()
"""For grades by a question, which stands for QUESTION."""


@dataclass(frozen=True)
class JudgePrompt:
    """Instructions, and a version of all that is sent around the texts."""

    instructions: str

    @cached_property
    def version(self) -> str:
        return version_of(self.instructions)


@dataclass(frozen=True)
class ShownPrograms:
    """The distinct programs of N rollouts, or their texts where the problem has no tests."""

    texts: tuple[str, ...]
    """In the order of their hashes."""
    hashes: tuple[str, ...]
    places: tuple[int | None, ...]
    """For each rollout the index of its text; None where it has no code."""
    parsed: bool
    shortened: int
    programs: bool = True
    """False for answers to a problem without tests."""

    @property
    def certain(self) -> bool:
        """Whether there is nothing to ask: no program, or one alone that parses."""
        return not self.texts or (len(self.texts) == 1 and self.parsed)


def read_instructions(path: str | None) -> str | None:
    """The instructions of a file, if any. Raises `UsageError` where it can't be used."""
    if path is None:
        return None
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"judge.prompt_file={path!r} can't be read: {error}.") from error
    if not text.strip():
        raise UsageError(f"judge.prompt_file={path!r} is empty: give it instructions, or drop the key.")
    return text


def render_messages(system: str, problem: str, programs: Sequence[str], verb: str = "Group") -> list[Message]:
    """The messages for n programs, which become index 1..n in the order given; one message where `system` has a slot
    for them."""
    key = _key([problem, *programs])
    parts = [_below("problem", problem, key)]
    shown = [_below(f"program {index}", program, key) for index, program in enumerate(programs, 1)]
    if "{programs}" in system:
        slots = {"problem": problem, "programs": "\n".join([*shown, _border("end", key)]), "count": str(len(programs))}
        return [{"role": "user", "content": _SLOT.sub(lambda slot: slots[slot[1]], system)}]
    parts += shown
    parts.append(f"{_border('end', key)}\n{verb} programs 1 to {len(programs)}.")
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n".join(parts)}]


def repair_messages(
    messages: Sequence[Message], answer: str, fault: str, about: str = " for the same programs"
) -> list[Message]:
    """The conversation that asks again after an answer that can't be used."""
    again = f"That answer can't be used: {fault}. Answer again{about}, with the whole JSON and nothing else."
    return [*messages, {"role": "assistant", "content": answer[:4000]}, {"role": "user", "content": again}]


def version_of(system: str) -> str:
    """8 hex digits that change with the instructions, the layout or the shape of the answer."""
    sample = repair_messages(render_messages(system, "problem", ["one", "two"]), "answer", "fault")
    return hashlib.sha256(json.dumps([sample, answer_schema(2, "portable")]).encode()).hexdigest()[:8]


def shorten_statement(problem: str, view: str, limit: int) -> str:
    """The task of a problem in the canonical view, else all; at most `limit` characters."""
    return cut_middle(essential_statement(problem) if view == "canonical" else problem, limit)


def cut_middle(text: str, limit: int) -> str:
    """Both ends of a text longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    return f"{text[:head]}\n# ... {len(text) - limit} characters left out here ...\n{text[-tail:]}"


def essential_statement(statement: str) -> str:
    """The task of a statement, without examples, constraints and code; the whole where hardly anything would remain.

        "Add a and b.\\n\\nExample 1:\\n\\nInput: a = 1, b = 2\\nOutput: 3"  ->  "Add a and b."

    Samples and bounds are a third of real statements, and do not tell approaches apart.
    """
    text = statement.replace("\xa0", " ")
    begin = _BEGINS.search(text)
    body = _CODE.sub("", text[begin.end() :] if begin else text)
    kept = _BLANKS.sub("\n", "\n".join(_kept_lines(body))).strip()
    return kept if len(kept) >= _LEAST else statement


def show_programs(
    problem: Problem,
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    view: Literal["canonical", "raw"],
    limit: int,
) -> ShownPrograms:
    """What is shown of N rollouts; texts longer than `limit` characters are cut in their middle.

    No code is degenerate without asking. A program that does not parse may be an honest attempt: it is shown as
    written.
    """
    whole = [_text_of(problem, rollout, verdict, view) for rollout, verdict in zip(rollouts, verdicts, strict=True)]
    by_text = {text: cut_middle(text, limit) for text in whole if text is not None}
    by_hash = {text_digest(shown): shown for shown in by_text.values()}
    hashes = tuple(sorted(by_hash))  # nothing depends on the order of the rollouts
    index = {found: place for place, found in enumerate(hashes)}
    return ShownPrograms(
        texts=tuple(by_hash[found] for found in hashes),
        hashes=hashes,
        places=tuple(None if text is None else index[text_digest(by_text[text])] for text in whole),
        parsed=all(v.evidence is not None for text, v in zip(whole, verdicts, strict=True) if text is not None),
        shortened=sum(len(text) > limit for text in by_text),
        programs=problem.tests.runs,
    )


def text_digest(text: str) -> str:
    """16 hex digits of SHA-256."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _text_of(problem: Problem, rollout: Rollout, verdict: Verdict, view: str) -> str | None:
    if not problem.tests.runs:  # the strategy is in the words, and `no_code` says nothing of them
        return rollout.text if rollout.text.strip() else None
    if verdict.status == "no_code":
        return None
    if view == "canonical" and verdict.evidence is not None and verdict.evidence.canonical.strip():
        return verdict.evidence.canonical
    return extract_code(problem, rollout.text)


def _kept_lines(text: str) -> Iterator[str]:
    # Lines outside of sections that are left out; a section ends at the next heading of another kind.
    left_out = False
    for line in text.split("\n"):
        head = _HEAD.fullmatch(line)
        if head is not None:
            name = head[1].strip().lower()
            left_out = name in _LEFT_OUT or (left_out and not _is_heading(line))
        if not left_out:
            yield line


def _is_heading(line: str) -> bool:
    # `Note: the answer fits` and `## Follow up` begin another section; `Explanation of it: ...` within one does not.
    return bool(re.match(r"[ \t]*(?:#|\*\*|Note|Notes|Follow)", line))


def _below(what: str, text: str, key: str) -> str:
    return f"{_border(what, key)}\n{text.strip(chr(10))}"


def _border(what: str, key: str) -> str:
    return f"<<<{what} key {key}>>>"


def _key(texts: Sequence[str]) -> str:
    """4 hex digits or more that occur in none of the texts; it follows from them."""
    digits = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    windows = (digits[at : at + size] for size in range(4, 64) for at in range(len(digits) - size + 1))
    return next(window for window in windows if not any(window in text for text in texts))
