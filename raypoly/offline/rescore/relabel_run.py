"""What `raypoly judge label --run` does: label a run's stored groups again, and say what that does to its diversity.

    relabel("~/raypoly-runs/mine", "labels.jsonl", "openai", ["judge.votes=3"])

A judge reads programs and the evidence of their stored verdicts: nothing is executed, and the run is only read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from raypoly.errors import UsageError
from raypoly.judge import Judge, build_judge
from raypoly.offline.command_config import choose_run_judge
from raypoly.offline.command_output import NOTES, results_console, say, say_where
from raypoly.offline.judge.ask_judge import Answer, ask_with_progress, describe_spending
from raypoly.offline.judge.program_groups import ObservedGroup, ProgramGroup
from raypoly.offline.rescore.label_partitions import Partitions
from raypoly.offline.rescore.stored_groups import CurrentProblems, read_current_problems
from raypoly.offline.row_writer import RowWriter, open_rows
from raypoly.run import Run
from raypoly.values import Group

GroupFilter = Callable[[Group], bool]


def relabel(place: str, out: str | None, name: str | None, overrides: Sequence[str]) -> None:
    """Ask a judge again about every group that the run's judge was asked about; about all sound groups where the run
    never asked one. The judge is the run's own, as its config describes it, or the one that `name` gives.

    Prints what differs; writes a row for each group to `out`, behind those of a start that was interrupted.
    Raises `UsageError` before anything is asked, `JudgeUnavailable` in an outage (the rows so far are kept).
    """
    run = Run(place)
    choice = choose_run_judge(run.config, name, overrides)
    today = read_current_problems(run, None)
    judge = build_judge(choice.judge)
    total, asked = _count_groups(run)
    if not total:
        raise UsageError(f"{run.uri} holds no rollouts of training yet: there is nothing to label.")
    if not asked:
        say(NOTES, f"Note: the run's judge was never asked: all {total:,} groups are labelled, and there is no then.")
    groups = _read_groups(run, today, _was_asked if asked else _is_sound)
    # a file of instructions may change under its name; a run may have grown between two starts
    prompt = str(getattr(judge, "version", ""))
    identity = {"run": run.uri, "problems": today.hash, "prompt": prompt, "judge": choice.identity["judge"]}
    with open_rows(out, identity) as rows:
        partitions = _label(groups, judge, asked or total, rows, out is not None)
        rows.finish()
    console = results_console(out)
    partitions.show(console, {row["step"]: row for row in run.rows})
    if spent := describe_spending(judge):
        say(NOTES, spent)
    say_where(console, "rows", out)


def _label(
    groups: Iterator[tuple[Group, ObservedGroup]], judge: Judge, total: int, rows: RowWriter, resumes: bool
) -> Partitions:
    """Every group's labels: those that an earlier start wrote, then those that are asked for."""
    found = Partitions()
    for row in rows.read_kept():
        found.add(row)
    done = len(found.groups)
    if done:
        say(NOTES, f"{done:,} groups are labelled already.")
    waiting: deque[Group] = deque()

    def draw() -> Iterator[ObservedGroup]:
        for group, seen in islice(groups, done, None):
            waiting.append(group)
            yield seen

    for seen, answer in ask_with_progress(judge, draw(), total - done, resumes):
        row = relabelled_row(waiting.popleft(), seen, answer)
        found.add(row)
        rows.write(row)
    return found


def relabelled_row(group: Group, seen: ObservedGroup, answer: Answer) -> dict[str, Any]:
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


def _count_groups(run: Run) -> tuple[int, int]:
    """How many sound groups of training there are, and about how many of them the run's judge was asked."""
    total = asked = 0
    for step in run.steps:
        for group in run.completed(step).groups:
            total += _is_sound(group)
            asked += _was_asked(group)
    return total, asked


def _read_groups(run: Run, today: CurrentProblems, wanted: GroupFilter) -> Iterator[tuple[Group, ObservedGroup]]:
    """The groups to label, in the run's order, as a judge reads them.

    Raises `UsageError` where a problem is gone: a judge is shown its statement.
    """
    for step in run.steps:
        for group in filter(wanted, run.completed(step).groups):
            problem = today.by_id.get(group.problem_id)
            if problem is None:
                raise UsageError(
                    f"Problem {group.problem_id!r} of step {step} is not in the run's problem set any more, and a "
                    "judge is shown its statement: bring the set back that the run was trained on."
                )
            texts = tuple(rollout.text for rollout in group.rollouts)
            yield group, ObservedGroup(ProgramGroup(f"{step}/{group.slot}", problem, texts), group.verdicts or ())


def _was_asked(group: Group) -> bool:
    return group.labels is not None or group.unjudged


def _is_sound(group: Group) -> bool:
    """Whether every verdict says what a program is worth: no other group ever reaches a judge."""
    return bool(group.verdicts) and all(verdict.status != "infra" for verdict in group.verdicts or ())
