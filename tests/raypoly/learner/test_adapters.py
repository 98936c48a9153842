"""Adapters: what is trained, what an engine gets, and what a checkpoint holds and gives back."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from transformers import AutoModelForCausalLM

from raypoly.algorithms.losses import build
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.core.errors import UsageError
from raypoly.learner.adapters import add_adapters, merged_weights
from raypoly.learner.packing import pack
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.policy_model import load_model, response_logprobs
from raypoly.learner.training_rows import TrainingRow
from tests.support.compilers import PEFT_INSTALLED, needs_peft
from tests.support.pretrained_files import pretrained_files


def learner(folder: Path, dtype: str = "float32", **loss: float | str) -> PolicyLearner:
    model = ModelConfig.model_validate({"lora_rank": 4, "dtype": dtype})
    train = TrainConfig.model_validate({"lr": 0.01, "activation_checkpointing": "products"})
    return PolicyLearner(folder, train, build("policy_gradient", **loss), 1.0, model)


def rows(seed: int) -> list[TrainingRow]:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(2, 200, 12).astype(np.int32) for _ in range(6)]
    return [TrainingRow(row[:5], row[5:], np.full(7, -3.0, np.float32), float(rng.normal()), 0) for row in tokens]


def step(one: PolicyLearner) -> str:
    one.begin(one.version, Normalisers(prompts=1, rollouts=6, t_max=7))
    one.accumulate(rows(one.version))
    return one.apply().weight_digest


@needs_peft
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_merged_weights_give_the_log_probabilities_of_adapters(
    folder: Path, dtype: torch.dtype, tolerance: float
) -> None:
    model = load_model(folder, torch.device("cpu"))
    add_adapters(model, rank=4, alpha=8, seed=0)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model, plain = model.to(dtype), load_model(folder, torch.device("cpu")).to(dtype)
    batch = pack(rows(0))
    with torch.no_grad():
        before, _ = response_logprobs(plain, batch, 1.0, bf16=False)
        plain.load_state_dict({name: it.make() for name, it in merged_weights(model, lambda tensor: tensor).items()})
        merged, _ = response_logprobs(plain, batch, 1.0, bf16=False)
        unmerged, _ = response_logprobs(model, batch, 1.0, bf16=False)
    assert float((unmerged - merged).abs().max()) < tolerance
    assert float((unmerged - before).abs().max()) > 0.01


@needs_peft
def test_adapters_alone_are_trained_and_an_engine_gets_plain_weights(folder: Path) -> None:
    one = learner(folder)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    start = one.export()
    assert {name: tuple(array.shape) for name, array in start.items()} == {
        name: tuple(tensor.shape) for name, tensor in base.state_dict().items()
    }
    assert all(np.array_equal(start[name], tensor.numpy()) for name, tensor in base.state_dict().items())
    step(one)
    after = one.export()
    changed = {name for name, array in after.items() if not np.array_equal(array, start[name])}
    assert changed == {name for name in start if name.endswith("_proj.weight")}


@needs_peft
def test_a_saved_folder_opens_with_merged_weights(folder: Path, tmp_path: Path) -> None:
    one = learner(folder)
    step(one)
    for name, data in pretrained_files(one).items():
        (tmp_path / name).write_bytes(data)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).state_dict()
    exported = one.export()
    assert set(opened) == set(exported)
    assert all(np.array_equal(opened[name].numpy(), array) for name, array in exported.items())


@needs_peft
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_holds_adapters_and_goes_on_bit_for_bit(folder: Path, dtype: str) -> None:
    one = learner(folder, dtype)
    step(one)
    saved = one.save()
    assert set(saved) == {"adapters.safetensors", "optimizer.safetensors", "learner.json"}
    assert all(".lora_" in name for name in load_safetensors(saved["adapters.safetensors"]))
    other = learner(folder, dtype)
    assert other.digest() != one.digest()
    other.load(saved)
    assert (other.version, other.digest()) == (1, one.digest())
    assert step(other) == step(one)


@needs_peft
def test_every_start_draws_the_same_adapters_and_no_number_of_anybody_else(folder: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one = learner(folder)
    assert torch.equal(torch.rand(1), expected)
    assert learner(folder).digest() == one.digest()


@needs_peft
def test_a_kl_term_is_taken_to_the_model_without_adapters(folder: Path, tmp_path: Path) -> None:
    one = learner(folder, kl_coefficient=0.5, kl="k3")
    step(one)
    for name, data in pretrained_files(one).items():
        (tmp_path / name).write_bytes(data)
    batch = pack(rows(1))
    cpu = torch.device("cpu")
    with torch.no_grad():
        policy_T, reference_T = (
            response_logprobs(load_model(where, cpu), batch, 1.0, bf16=False)[0] for where in (tmp_path, folder)
        )
    log_ratio_T = reference_T - policy_T
    one.begin(one.version, Normalisers(prompts=1, rollouts=6, t_max=7))
    one.accumulate(rows(1))
    measured = one.apply().measured.kl_reference
    assert measured > 1e-4
    assert measured == pytest.approx((log_ratio_T.exp() - 1 - log_ratio_T).mean().item(), rel=1e-3)


@needs_peft
def test_adapters_with_a_kl_term_go_on_bit_for_bit_from_a_checkpoint(folder: Path) -> None:
    one, other = (learner(folder, kl_coefficient=0.5) for _ in range(2))
    step(one)
    other.load(one.save())
    after = step(one)
    assert step(other) == after
    plain = learner(folder)
    step(plain)
    assert step(plain) != after, "the term has a gradient"


@pytest.mark.skipif(PEFT_INSTALLED, reason="peft is installed")
def test_without_peft_the_key_is_refused_in_one_sentence(folder: Path) -> None:
    with pytest.raises(UsageError, match="pip install"):
        learner(folder)
