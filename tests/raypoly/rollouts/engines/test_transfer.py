"""Weights that travel without Ray's objects are the same weights, of the version that was announced, or none at all."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from raypoly.algorithms.losses import build as build_loss
from raypoly.core.config import GeneratorConfig, TrainConfig
from raypoly.core.errors import TransferBroken, UsageError, WeightsMismatch
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.rollouts.engines import Asleep, SampleRequest, build
from raypoly.rollouts.engines.gloo_transfer import GlooReceiver, buckets
from raypoly.rollouts.engines.transfer import Parcel, Sender, build_sender
from raypoly.rollouts.engines.vllm_transfer import checked_vllm
from tests.raypoly.rollouts.engines.test_engines import LONG_PROMPT, changed

DRAWN = torch.Generator().manual_seed(0)
WEIGHTS = [
    ("matrix", torch.randn(30, 50, generator=DRAWN)),
    ("nothing", torch.zeros(0, 4)),
    ("odd", torch.randn(7, generator=DRAWN).bfloat16()),
    ("behind", torch.arange(5, dtype=torch.int64)),
]


class Pair:
    """A sender and what receives from it, each in a thread of its own."""

    def __init__(self, receiver: Any) -> None:
        self.sender: Sender = build_sender("gloo", "float32")
        self.receiver = receiver
        info = self.sender.listen("127.0.0.1")
        self._both(self.sender.connect, lambda: receiver.connect(info))

    def deliver(self, weights: Mapping[str, torch.Tensor], version: int, announced: int | None = None) -> Any:
        parcel = self.sender.offer(weights.items(), version)
        parcel = replace(parcel, version=version if announced is None else announced)
        try:
            return self._both(self.sender.send, lambda: self._taken(parcel))
        finally:
            self.sender.withdraw()

    def _taken(self, parcel: Parcel) -> Any:
        taken = self.receiver.receive(parcel)
        return None if taken is None else dict(taken)

    def _both(self, one: Any, other: Any) -> Any:
        with ThreadPoolExecutor(1) as side:  # leaving it waits for the sender, which must not wait for ever
            beside = side.submit(one)
            came = other()
            beside.result()
            return came


def test_tensors_of_every_type_and_size_come_bit_for_bit_and_in_order() -> None:
    pair = Pair(GlooReceiver())
    for version in (1, 2):
        sent = {name: tensor * version for name, tensor in WEIGHTS}
        came = pair.deliver(sent, version)
        assert list(came) == list(sent)
        for name, tensor in sent.items():
            assert came[name].dtype == tensor.dtype
            assert torch.equal(came[name], tensor)


def test_a_bucket_holds_neighbours_up_to_its_limit_and_a_larger_tensor_alone() -> None:
    sizes = [4, 4, 8, 100, 4, 12]
    sender = build_sender("gloo", "float32")
    pieces = sender.offer([(str(i), torch.zeros(size, dtype=torch.uint8)) for i, size in enumerate(sizes)], 0).pieces
    assert list(buckets(pieces, 16)) == [[0, 1, 2], [3], [4, 5]]


def test_another_version_than_the_announced_one_is_an_error_that_names_both() -> None:
    pair = Pair(GlooReceiver())
    with pytest.raises(WeightsMismatch, match="version 6 arrived in place of version 5"):
        pair.deliver(dict(WEIGHTS[:1]), version=6, announced=5)


def test_a_partner_that_is_gone_is_told() -> None:
    pair = Pair(GlooReceiver())
    pair.receiver = None
    pair.sender.offer(WEIGHTS, 3)
    with pytest.raises(TransferBroken, match="other side of a weight transfer is gone"):
        pair.sender.send()


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_a_sleeping_engine_answers_nothing_until_new_weights_wake_it(folder: Path, name: str) -> None:
    config = GeneratorConfig(engine=name, max_tokens=4, placement="split", transport="gloo")
    engine: Any = build(folder, config, "float32")
    learner = PolicyLearner(folder, TrainConfig(lr=0.05), build_loss("policy_gradient"), temperature=1.0)
    pair = Pair(engine)
    before = engine.prompt_logprobs(LONG_PROMPT)
    engine.sleep()
    with pytest.raises(Asleep, match=f"the engine {name} sleeps"):
        list(engine.sample([SampleRequest(0, LONG_PROMPT, (1,))]))
    with pytest.raises(Asleep):
        engine.prompt_logprobs(LONG_PROMPT)
    changed(learner)
    pair.deliver(dict(learner.weights()), learner.version)
    after = engine.prompt_logprobs(LONG_PROMPT)
    assert np.abs(after - learner.logprobs(LONG_PROMPT[:1], LONG_PROMPT[1:], 1.0)).max() < 1e-4
    assert np.abs(after - before).max() > 1e-2
    assert len(list(engine.sample([SampleRequest(0, LONG_PROMPT, (1,))]))) == 1


def held_weights() -> int:
    """Numbers in the parameters of this process."""
    gc.collect()
    return sum(it.numel() for it in gc.get_objects() if issubclass(type(it), torch.nn.Parameter))


def test_the_transformers_engine_that_slept_wants_all_weights(folder: Path) -> None:
    before = held_weights()
    engine: Any = build(folder, GeneratorConfig(engine="transformers", placement="colocated"), "float32")
    assert held_weights() > before
    engine.sleep()
    assert held_weights() == before
    learner = PolicyLearner(folder, TrainConfig(), build_loss("policy_gradient"), temperature=1.0)
    weights = learner.export()
    head = weights.pop("lm_head.weight")
    with pytest.raises(WeightsMismatch, match=r"got no new lm_head\.weight"):
        engine.update_weights(weights)
    with pytest.raises(Asleep):
        engine.prompt_logprobs(LONG_PROMPT)
    engine.update_weights({**weights, "lm_head.weight": head})
    assert np.isfinite(engine.prompt_logprobs(LONG_PROMPT)).all()


class Plain:
    """An engine of a user's own with the three methods that every engine has."""


def test_an_engine_that_lacks_what_its_placement_needs_is_refused_before_it_is_built(folder: Path) -> None:
    mine = f"{__name__}:Plain"
    with pytest.raises(UsageError, match=r"has no sleep\(\), which generator.placement=colocated needs"):
        build(folder, GeneratorConfig(engine=mine, placement="colocated"), "float32")
    with pytest.raises(UsageError, match=r"has no receive\(\), which generator.transport=gloo needs"):
        build(folder, GeneratorConfig(engine=mine, placement="split", transport="gloo"), "float32")


def test_another_vllm_is_refused_with_the_supported_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.33.1"))
    with pytest.raises(UsageError, match=r"vLLM 0\.33\.1 is installed, raypoly works with 0\.32\.x"):
        checked_vllm()
