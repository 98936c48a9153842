"""The contract of a term.

class Tidy(Term):
    class Config(TermConfig):
        most: int = 20

    def compute(self, group):
        return [float(rollout.text.count("\\n") <= self.config.most) for rollout in group.rollouts]

python -m raypoly.train reward.terms.tidy.name=my_terms:Tidy reward.terms.tidy.weight=0.05
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict

from raypoly.verifier.rewards.answered_group import AnsweredGroup


class TermConfig(BaseModel):
    """The base of a term's own keys, `reward.terms.NAME.KEY`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Term(ABC):
    """One thing that is paid beside the outcome. Subclasses write `compute`."""

    Config: ClassVar[type[TermConfig]] = TermConfig
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the run has to have: `evidence` (of programs), and names of stages whose `findings` it reads."""

    def __init__(self, config: TermConfig) -> None:
        self.config: Any = config

    @abstractmethod
    def compute(self, group: AnsweredGroup) -> ArrayLike:
        """N numbers, one a response, before the weight. The same group has to give the same numbers.

        NaN is unknown: where one is, within the term's `when`, the term is left out for the whole group. Any exception
        ends the run, which goes on with the same command.
        """
