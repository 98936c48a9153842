"""Weight transfer into vLLM: its own backends for the GPU, and gloo for a CPU registered beside them.

An engine receives a parcel by vLLM's own three calls (start, update, finish) with every backend, so a CPU tests that
route too; only the bytes take another way.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import torch

from raypoly.core.errors import UsageError
from raypoly.rollouts.engines.gloo_transfer import GlooReceiver
from raypoly.rollouts.engines.transfer import Named, Parcel, Sender, pieces_of

_SUPPORTED = ("0.32",)  # minor versions of vLLM whose internals these files know
_CHUNK = 1 << 30
_GLOO = "raypoly_gloo"
"""The backend's name in vLLM."""


def checked_vllm() -> Any:
    """The vllm module. Raises `UsageError` for a version that is not supported."""
    import vllm

    if not vllm.__version__.startswith(tuple(f"{minor}." for minor in _SUPPORTED)):
        raise UsageError(
            f"vLLM {vllm.__version__} is installed, raypoly works with {', '.join(_SUPPORTED)}.x: "
            "run make setup, or set generator.engine=transformers."
        )
    return vllm


def backend(transport: str) -> Any:
    """vLLM's engine argument for the transport; None for Ray objects."""
    if transport not in ("gloo", "ipc", "nccl"):
        return None
    if transport == "gloo":
        _register_gloo()
    name = _GLOO if transport == "gloo" else transport
    return import_module("vllm.config.weight_transfer").WeightTransferConfig(backend=name)


def update_info(transport: str, parcel: Parcel) -> dict[str, Any]:
    if transport == "gloo":
        return {"parcel": parcel}
    info: dict[str, Any] = {
        "names": [piece.name for piece in parcel.pieces],
        "dtype_names": [piece.dtype for piece in parcel.pieces],
        "shapes": [list(piece.shape) for piece in parcel.pieces],
    }
    return info | dict(parcel.details)


# The learner's side of CUDA IPC needs torch alone: one handle a parameter, as in vLLM's own trainer, whose call is the
# transfer itself, while here the driver calls the engine. One rank copies nothing; of several, the one on the engine's
# GPU offers a whole copy. For NCCL vLLM's trainer sends the packed buckets.
class IpcSender(Sender):
    """Handles of the given tensors on this rank's GPU; the engine rounds float32 ones while it copies."""

    def __init__(self, dtype: str) -> None:
        self._held: list[torch.Tensor] = []

    def offer(self, weights: Named, version: int) -> Parcel:
        from torch.multiprocessing.reductions import reduce_tensor

        named = [(name, tensor.detach().contiguous()) for name, tensor in weights]
        self._held = [tensor for _, tensor in named]
        gpu = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handles = [{gpu: reduce_tensor(tensor)[1]} for tensor in self._held]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        return Parcel(version, pieces_of(named), {"ipc_handles": handles})

    def withdraw(self) -> None:
        self._held = []
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]


class NcclSender(Sender):
    """vLLM's trainer for one engine, and its `WeightSource`. The driver calls the engine in the trainer's place."""

    def __init__(self, dtype: str) -> None:
        self._dtype: torch.dtype = getattr(torch, dtype)
        self._trainer: Any = None
        self._source: list[tuple[str, torch.Tensor]] = []

    def listen(self, address: str) -> Mapping[str, Any]:
        with socket.socket() as free:
            free.bind((address, 0))
            self._meeting = {"master_address": address, "master_port": free.getsockname()[1], "world_size": 2}
        return {**self._meeting, "rank_offset": 1, "packed": True, "packed_buffer_size_bytes": _CHUNK}

    def connect(self) -> None:
        checked_vllm()
        nccl = import_module("vllm.distributed.weight_transfer.nccl_engine")
        info = nccl.NCCLTrainerInitInfo(rank=0, packed=True, packed_buffer_size_bytes=_CHUNK, **self._meeting)
        self._trainer = nccl.NCCLTrainerWeightTransferEngine.trainer_init(info, client=_Silent(), source=self)

    def offer(self, weights: Named, version: int) -> Parcel:
        """In the engine's dtype: half the bytes for bfloat16, and the same rounding."""
        self._source = [(name, tensor.detach()) for name, tensor in weights]
        return Parcel(version, pieces_of((name, tensor.to("meta", self._dtype)) for name, tensor in self._source))

    def send(self) -> None:
        self._trainer.send_weights()

    def withdraw(self) -> None:
        self._source = []

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._source:
            yield name, tensor.to(self._dtype)

    def metadata(self) -> list[Any]:
        meta = import_module("vllm.distributed.weight_transfer.base").ParamMeta
        return [meta(name, self._dtype, tuple(tensor.shape)) for name, tensor in self._source]


class _Silent:
    """vLLM's `VLLMWeightSyncClient`, which does nothing."""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None: ...

    def start_weight_update(self) -> None: ...

    def update_weights(self, update_info: Any) -> None: ...

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...


def _register_gloo() -> None:
    base = import_module("vllm.distributed.weight_transfer.base")
    factory = import_module("vllm.distributed.weight_transfer.factory").WeightTransferEngineFactory
    reload = import_module("vllm.model_executor.model_loader.reload")

    class Backend(base.WeightTransferEngine):  # type: ignore[misc,name-defined]
        """Loads the weights as vLLM's NCCL backend does."""

        def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
            super().__init__(config, vllm_config, device, model)
            self._receiver = GlooReceiver()

        def parse_init_info(self, init_dict: dict[str, Any]) -> dict[str, Any]:
            return init_dict

        def init_transfer_engine(self, init_info: dict[str, Any]) -> None:
            self._receiver.connect(init_info)

        def start_weight_update(self) -> None:
            reload.initialize_layerwise_reload(self.model)

        def update_weights(self, update_info: dict[str, Any]) -> None:
            self.receive_weights(update_info["parcel"])

        def receive_weights(self, parcel: Parcel) -> None:
            self.model.load_weights(self._receiver.receive(parcel))

        def finish_weight_update(self) -> None:
            reload.finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self) -> None:
            """Nothing outlives the process."""

    if _GLOO not in factory._registry:
        factory.register_engine(_GLOO, Backend)
