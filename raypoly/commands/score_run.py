"""`raypoly score --run`: score a run's stored programs again, and compare its numbers then and now.

    rescore("~/raypoly-runs/mine", "diff.jsonl", None, [], workers=4)

The run is only read. A group's row has all that the numbers and the diff follow from, so an interrupted command needs
only the rows that it wrote.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly.analysis.changed_numbers import (
    ChangedNumber,
    GroupThenAndNow,
    evaluation_numbers,
    show_numbers,
    training_means,
    training_numbers,
)
from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.run import Run
from raypoly.analysis.stored_groups import (
    CurrentProblems,
    StoredGroup,
    StoredPart,
    parts_of,
    read_current_problems,
    read_part,
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
from raypoly.commands.section_config import lasting_keys, run_scorer_config
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.progress_display import show_progress
from raypoly.core.tables import ReportTable
from raypoly.core.values import Problem, Verdict
from raypoly.data.formats import program_of
from raypoly.data.public_tests import set_apart
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.local_pool import LocalPool
from raypoly.verifier.rewards import Reward, reward_function
from raypoly.verifier.score_programs import score_each

_GONE = "its problem is not in the set any more"


def rescore(place: str, out: str | None, problems: Path | None, overrides: Sequence[str], workers: int | None) -> None:
    """Score all stored rollouts again, print what differs, write a row for each group and each number to `out`.

    Raises `UsageError` before anything is run, `SandboxError` at the end where programs that had a verdict could not be
    given one.
    """
    run = Run(place)
    config = run_scorer_config(run.config, overrides, workers)
    today = read_current_problems(run, problems, note)
    work = _Rescoring(run, today)
    if not work.parts:
        raise UsageError(f"{run.uri} holds no rollouts yet: there is nothing to score again.")
    # a run may have grown between two starts
    identity = {"run": run.uri, "problems": today.hash, "scorer": lasting_keys(config)}
    with ExitStack() as stack:
        rows = stack.enter_context(open_rows(out, identity))
        # the numbers follow from the groups: an interrupted start's are made anew
        work.count(rows.resume(lambda kept: work.score(kept, config, stack), keep=work.follows))
        for number in (*work.numbers, *training_means(work.numbers)):
            rows.write(number.row)
        rows.finish()
    console = results_console(out)
    work.diff.show(console, work.parts)
    show_numbers(console, work.numbers, SHOWN)
    say_where(console, "rows", out)
    work.missing.raise_if_any()


class _Rescoring:
    def __init__(self, run: Run, today: CurrentProblems) -> None:
        self._run, self._today = run, today
        self._reward = reward_function(run.config)
        self._reported: dict[str, Mapping[str, Any]] = {}
        self.parts = parts_of(run)
        self._coming, self._at = deque(self.parts), ""
        self.diff, self.numbers = VerdictDiff(), list[ChangedNumber]()
        self.missing = MissingVerdicts("group", since=" any more")

    def follows(self, row: Row) -> bool:
        """Whether a kept row is the next of today's parts: what lies after a part that is new, or gone, is made
        anew."""
        while self._coming and self._coming[0].key != row.get("of"):
            part = self._coming.popleft()
            if part.key != self._at and read_part(self._run, part)[0]:
                return False
        self._at = str(row.get("of"))
        return bool(self._coming)

    def score(self, kept: int, config: ScorerConfig, stack: ExitStack) -> Iterator[Row]:
        """Rows of the groups after the first `kept`; `stack` closes the sandboxes."""
        if kept:
            say(NOTES, f"{kept:,} groups are scored already.")
        total = max(_estimate_rollouts(self._run, self.parts) - self.diff.rollouts, 0)
        pool = stack.enter_context(LocalPool(config, StrategyEvidence() if config.evidence else None))
        stack.enter_context(show_progress("programs", total, lambda: (pool.done, pool.passed), NOTES))
        for group, verdicts in score_each(pool, islice(self._groups(), kept, None), self._programs_of):
            yield rescored_row(group, verdicts, self._today.by_id.get(group.problem_id), self._reward)

    def count(self, rows: Iterator[Row]) -> None:
        """Draw all rows, in the order of the parts."""
        by_key = {part.key: part for part in self.parts}
        for key, own in groupby(rows, lambda row: str(row["of"])):
            held = []
            for row in own:
                self.diff.add(row)
                if (group := GroupThenAndNow.read(row)) is not None:
                    held.append(group)
                # the sandbox failed at a group that it could score once, or the tests can't be run any more
                if row.get("reason", _GONE) != _GONE and "infra" not in row["then"]["statuses"]:
                    self.missing.add(row["problem_id"], row["reason"], f"of problem {row['problem_id']!r}")
            part = by_key[key]
            numbers_of = training_numbers if part.training else evaluation_numbers
            self.numbers += numbers_of(part.name, held, self._take_reported(part))

    def _groups(self) -> Iterator[StoredGroup]:
        for part in self.parts:
            groups, self._reported[part.key] = read_part(self._run, part)
            yield from groups

    def _take_reported(self, part: StoredPart) -> Mapping[str, Any]:
        """The numbers of a part that is over."""
        # a part of kept rows alone is over before its groups are drawn
        return self._reported.pop(part.key, None) or read_part(self._run, part)[1]

    def _programs_of(self, group: StoredGroup) -> list[tuple[Problem, str | None]]:
        """None where its problem is gone."""
        problem = self._today.by_id.get(group.problem_id)
        if problem is None:
            return []
        if group.shown_tests:
            problem = set_apart(problem, group.shown_tests)
        codes = (extract_code(problem, rollout.text) for rollout in group.rollouts)
        return [(problem, None if code is None else program_of(problem, code)) for code in codes]


def rescored_row(
    group: StoredGroup, verdicts: Sequence[Verdict], problem: Problem | None, reward: Reward
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
    failure = next((verdict.detail for verdict in verdicts if verdict.status == "infra"), None)
    rewards = None
    if group.part.training and failure is None:
        rewards = [reward(problem, *pair) for pair in zip(group.rollouts, verdicts, strict=True)]
    now = GroupOutcomes.of(tuple(verdicts), rewards)
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


def _estimate_rollouts(run: Run, parts: Iterable[StoredPart]) -> int:
    """About how many rollouts there are, without reading files."""
    train = run.config.train
    sizes = {(e["step"], e["split"]): e["samples"] * (e["problems"] + len(e["set_aside"])) for e in run.evaluations}
    each = train.prompts_per_step * train.rollouts
    return sum(each if part.training else sizes.get((part.step, part.split), 0) for part in parts)


@dataclass
class ProblemDiff:
    """One problem's rollouts over the whole run."""

    rollouts: int = 0
    passed_then: int = 0
    passed_now: int = 0
    """Of both, rollouts whose verdicts are known on both sides."""
    unknown: int = 0
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (status then, status now); equal ones have another reward."""


@dataclass
class VerdictDiff:
    """The verdicts of all groups then and now, added up by problem."""

    problems: dict[str, ProblemDiff] = field(default_factory=lambda: defaultdict(ProblemDiff))
    by_the_clock: int = 0
    """Changes that another run might not give."""
    strategies: int = 0
    """Correct programs whose strategy by execution differs."""
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        found = self.problems[row["problem_id"]]
        then, now = row["then"], row["now"]
        if "reason" in row:
            self.reasons[row["reason"]] += 1
        statuses = now["statuses"] if now else ["infra"] * len(then["statuses"])
        for place, (before, after) in enumerate(zip(then["statuses"], statuses, strict=True)):
            found.rollouts += 1
            if "infra" in (before, after):
                found.unknown += 1
                continue
            found.passed_then += before == "passed"
            found.passed_now += after == "passed"
            named = {then["strategies"][place], now["strategies"][place]}
            self.strategies += before == after == "passed" and len(named - {None}) > 1
        for change in row["changed"]:
            found.changes[change["then"], change["now"]] += 1
            self.by_the_clock += not change["repeatable"]

    @property
    def rollouts(self) -> int:
        return sum(found.rollouts for found in self.problems.values())

    def show(self, console: Console, parts: Sequence[StoredPart]) -> None:
        changes: Counter[tuple[str, str]] = sum((found.changes for found in self.problems.values()), Counter())
        self._show_counts(console, parts, changes.total())
        if not changes:
            return
        rows = [
            (then, now if now != then else f"{now}, another reward", f"{count:,}")
            for (then, now), count in changes.most_common()
        ]
        console.print(ReportTable(("then", "now", "rollouts"), rows, {2}))
        changed = [(name, found) for name, found in self.problems.items() if found.changes]
        changed.sort(key=lambda item: (-item[1].changes.total(), item[0]))
        console.print(_problem_table(changed[:SHOWN]))
        if len(changed) > SHOWN:
            say(console, f"the first {SHOWN} of {len(changed):,} problems are shown")

    def _show_counts(self, console: Console, parts: Sequence[StoredPart], total: int) -> None:
        steps = sum(part.training for part in parts)
        what = f"{count_of(self.rollouts, 'rollout')} of {count_of(len(self.problems), 'problem')}"
        where = f"{count_of(steps, 'step')} and {count_of(len(parts) - steps, 'evaluation')}"
        unknown = sum(found.unknown for found in self.problems.values())
        differ = f"{total:,} differ" if total else "none differs"
        say(console, f"{what} in {where}: {differ}" + (f", {unknown:,} unknown" if unknown else ""))
        for reason, groups in self.reasons.most_common(3):
            say(console, f"  {count_of(groups, 'group')} not scored: {reason}")
        if self.by_the_clock:
            say(console, f"  {self.by_the_clock:,} of them by the clock: another run may give another verdict")
        if self.strategies:
            say(console, f"  {count_of(self.strategies, 'correct program')} with another strategy by execution")


def _problem_table(changed: Sequence[tuple[str, ProblemDiff]]) -> ReportTable:
    rows = []
    for name, found in changed:
        words = ", ".join(f"{count:,} {then} -> {now}" for (then, now), count in found.changes.most_common())
        counts = (found.rollouts, found.passed_then, found.passed_now)
        rows.append((name, *(f"{count:,}" for count in counts), words))
    return ReportTable(("problem", "rollouts", "passed then", "passed now", "what changed"), rows, {1, 2, 3})
