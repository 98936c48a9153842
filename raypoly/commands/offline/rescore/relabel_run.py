"""`raypoly judge label --run`: label a run's stored groups again, and compare its diversity then and now.

    relabel("~/raypoly-runs/mine", "labels.jsonl", "openai", ["judge.votes=3"])

A judge reads programs and the evidence of their stored verdicts: nothing is executed, and the run is only read. The
labels then and now are compared over the groups that have both.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rich.console import Console

from raypoly.analysis.metrics.pass_at_k import distinct, drawn_strategies
from raypoly.analysis.run import Run
from raypoly.analysis.statistics.intervals import share_interval
from raypoly.commands.offline.command_config import choose_run_judge
from raypoly.commands.offline.command_output import NOTES, SHOWN, results_console, say, say_where
from raypoly.commands.offline.judge.ask_judge import Answer, ask_with_progress, describe_spending
from raypoly.commands.offline.judge.program_groups import ObservedGroup, ProgramGroup
from raypoly.commands.offline.rescore.changed_numbers import ChangedNumber
from raypoly.commands.offline.rescore.stored_groups import CurrentProblems, read_current_problems
from raypoly.commands.offline.rescore.verdict_diff import number_table
from raypoly.commands.offline.row_writer import open_rows
from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable
from raypoly.core.values import Group
from raypoly.strategies.judge import build_judge
from raypoly.strategies.judge.label_agreement import LOWEST_ARI, adjusted_rand


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
    partitions = Partitions()
    waiting: deque[Group] = deque()

    def draw(done: int) -> Iterator[ObservedGroup]:
        for group, seen in islice(groups, done, None):
            waiting.append(group)
            yield seen

    with open_rows(out, identity) as rows:
        for row in rows.read_kept():
            partitions.add(row)
        if done := len(partitions.groups):
            say(NOTES, f"{done:,} groups are labelled already.")
        for seen, answer in ask_with_progress(judge, draw(done), (asked or total) - done, out is not None):
            made = relabelled_row(waiting.popleft(), seen, answer)
            partitions.add(made)
            rows.write(made)
        rows.finish()
    console = results_console(out)
    partitions.show(console, {row["step"]: row for row in run.rows})
    if spent := describe_spending(judge):
        say(NOTES, spent)
    say_where(console, "rows", out)


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
    """(Sound groups of training, groups about which the run's judge was asked)."""
    total = asked = 0
    for step in run.steps:
        for group in run.completed(step).groups:
            total += _is_sound(group)
            asked += _was_asked(group)
    return total, asked


def _read_groups(
    run: Run, today: CurrentProblems, wanted: Callable[[Group], bool]
) -> Iterator[tuple[Group, ObservedGroup]]:
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


@dataclass(frozen=True)
class Diversity:
    """Two labellings of one group, compared."""

    step: int
    problem_id: str
    ari: float | None
    """Adjusted Rand index of the two; None where one is missing. 1 where the partitions are equal."""
    degenerate: int
    """Programs that one calls degenerate and the other does not."""
    strategies: tuple[float | None, float | None]
    """Distinct strategies, then and now."""
    correct: tuple[float | None, float | None]
    """Distinct strategies among the correct programs in 8 draws or all N, then and now."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Diversity:
        then, now, passed = row["then"], row["now"], row["passed"]
        both = then is not None and now is not None
        return cls(
            row["step"],
            row["problem_id"],
            adjusted_rand(then, now) if both else None,
            sum((one == 0) != (two == 0) for one, two in zip(then, now, strict=True)) if both else 0,
            (None if then is None else float(distinct(then)), None if now is None else float(distinct(now))),
            (_count_correct(then, passed), _count_correct(now, passed)),
        )


@dataclass
class Partitions:
    """The rows of all groups, added up."""

    groups: list[Diversity] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why groups have no labels now, and how many."""

    def add(self, row: Mapping[str, Any]) -> None:
        self.groups.append(Diversity.of_row(row))
        if row["now"] is None:
            self.reasons[row["reason"]] += 1

    @property
    def both(self) -> list[Diversity]:
        return [group for group in self.groups if group.ari is not None]

    @property
    def changed(self) -> list[Diversity]:
        return [group for group in self.both if group.ari != 1.0 or group.degenerate]

    def show(self, console: Console, reported: Mapping[int, Mapping[str, Any]]) -> None:
        """Print counts, agreement, problems whose partitions differ, and the diversity numbers of run and steps.

        `reported` are the run's rows of metrics by step.
        """
        both, changed = self.both, self.changed
        then = sum(group.strategies[0] is not None for group in self.groups)
        now = sum(group.strategies[1] is not None for group in self.groups)
        say(console, f"{len(self.groups):,} groups: {then:,} had labels, {now:,} have some now")
        for reason, count in self.reasons.most_common(3):
            say(console, f"  {count:,} without labels now: {reason}")
        if both:
            known = [(group.problem_id, group.ari) for group in both if group.ari is not None]
            interval = share_interval([ari for _, ari in known], [problem for problem, _ in known], lowest=LOWEST_ARI)
            differ = f"{len(changed):,} of {len(both):,} partitions differ" if changed else "no partition differs"
            around = f"{interval.low:.3f} to {interval.high:.3f}"
            say(console, f"{differ}; adjusted Rand index {interval.mean:.3f} (95 % over problems: {around})")
        if changed:
            console.print(_problem_table(changed))
        console.print(number_table(self._numbers(reported)))

    def _numbers(self, reported: Mapping[int, Mapping[str, Any]]) -> Iterator[ChangedNumber]:
        yield from _mean_numbers("training", self.groups, None)
        steps = sorted({group.step for group in self.changed})
        for step in steps[:SHOWN]:
            own = [group for group in self.groups if group.step == step]
            yield from _mean_numbers(f"step {step}", own, reported.get(step, {}).get("strategies"))


def _problem_table(changed: Sequence[Diversity]) -> ReportTable:
    rows = []
    counts = Counter(group.problem_id for group in changed)
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        own = [group for group in changed if group.problem_id == name]
        least = min(group.ari for group in own if group.ari is not None)
        rows.append((name, f"{count:,}", f"{least:.3f}", f"{sum(group.degenerate for group in own):,}"))
    return ReportTable(("problem", "groups that differ", "least ARI", "degenerate in one alone"), rows)


def _mean_numbers(of: str, groups: Sequence[Diversity], reported: float | None) -> Iterator[ChangedNumber]:
    """Distinct strategies of a group, and those of its correct programs."""
    used = [group for group in groups if group.ari is not None] or groups
    for name, pairs, known in (
        ("strategies", [group.strategies for group in used], reported),
        ("correct strategies", [group.correct for group in used], None),
    ):
        then, now = (_mean([pair[side] for pair in pairs]) for side in (0, 1))
        yield ChangedNumber(of, name, len(used), known, then, now)


def _count_correct(ids: Sequence[int] | None, passed: Sequence[bool]) -> float | None:
    if ids is None:
        return None
    named = [str(name) for name, right in zip(ids, passed, strict=True) if right and name]
    return drawn_strategies(len(ids), named)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
