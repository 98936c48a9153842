"""Which split a problem goes to: drawn by seed, or the newest set apart by date. File order plays no part."""

from __future__ import annotations

import random
from collections.abc import Sequence

from raypoly.errors import UsageError
from raypoly.preparing.candidates import Candidate
from raypoly.preparing.decision_log import Decision
from raypoly.preparing.prepare_config import SplitConfig
from raypoly.seeds import derive


def split(candidates: Sequence[Candidate], config: SplitConfig) -> list[Decision]:
    """A decision for each problem, `facts["split"]` saying where it goes, in the order of the candidates.

    By date the newest `test` problems are test and the next newest `validation` ones validation; a problem without a
    day is among the oldest. Raises `UsageError` where nothing is left for the rest.
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
