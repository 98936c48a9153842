"""Terms: what is paid for a response beside its outcome.

    reward:
      terms:
        length: {weight: 0.1, when: passed}
        mine: {name: "my_terms:Tidy", weight: 0.05}         # a class of yours (`Term`)

To add one, write a class in `known_terms.py` and name it in KNOWN, or keep it outside the tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raypoly.core.config import Config, TermSection
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.plugins import load_plugin, parse_parameters
from raypoly.core.values import Bool, Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term, TermConfig

KNOWN: Mapping[str, str] = {
    "length": "raypoly.verifier.rewards.terms.known_terms:LengthTerm",
    "overlong": "raypoly.verifier.rewards.terms.known_terms:OverlongTerm",
    "format": "raypoly.verifier.rewards.terms.known_terms:FormatTerm",
    "random": "raypoly.verifier.rewards.terms.known_terms:RandomTerm",
    "judge": "raypoly.verifier.rewards.terms.known_terms:JudgeTerm",
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
# Columns and metrics of the stage have these names.
_TAKEN = re.compile(r"outcome|state|unknown|groups_by_terms|part_.*|.*_(?:spread|unknown)")

__all__ = ["KNOWN", "NamedTerm", "Term", "TermConfig", "build_terms"]


@dataclass(frozen=True)
class NamedTerm:
    """A term of a run, under its name there."""

    name: str
    weight: float
    when: Literal["passed", "failed", "always"]
    term: Term
    own: bool
    """Whether it is a user's, which runs beside the step."""

    def gate(self, passed: Bool) -> Bool:
        """bool [N]: the responses that have the term."""
        return passed if self.when == "passed" else ~passed if self.when == "failed" else np.ones_like(passed)

    @property
    def reads(self) -> frozenset[str]:
        """The stages whose findings it reads."""
        return self.term.needs - {"evidence"}

    def may_say(self, group: AnsweredGroup) -> bool:
        """Whether the findings that it reads are there."""
        return self.reads <= group.findings.keys()

    def values(self, group: AnsweredGroup) -> Float64:
        """float64 [N], before the weight: 0 outside its gate; NaN for all where one value in it is unknown.

        Raises `RaypolyError` where the term gives no N numbers, or an infinite one.
        """
        try:
            found = np.asarray(self.term.compute(group), dtype=np.float64)
        except Exception as error:
            error.add_note(f"raised by reward.terms.{self.name} on problem {group.problem.id}, in step {group.step}")
            raise
        if found.shape != (group.size,) or np.isinf(found).any():
            what = "an infinite number" if found.shape == (group.size,) else f"values of shape {found.shape}"
            raise RaypolyError(
                f"reward.terms.{self.name} gave {what} for the {group.size} responses to problem {group.problem.id}: a "
                "term gives one number a response, NaN where it can't say."
            )
        gated = np.where(self.gate(group.passed), found, 0.0)
        return np.full(group.size, np.nan) if np.isnan(gated).any() else gated


def build_terms(config: Config) -> tuple[NamedTerm, ...]:
    """The terms of `reward.terms`, in its order. Raises `UsageError` for one that is unknown, whose parameters don't
    fit, or that needs what the run lacks."""
    return tuple(_build(name, section, config) for name, section in config.reward.terms.items())


def _build(name: str, section: TermSection, config: Config) -> NamedTerm:
    key = f"reward.terms.{name}"
    if not _NAME.fullmatch(name) or _TAKEN.fullmatch(name):
        raise UsageError(f"{key}: a term's name is lower-case letters, digits and _, and none of raypoly's own words.")
    place = section.name or name
    kind = load_plugin(place, KNOWN, key if section.name is None else f"{key}.name")
    if not (isinstance(kind, type) and issubclass(kind, Term)):
        raise UsageError(f"{key}.name={place} has to be a class, a subclass of raypoly.verifier.rewards.terms.Term.")
    term = kind(parse_parameters(kind.Config, section.parameters, key, f"{key}.name={place}"))
    if "evidence" in term.needs and not config.scorer.evidence:
        raise UsageError(f"{key} needs what a program's evidence says: set scorer.evidence=true, or drop the term.")
    return NamedTerm(name, section.weight, section.when, term, own=place not in KNOWN)
