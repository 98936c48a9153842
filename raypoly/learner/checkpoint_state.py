"""A learner's checkpoint: trained weights (with the loss's head) and optimizer moments. Files of tensors.

state = CheckpointState(model, optimizer, ranks, offload, adapters=False)
snapshot = state.snapshot(version, reference_digest)                # a copy on the host of this rank's part
for name, data in snapshot.parts(): store.commit(name, data)        # once, while training goes on
version = state.load(parts, check)                                  # on more ranks or fewer than saved it
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch.nn import Module
from transformers import PreTrainedModel

from raypoly.core.errors import CorruptData, UsageError
from raypoly.learner.adapters import trained_weights
from raypoly.learner.offload import Offload
from raypoly.learner.policy_model import HEAD_PREFIX, named_weights
from raypoly.learner.ranks import Ranks
from raypoly.learner.weight_hash import HASHED, weight_digest
from raypoly.run.store.shards import WEIGHTS, read_header
from raypoly.run.store.store import PART, Pieces

OPTIMIZER = "optimizer.safetensors"
META = "learner.json"
ADAPTERS = "adapters.safetensors"
"""Replaces `raypoly.run.store.shards.WEIGHTS` if only adapters are trained."""
HEAD = "loss_head.safetensors"
_FORMAT = {"format": "pt"}
_FIELDS = 3  # of a parameter's moments: the mean, the mean square, and how many steps made them


@dataclass(frozen=True)
class Snapshot:
    """Tensors of one rank on the host, copied between two updates."""

    version: int
    weights: dict[str, torch.Tensor]
    """By their transformers names."""
    weights_part: str
    """The name of their file: `WEIGHTS` or `ADAPTERS`."""
    moments: dict[str, torch.Tensor]
    """By `parameter|field`."""
    reference_digest: str | None = None
    """None if the loss needs no reference model."""
    rank: int = 0
    weight_digest: str | None = None
    """Of all ranks' weights; None for a single rank."""
    head: dict[str, torch.Tensor] = field(default_factory=dict)

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """A checkpoint's files by name, made one at a time. It takes the tensors out of the snapshot."""
        # The digest comes first: encoding empties the dictionaries.
        digest = self.weight_digest or ("" if self.rank else weight_digest({**self.weights, **self.head}))
        yield self.weights_part, encode_tensors(self.weights)
        if self.head:
            yield HEAD, encode_tensors(self.head)
        yield OPTIMIZER, encode_tensors(self.moments)
        if self.rank:
            return
        meta: dict[str, object] = {"version": self.version, "weight_digest": digest}
        if self.reference_digest is not None:
            meta["reference_digest"] = self.reference_digest
        yield META, json.dumps(meta).encode()


def encode_tensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """A safetensors file, byte for byte that of `safetensors.torch.save`. Takes the tensors out of `tensors`."""
    # `save` holds the file twice beside all tensors: of Qwen3-4B's moments 62 GB, more than a host of 125 GiB has left.
    # Here each tensor is freed as soon as it is written.
    head, order = _file_head(tensors)
    file = io.BytesIO()
    file.write(head)
    for name in order:
        file.write(tensors.pop(name).reshape(-1).view(torch.uint8).numpy().data)
    return file.getvalue()  # its own buffer, not a copy


def tensor_file(likes: Mapping[str, torch.Tensor], make: Callable[[str], torch.Tensor]) -> Pieces:
    """The same file of tensors that are made one at a time, on any device, and freed. Of floating-point ones, `likes`
    gives the type in the file; shapes are those of `make`."""
    head, order = _file_head(likes)

    def pieces() -> Iterator[bytes]:
        yield head
        for name in order:
            flat, dtype = make(name).reshape(-1), likes[name].dtype
            step = PART // flat.element_size()
            for start in range(0, len(flat), step):
                yield flat[start : start + step].to("cpu", dtype).view(torch.uint8).numpy().tobytes()
            del flat  # before the next is made

    return Pieces(len(head) + sum(like.nbytes for like in likes.values()), pieces)


def _file_head(tensors: Mapping[str, torch.Tensor]) -> tuple[bytes, Sequence[str]]:
    """A safetensors file up to its tensors' data, and their order there."""
    # From `save`, by empty tensors: that gives the order and the names of dtypes; shapes and offsets are filled in.
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in tensors.items()}
    header = read_header(save_safetensors(empty, _FORMAT))
    end = 0
    for name, said in header.items():
        start, end = end, end + tensors[name].nbytes
        said.update(shape=list(tensors[name].shape), data_offsets=[start, end])
    text = json.dumps({"__metadata__": _FORMAT, **header}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the format aligns data to 8 bytes
    return len(text).to_bytes(8, "little") + text, list(header)


class CheckpointState:
    """The state of one rank's model and optimizer."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimizer: torch.optim.Optimizer,
        ranks: Ranks,
        offload: Offload,
        adapters: bool,
        head: Module | None = None,
        hashed: bool = False,
    ) -> None:
        """`adapters`: only the model's adapters are trained. `head`: the loss's. `hashed`: digests are of hashes."""
        self._head, self._hashed = head, hashed
        self._model, self._optimizer, self._ranks, self._adapters = model, optimizer, ranks, adapters
        self._offload = offload
        self._part = ADAPTERS if adapters else WEIGHTS
        self._digest: str | None = None

    def digest(self, hashed: bool | None = None) -> str:
        """`weight_digest` of the trained weights of all ranks, as they are now."""
        kind = self._hashed if hashed is None else hashed
        self._digest = self._ranks.digest(self._state(), kind, self._offload.present)
        return self._digest

    def mark_changed(self) -> None:
        """Drop the cached digest after the weights changed."""
        self._digest = None

    def snapshot(self, version: int, reference_digest: str | None) -> Snapshot:
        """Copy this rank's part to the host."""
        names = self._trained()
        state = self._optimizer.state_dict()["state"]
        moments = {f"{names[index]}|{key}": value for index, entry in state.items() for key, value in entry.items()}
        ranks, present = self._ranks, self._offload.present
        weights = ranks.owned_copies(self._state(), present)
        return Snapshot(
            version=version,
            weights={name: tensor for name, tensor in weights.items() if not name.startswith(HEAD_PREFIX)},
            weights_part=self._part,
            moments=ranks.owned_copies(moments, present),
            reference_digest=reference_digest,
            rank=ranks.rank,
            weight_digest=None if ranks.size == 1 else self._digest or self.digest(),
            head={name: tensor for name, tensor in weights.items() if name.startswith(HEAD_PREFIX)},
        )

    def load(self, parts: Sequence[Mapping[str, bytes]], check: Callable[[str | None], None]) -> int:
        """Load the snapshots of all ranks, of which this rank was given the files `parts`. Returns the version.

        `check` gets the reference model's digest before anything changes. Raises `CorruptData` if the weights differ
        from the saved ones, `UsageError` if they are another model's.
        """
        # Rank 0 of the run that saved wrote the only META file. Any rank may have been given it now.
        (meta,) = itertools.chain(*self._ranks.gather([json.loads(files[META]) for files in parts if META in files]))
        check(meta.get("reference_digest"))
        heads = [files for files in parts if HEAD in files]
        self._load_weights(_tensors(parts, self._part) | _tensors(heads, HEAD))
        self._load_moments(_tensors(parts, OPTIMIZER))
        version = int(meta["version"])
        saved = meta["weight_digest"]
        # A CPU's digest is of bytes, a GPU's of hashes: compare by the kind that was saved, whatever the device now.
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
        groups = self._optimizer.param_groups
        parameters = dict(zip(self._trained(), (p for group in groups for p in group["params"]), strict=True))
        self._offload.forget_moments()
        self._optimizer.state.clear()
        for key, value in self._ranks.distribute(found):
            name, _, field = key.rpartition("|")
            parameter = parameters[name]
            state, like = self._optimizer.state[parameter], torch.empty_like(value, device=parameter.device)
            state[field] = like.copy_(value)  # of storage that can be freed, not the file's
            if len(state) == _FIELDS:
                self._offload.keep_moments(self._optimizer, parameter)

    def _state(self) -> Mapping[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = trained_weights(self._model) if self._adapters else self._model.state_dict()
        return state if self._head is None else {**state, **{n: p.detach() for n, p in named_weights(self._head)}}

    def _trained(self) -> list[str]:
        return [*trained_weights(self._model), *(name for name, p in named_weights(self._head) if p.requires_grad)]


def _tensors(parts: Sequence[Mapping[str, bytes]], name: str) -> dict[str, torch.Tensor]:
    return {key: tensor for files in parts for key, tensor in load_safetensors(files[name]).items()}
