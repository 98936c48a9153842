"""What a GPU's transports give vLLM: its own dataclasses and engines take it, with CUDA's and NCCL's calls stubbed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from raypoly.core.config import GeneratorConfig
from raypoly.planning.placement import engine_name, engine_number
from raypoly.rollouts.engines import Asleep, SampleRequest
from raypoly.rollouts.engines.transfer import GatheringRank, Parcel, build_sender
from raypoly.rollouts.engines.vllm_engine import VllmEngine
from raypoly.rollouts.engines.vllm_transfer import backend, update_info

WEIGHTS = {"head.weight": torch.randn(6, 4), "norm.weight": torch.randn(4), "turned.weight": torch.randn(3, 5).t()}


class Gpus:
    """Two GPUs whose memory is the host's; handles are numbers."""

    def __init__(self) -> None:
        self.current = 0
        self._exported: list[torch.Tensor] = []

    def properties(self, index: int) -> Any:
        return SimpleNamespace(uuid=f"GPU-{index}")

    def reduce(self, tensor: torch.Tensor) -> Any:
        assert tensor.is_contiguous(), "a view's strides are not in its handle"
        self._exported.append(tensor)
        handle = len(self._exported) - 1
        return None, (torch.Tensor, tensor.shape, tensor.stride(), 0, None, tensor.dtype, self.current, handle)

    def rebuild(self, _cls: Any, shape: Any, _stride: Any, _offset: int, _storage: Any, dtype: Any, *at: int) -> Any:
        device, handle = at
        tensor = self._exported[handle]
        assert (tensor.shape, tensor.dtype) == (shape, dtype)
        self.opened = (device, handle)
        return tensor


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    found = Gpus()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: found.current)
    monkeypatch.setattr(torch.cuda, "get_device_properties", found.properties)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: None)
    monkeypatch.setattr("torch.multiprocessing.reductions.reduce_tensor", found.reduce)
    monkeypatch.setattr("vllm.distributed.weight_transfer.ipc_engine.rebuild_cuda_tensor", found.rebuild)
    return found


def vllm_receiver(name: str, device: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """vLLM's engine of this backend on a device, and what it loads."""
    loaded: dict[str, torch.Tensor] = {}
    model = SimpleNamespace(load_weights=loaded.update)
    module = import_module(f"vllm.distributed.weight_transfer.{name}_engine")
    engine = getattr(module, f"{name.upper()}WeightTransferEngine")
    config = SimpleNamespace(parallel_config=None, model_config=None)
    return engine(backend(name), config, torch.device("cuda", device), model), loaded


@pytest.mark.parametrize("ranks", [1, 3])
def test_vllm_s_engine_opens_the_handles_of_the_rank_on_its_gpu_and_no_other_exports_any(
    gpus: Gpus, ranks: int
) -> None:
    """Memory that is exported stays allocated until somebody has opened it."""
    for number in range(ranks):
        assert engine_number(engine_name(number)) == number
        senders = [build_sender("ipc", "bfloat16", rank, number) for rank in range(ranks)]
        parcels = []
        for gpus.current, sender in enumerate(senders):
            gathered = iter([(name, tensor + number) for name, tensor in WEIGHTS.items()])
            parcels.append(sender.offer(gathered, 3))
            assert list(gathered) == [], "every rank takes part in gathering"
        assert [bool(parcel.pieces) for parcel in parcels] == [rank == number for rank in range(ranks)]
        engine, loaded = vllm_receiver("ipc", number)
        engine.init_transfer_engine(engine.parse_init_info(dict(senders[0].listen("127.0.0.1"))))
        assert not engine.packed, "by vLLM's default"
        engine.receive_weights(engine.parse_update_info(update_info("ipc", parcels[number])))
        assert list(loaded) == list(WEIGHTS)
        assert all(torch.equal(loaded[name], tensor + number) for name, tensor in WEIGHTS.items())
        assert gpus.opened[0] == number
        elsewhere, _ = vllm_receiver("ipc", ranks)
        with pytest.raises(ValueError, match=f"IPC handle not found for GPU UUID GPU-{ranks}"):
            elsewhere.receive_weights(elsewhere.parse_update_info(update_info("ipc", parcels[number])))


def test_handles_are_of_memory_that_lives_until_they_are_withdrawn(gpus: Gpus) -> None:
    sender: Any = build_sender("ipc", "float32")
    sender.offer(WEIGHTS.items(), 1)
    assert [tensor.shape for tensor in sender._held] == [tensor.shape for tensor in WEIGHTS.values()]
    sender.withdraw()
    assert sender._held == []


def test_nccl_sends_what_it_announced_in_the_engine_s_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    nccl = import_module("vllm.distributed.weight_transfer.nccl_engine")
    opened, sent = [], []

    def broadcast(iterator: Iterator[tuple[str, torch.Tensor]], **how: Any) -> None:
        sent.append((list(iterator), how))

    monkeypatch.setattr(nccl, "open_trainer_endpoint", lambda info: opened.append(info) or "group")
    monkeypatch.setattr(nccl, "packed_nccl_broadcast_producer", broadcast)
    sender = build_sender("nccl", "bfloat16")
    receiver, _ = vllm_receiver("nccl", 1)
    joins = receiver.parse_init_info(dict(sender.listen("127.0.0.1")))
    sender.connect()
    (meeting,) = opened
    for name in ("master_address", "master_port", "world_size", "packed", "packed_buffer_size_bytes"):
        assert getattr(meeting, name) == getattr(joins, name), name
    assert (meeting.rank, joins.rank_offset, joins.world_size) == (0, 1, 2)
    for version in (1, 2):
        weights = {name: tensor * version for name, tensor in WEIGHTS.items()}
        parcel = sender.offer(weights.items(), version)
        announced = receiver.parse_update_info(update_info("nccl", parcel))
        sender.send()
        pairs, how = sent.pop()
        assert how["buffer_size_bytes"] == joins.packed_buffer_size_bytes
        assert how["group"] == "group"
        assert [name for name, _ in pairs] == announced.names == list(weights)
        assert [list(tensor.shape) for _, tensor in pairs] == announced.shapes
        assert {str(tensor.dtype) for _, tensor in pairs} == {f"torch.{each}" for each in announced.dtype_names}
        assert all(torch.equal(tensor, weights[name].bfloat16()) for name, tensor in pairs)
        sender.withdraw()


@pytest.mark.parametrize("transport", ["nccl", "gloo"])
def test_a_rank_whose_weights_rank_0_sends_only_takes_part_in_gathering_them(transport: str) -> None:
    sender = build_sender(transport, "float32", rank=1)
    assert isinstance(sender, GatheringRank)
    gathered = iter(WEIGHTS.items())
    assert sender.offer(gathered, 4) == Parcel(4)
    assert list(gathered) == []


class Recorder:
    """vLLM's engine, as far as sleep and weight updates go."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sleep(self, level: int) -> None:
        self.calls.append(("sleep", level))

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(("wake_up", *tags))

    def collective_rpc(self, name: str, kwargs: Any = None) -> None:
        self.calls.append(name)

    def reset_prefix_cache(self) -> bool:
        self.calls.append("reset_prefix_cache")
        return True


def test_weights_wake_before_they_are_filled_and_the_cache_after_that() -> None:
    engine = VllmEngine.__new__(VllmEngine)
    engine._engine, engine._asleep = recorder, _ = Recorder(), False
    engine._config = GeneratorConfig(placement="colocated", transport="ipc")
    engine.sleep()
    with pytest.raises(Asleep):
        list(engine.sample([SampleRequest(0, np.zeros(1, np.int32), (1,))]))
    with pytest.raises(Asleep):
        engine.weight_hashes()
    update = ["start_weight_update", "update_weights", "finish_weight_update"]
    engine.receive(Parcel(1, details={"ipc_handles": []}))
    asleep = [("sleep", 2), ("wake_up", "weights"), *update, ("wake_up", "kv_cache"), "reset_prefix_cache"]
    assert recorder.calls == asleep
    engine.receive(Parcel(2, details={"ipc_handles": []}))
    assert recorder.calls == [*asleep, *update, "reset_prefix_cache"]
