"""Form: 1 for a response with a fenced block whose program parses, else 0.

Whether it parses is read from the program's evidence: nothing that a model wrote is parsed here.
Known to go wrong: it is learned in a few steps and pays everybody the same from then on.
"""

from __future__ import annotations

from typing import ClassVar

from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term


class FormatTerm(Term):
    needs: ClassVar[frozenset[str]] = frozenset({"evidence"})

    def compute(self, group: AnsweredGroup) -> list[float]:
        pairs = zip(group.rollouts, group.verdicts, strict=True)
        return [float("```" in rollout.text and verdict.evidence is not None) for rollout, verdict in pairs]
