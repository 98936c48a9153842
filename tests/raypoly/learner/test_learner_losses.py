"""The learner with each loss: cuts that change nothing, a reference that stays, a limit that stops."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from transformers import AutoModelForCausalLM

from raypoly.algorithms.losses import KNOWN, Loss, Tokens, build
from raypoly.core.config import TrainConfig
from raypoly.core.errors import UsageError, WeightsMismatch
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.weight_hash import weight_digest
from raypoly.run.store.shards import WEIGHTS
from tests.support.losses_by_loop import Responses, step_loss
from tests.support.pretrained_files import pretrained_files
from tests.support.random_model import random_model
from tests.support.random_rows import NORMALISERS, update

EVERY_TERM: dict[str, Any] = {
    "kl_coefficient": 0.2,
    "kl": "k1",
    "mask_high": 1.5,
    "mask_level": "sequence",
}


def learner(folder: Path, name: str = "policy_gradient", budget: int = 64, **params: Any) -> PolicyLearner:
    train = TrainConfig(lr=0.01, token_budget=budget, max_mismatch=params.pop("max_mismatch", None))
    return PolicyLearner(folder, train, build(name, **params), temperature=1.0)


def rows(one: PolicyLearner, seed: int, spread: float = 0.3, version: int = 0) -> list[TrainingRow]:
    """Eight responses whose sampler is off by `spread` from the learner."""
    rng = np.random.default_rng(seed)

    def row() -> TrainingRow:
        prompt = rng.integers(2, 200, rng.integers(1, 20)).astype(np.int32)
        tokens = rng.integers(2, 200, rng.integers(1, 16)).astype(np.int32)
        off = rng.normal(0.0, spread, len(tokens)) + rng.normal(0.0, spread)
        sampler = one.logprobs(prompt, tokens, 1.0) + off.astype(np.float32)
        return TrainingRow(prompt, tokens, sampler.astype(np.float32), float(rng.normal()), version)

    return [row() for _ in range(8)]


@pytest.mark.parametrize("name", KNOWN)
def test_cuts_into_micro_batches_change_nothing_beyond_rounding(folder: Path, name: str) -> None:
    found = []
    for budget in (1, 64, 4096):
        one = learner(folder, name, budget, **EVERY_TERM)
        given = [rows(one, seed) for seed in (0, 1)]
        stats = [asdict(update(one, step)) for step in given]  # in the second the reference is another policy
        for entry in stats:
            entry.pop("weight_digest")
            entry |= entry.pop("measured")
        found.append(stats)
    for step in (0, 1):
        for other in found[1:]:
            assert other[step] == pytest.approx(found[0][step], rel=2e-4, abs=1e-6, nan_ok=True)
    assert found[0][1]["kl_reference"] > 1e-3


@pytest.mark.parametrize("name", KNOWN)
def test_the_loss_of_a_step_is_that_of_a_loop_over_its_tokens(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learner(folder, name, **EVERY_TERM)
    update(one, rows(one, 0))
    given = rows(one, 1)
    live = [one.logprobs(row.prompt_tokens, row.tokens, 1.0).astype(float).tolist() for row in given]
    start, total, heads = learner(folder), Loss.total, list[torch.Tensor | None]()

    def recorded(self: Loss, tokens: Tokens) -> torch.Tensor:
        heads.append(tokens.head_S)
        return total(self, tokens)

    monkeypatch.setattr(Loss, "total", recorded)
    loss = update(one, given).loss
    step = Responses(
        sampler=[row.sampler_logprobs.astype(float).tolist() for row in given],
        reference=[start.logprobs(row.prompt_tokens, row.tokens, 1.0).astype(float).tolist() for row in given],
        advantages=[row.advantage for row in given],
        t_max=NORMALISERS.t_max,
        frozen=live,
        log_z=[number for head_S in heads if head_S is not None for number in head_S.tolist()],
    )
    assert loss == pytest.approx(step_loss(name, EVERY_TERM, step, live, live), rel=1e-4)


def test_the_reference_is_the_starting_model_after_updates_and_after_a_resume(folder: Path) -> None:
    one = learner(folder, kl_coefficient=0.2)
    for seed in (0, 1):
        update(one, rows(one, seed))
    saved, given = one.save(), rows(one, 2)
    other = learner(folder, kl_coefficient=0.2)
    other.load(saved)
    start = weight_digest(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict())
    assert one.digest() != start
    assert one.reference_digest == other.reference_digest == start
    gone_on, resumed = update(one, given), update(other, given)
    assert gone_on == resumed
    assert gone_on.measured.kl_reference > 1e-3


def test_another_starting_model_than_the_runs_is_refused_as_a_reference(folder: Path, tmp_path: Path) -> None:
    saved = learner(folder, kl_coefficient=0.2).save()
    random_model(tmp_path)
    weights = load_safetensors((tmp_path / "model.safetensors").read_bytes())
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    model.load_state_dict({name: weight * 1.01 for name, weight in weights.items()})
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="not the reference model that this run started with"):
        learner(tmp_path, kl_coefficient=0.2).load(saved)
    learner(tmp_path).load(learner(folder).save())  # without a reference nothing is compared


def test_at_the_start_the_kl_to_the_reference_is_exactly_zero(folder: Path) -> None:
    one = learner(folder, kl_coefficient=0.2)
    assert update(one, rows(one, 0)).measured.kl_reference == 0.0


def test_a_kl_term_pulls_rows_without_advantage_back_to_the_start(folder: Path) -> None:
    one = learner(folder, kl_coefficient=1.0, kl="k2")
    update(one, rows(one, 0))
    idle = [TrainingRow(r.prompt_tokens, r.tokens, r.sampler_logprobs, 0.0, 0) for r in rows(one, 0)]
    stats = [update(one, idle) for _ in range(6)]
    assert stats[0].rows == 8
    assert stats[-1].measured.kl_reference < 0.5 * stats[0].measured.kl_reference


def test_kl_and_entropy_have_the_gradient_of_full_logits(folder: Path, tmp_path: Path) -> None:
    """Against a loop over single sequences with plain autograd; the policy has left the reference."""
    random_model(tmp_path)
    params = {"kl_coefficient": 0.5, "kl": "k3", "entropy_coefficient": 0.3, "aggregation": "token_mean"}
    one = PolicyLearner(folder, TrainConfig(lr=0.01, max_grad_norm=1e9), build("policy_gradient", **params), 1.0)
    update(one, rows(one, 0))
    for name, data in pretrained_files(one).items():
        (tmp_path / name).write_bytes(data)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    start = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    given = [TrainingRow(r.prompt_tokens, r.tokens, r.sampler_logprobs, 0.0, 1) for r in rows(one, 1)]
    for row in given:
        ids = torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]).astype(np.int64))
        inside = slice(len(row.prompt_tokens) - 1, len(ids) - 1)
        logp_TV, reference_TV = (net(ids[None]).logits[0, inside].log_softmax(-1) for net in (model, start))
        entropy_T = -(logp_TV.exp() * logp_TV).sum(-1)
        targets = ids[len(row.prompt_tokens) :, None]
        d_T = (logp_TV.gather(1, targets) - reference_TV.detach().gather(1, targets))[:, 0]
        (0.5 * ((-d_T).exp() - 1 + d_T) - 0.3 * entropy_T).sum().backward()
    tokens = sum(len(row.tokens) for row in given)
    norm = torch.nn.utils.get_total_norm([p.grad / tokens for p in model.parameters() if p.grad is not None])
    assert update(one, given).grad_norm == pytest.approx(float(norm), rel=1e-4)


def test_an_entropy_bonus_raises_the_entropy(folder: Path) -> None:
    one = learner(folder, entropy_coefficient=1.0)
    given = [TrainingRow(r.prompt_tokens, r.tokens, r.sampler_logprobs, 0.0, 0) for r in rows(one, 0)]
    entropies = [update(one, given).entropy for _ in range(4)]
    assert entropies[-1] > entropies[0] + 0.05


def test_a_reference_is_held_only_where_it_is_needed_and_never_saved(folder: Path) -> None:
    one = learner(folder, "clipped_surrogate")
    assert one.reference_digest is None
    assert math.isnan(update(one, rows(one, 0)).measured.kl_reference)
    assert set(load_safetensors(learner(folder, kl_coefficient=0.2).save()[WEIGHTS])) == set(one.export())


def test_a_sampler_that_is_too_far_off_stops_the_run_before_the_update(folder: Path) -> None:
    one = learner(folder, max_mismatch=0.05)
    update(one, rows(one, 0, spread=0.01))
    before = one.digest()
    with pytest.raises(WeightsMismatch, match=r"Step 1 was sampled under weights of version 0.*max_mismatch=0\.05"):
        update(one, rows(one, 1, spread=0.3, version=0))
    assert (one.version, one.digest()) == (1, before)
    update(one, rows(one, 1, spread=0.01, version=1))
    assert one.version == 2


def test_a_log_probability_that_is_no_number_is_beyond_every_limit(folder: Path) -> None:
    one = learner(folder, max_mismatch=1e6)
    given = rows(one, 0)
    given[3].sampler_logprobs[0] = np.nan
    with pytest.raises(WeightsMismatch, match="nan"):
        update(one, given)


def test_a_step_without_a_gradient_is_within_every_limit(folder: Path) -> None:
    one = learner(folder, max_mismatch=1e-6)
    idle = [TrainingRow(r.prompt_tokens, r.tokens, r.sampler_logprobs, 0.0, 0) for r in rows(one, 0)]
    stats = update(one, idle)
    assert (stats.version, stats.rows) == (1, 0)
    assert math.isnan(stats.measured.mismatch_max)
