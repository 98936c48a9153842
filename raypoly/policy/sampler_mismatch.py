"""A limit for how far a step's sampler may be from the learner: `train.max_mismatch`.

`workflows/step/weight_sync.py` proves with one prompt and one response that new weights arrived; this looks at every
token that is trained on, so it also sees an engine that went wrong after the proof.
"""

from __future__ import annotations

from collections.abc import Collection

from raypoly.errors import WeightsMismatch
from raypoly.losses.loss_stats import LossStats


def check_mismatch(measured: LossStats, limit: float | None, version: int, sampled_by: Collection[int]) -> None:
    """Raise `WeightsMismatch` where the rows of a step are further off than `limit`, or by no number at all.

    `version` is that of the learner's weights, `sampled_by` those that the step's rows name.
    """
    found = measured.mismatch_mean
    if limit is None or found <= limit:
        return
    versions = ", ".join(map(str, sorted(sampled_by)))
    raise WeightsMismatch(
        f"Step {version} was sampled under weights of version {versions}, as its rows say, and the learner has version "
        f"{version}: their log-probabilities differ by {found:.3g} a token (at most {measured.mismatch_max:.3g}), more "
        f"than train.max_mismatch={limit:g}, so the engine's weights were stale or wrong: raise the limit to train on "
        "these rows all the same, or use run.fresh=true."
    )
