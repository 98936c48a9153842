"""Learner's tensors in the host's memory while nobody computes with them (`train.offload`).

    offload = Offload("all", device)
    offload.hold(model)                                # once: its weights leave and come back
    offload.leave(parameters); offload.home()          # weights, and the gradients of a step in progress
    for group, bucket in offload.buckets(optimizer):   # inside, the moments of these parameters are on the device
    offload.present(tensor)                            # to read a tensor, wherever it lies

A tensor that is away keeps its object, by which optimizer, FSDP and compiled layers know it, but its storage has no
bytes. Host buffers are page-locked on a GPU, made once and kept; copies have a stream of their own. An error in a move
leaves every tensor whole on one of its sides. A CPU makes the same copies, to other memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from raypoly.core.config import Offloaded

BUCKET = 1 << 28
"""Bytes of moments that move together: one bucket is stepped while the next one comes and the last one leaves."""
Bucket = tuple[dict[str, Any], list[Parameter]]
"""A parameter group of the optimizer, and some of its parameters."""


class _Moved:
    """A storage on the device and its buffer on the host."""

    def __init__(self, tensor: Tensor, frozen: bool) -> None:
        """`frozen`: it never changes, so it is copied out once."""
        self.tensor, self.frozen = tensor, frozen  # the tensor keeps its storage alive
        self.storage = _part(tensor).untyped_storage()
        self.size = self.storage.nbytes()
        self.buffer: Tensor | None = None
        self.filled = self.away = False

    @property
    def bytes(self) -> Tensor:
        return torch.empty(0, dtype=torch.uint8, device=self.storage.device).set_(self.storage)


class Offload:
    """Moves one learner's tensors. One thread uses it."""

    def __init__(self, kind: Offloaded, device: torch.device) -> None:
        self.kind, self._device = kind, device
        on_gpu = kind != "none" and device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._known: dict[int, _Moved] = {}  # by storage
        self._weights: list[_Moved] = []
        self._gradients: list[_Moved] = []
        self._moments: dict[Tensor, list[_Moved]] = {}  # by parameter
        self._spare: dict[int, list[Tensor]] = defaultdict(list)  # buffers by size

    def hold(self, module: Module) -> None:
        """Let the module's weights leave from now on, with `all`."""
        if self.kind != "all":
            return
        for parameter in module.parameters():
            self._weights += self._add([parameter], frozen=not parameter.requires_grad)

    def leave(self, parameters: Iterable[Tensor]) -> None:
        """Move what is held, and these parameters' gradients, to the host."""
        if self.kind != "all":
            return
        self._gradients += self._add(p.grad for p in parameters if p.grad is not None)
        leaving = [moved for moved in (*self._weights, *self._gradients) if not moved.away]
        self._copy_out(leaving)
        self._finish()
        self._free(leaving)

    def home(self) -> None:
        """Move what has left to the device, for all that is computed there from now on."""
        if coming := [moved for moved in (*self._weights, *self._gradients) if moved.away]:
            self._wait(self._copy_in(coming))
        self._forget(self._gradients)
        self._gradients = []

    def buckets(self, optimizer: Optimizer) -> Iterator[Bucket]:
        """All parameters, in order. What `optimizer.step` makes new goes to the host as what was there."""
        cut = list(cut_buckets(optimizer.param_groups, BUCKET if self.kind != "none" else None))
        if self.kind == "none":
            yield from cut
            return
        arrived, leaving, left = self._bring(cut[0]), list[_Moved](), None
        for place, bucket in enumerate(cut):
            self._wait(arrived)
            if place + 1 < len(cut):
                arrived = self._bring(cut[place + 1])
            yield bucket
            sent = [moved for parameter in bucket[1] for moved in self._moments_of(optimizer, parameter)]
            gone = self._copy_out(sent)
            self._wait(left)
            self._free(leaving)
            leaving, left = sent, gone
        self._finish()
        self._free(leaving)

    def keep_moments(self, optimizer: Optimizer, parameter: Tensor) -> None:
        """Move a parameter's moments, just loaded, to the host."""
        if self.kind != "none":
            moments = self._moments_of(optimizer, parameter)
            self._copy_out(moments)
            self._finish()
            self._free(moments)

    def forget_moments(self) -> None:
        """Drop all moments, before others are loaded."""
        for moments in self._moments.values():
            self._forget(moments)
        self._moments = {}

    @property
    def on_device(self) -> int:
        """Bytes of what could leave and has not."""
        return sum(moved.storage.nbytes() for moved in self._known.values())

    @property
    def on_host(self) -> int:
        """Bytes of all buffers."""
        used = (moved.size for moved in self._known.values() if moved.buffer is not None)
        return sum(used) + sum(size * len(buffers) for size, buffers in self._spare.items())

    def present(self, tensor: Tensor) -> Tensor:
        """The tensor to read on the device, of which a rank has a part: a copy where it is away. It must not change."""
        part = _part(tensor)
        moved = self._known.get(part.untyped_storage()._cdata)
        if moved is None or not moved.away:
            return tensor
        assert moved.buffer is not None
        storage = moved.buffer.to(self._device, non_blocking=True).untyped_storage()
        empty = torch.empty(0, dtype=part.dtype, device=self._device)
        copy = empty.set_(storage, part.storage_offset(), part.shape, part.stride())
        if part is tensor:
            return copy
        from torch.distributed.tensor import DTensor  # imports what one rank does not need

        assert isinstance(tensor, DTensor)
        mesh, placements = tensor.device_mesh, tensor.placements
        return DTensor.from_local(copy, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride())

    def _bring(self, bucket: Bucket) -> torch.cuda.Event | None:
        moments = [moved for parameter in bucket[1] for moved in self._moments.get(parameter, ())]
        return self._copy_in([moved for moved in moments if moved.away])

    def _moments_of(self, optimizer: Optimizer, parameter: Tensor) -> list[_Moved]:
        if parameter not in self._moments:
            state = optimizer.state[parameter]
            self._moments[parameter] = self._add(value for name, value in state.items() if name != "step")
        return self._moments[parameter]

    def _add(self, tensors: Iterable[Tensor], frozen: bool = False) -> list[_Moved]:
        """Those that were not known yet. A rank may have an empty part."""
        added = []
        for tensor in tensors:
            key = _part(tensor).untyped_storage()._cdata
            if key not in self._known and (moved := _Moved(tensor, frozen)).size:
                self._known[key] = moved
                added.append(moved)
        return added

    def _forget(self, tensors: Sequence[_Moved]) -> None:
        for moved in tensors:
            del self._known[moved.storage._cdata]
            if moved.buffer is not None:
                self._spare[moved.size].append(moved.buffer)

    def _copy_out(self, tensors: Sequence[_Moved]) -> torch.cuda.Event | None:
        copied = [moved for moved in tensors if not (moved.frozen and moved.filled)]
        for moved in copied:
            moved.buffer = self._buffer(moved.size) if moved.buffer is None else moved.buffer
        with self._copying():
            for moved in copied:
                assert moved.buffer is not None
                moved.buffer.copy_(moved.bytes, non_blocking=True)
                moved.filled = True
            return self._mark()

    def _copy_in(self, tensors: Sequence[_Moved]) -> torch.cuda.Event | None:
        for moved in tensors:
            moved.storage.resize_(moved.size)
        with self._copying():
            for moved in tensors:
                assert moved.buffer is not None
                moved.bytes.copy_(moved.buffer, non_blocking=True)
            done = self._mark()
        for moved in tensors:
            moved.away = False
        return done

    def _free(self, tensors: Sequence[_Moved]) -> None:
        """Once their copies are made."""
        for moved in tensors:
            if not moved.storage.resizable():  # on a CPU: it is mapped from a file, or NumPy has seen it
                del self._known[moved.storage._cdata]
                moved.tensor.data = torch.empty_like(moved.tensor)
                moved.storage = moved.tensor.untyped_storage()
                self._known[moved.storage._cdata] = moved
            moved.storage.resize_(0)
            moved.away = True

    def _buffer(self, size: int) -> Tensor:
        return self._spare[size].pop() if self._spare[size] else host_buffer(size, self._device)

    def _copying(self) -> Any:
        """Inside, work goes to the copies' stream, after all that was computed so far."""
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def _mark(self) -> torch.cuda.Event | None:
        return None if self._stream is None else self._stream.record_event()

    def _wait(self, event: torch.cuda.Event | None) -> None:
        if event is not None:
            torch.cuda.current_stream(self._device).wait_event(event)

    def _finish(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def cut_buckets(groups: Sequence[dict[str, Any]], size: int | None) -> Iterator[Bucket]:
    """Each group's parameters, in order, cut wherever their moments have `size` bytes or more."""
    for group in groups:
        bucket, held = list[Parameter](), 0
        for parameter in group["params"]:
            bucket.append(parameter)
            held += 2 * _part(parameter).nbytes
            if size is not None and held >= size:
                yield group, bucket
                bucket, held = [], 0
        if bucket:
            yield group, bucket


def host_buffer(size: int, device: torch.device) -> Tensor:
    """So many bytes, page-locked where the device is a GPU. Raises `MemoryError`."""
    buffer = torch.empty(size, dtype=torch.uint8)
    if device.type == "cuda":
        # PyTorch's own page-locked memory comes in powers of two, which would take up to twice as much.
        failed = int(torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), size, 1))  # type: ignore[no-untyped-call]
        if failed:
            raise MemoryError(f"train.offload: {size:,} bytes of the machine's memory could not be page-locked.")
    return buffer


def _part(tensor: Tensor) -> Tensor:
    """A rank's own part of a tensor that is divided."""
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part
