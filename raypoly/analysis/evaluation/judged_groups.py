"""A judge labels a problem's samples a few at a time, in their order. Labels of two of its groups don't compare.

    parts = judged_groups(group, 8)                     # of 20 samples: 8, 8 and 4
    labels = joined_labels([part.labels for part in parts_with_labels])     # [20]

An evaluation may have a hundred samples and more, which no model labels well at once. Strategies are counted within
each of these groups of eight samples or more, and averaged over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS
from raypoly.core.config import Config
from raypoly.core.values import Group, Labels


def judged_at_once(config: Config) -> int | None:
    """Samples in each of the judge's groups: as in training, and no fewer than strategies are counted in. None, all of
    them, for the structural judge: its rules take any number."""
    return None if config.judge.name == "structural" else max(config.train.rollouts, STRATEGY_DRAWS)


def judged_groups(group: Group, size: int | None) -> list[Group]:
    """The scored group in parts of `size` samples, of which the last may be smaller; itself for None."""
    if size is None:
        return [group]
    verdicts = group.verdicts or ()
    parts = [slice(place, place + size) for place in range(0, group.size, size)]
    return [replace(group, rollouts=group.rollouts[part], findings={"score": verdicts[part]}) for part in parts]


def joined_labels(found: Sequence[Labels | None]) -> Labels | None:
    """The labels of all parts, in order; None where the judge could not label one. Ids of two parts don't compare."""
    known = [labels for labels in found if labels is not None]
    if len(known) < len(found):
        return None
    ids, degenerate = (np.concatenate([getattr(labels, name) for labels in known]) for name in ("ids", "degenerate"))
    return Labels(ids, degenerate, " and ".join(sorted({labels.judge for labels in known})))
