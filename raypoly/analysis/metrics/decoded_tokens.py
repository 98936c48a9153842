"""Decoded tokens of a scaffold's rollouts by role, and pass@k by that cost.

    tokens = DecodedTokens.of([("plan", 131), ("solve", 1100), ("solve", 1200)])       # one problem
    tokens.by_role, tokens.total                                                       # {"plan": 131, ...}, 2431
    pass_per_10k(passed=[1.0, 0.0], tokens=[4761, 4547])                               # 1.074

Every sampled token counts, also of failed, cut and empty rollouts; prompts and given texts do not (arXiv 2605.27000,
appendix K).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from raypoly.core.values import ATTEMPT, Group


@dataclass(frozen=True)
class DecodedTokens:
    """Tokens of one problem's drafts and attempts."""

    by_role: Mapping[str, int]

    @classmethod
    def of(cls, rollouts: Iterable[tuple[str, int]]) -> Self:
        """From (role, sampled tokens) of each rollout."""
        counts: Counter[str] = Counter()
        for role, tokens in rollouts:
            counts[role] += tokens
        return cls(dict(counts))

    @classmethod
    def of_group(cls, group: Group) -> Self:
        """Of a group. Given responses have no log-probabilities, and cost nothing."""
        roles = [(draft.role, draft.rollout) for draft in group.drafts]
        roles += [(ATTEMPT, rollout) for rollout in group.rollouts]
        sampled = ((role, rollout) for role, rollout in roles if not rollout.given)
        return cls.of((role, rollout.length) for role, rollout in sampled)

    @property
    def total(self) -> int:
        return sum(self.by_role.values())

    def expected(self, k: int, samples: int, block: int = 1) -> float:
        """Mean tokens of k of the problem's `samples` attempts.

        Attempts cost k/samples of theirs, and drafts as many whole blocks as k attempts need: below a block a plan
        costs what it costs. Raises `ValueError` unless 1 <= k <= samples.
        """
        if not 1 <= k <= samples:
            raise ValueError(f"the tokens of {k} attempts need 1 <= k <= n, got n={samples}")
        attempts = self.by_role.get(ATTEMPT, 0)
        return (attempts * k + (self.total - attempts) * math.ceil(k / block) * block) / samples


def mean_by_role(problems: Sequence[DecodedTokens]) -> dict[str, float]:
    """Mean decoded tokens of a problem by role, in order of appearance."""
    roles = dict.fromkeys(role for problem in problems for role in problem.by_role)
    return {role: sum(problem.by_role.get(role, 0) for problem in problems) / len(problems) for role in roles}


def pass_per_10k(passed: Sequence[float], tokens: Sequence[float]) -> float | None:
    """Mean pass@k over problems, for 10,000 of their mean decoded tokens. None where nothing was decoded.

    `passed`, `tokens`: of each problem, pass@k and the tokens behind k attempts. Raises `ValueError` where they are not
    of the same problems.
    """
    if len(passed) != len(tokens):
        raise ValueError(f"each problem needs pass@k and tokens, got {len(passed)} and {len(tokens)}")
    spent = math.fsum(tokens)
    return 10_000 * math.fsum(passed) / spent if spent else None
