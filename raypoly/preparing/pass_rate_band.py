"""Which problems have something to teach, by how often the base model solves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raypoly.preparing.candidates import Candidate
from raypoly.preparing.decision_log import Decision
from raypoly.preparing.prepare_config import BandConfig


@dataclass(frozen=True)
class SampledPassRate:
    """What the base model's samples of a problem came to."""

    samples: int
    passes: int | None
    """None where its tests could not be run."""
    detail: str = ""
    """Why they could not."""


def chosen(candidates: Sequence[Candidate], tried: Mapping[str, SampledPassRate], band: BandConfig) -> list[Decision]:
    """A decision for each problem, by the band."""
    return [_decision(it.id, tried[it.id], band) for it in candidates]


def taken(candidates: Sequence[Candidate], decisions: Sequence[Decision]) -> list[Candidate]:
    """The problems in the band, with their counts."""
    facts = {decision.problem_id: decision.facts for decision in decisions if not decision.reason}
    return [
        replace(it, samples=facts[it.id]["samples"], passes=facts[it.id]["passes"])
        for it in candidates
        if it.id in facts
    ]


def _decision(problem_id: str, tried: SampledPassRate, band: BandConfig) -> Decision:
    facts = {"samples": tried.samples, "passes": tried.passes}
    if tried.passes is None:
        return Decision(problem_id, "sampling", f"the samples could not be judged: {tried.detail}", facts)
    solved = f"the base model solves it in {tried.passes} of {tried.samples} samples"
    reason = ""
    if tried.passes < band.low:
        reason = f"{solved}, and band.low is {band.low}"
    elif tried.passes > band.high:
        reason = f"{solved}, and band.high is {band.high}"
    return Decision(problem_id, "sampling", reason, facts)
