"""`raypoly judge label`: cluster the groups of a file, and show the judge's view of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raypoly.commands.offline.command_config import JudgeChoice
from raypoly.commands.offline.command_output import NOTES, results_console, say, say_where
from raypoly.commands.offline.judge.ask_judge import TROUBLE, Answer, ask_with_progress, describe_spending
from raypoly.commands.offline.judge.program_groups import ObservedGroup, observing, read_groups
from raypoly.commands.offline.row_writer import Row, open_rows, refuse_overwriting
from raypoly.core.errors import SandboxError
from raypoly.strategies.judge import Judge, build_judge


def label_file(path: Path, out: str | None, choice: JudgeChoice, show: bool = False) -> None:
    """Print each group's clusters; write a row for each behind those that an interrupted start of the same left.

    Raises `UsageError` for bad input before anything is asked, `JudgeUnavailable` in an outage (the rows so far are
    kept), `SandboxError` at the end where the sandbox could not run a group's programs.
    """
    refuse_overwriting(out, path)
    groups = read_groups(path)
    judge = build_judge(choice.judge)
    console = results_console(out)
    with open_rows(out, _identity(path, choice, judge)) as rows:
        kept = list(rows.read_kept())
        for row, group in zip(kept, groups, strict=False):
            say(console, describe_clusters(row, group.programs))
        left = groups[len(kept) :]
        failed = sum(map(_sandbox_failed, kept))
        if left:
            quiet = console.is_terminal  # it shows the clusters themselves
            with observing(choice.scorer, sum(len(group.programs) for group in left)) as observe:
                for seen, answer in ask_with_progress(judge, observe(left), len(left), out is not None, quiet=quiet):
                    row = label_row(seen, answer)
                    rows.write(row)
                    if show:
                        say(console, show_to_judge(judge, seen))
                    say(console, describe_clusters(row, seen.group.programs))
                    failed += _sandbox_failed(row)
        rows.finish()
    if spent := describe_spending(judge):
        say(NOTES, spent)
    say_where(NOTES, "labels", out)
    if failed:
        raise SandboxError(
            f"{failed} of {len(groups)} groups have no labels: the sandbox could not run their programs."
        )


def label_row(seen: ObservedGroup, answer: Answer) -> dict[str, Any]:
    """`{id, labels, judge}`, with the strategies in words where there are any; labels null with a reason."""
    if answer.labels is None:
        return {"id": seen.group.id, "labels": None, "judge": None, "reason": answer.reason}
    row: dict[str, Any] = {"id": seen.group.id, "labels": answer.ids, "judge": answer.labels.judge}
    if answer.strategies:
        row["strategies"] = {str(name): text for name, text in sorted(answer.strategies.items())}
    return row


def describe_clusters(row: Row, programs: Sequence[str]) -> str:
    """A group's clusters, one a line: strategy, its name, its programs by their place from 0."""
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


def show_to_judge(judge: Judge, seen: ObservedGroup) -> str:
    """The judge's view of a group: the messages it would send, else each program in canonical form."""
    preview: Callable[..., list[dict[str, str]]] | None = getattr(judge, "preview", None)
    if preview is not None:
        messages = preview(seen.group.problem, seen.rollouts, seen.verdicts)
        return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)
    texts = []
    for place, (program, verdict) in enumerate(zip(seen.group.programs, seen.verdicts, strict=True)):
        evidence = verdict.evidence
        canonical = "" if evidence is None else evidence.canonical
        form = "canonical" if canonical.strip() else "as it was written"
        features = "" if evidence is None or not evidence.features else f"; {', '.join(evidence.features)}"
        text = canonical if canonical.strip() else program
        texts.append(f"--- program {place}, {form}{features}\n{text.rstrip()}")
    return "\n".join(texts)


def _sandbox_failed(row: Row) -> bool:
    return str(row.get("reason", "")).startswith(TROUBLE)


def _identity(path: Path, choice: JudgeChoice, judge: Judge) -> dict[str, Any]:
    """All that labels depend on."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # a file of instructions may change under its name
    prompt = str(getattr(judge, "version", ""))
    return {"groups": digest, "prompt": prompt, **choice.identity}
