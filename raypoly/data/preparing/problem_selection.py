"""Chooses problems: drops duplicates, keeps those in the band, assigns splits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.preparing.prepare_config import BandConfig, SplitConfig
from raypoly.data.similar import DuplicatePair, find_duplicates, find_overlaps


def decide_duplicates(candidates: Sequence[Candidate], evaluation: Iterable[Candidate]) -> list[Decision]:
    """One for each problem that is a duplicate, or in an evaluation set."""
    leaked = find_overlaps((it.problem for it in candidates), (it.problem for it in evaluation))
    names = {pair.dropped.id for pair in leaked}
    twice = find_duplicates(it.problem for it in candidates if it.id not in names)
    return [
        *(_same(pair, f"is in {pair.kept.source} as well") for pair in leaked),
        *(_same(pair, "is there a second time") for pair in twice),
    ]


def _same(pair: DuplicatePair, what: str) -> Decision:
    similarity = None if pair.similarity is None else round(pair.similarity, 4)
    facts = {"same_as": pair.kept.id, "source": pair.kept.source, "because": pair.reason, "similarity": similarity}
    return Decision(pair.dropped.id, "same", f"{what}: {pair.kept.id} ({pair.reason})", facts)


@dataclass(frozen=True)
class SampledPassRate:
    """The base model's samples of a problem."""

    samples: int
    passes: int | None
    """None if the tests could not be run."""
    detail: str = ""
    """Why not."""


def decide_band(rates: Mapping[str, SampledPassRate], band: BandConfig) -> list[Decision]:
    """One for each problem; `rates` are by its id."""
    decided = []
    for problem_id, rate in rates.items():
        solved = f"the base model solves it in {rate.passes} of {rate.samples} samples"
        reason = ""
        if rate.passes is None:
            reason = f"the samples could not be judged: {rate.detail}"
        elif rate.passes < band.low:
            reason = f"{solved}, and band.low is {band.low}"
        elif rate.passes > band.high:
            reason = f"{solved}, and band.high is {band.high}"
        facts = {"samples": rate.samples, "passes": rate.passes}
        decided.append(Decision(problem_id, "sampling", reason, facts))
    return decided


def decide_splits(candidates: Sequence[Candidate], config: SplitConfig) -> list[Decision]:
    """One for each candidate, in order; `facts["split"]` is its split.

    Splits are drawn by seed; or the newest problems go to `test`, then `validation`, and one without a date is oldest.
    The order of files and rows does not matter. Raises `UsageError` if no problem is left for training.
    """
    held_out = config.test + config.validation
    if held_out >= len(candidates):
        raise UsageError(
            f"split.validation + split.test = {held_out} leaves none of the {len(candidates)} problems that are kept "
            f"to be {config.rest}: lower them, or widen the band (for the same run.dir nothing is sampled again)."
        )
    ordered = sorted(candidates, key=lambda it: it.id)
    if config.by == "seed":
        random.Random(derive(config.seed, "prepare split")).shuffle(ordered)
    else:
        ordered.sort(key=lambda it: it.facts.date or "", reverse=True)
    names = ["test"] * config.test + ["validation"] * config.validation
    names += [config.rest] * (len(ordered) - held_out)
    where = {it.id: name for it, name in zip(ordered, names, strict=True)}
    return [Decision(it.id, "split", "", {"split": where[it.id]}) for it in candidates]
