"""Outcomes of a group's N rollouts, and counts of an evaluation by problem for statistics over problems.

outcomes = GroupOutcomes.of(verdicts, rewards)
counts = ProblemCounts.of(run.samples(80, "test"))
counts.correct[0] / counts.samples[0]         # of counts.id[0]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from raypoly.analysis.metrics.pass_at_k import (
    JudgedGroup,
    ProblemOutcome,
    Select,
    block_pass_at_k,
    drawn_strategies,
    pass_at_k,
)
from raypoly.core.values import Verdict
from raypoly.strategies.judge.structural import join_largest, structural_labels

_UNTRACED = "untraced"  # strategy of all correct programs where none has an execution trace

_NEEDED = ("problem_id", "status")
_KNOWN = (*_NEEDED, "strategy", "response_tokens", "finish_reason", "behaviour", "stratum")
# Metadata whose values a split has in fixed shares: budgets of puzzles, data sets of a preparation.
_STRATA = ("budget", "source")

Counts = tuple[int | None, ...]


@dataclass(frozen=True)
class GroupOutcomes:
    """What a group's verdicts say; each field [N] but `parts`."""

    statuses: tuple[str, ...]
    strategies: tuple[str | None, ...]
    """By execution trace; None without evidence."""
    structural: tuple[int, ...] | None = None
    """By structure, 0: degenerate; None without evidence."""
    rewards: tuple[float, ...] | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """The group's numbers of the stage `reward`, by the names that they have in metrics; no [N]."""

    @classmethod
    def of(
        cls, verdicts: Sequence[Verdict], rewards: Iterable[float] | None, parts: Mapping[str, float] | None = None
    ) -> Self:
        labels = structural_labels(verdicts)
        return cls(
            tuple(verdict.status for verdict in verdicts),
            tuple(None if verdict.evidence is None else verdict.evidence.strategy for verdict in verdicts),
            None if labels is None else labels.strategies,
            None if rewards is None else tuple(map(float, rewards)),
            {f"reward/{name}": value for name, value in (parts or {}).items()},
        )

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """From the values of `row`."""
        structural, rewards = (None if row[name] is None else tuple(row[name]) for name in ("structural", "rewards"))
        return cls(tuple(row["statuses"]), tuple(row["strategies"]), structural, rewards, row.get("parts", {}))

    @property
    def row(self) -> dict[str, Any]:
        return vars(self)

    @property
    def sound(self) -> bool:
        """Whether no verdict is `infra`."""
        return "infra" not in self.statuses

    @property
    def correct(self) -> list[int]:
        """Indices of the programs that passed."""
        return [place for place, status in enumerate(self.statuses) if status == "passed"]

    @property
    def _right(self) -> list[str | None]:
        return [self.strategies[place] for place in self.correct]

    @property
    def drawn_strategies(self) -> float | None:
        """Expected distinct strategies of correct programs, in 8 draws or all N if fewer; None without evidence."""
        found = self._right
        return None if None in found else drawn_strategies(len(self.statuses), [name for name in found if name])

    def outcome(self, labels: Sequence[int] | None, at_once: int | None = None) -> ProblemOutcome:
        """The group as an evaluation counts it. `labels`: the judge's, of so many samples `at_once` (default: all)."""
        right = self._right
        unknown = {place for place, name in enumerate(right) if name == ""}
        traced = join_largest(right, unknown, alone=_UNTRACED)
        return ProblemOutcome(
            len(self.statuses),
            tuple(None if name is None else str(name) for name in traced),
            None if labels is None else self._judged(labels, at_once or len(labels)),
            self._correct(self.structural) if self.correct else (),  # where nothing parses there is no evidence to keep
        )

    def differs(self, other: GroupOutcomes) -> list[int]:
        """Indices of rollouts that differ in status, or in reward where both have one, without `infra` of either."""
        rewards = zip(self.rewards or (), other.rewards or (), strict=True) if self.rewards and other.rewards else ()
        paid = {place for place, (one, two) in enumerate(rewards) if one != two}
        statuses = enumerate(zip(self.statuses, other.statuses, strict=True))
        return [place for place, pair in statuses if "infra" not in pair and (pair[0] != pair[1] or place in paid)]

    def _judged(self, labels: Sequence[int], at_once: int) -> tuple[JudgedGroup, ...]:
        right = [label if status == "passed" else 0 for label, status in zip(labels, self.statuses, strict=True)]
        groups = [right[place : place + at_once] for place in range(0, len(right), at_once)]
        return tuple(JudgedGroup(len(group), tuple(label for label in group if label)) for group in groups)

    def _correct(self, ids: Sequence[int] | None) -> tuple[int, ...] | None:
        """Ids of the correct programs, without degenerate ones."""
        return None if ids is None else tuple(ids[place] for place in self.correct if ids[place])


@dataclass(frozen=True)
class ProblemCounts:
    """Columns with an entry for each problem, in the evaluation's order. None is unknown: where the tests could not be
    run (but for `samples`, `response_tokens` and `truncated`), or the evaluation kept no such column."""

    id: tuple[str, ...]
    samples: tuple[int, ...]
    correct: Counts
    """Samples that passed all tests."""
    strategies: tuple[tuple[int, ...] | None, ...]
    """Correct samples of each strategy, by execution trace, the largest first."""
    response_tokens: Counts
    """Of all samples together."""
    truncated: Counts
    no_code: Counts
    behaviours: tuple[tuple[int, ...] | None, ...] = ()
    """Programs, right or wrong, by what the tests saw of them, the largest first, as far as it is known."""
    stratum: tuple[str | None, ...] = ()
    """The part of all problems that it was drawn from in a fixed share; None, or empty: no parts."""

    blocks: tuple[str | None, ...] = ()
    """Which attempts passed, as `0100 0001`: a word for each block; empty where all attempts are independent."""

    def pass_at_k(self, k: int, select: Select = "first") -> dict[str, float] | None:
        """pass@k by problem id; None where one is unknown, or it is not defined. `select`: as `block_pass_at_k`."""
        found: dict[str, float] = {}
        words = self.blocks or (None,) * len(self.id)
        for name, samples, correct, word in zip(self.id, self.samples, self.correct, words, strict=True):
            if correct is None or samples < k:
                return None
            block = len(word.split()[0]) if word else 1
            if k > block and k % block:
                return None
            passed = [letter == "1" for letter in word or "" if letter != " "]
            found[name] = block_pass_at_k(passed, block, k, select) if word else pass_at_k(samples, correct, k)
        return found

    def of_known(self) -> Self:
        """The problems whose tests could be run. Raises `ValueError` where columns differ in length."""
        known = [right is not None for right in self.correct]
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__}
        kept = {
            name: tuple(each for each, told in zip(own, known, strict=True) if told) if own else ()
            for name, own in columns.items()
        }
        return type(self)(**kept)

    @classmethod
    def of(cls, table: pa.Table, block: int = 1, scaffold: str | None = None) -> Self | None:
        """From an evaluation's table of samples; None where it keeps no verdicts.

        `block`: samples that were drawn jointly. `scaffold`: as `own_samples`.
        """
        if not set(table.column_names) >= set(_NEEDED):
            return None
        columns = [name for name in _KNOWN if name in table.column_names]
        problems: dict[str, list[dict[str, Any]]] = {}
        for row in own_samples(table, scaffold).select(columns).to_pylist():
            problems.setdefault(row["problem_id"], []).append(row)
        found = [_count(rows) for rows in problems.values()]
        names = [name for name in cls.__dataclass_fields__ if name not in ("id", "blocks")]
        words = tuple(_blocks(rows, block) for rows in problems.values()) if block > 1 else ()
        by_column = {name: tuple(each[name] for each in found) for name in names}
        return cls(id=tuple(problems), blocks=words, **by_column)


def stratum_of(metadata: Mapping[str, str]) -> str | None:
    """The part of all problems that one with these metadata belongs to, if any."""
    return next((metadata[key] for key in _STRATA if metadata.get(key)), None)


def _blocks(rows: Sequence[Mapping[str, Any]], block: int) -> str:
    letters = ["1" if row["status"] == "passed" else "0" for row in rows]
    return " ".join("".join(letters[start : start + block]) for start in range(0, len(letters), block))


def own_samples(table: pa.Table, scaffold: str | None = None) -> pa.Table:
    """The samples of one scaffold, where an evaluation asked several; default: of the first."""
    if "scaffold" not in table.column_names or not table.num_rows:
        return table
    return table.filter(pc.equal(table["scaffold"], scaffold or table["scaffold"][0]))


def _count(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    strategies = tuple(row.get("strategy") for row in rows)
    outcomes = GroupOutcomes(tuple(row["status"] for row in rows), strategies)
    right = outcomes.outcome(None).correct_strategies
    named = outcomes.sound and "strategy" in rows[0] and None not in right
    did = Counter(row.get("behaviour") for row in rows)
    told = outcomes.sound and "behaviour" in rows[0]
    tokens, ends = ([row.get(name) for row in rows] for name in ("response_tokens", "finish_reason"))
    return {
        "samples": len(rows),
        "correct": len(right) if outcomes.sound else None,
        "strategies": tuple(sorted(Counter(right).values(), reverse=True)) if named else None,
        "response_tokens": None if None in tokens else sum(tokens),
        "truncated": None if None in ends else ends.count("length"),
        "no_code": outcomes.statuses.count("no_code") if outcomes.sound else None,
        "stratum": rows[0].get("stratum"),
        "behaviours": tuple(sorted((did[name] for name in did if name), reverse=True)) if told else None,
    }
