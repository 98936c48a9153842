"""An engine's hashes are the learner's after an update, and name each weight that is not the learner's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from raypoly.algorithms.losses import build as build_loss
from raypoly.core.config import GeneratorConfig, ModelConfig, TrainConfig
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.weight_hash import weight_hash
from raypoly.rollouts.engines import build
from raypoly.rollouts.engines.vllm_weights import LoadedWeights
from tests.raypoly.rollouts.engines.test_engines import changed
from tests.raypoly.rollouts.engines.test_transfer import Pair
from workflows.step.weight_sync import differing_weights

Weights = dict[str, Tensor]
ATTENTION = "model.layers.0.self_attn"
DOWN, NORM, GATE = "model.layers.1.mlp.down_proj.weight", "model.norm.weight", "model.layers.2.mlp.gate_proj.weight"


@dataclass
class Joined:
    """A learner that has made an update, an engine, and the transport between them."""

    learner: PolicyLearner
    pair: Pair

    def __post_init__(self) -> None:
        self.before = {name: tensor.clone() for name, tensor in self.learner.weights()}
        changed(self.learner)
        self.right = {name: tensor.clone() for name, tensor in self.learner.weights()}

    def wrong(self, weights: Weights) -> list[str]:
        """What is wrong in the engine when it was given these."""
        self.pair.deliver(weights, self.learner.version)
        return differing_weights(self.learner.weight_hashes(), self.pair.receiver.weight_hashes())


def learner(folder: Path, dtype: str) -> PolicyLearner:
    model = ModelConfig.model_validate({"dtype": dtype})
    return PolicyLearner(folder, TrainConfig(lr=0.05), build_loss("policy_gradient"), 1.0, model)


@pytest.fixture(scope="module", params=[("transformers", "float32"), ("vllm", "bfloat16")], ids="-".join)
def joined(folder: Path, request: pytest.FixtureRequest) -> Joined:
    engine, dtype = request.param
    config = GeneratorConfig(engine=engine, max_tokens=4, placement="split", transport="gloo")
    return Joined(learner(folder, dtype), Pair(build(folder, config, dtype)))


def change_a_bit(right: Weights, _: Weights) -> Weights:
    bits = right[DOWN].clone().view(torch.int32)
    bits[5, 7] ^= 1 << 16  # the lowest that bf16 keeps, but for a carry
    return {DOWN: bits.view(torch.float32)}


def swap_rows(right: Weights, _: Weights) -> Weights:
    rows = list(range(len(right["lm_head.weight"])))
    return {"lm_head.weight": right["lm_head.weight"][[1, 0, *rows[2:]]]}


def exchange_q_and_k(right: Weights, _: Weights) -> Weights:
    q, k = (right[f"{ATTENTION}.{part}_proj.weight"] for part in "qk")
    return {
        f"{ATTENTION}.q_proj.weight": torch.cat([k, q[len(k) :]]),
        f"{ATTENTION}.k_proj.weight": q[: len(k)].clone(),
    }


def stay_behind(right: Weights, before: Weights) -> Weights:
    return {GATE: before[GATE]}


@pytest.mark.parametrize("fault", [change_a_bit, swap_rows, exchange_q_and_k, stay_behind])
def test_a_wrong_weight_is_found_by_its_name(joined: Joined, fault: Callable[[Weights, Weights], Weights]) -> None:
    assert joined.wrong(joined.right) == []
    wrong = fault(joined.right, joined.before)
    assert joined.wrong({**joined.right, **wrong}) == sorted(wrong)
    assert joined.wrong(joined.right) == []


def test_a_weight_that_was_not_sent_is_found_by_its_name(joined: Joined) -> None:
    joined.wrong(joined.before)
    assert joined.wrong({name: tensor for name, tensor in joined.right.items() if name != NORM}) == [NORM]


class Fused(torch.nn.Module):
    """A layer with the matrices of several in one parameter, as vLLM keeps it on a GPU."""

    def __init__(self, parts: list[Tensor], biases: list[Tensor] | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.cat(parts))
        self.output_sizes = [len(part) for part in parts]
        if biases is not None:
            self.bias = torch.nn.Parameter(torch.cat(biases))


class Embedding(torch.nn.Module):
    """One with rows beyond the vocabulary."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.cat([weight, torch.ones(3, weight.shape[1])]))
        self.org_vocab_size = len(weight)


def test_fused_parameters_are_hashed_in_their_parts() -> None:
    drawn = torch.Generator().manual_seed(0)
    q, k, v, gate, up, table = (torch.randn(4, 6, generator=drawn) for _ in range(6))
    bq, bk, bv = (torch.randn(4, generator=drawn) for _ in range(3))
    model = torch.nn.ModuleDict({"a": torch.nn.ModuleDict()})
    model["a"]["qkv_proj"] = Fused([q, k, v], [bq, bk, bv])  # type: ignore[index, operator]
    model["a"]["gate_up_proj"] = Fused([gate, up])  # type: ignore[index, operator]
    model["embed"] = model["head"] = Embedding(table)
    model.packed_modules_mapping = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }
    named = {
        **{f"a.{name}_proj.weight": each for name, each in zip("qkv", (q, k, v), strict=True)},
        **{f"a.{name}_proj.bias": each for name, each in zip("qkv", (bq, bk, bv), strict=True)},
        **{"a.gate_proj.weight": gate, "a.up_proj.weight": up, "embed.weight": table, "head.weight": table},
    }
    loaded = LoadedWeights(model, torch.bfloat16)
    want = {name: weight_hash(tensor, torch.bfloat16) for name, tensor in named.items()}
    assert differing_weights(want, loaded.hashes()) == []
    with torch.no_grad():
        model["a"]["qkv_proj"].weight[:8] = torch.cat([k, q])  # type: ignore[index, operator]
        model["embed"].weight[:2] = table[[1, 0]]  # type: ignore[index, operator]
    wrong = ["a.k_proj.weight", "a.q_proj.weight", "embed.weight", "head.weight"]
    assert differing_weights(want, loaded.hashes()) == wrong


def test_a_packed_copy_of_other_weights_than_the_kept_ones_is_found() -> None:
    """As vLLM's CPU engine packs the head, which it also keeps."""
    head: Any = torch.nn.Linear(2, 3, bias=False)
    head.cpu_linear, packed = None, []
    head.quant_method = SimpleNamespace(process_weights_after_loading=packed.append)
    loaded = LoadedWeights(torch.nn.ModuleDict({"head": head}), torch.float32)
    head.quant_method.process_weights_after_loading(head)
    assert packed == [head]
    want = {"head.weight": weight_hash(head.weight, torch.float32)}
    assert loaded.hashes() == want
    with torch.no_grad():
        head.weight += 1
    want = {"head.weight": weight_hash(head.weight, torch.float32)}
    assert differing_weights(want, loaded.hashes()) == ["head.weight"]
