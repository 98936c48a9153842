"""Several judges, one labelling: two programs are together iff more than half of the judges say so.

    judge: {name: ensemble, members: [structural, openai, mine.judges:Judge]}

A program is degenerate iff more than half of the judges say so. A judge that calls one of a pair degenerate, or has no
id for it, votes against the pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Bool, Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge import Judge, build_judge


class EnsembleJudge:
    """Asks each member in turn; it is away or refuses where a member does."""

    def __init__(self, config: JudgeConfig) -> None:
        if len(config.members) < 2:
            raise UsageError(
                f"judge.members={config.members!r} names {len(config.members)} judges; judge.name='ensemble' needs two"
                " or more, such as judge.members=[structural,openai]."
            )
        if "ensemble" in config.members:
            raise UsageError("judge.members names 'ensemble' itself; name the judges that it asks.")
        if len(set(config.members)) < len(config.members):  # the second would find the first one's answers in the cache
            raise UsageError(
                f"judge.members={config.members!r} names a judge twice: set judge.votes to ask the judge 'openai' more "
                "than once."
            )
        own = [config.model_copy(update={"name": name, "labels": "judge"}) for name in config.members]
        self._members: list[Judge] = list(map(build_judge, own))

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Raises a member's `JudgeUnavailable` or `JudgeRefused`."""
        return combine_votes([member.label(problem, rollouts, verdicts) for member in self._members])

    def probe(self) -> None:
        for member in self._members:
            member.probe()

    def __repr__(self) -> str:
        return f"EnsembleJudge({', '.join(map(repr, self._members))})"


def combine_votes(votes: Sequence[Labels]) -> Labels:
    """One labelling of N programs out of one or more, ids by first occurrence."""
    # A majority on pairs may not be transitive (a with b, b with c, but not a with c), and a transitive closure would
    # merge whole groups through one bridge. So a program joins the first cluster with a majority for every pair.
    together, degenerate = _majority(votes)
    clusters: list[list[int]] = []
    ids = np.zeros(len(degenerate), np.int32)
    for i in np.flatnonzero(~degenerate):
        number = next((c for c, members in enumerate(clusters) if together[i, members].all()), len(clusters))
        if number == len(clusters):
            clusters.append([])
        clusters[number].append(int(i))
        ids[i] = number + 1
    return Labels(ids, degenerate, "ensemble(" + "+".join(vote.judge for vote in votes) + ")")


def _majority(votes: Sequence[Labels]) -> tuple[Bool, Bool]:
    """Majorities: for each pair bool [N, N], for degenerate bool [N]."""
    ids = np.stack([vote.ids for vote in votes])
    degenerate = np.stack([vote.degenerate for vote in votes])
    real = (ids >= 1) & ~degenerate
    pairs = (ids[:, :, None] == ids[:, None, :]) & real[:, :, None] & real[:, None, :]
    return 2 * pairs.sum(axis=0) > len(votes), 2 * degenerate.sum(axis=0) > len(votes)
