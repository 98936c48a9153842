"""The frozen model that a loss compares with: the one that the run started with, whatever is trained since.

It is opened from where the run's first weights came from, never from a checkpoint, so a resumed run has the same; a
checkpoint holds its digest, so that another model in that place is noticed.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from raypoly.errors import UsageError
from raypoly.policy.snapshots import weight_digest


class Reference:
    """Float32 weights without gradients, beside those in training."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model` is whole; what is done to it afterwards does not change its digest."""
        self.model = model.eval().requires_grad_(False)
        self.digest = weight_digest(model.state_dict())

    def check(self, known: str | None) -> None:
        """Raise `UsageError` where a checkpoint names another one; None is a checkpoint that names none."""
        if known is not None and known != self.digest:
            raise UsageError(
                "The model at model.path is not the one that this run started with and that its loss compares with: "
                "put that model back, or use run.fresh=true."
            )
