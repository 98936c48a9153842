"""The terms that raypoly brings, by the names in `KNOWN`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from raypoly.core.seeds import derive
from raypoly.core.values import Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term, TermConfig

GRADES = "grades"
"""The stage that `JudgeTerm` reads."""


class LengthConfig(TermConfig):
    penalty: bool = Field(False, description="One less: the shortest right answer has 0, longer ones below.")


class LengthTerm(Term):
    """Short right answers: the shortest right answer of the group over the response's own tokens.

    v_i = min(1, min over right j of T_j / T_i), with T tokens; a group without a right answer is unknown. With
    `penalty` it is v_i - 1. Meant for `when: passed`: among right answers the shortest has 1, or 0.
    Known to go wrong: without `penalty` every right answer is paid more for being right, so that a policy settles on
    the answers that it gives most before it samples shorter ones (docs/rewards.md); with `penalty` and a weight above
    1 a long right answer may be worth less than a wrong one. With `when: always` a wrong answer is paid for being
    short.
    """

    Config = LengthConfig

    def compute(self, group: AnsweredGroup) -> Float64:
        if not group.passed.any():
            return np.full(group.size, np.nan)
        lengths = np.maximum(group.lengths, 1)
        found: Float64 = np.minimum(1.0, lengths[group.passed].min() / lengths)
        return found - 1.0 if self.config.penalty else found


class OverlongConfig(TermConfig):
    buffer: int | None = Field(
        None, ge=1, description="Tokens before generator.max_tokens in which it falls. Default: a fifth of these."
    )


class OverlongTerm(Term):
    """Soft overlong punishment (DAPO, arXiv 2503.14476, equation 13).

    v_i = 0 where T_i <= T_max - buffer, -1 where T_i >= T_max, and linear between; T_i tokens, T_max
    `generator.max_tokens`. The paper's T_max is 20,480 with a buffer of 4,096, its weight 1.
    Known to go wrong: a response that needs its length is punished too, right or not.
    """

    Config = OverlongConfig

    def compute(self, group: AnsweredGroup) -> Float64:
        buffer = self.config.buffer or max(1, group.max_tokens // 5)
        found: Float64 = np.clip((group.max_tokens - buffer - group.lengths) / buffer, -1.0, 0.0)
        return found


class FormatTerm(Term):
    """Form: 1 for a response with a fenced block whose program parses, else 0.

    Whether it parses is read from the program's evidence: nothing that a model wrote is parsed here.
    Known to go wrong: it is learned in a few steps and pays everybody the same from then on.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"evidence"})

    def compute(self, group: AnsweredGroup) -> list[float]:
        pairs = zip(group.rollouts, group.verdicts, strict=True)
        return [float("```" in rollout.text and verdict.evidence is not None) for rollout, verdict in pairs]


class RandomTerm(Term):
    """A coin: 1 or 0 by the run's seed, the step, and the response's place. The control of a study ("Spurious Rewards",
    arXiv 2506.10947): what a run gains with it, it would gain from noise.
    """

    def compute(self, group: AnsweredGroup) -> list[float]:
        return [float(derive(group.seed, "coin", group.step, group.slot, place) % 2) for place in group.places]


class JudgeConfigOfTerm(TermConfig):
    question: str = Field(
        "Would an expert who has to maintain it find it clear and simple?",
        min_length=1,
        description="By what responses are graded.",
    )


class JudgeTerm(Term):
    """A grade of the language model that judges (`judge.name=openai`), by a question of yours: 0 to 1.

    The stage `grades` asks once for all responses of a group, which are shown as written; limits, cache, budget and
    pause are the judge's. A group that it can't grade has no such term.
    Known to go wrong: a model's taste can be flattered; compare with a judge that the policy is not trained on.
    """

    Config = JudgeConfigOfTerm
    needs: ClassVar[frozenset[str]] = frozenset({GRADES})

    def compute(self, group: AnsweredGroup) -> Float64:
        given = group.findings.get(GRADES)
        found: Float64 = np.full(group.size, np.nan) if given is None else np.asarray(given)[list(group.places)]
        return found
