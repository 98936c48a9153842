"""A learner's checkpoint state: trained weights (with the loss's head) and optimizer moments.

state = CheckpointState(model, optimizer, ranks, adapters=False)
snapshot = state.snapshot(version, reference_digest)       # this rank's part: some tensors, whole
version = state.load(parts, check)                         # a part goes to one of the ranks that load

The ranks that load may be more or fewer than those that saved.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence

import torch
from safetensors.torch import load as load_safetensors
from torch.nn import Module
from transformers import PreTrainedModel

from raypoly.core.errors import CorruptData, UsageError
from raypoly.learner.adapters import trained_weights
from raypoly.learner.loss_heads import PREFIX, named_weights
from raypoly.learner.ranks import Ranks
from raypoly.learner.snapshots import ADAPTERS, HASHED, HEAD, META, OPTIMIZER, Snapshot
from raypoly.run.store.shards import WEIGHTS


class CheckpointState:
    """The state of one rank's model and optimizer."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        adapters: bool,
        head: Module | None = None,
        hashed: bool = False,
    ) -> None:
        """`adapters`: only the model's adapters are trained. `head`: the loss's. `hashed`: digests are of hashes."""
        self._head, self._hashed = head, hashed
        self._model, self._optimizer, self._ranks, self._adapters = model, optimizer, ranks, adapters
        self._part = ADAPTERS if adapters else WEIGHTS
        self._digest: str | None = None

    def digest(self, hashed: bool | None = None) -> str:
        """`weight_digest` of the trained weights of all ranks, as they are now."""
        self._digest = self._ranks.digest(self._state(), self._hashed if hashed is None else hashed)
        return self._digest

    def mark_changed(self) -> None:
        """Drop the cached digest after the weights changed."""
        self._digest = None

    def snapshot(self, version: int, reference_digest: str | None) -> Snapshot:
        """A copy on the host of this rank's part; later updates don't change it."""
        names = self._trained()
        state = self._optimizer.state_dict()["state"]
        moments = {f"{names[index]}|{key}": value for index, entry in state.items() for key, value in entry.items()}
        ranks = self._ranks
        weights = ranks.owned_copies(self._state())
        return Snapshot(
            version=version,
            weights={name: tensor for name, tensor in weights.items() if not name.startswith(PREFIX)},
            weights_part=self._part,
            moments=ranks.owned_copies(moments),
            reference_digest=reference_digest,
            rank=ranks.rank,
            weight_digest=None if ranks.size == 1 else self._digest or self.digest(),
            head={name: tensor for name, tensor in weights.items() if name.startswith(PREFIX)},
        )

    def load(self, parts: Sequence[Mapping[str, bytes]], check: Callable[[str | None], None]) -> int:
        """Load the snapshots of all ranks; this rank was given the files `parts`. Returns the version of the weights.

        `check` gets the reference model's digest before anything changes. Raises `CorruptData` if the weights differ
        from the saved ones, `UsageError` if they are another model's.
        """
        (meta,) = itertools.chain(*self._ranks.gather([json.loads(files[META]) for files in parts if META in files]))
        check(meta.get("reference_digest"))
        heads = [files for files in parts if HEAD in files]
        self._load_weights(_tensors(parts, self._part) | _tensors(heads, HEAD))
        self._load_moments(_tensors(parts, OPTIMIZER))
        version = int(meta["version"])
        saved = meta["weight_digest"]
        if self.digest(saved.startswith(HASHED)) != saved:
            raise CorruptData(f"the checkpoint of version {version} does not restore the weights that were saved")
        return version

    def _load_weights(self, found: Mapping[str, torch.Tensor]) -> None:
        state, loaded = self._state(), set()
        for name, tensor in self._ranks.distribute(found):
            if name not in state or state[name].shape != tensor.shape:
                raise UsageError(f"The checkpoint has weights {name} of shape {list(tensor.shape)}, the model has not.")
            state[name].copy_(tensor)
            loaded.add(name)
        if len(loaded) < len(state):
            raise CorruptData(f"the checkpoint lacks the weights {min(state.keys() - loaded)}")

    def _load_moments(self, found: Mapping[str, torch.Tensor]) -> None:
        index = {name: i for i, name in enumerate(self._trained())}
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in self._ranks.distribute(found):
            name, _, field = key.rpartition("|")
            state.setdefault(index[name], {})[field] = value
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _state(self) -> Mapping[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = trained_weights(self._model) if self._adapters else self._model.state_dict()
        return state if self._head is None else {**state, **{n: p.detach() for n, p in named_weights(self._head)}}

    def _trained(self) -> list[str]:
        """The optimizer's parameters by name, in its order."""
        return [*trained_weights(self._model), *(name for name, p in named_weights(self._head) if p.requires_grad)]


def _tensors(parts: Sequence[Mapping[str, bytes]], name: str) -> dict[str, torch.Tensor]:
    """The tensors of all files of this name."""
    return {key: tensor for files in parts for key, tensor in load_safetensors(files[name]).items()}
