"""What `raypoly score --run` does: a run's stored programs scored again, and what that does to its numbers.

    rescore("~/raypoly-runs/mine", "diff.jsonl", None, [], workers=4)

Nothing in the run is changed.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly import __version__, settings
from raypoly.config import ON_RESUME, Config, ScorerConfig
from raypoly.errors import SandboxError, UsageError
from raypoly.offline.rescore.changed_numbers import ChangedNumber, ChangedNumbers, GroupThenAndNow
from raypoly.offline.rescore.current_problems import Today, problems_of
from raypoly.offline.rescore.problem_diff import Diff
from raypoly.offline.rescore.rescore_tables import show
from raypoly.offline.rescore.score_again import is_broken, is_trouble, row_of, scored_again
from raypoly.offline.rescore.stored_groups import StoredGroup, StoredPart, parts_of, read_part
from raypoly.offline.row_writer import STDOUT, RowWriter
from raypoly.offline.score.score_files import NOTES, say
from raypoly.offline.score.score_progress import shown
from raypoly.rewards import reward_function
from raypoly.run import Run
from raypoly.scoring.local_pool import LocalPool

Row = Mapping[str, Any]


def rescore(place: str, out: str | None, problems: Path | None, overrides: Sequence[str], workers: int | None) -> None:
    """Score all stored rollouts again, print what differs, write a row a group and a number to `out`.

    With `out`, goes on behind the rows that an interrupted start of the same left. Raises `UsageError` before anything
    is run, `SandboxError` at the end where programs that had a verdict could not be given one.
    """
    run = Run(place)
    config = scorer_of(run.config, overrides, workers)
    today = problems_of(run, problems, lambda text: say(NOTES, f"Note: {text}"))
    parts = parts_of(run)
    if not parts:
        raise UsageError(f"{run.uri} holds no rollouts yet: there is nothing to score again.")
    with ExitStack() as stack:
        rows = None if out is None else stack.enter_context(RowWriter.resumable(out, _identity(run, today, config)))
        work = _Work(run, today, parts, rows)
        work.do(config)
        if rows is not None:
            rows.done()
    console = NOTES if out == STDOUT else Console()
    show(console, parts, work.diff, work.numbers, work.sums.overall)
    if out not in (None, STDOUT):
        say(console, f"rows: {out}")
    _complain(work.trouble)


def scorer_of(config: Config, overrides: Sequence[str], workers: int | None) -> ScorerConfig:
    """The run's own section with overrides laid over it; a worker for each CPU where nobody says how many.

    Raises `UsageError` for what is no key of the section, or no value of the key.
    """
    foreign = [text for text in overrides if not text.strip().startswith("scorer.")]
    if foreign:
        raise UsageError(f"{foreign[0]!r} is no key of the scorer: --run takes those, such as scorer.memory_mib=512.")
    given = settings.load(None, list(overrides)).scorer
    names = [text.partition("=")[0].strip().removeprefix("scorer.") for text in overrides]
    changes = {name: getattr(given, name) for name in names}
    changes.setdefault("workers", len(os.sched_getaffinity(0)))
    if workers is not None:
        changes["workers"] = ScorerConfig(workers=workers).workers
    if config.reward.name == "fraction":
        changes["all_tests"] = True
    return config.scorer.model_copy(update=changes)


class _Work:
    """The rows of a run's groups, those that an earlier start wrote and those that this one makes."""

    def __init__(self, run: Run, today: Today, parts: Sequence[StoredPart], rows: RowWriter | None) -> None:
        self._run, self._today, self._parts, self._rows = run, today, deque(parts), rows
        self._reward = reward_function(run.config)
        self._reported: dict[str, Mapping[str, Any]] = {}
        self._kept: dict[str, list[Row]] = defaultdict(list)
        self._numbers_kept = 0
        self.diff, self.sums = Diff(), ChangedNumbers()
        self.numbers: list[ChangedNumber] = []
        self.trouble: list[Row] = []

    def do(self, config: ScorerConfig) -> None:
        """Score what has no row yet, and take every row in, step by step."""
        self._read_kept()
        total = planned(self._run, self._parts) - sum(
            len(row["then"]["statuses"]) for rows in self._kept.values() for row in rows
        )
        with LocalPool(config, config.evidence) as pool:
            fresh = scored_again(pool, self._today.problems, self._left(list(self._parts)))
            with shown(max(total, 0), lambda: (pool.done, pool.passed), NOTES):
                for group, verdicts in fresh:
                    self._go_to(group.part)
                    row = row_of(group, verdicts, self._today.problems.get(group.problem_id), self._reward)
                    self._write(row)
                    self._take(row)
        self._go_to(None)
        for number in [*self.numbers, *self.sums.overall][self._numbers_kept :]:
            self._write(number.row)

    def _read_kept(self) -> None:
        for row in self._rows.kept() if self._rows is not None else ():
            if "number" in row:
                self._numbers_kept += 1
            else:
                self._kept[row["of"]].append(row)
        if self._kept:
            say(NOTES, f"{sum(map(len, self._kept.values())):,} groups are scored already.")

    def _left(self, parts: Sequence[StoredPart]) -> Iterator[StoredGroup]:
        """The groups without a row; reading runs ahead of the rows by what the pool draws."""
        done = {key: len(rows) for key, rows in self._kept.items()}
        for part in parts:
            groups, self._reported[part.key] = read_part(self._run, part)
            yield from groups[done.get(part.key, 0) :]

    def _go_to(self, part: StoredPart | None) -> None:
        """The parts before this one (None: all) are over, and the rows that it had are taken in."""
        while self._parts and self._parts[0] != part:
            over = self._parts.popleft()
            self._take_kept(over)
            self.numbers += self.sums.end(over.told, over.training, self._reported.pop(over.key))
        if part is not None:
            self._take_kept(part)

    def _take_kept(self, part: StoredPart) -> None:
        for row in self._kept.pop(part.key, ()):
            self._take(row)

    def _take(self, row: Row) -> None:
        self.diff.add(row)
        self.sums.add(GroupThenAndNow.read(row))
        if is_trouble(row):
            self.trouble.append(row)

    def _write(self, row: Row) -> None:
        if self._rows is not None:
            self._rows.write(row)


def planned(run: Run, parts: Iterable[StoredPart]) -> int:
    """About how many rollouts there are: a run's config and summary say so without a look into its files."""
    train = run.config.train
    sizes = {(e["step"], e["split"]): e["samples"] * (e["problems"] + len(e["set_aside"])) for e in run.evaluations}
    each = train.prompts_per_step * train.rollouts
    return sum(each if part.training else sizes.get((part.step, part.split), 0) for part in parts)


def _identity(run: Run, today: Today, config: ScorerConfig) -> dict[str, Any]:
    """What a start has in common with the one that it goes on for; a run may have grown in between."""
    free = {name for name, field in ScorerConfig.model_fields.items() if field.json_schema_extra == ON_RESUME}
    scorer = config.model_dump(mode="json", exclude=free)
    return {"version": __version__, "run": run.uri, "problems": today.hash, "scorer": scorer}


def _complain(trouble: Sequence[Row]) -> None:
    """Raises `SandboxError` where groups that had verdicts could not be given new ones."""
    broken = sorted({row["problem_id"] for row in trouble if is_broken(row)})
    failed = [row for row in trouble if not is_broken(row)]
    sentences = []
    if broken:
        more = f" ({broken[0]!r} is one)" if len(broken) > 1 else f" ({broken[0]!r})"
        what = f"The tests of {len(broken)} problem{'s' if len(broken) > 1 else ''}{more} can't be run any more"
        sentences.append(f"{what}; raypoly score --validate finds them.")
    if failed:
        first = failed[0]
        sentences.append(
            f"The sandbox failed on {len(failed)} group{'s' if len(failed) > 1 else ''}, the first of problem"
            f" {first['problem_id']!r} ({first['reason']}); give the command again."
        )
    if sentences:
        raise SandboxError(" ".join(sentences))
