"""What `raypoly judge label --run` does: a run's stored groups labelled again, and what that does to its diversity.

    relabel("~/raypoly-runs/mine", "labels.jsonl", "openai", ["judge.votes=3"])

A judge reads programs, and what their stored verdicts brought: nothing is run, and nothing in the run is changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any

from rich.console import Console

from raypoly import __version__
from raypoly.errors import JudgeUnavailable, UsageError
from raypoly.judge import Judge, build
from raypoly.offline.judge.ask_judge import Answer, ask
from raypoly.offline.judge.judge_choice import JudgeChoice, chosen
from raypoly.offline.judge.judge_progress import told
from raypoly.offline.judge.label_groups import spending
from raypoly.offline.judge.program_groups import ObservedGroup, ProgramGroup
from raypoly.offline.rescore.current_problems import Today, problems_of
from raypoly.offline.rescore.label_partitions import Partitions
from raypoly.offline.row_writer import STDOUT, RowWriter
from raypoly.offline.score.score_files import NOTES, say
from raypoly.run import Run
from raypoly.values import Group

Wanted = Callable[[Group], bool]


def relabel(place: str, out: str | None, name: str | None, overrides: Sequence[str]) -> None:
    """Ask the run's judge of today, or another one, about every group that the run's judge was asked about; about all
    sound groups where it never was. Print what differs; write a row a group to `out`, behind those of a start that was
    interrupted.

    Raises `UsageError` before anything is asked, `JudgeUnavailable` in an outage (the rows so far are kept).
    """
    run = Run(place)
    choice = judge_of(run, name, overrides)
    today = problems_of(run, None, lambda text: say(NOTES, f"Note: {text}"))
    judge = build(choice.judge)
    total, asked = _asked(run)
    if not total:
        raise UsageError(f"{run.uri} holds no rollouts of training yet: there is nothing to label.")
    if not asked:
        say(NOTES, f"Note: the run's judge was never asked: all {total:,} groups are labelled, and there is no then.")
    wanted = _was_asked if asked else _sound
    with ExitStack() as stack:
        identity = _identity(run, today, choice, judge)
        rows = None if out is None else stack.enter_context(RowWriter.resumable(out, identity))
        found = _label(run, today, judge, wanted, asked or total, rows)
        if rows is not None:
            rows.done()
    console = NOTES if out == STDOUT else Console()
    found.show(console, {row["step"]: row for row in run.rows})
    if spent := spending(judge):
        say(NOTES, spent)
    if out not in (None, STDOUT):
        say(console, f"rows: {out}")


def _label(run: Run, today: Today, judge: Judge, wanted: Wanted, total: int, rows: RowWriter | None) -> Partitions:
    """Every group's labels: those that an earlier start has written, then those that are asked for."""
    found = Partitions()
    for row in rows.kept() if rows is not None else ():
        found.add(row)
    done = len(found.groups)
    if done:
        say(NOTES, f"{done:,} groups are labelled already.")
    waiting: deque[Group] = deque()
    stored = islice(_groups(run, today, wanted), done, None)
    try:
        for seen, answer in told(ask(judge, _kept_aside(stored, waiting)), total - done, "groups", NOTES):
            row = row_of(waiting.popleft(), seen, answer)
            found.add(row)
            if rows is not None:
                rows.write(row)
    except JudgeUnavailable as error:
        kept = "the rows so far are kept, and the same command goes on" if rows is not None else "give it again"
        raise JudgeUnavailable(f"The judge is away: {str(error).rstrip('.')}; {kept}.") from error
    return found


def judge_of(run: Run, name: str | None, overrides: Sequence[str]) -> JudgeChoice:
    """The run's own judge with overrides laid over its section; another `name` begins with the defaults.

    Raises `UsageError` for a key of another section, and for no value of a key.
    """
    given = chosen(name, overrides)
    keys = [text.partition("=")[0].strip() for text in given.words]
    if "judge.name" in keys and given.judge.name != run.config.judge.name:
        return given
    own = [key.removeprefix("judge.") for key in keys if key.startswith("judge.")]
    judge = run.config.judge.model_copy(update={key: getattr(given.judge, key) for key in own})
    return replace(given, judge=judge)


def row_of(group: Group, seen: ObservedGroup, answer: Answer) -> dict[str, Any]:
    """`{step, slot, problem_id, then, now, passed}`: strategies by rollout, 0 degenerate, null where unknown."""
    row = {
        "step": group.step,
        "slot": group.slot,
        "problem_id": group.problem_id,
        "then": None if group.labels is None else group.labels.strategies,
        "now": answer.ids,
        "passed": [verdict.passed for verdict in seen.verdicts],
        "judge": None if answer.labels is None else answer.labels.judge,
    }
    return row if answer.labels is not None else row | {"reason": answer.reason}


def _asked(run: Run) -> tuple[int, int]:
    """How many sound groups of training there are, and about how many of them the run's judge was asked."""
    total = asked = 0
    for step in run.steps:
        for group in run.completed(step).groups:
            total += _sound(group)
            asked += _was_asked(group)
    return total, asked


def _groups(run: Run, today: Today, wanted: Wanted) -> Iterator[tuple[Group, ObservedGroup]]:
    """The groups to label, in the run's order, as a judge wants to see them.

    Raises `UsageError` where a problem is gone: a judge is shown its statement.
    """
    for step in run.steps:
        for group in filter(wanted, run.completed(step).groups):
            problem = today.problems.get(group.problem_id)
            if problem is None:
                raise UsageError(
                    f"Problem {group.problem_id!r} of step {step} is not in the run's problem set any more, and a "
                    "judge is shown its statement: bring the set back that the run was trained on."
                )
            texts = tuple(rollout.text for rollout in group.rollouts)
            yield group, ObservedGroup(ProgramGroup(f"{step}/{group.slot}", problem, texts), group.verdicts or ())


def _kept_aside(pairs: Iterator[tuple[Group, ObservedGroup]], waiting: deque[Group]) -> Iterator[ObservedGroup]:
    """What is to be asked, while the groups wait for their answers."""
    for group, seen in pairs:
        waiting.append(group)
        yield seen


def _identity(run: Run, today: Today, choice: JudgeChoice, judge: Judge) -> dict[str, Any]:
    """What a start has in common with the one that it goes on for; a run may have grown in between."""
    prompt = str(getattr(judge, "version", ""))  # a file of instructions may change under its name
    asked = choice.identity["judge"]
    return {"version": __version__, "run": run.uri, "problems": today.hash, "prompt": prompt, "judge": asked}


def _was_asked(group: Group) -> bool:
    return group.labels is not None or group.unjudged


def _sound(group: Group) -> bool:
    """Whether every verdict says what a program is worth: no other group ever reaches a judge."""
    return bool(group.verdicts) and all(verdict.status != "infra" for verdict in group.verdicts or ())
