"""A loss with a head: FlowRL's gradients against a dense model, whatever the cuts, and a head that is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from transformers import AutoModelForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from raypoly.algorithms.losses import Loss, LossConfig, Tokens, build
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.core.errors import CorruptData, UsageError
from raypoly.learner.checkpoint_state import HEAD
from raypoly.learner.packing import Packer
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.policy_model import HEAD_PREFIX, load_model, make_head
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.run.store.shards import WEIGHTS
from tests.support.compilers import needs_peft
from tests.support.pretrained_files import pretrained_files
from tests.support.random_rows import random_rows, update

BETA, LOW, HIGH = 2.0, 0.7, 1.3
Gradients = dict[str, torch.Tensor]


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners compute in float64: models, heads, and transformers' norm, which rounds to float32 else."""
    monkeypatch.setattr("raypoly.learner.policy_learner.load_model", lambda *args: load_model(*args).double())
    monkeypatch.setattr("raypoly.learner.policy_learner.make_head", lambda *args: in_double(make_head(*args)))

    def forward(self: Qwen3RMSNorm, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.weight * (
            x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
        )
        return normed

    monkeypatch.setattr(Qwen3RMSNorm, "forward", forward)


def learner(
    folder: Path, budget: int = 64, lr: float = 1e-3, max_grad_norm: float = 1.0, **params: Any
) -> PolicyLearner:
    train = TrainConfig(lr=lr, token_budget=budget, max_grad_norm=max_grad_norm)
    return PolicyLearner(folder, train, build("flowrl", **params), temperature=1.0)


def shared(one: PolicyLearner, spread: float) -> list[TrainingRow]:
    """Two prompts with three responses each and two rows alone; the sampler is off by about `spread` in all."""
    rng = np.random.default_rng(0)
    given = random_rows()
    given = [
        replace(row, prompt_tokens=given[i - i % 3].prompt_tokens) if i < 6 else row for i, row in enumerate(given)
    ]

    def sampled(row: TrainingRow) -> TrainingRow:
        logp_T = one.logprobs(row.prompt_tokens, row.tokens, 1.0)
        off = rng.normal(0.0, spread) / len(logp_T)
        return replace(row, sampler_logprobs=(logp_T - off).astype(np.float32))

    return [sampled(row) for row in given]


def in_double(module: torch.nn.Module | None) -> torch.nn.Module:
    assert module is not None
    return module.double()


def first_moments(one: PolicyLearner) -> Gradients:
    moments = {key.rpartition("|"): value for key, value in one.snapshot().moments.items()}
    return {name: value for (name, _, field), value in moments.items() if field == "exp_avg"}


def gradients(one: PolicyLearner, given: Sequence[TrainingRow]) -> tuple[Gradients, UpdateStats]:
    """Of the model and the head, by name, of one step: by what AdamW's first moments take in of them."""
    kept, before = TrainConfig().betas[0], first_moments(one)
    stats = update(one, given)
    after = first_moments(one)
    return {name: (after[name] - kept * before.get(name, 0.0)) / (1 - kept) for name in after}, stats


def dense(one: PolicyLearner, reference: Path, given: Sequence[TrainingRow], weight: str, detach: bool) -> Gradients:
    """The same from a padded batch with plain autograd, one square a response; the head by its formula."""
    model, start = (
        AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float64, attn_implementation="sdpa")
        for _ in range(2)
    )
    model.load_state_dict(dict(one.weights()))
    head = {name: tensor.clone().requires_grad_() for name, tensor in one.snapshot().head.items()}
    ids = [torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]).astype(np.int64)) for row in given]
    ids_BL = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask_BL = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    hidden_BLH = model.model(ids_BL, attention_mask=mask_BL).last_hidden_state
    logp_BLV = model.lm_head(hidden_BLH).log_softmax(-1)
    with torch.no_grad():
        start_BLV = start(ids_BL, attention_mask=mask_BL).logits.log_softmax(-1)
    total = torch.zeros((), dtype=torch.float64)
    for b, row in enumerate(given):
        first, last = len(row.prompt_tokens), row.length
        places, targets = torch.arange(first - 1, last - 1), ids_BL[b, first:last]
        logp_T, start_T = (x[b, places, targets] for x in (logp_BLV, start_BLV))
        w = (logp_T.detach() - torch.from_numpy(row.sampler_logprobs).double()).sum().exp()
        x_H = hidden_BLH[b, :first].mean(0)
        x_H = x_H.detach() if detach else x_H
        for i in ("0", "3"):
            linear, norm = f"{HEAD_PREFIX}net.{i}.", f"{HEAD_PREFIX}net.{int(i) + 2}."
            x_H = torch.nn.functional.gelu(head[f"{linear}weight"] @ x_H + head[f"{linear}bias"])
            x_H = (x_H - x_H.mean()) / (x_H.var(unbiased=False) + 1e-5).sqrt()
            x_H = x_H * head[f"{norm}weight"] + head[f"{norm}bias"]
        log_z = head[f"{HEAD_PREFIX}net.6.weight"][0] @ x_H + head[f"{HEAD_PREFIX}net.6.bias"][0]
        advantage = float(np.float32(row.advantage))
        square = (log_z + logp_T.mean() - BETA * advantage - start_T.mean()) ** 2
        total = total + (w.clamp(LOW, HIGH) if weight == "clipped" else w) * square / 8
    total.backward()  # type: ignore[no-untyped-call]
    found = {**dict(model.named_parameters()), **head}
    return {name: p.grad for name, p in found.items() if p.grad is not None}


def assert_equal(got: Gradients, want: Gradients, rel: float) -> None:
    assert got.keys() == want.keys()
    largest = max(float(g.abs().max()) for g in want.values())
    for name, gradient in want.items():
        assert float((got[name] - gradient).abs().max()) < rel * largest, name


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("weight", "detach"), [("clipped", False), ("clipped", True), ("unclipped", False)])
def test_gradients_are_those_of_a_dense_padded_model_in_float64(folder: Path, weight: str, detach: bool) -> None:
    bounds = {"clip_low": 1 - LOW, "clip_high": HIGH - 1}
    one = learner(folder, max_grad_norm=1e9, beta=BETA, weight=weight, detach_prompt=detach, **bounds)
    update(one, shared(one, 0.3))  # so that the policy is not the reference
    given = shared(one, 1.0)
    want = dense(one, folder, given, weight, detach)
    got, stats = gradients(one, given)
    assert_equal(got, want, 1e-9)
    assert len([name for name in got if name.startswith(HEAD_PREFIX)]) == 10
    low, high = stats.measured.ratio_clipped_low, stats.measured.ratio_clipped_high
    assert math.isnan(low) is math.isnan(high) is (weight == "unclipped")
    if weight == "clipped":
        assert min(low, high) > 0
        assert low + high < 1


@pytest.mark.usefixtures("double")
def test_one_micro_batch_or_many_give_the_same_gradients(folder: Path) -> None:
    """Cuts within a group, too: a prompt is then there twice."""
    given = shared(learner(folder), 0.3)
    whole, _ = gradients(learner(folder, 10_000, max_grad_norm=1e9), given)
    for budget, cuts in ((80, [5, 3]), (40, [2, 1, 2, 1, 1, 1]), (1, [1] * 8)):
        packer = Packer(budget)
        assert [len(batch) for batch in [*packer.add(given), *packer.flush()]] == cuts
        assert_equal(gradients(learner(folder, budget, max_grad_norm=1e9), given)[0], whole, 1e-12)


def test_a_group_without_advantage_is_fitted_too(folder: Path) -> None:
    one = learner(folder)
    stats = update(one, [replace(row, advantage=0.0) for row in shared(one, 0.0)])
    assert stats.rows == 8
    assert stats.grad_norm > 1e-3


def test_training_brings_the_residual_down(folder: Path) -> None:
    """log Z and policy learn one small step's target."""
    one = learner(folder, lr=3e-3, beta=1.0)
    given = shared(one, 0.0)
    losses = [update(one, given).loss for _ in range(25)]
    assert losses[-1] < 0.2 * losses[0]


def test_the_head_starts_from_the_seed_alone_and_learns_at_its_own_rate(folder: Path) -> None:
    torch.manual_seed(1)
    one = learner(folder)
    torch.manual_seed(2)
    other = learner(folder, head_lr=1e-2)
    assert one.digest() == other.digest()
    before = load_safetensors(one.save()[HEAD])
    given = shared(one, 0.0)
    moved = []
    for each in (one, other):
        update(each, given)
        after = load_safetensors(each.save()[HEAD])
        moved.append(max(float((after[name] - before[name]).abs().max()) for name in before))
    assert moved == [pytest.approx(1e-3, rel=0.1), pytest.approx(1e-2, rel=0.1)]
    np.testing.assert_array_equal(one.export()["lm_head.weight"], other.export()["lm_head.weight"])


def test_a_saved_head_goes_on_bit_for_bit_with_its_moments(folder: Path) -> None:
    one = learner(folder, head_lr=1e-2)
    for _ in range(2):
        update(one, shared(one, 0.0))
    saved = one.save()
    other = learner(folder, head_lr=1e-2)
    other.load(saved)
    assert other.save() == saved
    assert any(name.startswith(HEAD_PREFIX) for name in load_safetensors(saved["optimizer.safetensors"]))
    given = shared(one, 0.0)
    assert update(other, given) == update(one, given)
    assert other.save() == one.save()


@pytest.mark.parametrize(
    "model", [{"dtype": "bfloat16"}, pytest.param({"lora_rank": 4}, marks=needs_peft)], ids=["bf16", "adapters"]
)
def test_in_bf16_and_beside_adapters_the_head_is_float32_and_goes_on(folder: Path, model: dict[str, Any]) -> None:
    def made() -> PolicyLearner:
        train = TrainConfig(lr=1e-3, token_budget=64)
        return PolicyLearner(folder, train, build("flowrl"), 1.0, ModelConfig.model_validate(model))

    one, other = made(), made()
    before = load_safetensors(one.save()[HEAD])
    assert math.isfinite(update(one, random_rows()).loss)
    saved = one.save()
    after = load_safetensors(saved[HEAD])
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    assert all(not torch.equal(after[name], before[name]) for name in before)
    other.load(saved)
    assert update(other, random_rows(1)) == update(one, random_rows(1))


def test_the_digest_and_a_checkpoint_hold_the_head_and_the_models_folder_does_not(folder: Path) -> None:
    one = learner(folder)
    saved, plain = one.save(), PolicyLearner(folder, TrainConfig(), build("policy_gradient"), 1.0)
    head = load_safetensors(saved[HEAD])
    assert all(name.startswith(HEAD_PREFIX) for name in head)
    assert not any(name.startswith(HEAD_PREFIX) for name in [*load_safetensors(saved[WEIGHTS]), *one.export()])
    assert pretrained_files(one).keys() == pretrained_files(plain).keys()
    assert HEAD not in plain.save()
    assert one.digest() != plain.digest()
    tampered = {name: tensor + (name == min(head)) for name, tensor in head.items()}
    with pytest.raises(CorruptData, match="does not restore the weights"):
        learner(folder).load(saved | {HEAD: save_safetensors(tampered)})


def test_a_checkpoint_without_the_head_or_with_one_too_many_is_refused(folder: Path) -> None:
    one, plain = learner(folder), PolicyLearner(folder, TrainConfig(), build("policy_gradient"), 1.0)
    with pytest.raises(CorruptData, match="lacks the weights loss_head"):
        one.load(plain.save())
    with pytest.raises(UsageError, match=r"loss_head\.net\.0\.bias .* the model has not"):
        plain.load(one.save())


class Prior(LossConfig):
    pass


class Offset(Loss):
    """A loss of somebody else's: the head's number is taken off the advantage."""

    Config = Prior

    @property
    def needs(self) -> Any:
        return super().needs | {"prompt_hidden"}

    def head(self, hidden_size: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(hidden_size, 2), torch.nn.Dropout(0.5))

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        assert tokens.head_S is not None
        return (tokens.head_S[:, 1][tokens.response_T] - tokens.advantage_T) * tokens.logp_T


class Silent(Offset):
    @property
    def needs(self) -> Any:
        return frozenset()


def test_a_loss_of_ones_own_brings_a_head_and_a_step_repeats_in_spite_of_dropout(folder: Path) -> None:
    digests = set()
    for _ in range(2):
        one = PolicyLearner(folder, TrainConfig(), build(f"{__name__}:Offset"), 1.0)
        digests.add(update(one, random_rows()).weight_digest)
        assert set(load_safetensors(one.save()[HEAD])) == {"loss_head.0.weight", "loss_head.0.bias"}
    assert len(digests) == 1


def test_a_head_without_its_input_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="must name"):
        PolicyLearner(folder, TrainConfig(), build(f"{__name__}:Silent"), 1.0)
