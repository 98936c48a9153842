"""The reference model: the frozen weights that the run started with, for a loss with a KL term or with `reference`.

It is loaded from where the run's first weights came from, never from a checkpoint, so a resumed run has the same one. A
checkpoint holds its digest, so that another model in that place is noticed.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from raypoly.errors import UsageError
from raypoly.policy.snapshots import weight_digest


class ReferenceModel:
    """Float32 weights without gradients, beside the policy's."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model` is whole. Changing (or sharding) it afterwards does not change the digest."""
        self.model = model.eval().requires_grad_(False)
        self.digest = weight_digest(model.state_dict())

    def check(self, known: str | None) -> None:
        """Raise `UsageError` where a checkpoint has the digest of another model; None is a checkpoint without one."""
        if known is not None and known != self.digest:
            raise UsageError(
                "The model at model.path is not the one that this run started with and that its loss compares with: "
                "put that model back, or use run.fresh=true."
            )
