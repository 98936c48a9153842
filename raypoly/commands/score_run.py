"""`raypoly score --run`: score a run's stored programs again, and compare its numbers then and now.

The run is only read. A group's row has all that the numbers and the diff follow from, so an interrupted command needs
only the rows that it wrote.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from raypoly.analysis.metrics.problem_counts import GroupOutcomes
from raypoly.analysis.run import Run
from raypoly.analysis.stored_groups import (
    ChangedNumber,
    GroupThenAndNow,
    StoredGroup,
    StoredPart,
    StoredWalk,
    evaluation_numbers,
    parts_of,
    read_current_problems,
    show_numbers,
    training_means,
    training_numbers,
)
from raypoly.commands.command_output import (
    NOTES,
    SHOWN,
    MissingVerdicts,
    count_of,
    note,
    results_console,
    say,
    say_where,
)
from raypoly.commands.row_writer import Row, open_rows
from raypoly.commands.section_config import asked_workers, lasting_keys, open_pool, run_scorer_config
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.progress_display import show_progress
from raypoly.core.tables import ReportTable
from raypoly.core.values import Problem, Verdict
from raypoly.data.public_tests import set_apart
from raypoly.verifier.code_extraction import program_in
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.user_errors import told
from raypoly.verifier.score_programs import score_each

_GONE = "its problem is not in the set any more"


def rescore(place: str, out: str | None, problems: Path | None, overrides: Sequence[str], workers: int | None) -> None:
    """Score all stored rollouts again, print what differs, write a row for each group and each number to `out`.

    Raises `UsageError` before anything is run, `SandboxError` at the end where programs that had a verdict could not be
    given one.
    """
    run = Run(place)
    config = run_scorer_config(run.config, overrides, workers)
    today, source = read_current_problems(run, problems, note)
    rewards = Rewards.of_run(run.config)
    walk = StoredWalk(run, parts_of(run))
    if not walk.parts:
        raise UsageError(f"{run.uri} holds no rollouts yet: there is nothing to score again.")
    identity = {"run": run.uri, "problems": source, "scorer": lasting_keys(config)}
    diff, numbers, missing = VerdictDiff(), list[ChangedNumber](), MissingVerdicts("group", since=" any more")
    with ExitStack() as stack:
        rows = stack.enter_context(open_rows(out, identity))

        def score_rest(kept: int) -> Iterator[Row]:
            if kept:
                say(NOTES, f"{kept:,} groups are scored already.")
            left = max(_estimate_rollouts(run, walk.parts) - diff.rollouts, 0)
            pool = stack.enter_context(closing(open_pool(config, asked_workers(config, overrides, workers))))
            stack.enter_context(show_progress("programs", left, lambda: (pool.done, pool.passed), NOTES))
            for group, verdicts in score_each(pool, walk.groups, partial(_programs_of, today)):
                yield rescored_row(group, verdicts, today.get(group.problem_id), rewards, run.config)

        # a run may have grown between two starts; the numbers follow from the groups, and are made anew
        for key, own in groupby(rows.resume(score_rest, keep=walk.follows), lambda row: str(row["of"])):
            held = []
            for row in own:
                diff.add(row)
                if (group := GroupThenAndNow.read(row)) is not None:
                    held.append(group)
                # the sandbox failed at a group that it could score once, or the tests can't be run any more
                if row.get("reason", _GONE) != _GONE and "infra" not in row["then"]["statuses"]:
                    missing.add(row["problem_id"], row["reason"], f"of problem {row['problem_id']!r}")
            part, reported = walk.close_part(key)
            numbers += (training_numbers if part.training else evaluation_numbers)(part.name, held, reported)
        for number in (*numbers, *training_means(numbers)):
            rows.write(vars(number))
        rows.finish()
    console = results_console(out)
    diff.show(console, walk.parts)
    show_numbers(console, numbers, SHOWN)
    say_where(console, "rows", out)
    missing.raise_if_any()


def _programs_of(problems: Mapping[str, Problem], group: StoredGroup) -> list[tuple[Problem, str | None]]:
    """A group's programs; none where its problem is gone."""
    problem = problems.get(group.problem_id)
    if problem is None:
        return []
    if group.shown_tests:
        problem = set_apart(problem, group.shown_tests)
    return [(problem, program_in(problem, rollout.text)) for rollout in group.rollouts]


def rescored_row(
    group: StoredGroup, verdicts: Sequence[Verdict], problem: Problem | None, given: Rewards, config: Config
) -> dict[str, Any]:
    """`{of, slot, problem_id, then, now, labels, changed}`; without a problem `now` is null, with a reason."""
    row: dict[str, Any] = {
        "of": group.part.key,
        "slot": group.slot,
        "problem_id": group.problem_id,
        "then": group.then.row,
        "now": None,
        "labels": group.labels,
        "changed": [],
    }
    if problem is None:
        return row | {"reason": _GONE}
    # what an environment said stays: it can't be asked again
    said = [rollout.outcome for rollout in group.rollouts]
    pairs = zip(verdicts, said, strict=True)
    verdicts = [now if own is None else Verdict.of_outcome(own) for now, own in pairs]
    failure = next((verdict.detail for verdict in verdicts if verdict.status == "infra"), None)
    rewards = None
    parts = None
    if group.part.training and failure is None and not given.outcome.reads_findings:
        answered = _answered(group, problem, tuple(verdicts), config)
        with told():
            found = asyncio.run(given.find(answered))
        found = {n: v for n, v in found.items() if n not in given.terms or given.terms[n].may_say(answered)}
        rewards = found["outcome"].tolist() if np.isfinite(found["outcome"]).all() else None
        parts = given.measures(found) if given.in_stage else None
    now = GroupOutcomes.of(tuple(verdicts), rewards, parts)
    row["now"] = now.row
    if failure is not None:
        row["reason"] = failure
    row["changed"] = [
        {
            "rollout": place,
            "then": group.then.statuses[place],
            "now": now.statuses[place],
            "detail": verdicts[place].detail,
            "repeatable": verdicts[place].repeatable,
        }
        for place in group.then.differs(now)
    ]
    return row


def _answered(group: StoredGroup, problem: Problem, verdicts: tuple[Verdict, ...], config: Config) -> AnsweredGroup:
    return AnsweredGroup(
        problem,
        tuple(group.rollouts),
        verdicts,
        step=group.part.step,
        slot=group.slot,
        seed=config.train.seed,
        max_tokens=config.generator.max_tokens,
    )


def _estimate_rollouts(run: Run, parts: Iterable[StoredPart]) -> int:
    """About how many rollouts there are, without reading files."""
    train = run.config.train
    sizes = {(e["step"], e["split"]): e["samples"] * (e["problems"] + len(e["set_aside"])) for e in run.evaluations}
    each = train.prompts_per_step * train.rollouts
    return sum(each if part.training else sizes.get((part.step, part.split), 0) for part in parts)


@dataclass
class VerdictDiff:
    """The verdicts of all groups then and now, by problem."""

    statuses: dict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))
    """Rollouts by (status then, status now)."""
    changes: dict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))
    """Of these, those that differ; equal statuses have another reward."""
    by_the_clock: int = 0
    """Changes that another run might not give."""
    strategies: int = 0
    """Correct programs whose strategy by execution differs."""
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        then, now = row["then"], row["now"]
        if "reason" in row:
            self.reasons[row["reason"]] += 1
        after = now["statuses"] if now else ["infra"] * len(then["statuses"])
        pairs = list(zip(then["statuses"], after, strict=True))
        self.statuses[row["problem_id"]].update(pairs)
        for place, pair in enumerate(pairs):
            if pair == ("passed", "passed"):
                self.strategies += len({then["strategies"][place], now["strategies"][place]} - {None}) > 1
        for change in row["changed"]:
            self.changes[row["problem_id"]][change["then"], change["now"]] += 1
            self.by_the_clock += not change["repeatable"]

    @property
    def rollouts(self) -> int:
        return sum(found.total() for found in self.statuses.values())

    def show(self, console: Console, parts: Sequence[StoredPart]) -> None:
        changes: Counter[tuple[str, str]] = sum(self.changes.values(), Counter())
        self._show_counts(console, parts, changes.total())
        if not changes:
            return
        rows = [
            (then, now if now != then else f"{now}, another reward", f"{count:,}")
            for (then, now), count in changes.most_common()
        ]
        console.print(ReportTable(("then", "now", "rollouts"), rows, {2}))
        changed = sorted(self.changes, key=lambda name: (-self.changes[name].total(), name))
        head = ("problem", "rollouts", "passed then", "passed now", "what changed")
        console.print(ReportTable(head, [self._cells(name) for name in changed[:SHOWN]], {1, 2, 3}))
        if len(changed) > SHOWN:
            say(console, f"the first {SHOWN} of {len(changed):,} problems are shown")

    def _show_counts(self, console: Console, parts: Sequence[StoredPart], total: int) -> None:
        steps = sum(part.training for part in parts)
        what = f"{count_of(self.rollouts, 'rollout')} of {count_of(len(self.statuses), 'problem')}"
        where = f"{count_of(steps, 'step')} and {count_of(len(parts) - steps, 'evaluation')}"
        known = sum(_known(found).total() for found in self.statuses.values())
        differ = f"{total:,} differ" if total else "none differs"
        unknown = f", {self.rollouts - known:,} unknown" if known < self.rollouts else ""
        say(console, f"{what} in {where}: {differ}{unknown}")
        for reason, groups in self.reasons.most_common(3):
            say(console, f"  {count_of(groups, 'group')} not scored: {reason}")
        if self.by_the_clock:
            say(console, f"  {self.by_the_clock:,} of them by the clock: another run may give another verdict")
        if self.strategies:
            say(console, f"  {count_of(self.strategies, 'correct program')} with another strategy by execution")

    def _cells(self, name: str) -> tuple[str, ...]:
        known = _known(self.statuses[name])
        passed = (sum(count for pair, count in known.items() if pair[side] == "passed") for side in (0, 1))
        counts = (f"{count:,}" for count in (self.statuses[name].total(), *passed))
        words = (f"{count:,} {then} -> {now}" for (then, now), count in self.changes[name].most_common())
        return name, *counts, ", ".join(words)


def _known(statuses: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Rollouts with a verdict on both sides."""
    return Counter({pair: count for pair, count in statuses.items() if "infra" not in pair})
