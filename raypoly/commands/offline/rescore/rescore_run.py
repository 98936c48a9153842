"""`raypoly score --run`: score a run's stored programs again, and compare its numbers then and now.

    rescore("~/raypoly-runs/mine", "diff.jsonl", None, [], workers=4)

The run is only read. A group's row has all that the numbers and the diff follow from, so an interrupted command needs
only the rows that it wrote.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.run import Run
from raypoly.commands.offline.command_config import lasting_keys, run_scorer_config
from raypoly.commands.offline.command_output import NOTES, raise_failures, results_console, say, say_where
from raypoly.commands.offline.command_progress import show_progress
from raypoly.commands.offline.rescore.changed_numbers import ChangedNumber, ChangedNumbers, GroupThenAndNow
from raypoly.commands.offline.rescore.stored_groups import (
    CurrentProblems,
    StoredGroup,
    StoredPart,
    parts_of,
    read_current_problems,
    read_part,
)
from raypoly.commands.offline.rescore.verdict_diff import VerdictDiff
from raypoly.commands.offline.row_writer import Row, RowWriter, open_rows
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Verdict
from raypoly.data.formats import program_of
from raypoly.data.public_tests import set_apart
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.local_pool import BROKEN, LocalPool
from raypoly.verifier.rewards import Reward, reward_function
from raypoly.verifier.score_programs import score_each

_GONE = "its problem is not in the set any more"


def rescore(place: str, out: str | None, problems: Path | None, overrides: Sequence[str], workers: int | None) -> None:
    """Score all stored rollouts again, print what differs, write a row for each group and each number to `out`.

    With `out`, goes on behind the rows that an interrupted start of the same left. Raises `UsageError` before anything
    is run, `SandboxError` at the end where programs that had a verdict could not be given one.
    """
    run = Run(place)
    config = run_scorer_config(run.config, overrides, workers)
    today = read_current_problems(run, problems)
    parts = parts_of(run)
    if not parts:
        raise UsageError(f"{run.uri} holds no rollouts yet: there is nothing to score again.")
    # a run may have grown between two starts
    identity = {"run": run.uri, "problems": today.hash, "scorer": lasting_keys(config)}
    with open_rows(out, identity) as rows:
        work = _Rescoring(run, today, parts, rows)
        work.score(config)
        rows.finish()
    console = results_console(out)
    work.diff.show(console, parts, work.numbers, work.sums.overall)
    say_where(console, "rows", out)
    _raise_failures(work.failed)


class _Rescoring:
    """The rows of a run's groups: those that an earlier start wrote, and those that this one makes."""

    def __init__(self, run: Run, today: CurrentProblems, parts: Sequence[StoredPart], rows: RowWriter) -> None:
        self._run, self._today, self._parts, self._rows = run, today, deque(parts), rows
        self._reward = reward_function(run.config)
        self._reported: dict[str, Mapping[str, Any]] = {}
        self._kept: dict[str, list[Row]] = defaultdict(list)
        self._numbers_kept = 0
        self.diff, self.sums = VerdictDiff(), ChangedNumbers()
        self.numbers: list[ChangedNumber] = []
        self.failed: list[Row] = []

    def score(self, config: ScorerConfig) -> None:
        """Score what has no row yet, and count every row, step by step."""
        self._read_kept()
        kept = sum(len(row["then"]["statuses"]) for rows in self._kept.values() for row in rows)
        total = max(_estimate_rollouts(self._run, self._parts) - kept, 0)
        with LocalPool(config, StrategyEvidence() if config.evidence else None) as pool:
            scored = score_each(pool, self._read_left(list(self._parts)), self._programs_of)
            with show_progress("programs", total, lambda: (pool.done, pool.passed), NOTES):
                for group, verdicts in scored:
                    self._go_to(group.part)
                    row = rescored_row(group, verdicts, self._today.by_id.get(group.problem_id), self._reward)
                    self._rows.write(row)
                    self._count(row)
        self._go_to(None)
        for number in [*self.numbers, *self.sums.overall][self._numbers_kept :]:
            self._rows.write(number.row)

    def _read_kept(self) -> None:
        for row in self._rows.read_kept():
            if "number" in row:
                self._numbers_kept += 1
            else:
                self._kept[row["of"]].append(row)
        if self._kept:
            say(NOTES, f"{sum(map(len, self._kept.values())):,} groups are scored already.")

    def _read_left(self, parts: Sequence[StoredPart]) -> Iterator[StoredGroup]:
        """The groups without a row; reading runs ahead of the rows by what the pool draws."""
        done = {key: len(rows) for key, rows in self._kept.items()}
        for part in parts:
            groups, self._reported[part.key] = read_part(self._run, part)
            yield from groups[done.get(part.key, 0) :]

    def _programs_of(self, group: StoredGroup) -> list[tuple[Problem, str | None]]:
        """A group's programs; none where its problem is gone. An evaluation may have shown tests that training does
        not, which decide nothing there."""
        problem = self._today.by_id.get(group.problem_id)
        if problem is None:
            return []
        if shown := self._reported[group.part.key].get("shown_tests"):
            problem = set_apart(problem, shown)
        codes = (extract_code(problem, rollout.text) for rollout in group.rollouts)
        return [(problem, None if code is None else program_of(problem, code)) for code in codes]

    def _go_to(self, part: StoredPart | None) -> None:
        """End the parts before this one (None: all), and count the rows that each had."""
        while self._parts and self._parts[0] != part:
            over = self._parts.popleft()
            self._count_kept(over)
            self.numbers += self.sums.end(over.name, over.training, self._reported.pop(over.key))
        if part is not None:
            self._count_kept(part)

    def _count_kept(self, part: StoredPart) -> None:
        for row in self._kept.pop(part.key, ()):
            self._count(row)

    def _count(self, row: Row) -> None:
        self.diff.add(row)
        self.sums.add(GroupThenAndNow.read(row))
        # the sandbox failed at a group that it could score once, or the tests can't be run any more
        if row.get("reason", _GONE) != _GONE and "infra" not in row["then"]["statuses"]:
            self.failed.append(row)


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
    rewards = None
    if group.part.training and all(verdict.status != "infra" for verdict in verdicts):
        rewards = [reward(problem, *pair) for pair in zip(group.rollouts, verdicts, strict=True)]
    now = GroupOutcomes.of(tuple(verdicts), rewards)
    row["now"] = now.row
    failure = next((verdict.detail for verdict in verdicts if verdict.status == "infra"), None)
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
    """About how many rollouts there are, by the run's config and summary, without reading its files."""
    train = run.config.train
    sizes = {(e["step"], e["split"]): e["samples"] * (e["problems"] + len(e["set_aside"])) for e in run.evaluations}
    each = train.prompts_per_step * train.rollouts
    return sum(each if part.training else sizes.get((part.step, part.split), 0) for part in parts)


def _raise_failures(rows: Sequence[Row]) -> None:
    """Raise `SandboxError` where groups that had verdicts could not be given new ones."""
    broken = sorted({row["problem_id"] for row in rows if row["reason"].startswith(BROKEN)})
    failed = [row for row in rows if not row["reason"].startswith(BROKEN)]
    first = failed[0] if failed else {"problem_id": "", "reason": ""}
    name = f"the first of problem {first['problem_id']!r}"
    raise_failures(broken, len(failed), "group", name, first["reason"], since=" any more")
