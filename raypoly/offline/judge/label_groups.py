"""`raypoly judge label`: cluster the groups of a file, and show what the judge saw of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly import __version__
from raypoly.errors import JudgeUnavailable, SandboxError, UsageError
from raypoly.judge import Judge, build
from raypoly.offline.judge.ask_judge import TROUBLE, Answer, ask
from raypoly.offline.judge.judge_choice import JudgeChoice
from raypoly.offline.judge.judge_progress import told
from raypoly.offline.judge.program_groups import ObservedGroup, ProgramGroup, observing, read_groups
from raypoly.offline.row_writer import STDOUT, RowWriter

NOTES = Console(stderr=True)
"""Progress and remarks: standard output may be taken by rows."""
Row = Mapping[str, Any]


def label_file(path: Path, out: str | None, choice: JudgeChoice, show: bool = False) -> None:
    """Print each group's clusters; write a row for each behind those that an interrupted start of the same left.

    Raises `UsageError` for bad input before anything is asked, `JudgeUnavailable` in an outage (the rows so far are
    kept), `SandboxError` at the end where the sandbox could not run a group's programs.
    """
    if out not in (None, STDOUT) and os.path.realpath(str(out)) == os.path.realpath(path):
        raise UsageError(f"--out {out} is the file that is read: name another one.")
    groups = read_groups(path)
    judge = build(choice.judge)
    console = NOTES if out == STDOUT else Console()
    with ExitStack() as stack:
        rows = (
            stack.enter_context(RowWriter.resumable(out, _identity(path, choice, judge))) if out is not None else None
        )
        kept = list(rows.kept()) if rows is not None else []
        for row, group in zip(kept, groups, strict=False):
            _say(console, described(row, group.programs))
        left = groups[len(kept) :]
        failed = sum(_failed(row) for row in kept) + _label(judge, left, choice, rows, console, show)
        if rows is not None:
            rows.done()
    _closing(judge, out, groups, failed)


def row_of(seen: ObservedGroup, answer: Answer) -> dict[str, Any]:
    """`{id, labels, judge}`, with the strategies in words where there are any; labels null with a reason."""
    if answer.labels is None:
        return {"id": seen.group.id, "labels": None, "judge": None, "reason": answer.reason}
    row: dict[str, Any] = {"id": seen.group.id, "labels": answer.ids, "judge": answer.labels.judge}
    if answer.strategies:
        row["strategies"] = {str(name): text for name, text in sorted(answer.strategies.items())}
    return row


def described(row: Row, programs: Sequence[str]) -> str:
    """A group's clusters in lines for a person: strategy, its name, its programs by their place from 0."""
    labels = row["labels"]
    if labels is None:
        return f"{row['id']}: no labels: {row['reason']}"
    count = len(set(labels) - {0})
    lines = [f"{row['id']}: {count} {'strategy' if count == 1 else 'strategies'} of {len(programs)} programs"]
    for strategy in sorted(set(labels), key=lambda name: (name == 0, name)):
        places = " ".join(str(place) for place, label in enumerate(labels) if label == strategy)
        name = "degenerate" if strategy == 0 else row.get("strategies", {}).get(str(strategy), "")
        lines.append(f"  {strategy or '-'}  programs {places}" + (f"  {name}" if name else ""))
    return "\n".join(lines)


def shown_to(judge: Judge, seen: ObservedGroup) -> str:
    """What the judge sees of a group: the messages it would send, else each program in canonical form."""
    preview: Callable[..., list[dict[str, str]]] | None = getattr(judge, "preview", None)
    if preview is not None:
        messages = preview(seen.group.problem, seen.rollouts, seen.verdicts)
        return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)
    parts = []
    for place, (program, verdict) in enumerate(zip(seen.group.programs, seen.verdicts, strict=True)):
        evidence = verdict.evidence
        what = "as it was written" if evidence is None or not evidence.canonical.strip() else "canonical"
        found = "" if evidence is None or not evidence.features else f"; {', '.join(evidence.features)}"
        text = program if evidence is None or what != "canonical" else evidence.canonical
        parts.append(f"--- program {place}, {what}{found}\n{text.rstrip()}")
    return "\n".join(parts)


def _label(
    judge: Judge,
    groups: Sequence[ProgramGroup],
    choice: JudgeChoice,
    rows: RowWriter | None,
    console: Console,
    show: bool,
) -> int:
    """Label and print; how many groups the sandbox failed on."""
    if not groups:
        return 0
    failed = 0
    with observing(choice.limits_for(sum(len(group.programs) for group in groups))) as observe:
        try:
            for seen, answer in _told(ask(judge, observe(groups)), len(groups), console):
                row = row_of(seen, answer)
                if rows is not None:
                    rows.write(row)
                if show:
                    _say(console, shown_to(judge, seen))
                _say(console, described(row, seen.group.programs))
                failed += _failed(row)
        except JudgeUnavailable as error:
            kept = "the rows so far are kept, and the same command goes on" if rows is not None else "give it again"
            raise JudgeUnavailable(f"The judge is away: {str(error).rstrip('.')}; {kept}.") from error
    return failed


def _failed(row: Row) -> bool:
    return str(row.get("reason", "")).startswith(TROUBLE)


def _told(
    answers: Iterator[tuple[ObservedGroup, Answer]], total: int, console: Console
) -> Iterator[tuple[ObservedGroup, Answer]]:
    """With word of progress, unless the terminal shows the clusters themselves."""
    return answers if console.is_terminal else told(answers, total, "groups", NOTES)


def _closing(judge: Judge, out: str | None, groups: Sequence[ProgramGroup], failed: int) -> None:
    if spent := spending(judge):
        _say(NOTES, spent)
    if out not in (None, STDOUT):
        _say(NOTES, f"labels: {out}")
    if failed:
        raise SandboxError(
            f"{failed} of {len(groups)} groups have no labels: the sandbox could not run their programs."
        )


def spending(judge: Judge) -> str:
    """What a judge that counts has used, in one line; empty for one that counts nothing."""
    count: Callable[[], Any] | None = getattr(judge, "stats", None)
    if count is None:
        return ""
    stats = count()
    tokens = f"{stats.prompt_tokens + stats.completion_tokens:,} tokens"
    money = "cost unknown" if stats.cost_usd is None else f"{stats.cost_usd:.4f} US dollars"
    return f"{stats.calls:,} calls, {stats.cache_hits:,} answers from the cache, {tokens}, {money}"


def _identity(path: Path, choice: JudgeChoice, judge: Judge) -> dict[str, Any]:
    """What a start has in common with the one that it goes on for: all that labels depend on."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # a file of instructions may change under its name
    prompt = str(getattr(judge, "version", ""))
    return {"version": __version__, "groups": digest, "prompt": prompt, **choice.identity}


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
