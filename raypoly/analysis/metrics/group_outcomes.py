"""Outcomes of a group's N rollouts: statuses, strategies and rewards, as stored or scored again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from raypoly.analysis.metrics.pass_at_k import JudgedGroup, ProblemOutcome, drawn_strategies
from raypoly.core.values import Verdict
from raypoly.strategies.judge.structural import join_largest, structural_labels

_UNTRACED = "untraced"  # strategy of all correct programs where none has an execution trace


@dataclass(frozen=True)
class GroupOutcomes:
    """What a group's verdicts say; each field [N]."""

    statuses: tuple[str, ...]
    strategies: tuple[str | None, ...]
    """By execution trace; None without evidence."""
    structural: tuple[int, ...] | None = None
    """By structure, 0: degenerate; None without evidence."""
    rewards: tuple[float, ...] | None = None

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], rewards: Iterable[float] | None) -> Self:
        labels = structural_labels(verdicts)
        return cls(
            tuple(verdict.status for verdict in verdicts),
            tuple(None if verdict.evidence is None else verdict.evidence.strategy for verdict in verdicts),
            None if labels is None else labels.strategies,
            None if rewards is None else tuple(map(float, rewards)),
        )

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """From the values of `row`."""
        structural, rewards = (None if row[name] is None else tuple(row[name]) for name in ("structural", "rewards"))
        return cls(tuple(row["statuses"]), tuple(row["strategies"]), structural, rewards)

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
