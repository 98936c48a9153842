"""What must change nothing beyond rounding, and what float32 master weights are for."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from raypoly.algorithms.losses import build
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.learner.attention import PACKED
from raypoly.learner.compiled_layers import Recomputing, compile_layers, recompute
from raypoly.learner.packing import pack
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.policy_model import TOLERANCE, load_model, logprob_distance, response_logprobs
from tests.support.random_rows import NORMALISERS, random_rows, update


def learner(folder: Path, dtype: str = "float32", **train: object) -> PolicyLearner:
    config = TrainConfig.model_validate({"max_grad_norm": 1e9, **train})
    return PolicyLearner(folder, config, build("policy_gradient"), 1.0, ModelConfig.model_validate({"dtype": dtype}))


def gradients(one: PolicyLearner) -> Mapping[str, torch.Tensor]:
    """Of one step, by parameter: AdamW's first moment is a tenth of it."""
    update(one, random_rows())
    return {key: value * 10 for key, value in one.snapshot().moments.items() if key.endswith("|exp_avg")}


def distance(want: Mapping[str, torch.Tensor], got: Mapping[str, torch.Tensor]) -> float:
    """Largest difference of a parameter's gradients, relative to its norm."""
    assert set(want) == set(got)
    return max(float((want[key] - got[key]).norm() / want[key].norm().clamp(min=1e-12)) for key in want)


def kept(folder: Path, kind: Recomputing = "off", bf16: bool = False, compiled: bool = False) -> int:
    """Bytes that autograd keeps of a forward pass, weights left out."""
    model = load_model(folder, torch.device("cpu"), bf16)
    if compiled:
        compile_layers(model, bf16, kind)
    else:
        recompute(model, kind)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    held: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logp_T, _ = response_logprobs(model, pack(random_rows()), 1.0, bf16)
    assert logp_T.requires_grad
    sizes = {tensor.data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    return sum(size for address, size in sizes.items() if address not in weights)


def test_one_token_that_bf16_rounds_far_off_refuses_no_model_but_in_float32_any_token_does() -> None:
    own, one_off = torch.zeros(8), torch.zeros(8)
    one_off[3] = 0.6
    assert logprob_distance(one_off, own, bf16=True) <= TOLERANCE[True]
    assert logprob_distance(one_off / 100, own, bf16=False) > TOLERANCE[False]
    assert logprob_distance(own + 0.6, own, bf16=True) > TOLERANCE[True]
    assert not logprob_distance(own * math.nan, own, bf16=True) <= TOLERANCE[True]


def test_a_gradient_that_is_no_number_changes_no_weight(folder: Path) -> None:
    one = learner(folder)
    before = one.digest()
    one.begin(0, NORMALISERS)
    one.accumulate([replace(row, advantage=float("nan")) for row in random_rows()])
    with pytest.raises(FloatingPointError, match="step 0"):
        one.apply()
    assert (one.digest(), one.version) == (before, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activation_checkpointing_gives_the_same_bits(folder: Path, dtype: str) -> None:
    digests = set()
    for kind in ("off", "products", "layers"):
        one = learner(folder, dtype, activation_checkpointing=kind)
        gradients(one)
        digests.add(one.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("kind", ["products", "layers"])
def test_log_probabilities_are_the_same_without_a_backward_pass(folder: Path, kind: str) -> None:
    (row, *_) = random_rows()
    want = learner(folder).logprobs(row.prompt_tokens, row.tokens, 1.0)
    got = learner(folder, activation_checkpointing=kind).logprobs(row.prompt_tokens, row.tokens, 1.0)
    assert want.tolist() == got.tolist()


def test_activation_checkpointing_computes_again_what_it_says(folder: Path) -> None:
    def flops(kind: str) -> int:
        one = learner(folder, activation_checkpointing=kind)
        with FlopCounterMode(display=False) as counter:
            gradients(one)
        return int(counter.get_total_flops())

    assert flops("products") == flops("off")
    assert 1.2 * flops("off") < flops("layers") < 4 / 3 * flops("off")


def test_activation_checkpointing_keeps_one_activation_a_layer(folder: Path) -> None:
    assert kept(folder, "layers") < 0.3 * kept(folder)


def test_bf16_rounds_products_and_keeps_weights_and_gradients_in_float32(folder: Path) -> None:
    exact, rounded = learner(folder), learner(folder, "bfloat16")
    off = distance(gradients(exact), gradients(rounded))
    assert 1e-4 < off < 0.2
    snapshot = rounded.snapshot()
    assert {tensor.dtype for tensor in (*snapshot.weights.values(), *snapshot.moments.values())} == {torch.float32}


def test_small_updates_reach_bf16_weights_through_float32_ones_alone(folder: Path) -> None:
    """AdamW moves a weight by at most 3.2 lr a step (Kingma and Ba, section 2.1). At lr 1e-6 that is less than half the
    distance between neighbouring bf16 numbers above 1e-3: weights kept in bf16 never move, float32 ones add up."""
    steps, lr = 10, 1e-6
    pure = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation=PACKED)
    start = {name: parameter.detach().clone() for name, parameter in pure.named_parameters()}
    optimizer = torch.optim.AdamW(pure.parameters(), lr=lr, weight_decay=0.0)
    master = learner(folder, "bfloat16", lr=lr)
    for step in range(steps):
        update(master, random_rows(step))
        batch = pack(random_rows(step))
        logp_T, _ = response_logprobs(pure, batch, 1.0, bf16=False)
        (-(batch.advantages * logp_T).sum() / (2 * 4 * 16)).backward()
        optimizer.step()
        optimizer.zero_grad()

    def moved(weights: Mapping[str, torch.Tensor]) -> float:
        """Share of the weights above 1e-3 whose bf16 value is another than at the start."""
        changed = torch.cat(
            [(weights[name].bfloat16() != was)[was.abs() > 1e-3].flatten() for name, was in start.items()]
        )
        return float(changed.float().mean())

    assert moved(dict(pure.named_parameters())) == 0.0
    assert moved(master.snapshot().weights) > 0.01
