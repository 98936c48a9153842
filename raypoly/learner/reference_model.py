"""The reference model: the frozen weights that the run started with, for a loss with a KL term or with `reference`.

It is loaded from the source of the run's first weights, never from a checkpoint, so a resumed run has the same one. A
checkpoint holds its digest, which detects another model there.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from raypoly.core.errors import UsageError
from raypoly.learner.snapshots import weight_digest


class ReferenceModel:
    """Float32 weights without gradients, beside the policy's."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model` has whole weights. Sharding it afterwards does not change the digest."""
        self.model = model.eval().requires_grad_(False)
        self.digest = weight_digest(model.state_dict())

    def check(self, known: str | None) -> None:
        """Raise `UsageError` if a checkpoint's digest is of another model; None for a checkpoint without one."""
        if known is not None and known != self.digest:
            raise UsageError(
                "The model at model.path is not the reference model that this run started with: put that model back, "
                "or use run.fresh=true."
            )
