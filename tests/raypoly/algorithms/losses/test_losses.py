"""Every loss against a loop over tokens, and its gradient against finite differences of that loop, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any, get_args

import pytest
import torch

from raypoly.algorithms.losses import KNOWN, Tokens, build, of_run
from raypoly.algorithms.losses.aggregation import Aggregation, Normalisers, final_factor, response_weight
from raypoly.algorithms.losses.loss import Loss
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from tests.support.losses_by_loop import Ragged, Responses, random_step, step_loss

BOTH_SIDES: dict[str, dict[str, Any]] = {
    "policy_gradient": {},
    "clipped_surrogate": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 1.5},
    "gspo": {"clip_low": 0.1, "clip_high": 0.15},
    "cispo": {"clip_low": 0.3, "clip_high": 0.28},
    "flowrl": {"beta": 2.0, "clip_low": 0.3, "clip_high": 0.28},
}
"""Bounds that the random steps meet on both sides."""
TERMS: dict[str, dict[str, Any]] = {
    "alone": {},
    "k1": {"kl_coefficient": 0.3, "kl": "k1"},
    "k2": {"kl_coefficient": 0.3, "kl": "k2"},
    "k3": {"kl_coefficient": 0.3},
    "entropy": {"entropy_coefficient": 0.2},
    "cap": {"importance_cap": 1.1},
    "sequence cap": {"importance_cap": 1.1, "importance_level": "sequence"},
    "mask": {"mask_low": 0.8, "mask_high": 1.3},
    "sequence mask": {"mask_low": 0.8, "mask_high": 1.3, "mask_level": "sequence"},
    "icepop": {"importance_cap": 1.3, "mask_low": 0.8, "mask_high": 1.3},
    "all": {
        "kl_coefficient": 0.3,
        "kl": "k2",
        "entropy_coefficient": 0.2,
        "importance_cap": 1.1,
        "mask_high": 1.3,
        "mask_level": "sequence",
    },
}


def tokens_of(step: Responses, live: Ragged, entropy: Ragged) -> Tokens:
    lengths = [len(row) for row in live]

    def flat(rows: Ragged) -> torch.Tensor:
        return torch.tensor(list(chain(*rows)), dtype=torch.float64)

    return Tokens(
        logp_T=flat(live).requires_grad_(),
        sampler_logp_T=flat(step.sampler),
        advantage_T=torch.tensor(step.advantages, dtype=torch.float64).repeat_interleave(torch.tensor(lengths)),
        response_T=torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)),
        length_S=torch.tensor(lengths),
        entropy_T=flat(entropy).requires_grad_(),
        reference_logp_T=flat(step.reference),
        head_S=torch.tensor(step.log_z, dtype=torch.float64).requires_grad_(),
    )


def aggregated(loss: Loss, tokens: Tokens, t_max: int) -> torch.Tensor:
    kind, lengths = loss.config.aggregation, tokens.length_S.tolist()
    normalisers = Normalisers(prompts=1, rollouts=len(lengths), t_max=t_max)
    weights = torch.tensor([response_weight(kind, length, normalisers) for length in lengths], dtype=torch.float64)
    return (loss.total(tokens) * weights[tokens.response_T]).sum() * final_factor(kind, sum(lengths))


def central_differences(value: Callable[[], float], by: Ragged) -> list[float]:
    """Of a function that reads `by`, by each number in it."""
    found, h = [], 1e-5
    for row in by:
        for t, middle in enumerate(row):
            row[t] = middle + h
            above = value()
            row[t] = middle - h
            below = value()
            row[t] = middle
            found.append((above - below) / (2 * h))
    return found


def compare(name: str, params: dict[str, Any], seed: int) -> Tokens:
    """Assert that library and loop agree on a random step."""
    step, values, entropy = random_step(seed)
    live = [list(row) for row in values]  # the loop moves these; `step.frozen` stays
    tokens = tokens_of(step, live, entropy)
    loss = aggregated(build(name, **params), tokens, step.t_max)
    assert float(loss.detach()) == pytest.approx(step_loss(name, params, step, live, entropy), rel=1e-12)
    loss.backward()
    wanted = central_differences(lambda: step_loss(name, params, step, live, entropy), live)
    assert tokens.logp_T.grad is not None
    assert tokens.logp_T.grad.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    got = torch.zeros_like(tokens.entropy_T) if tokens.entropy_T.grad is None else tokens.entropy_T.grad
    wanted = central_differences(lambda: step_loss(name, params, step, live, entropy), entropy)
    assert got.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    return tokens


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("name", KNOWN)
def test_a_loss_and_its_gradient_are_those_of_a_loop_over_tokens(name: str, terms: str) -> None:
    for seed in range(3):
        compare(name, {**BOTH_SIDES[name], **TERMS[terms]}, seed)


def test_one_advantage_a_token_gives_the_gradient_of_the_written_formula() -> None:
    """By autograd of each loss's formula, in float64."""

    def written(name: str, tokens: Tokens, given: dict[str, Any]) -> torch.Tensor:
        own_T, old_T, a_T = tokens.logp_T, tokens.sampler_logp_T, tokens.advantage_T
        if name == "policy_gradient":
            return -a_T * own_T
        low, high = 1 - given["clip_low"], 1 + given["clip_high"]
        if name == "cispo":
            return -(own_T - old_T).detach().exp().clamp(low, high) * a_T * own_T
        ratio_T = (own_T - old_T).exp()
        if name == "gspo":
            off_T = (own_T - old_T).detach()
            means = [off_T[tokens.response_T == s].mean() for s in tokens.response_T.tolist()]
            ratio_T = torch.stack(means).exp() * (own_T - own_T.detach()).exp()
        loss_T = -torch.minimum(ratio_T * a_T, ratio_T.clamp(low, high) * a_T)
        if name != "clipped_surrogate":
            return loss_T
        return torch.where(a_T < 0, torch.minimum(loss_T, -given["dual_clip"] * a_T), loss_T)

    for name in ("policy_gradient", "clipped_surrogate", "gspo", "cispo"):
        for seed in range(3):
            step, live, entropy = random_step(seed)
            advantage_T = torch.randn(sum(map(len, live)), dtype=torch.float64, generator=torch.manual_seed(seed))
            ours, theirs = (replace(tokens_of(step, live, entropy), advantage_T=advantage_T) for _ in range(2))
            build(name, **BOTH_SIDES[name]).total(ours).sum().backward()
            written(name, theirs, BOTH_SIDES[name]).sum().backward()
            assert ours.logp_T.grad is not None
            assert theirs.logp_T.grad is not None
            torch.testing.assert_close(ours.logp_T.grad, theirs.logp_T.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", get_args(Aggregation))
@pytest.mark.parametrize("name", KNOWN)
def test_every_aggregation_of_every_loss_is_that_of_the_loop(name: str, kind: Aggregation) -> None:
    compare(name, {**BOTH_SIDES[name], "aggregation": kind, "kl_coefficient": 0.1}, seed=3)


@pytest.mark.parametrize("name", KNOWN)
def test_the_defaults_are_those_of_the_loop(name: str) -> None:
    compare(name, {}, seed=4)


@pytest.mark.parametrize("name", ["clipped_surrogate", "gspo", "cispo", "flowrl"])
def test_the_random_steps_meet_both_bounds(name: str) -> None:
    low, high = 0, 0
    for seed in range(3):
        clipped = build(name, **BOTH_SIDES[name]).clipped(tokens_of(*random_step(seed)))
        assert clipped is not None
        low, high = low + int(clipped.low_T.sum()), high + int(clipped.high_T.sum())
    assert min(low, high) >= 3


@pytest.mark.parametrize("name", ["clipped_surrogate", "gspo"])
def test_a_token_counts_as_clipped_where_the_bound_took_its_gradient(name: str) -> None:
    for seed in range(4):
        step, live, entropy = random_step(seed)
        tokens, loss = tokens_of(step, live, entropy), build(name, **BOTH_SIDES[name])
        loss.total(tokens).sum().backward()
        clipped = loss.clipped(tokens)
        assert clipped is not None
        assert tokens.logp_T.grad is not None
        without = (tokens.logp_T.grad == 0) & (tokens.advantage_T != 0)
        assert torch.equal(without, clipped.low_T | clipped.high_T)


def test_the_gradient_of_gspo_is_that_of_the_sequence_ratio() -> None:
    """sum over responses of -min(s A, clip(s) A) / S, by finite differences of s itself."""
    step, values, entropy = random_step(0)
    live = [list(row) for row in values]

    def objective() -> float:
        total = 0.0
        for row, old, advantage in zip(live, step.sampler, step.advantages, strict=True):
            s = math.exp(sum(a - b for a, b in zip(row, old, strict=True)) / len(row))
            total -= min(s * advantage, min(max(s, 0.9), 1.15) * advantage) / len(live)
        return total

    tokens = tokens_of(step, live, entropy)
    aggregated(build("gspo", **BOTH_SIDES["gspo"]), tokens, step.t_max).backward()
    assert tokens.logp_T.grad is not None
    assert tokens.logp_T.grad.tolist() == pytest.approx(central_differences(objective, live), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("weight", ["clipped", "unclipped"])
def test_flowrl_and_its_gradient_are_those_of_one_square_a_response(weight: str) -> None:
    """w (log Z + mean log pi - beta A - mean log ref)^2 / S, also by log Z; w is a constant."""
    step, values, entropy = random_step(0)
    live, log_z = [list(row) for row in values], [list(step.log_z)]

    def objective() -> float:
        total = 0.0
        for s, (row, reference) in enumerate(zip(live, step.reference, strict=True)):
            w = math.exp(sum(a - b for a, b in zip(step.frozen[s], step.sampler[s], strict=True)))
            w = min(max(w, 0.8), 1.3) if weight == "clipped" else w
            mean = sum(a - b for a, b in zip(row, reference, strict=True)) / len(row)
            total += w * (log_z[0][s] + mean - 3.0 * step.advantages[s]) ** 2 / len(live)
        return total

    tokens = tokens_of(step, live, entropy)
    loss = build("flowrl", beta=3.0, weight=weight, clip_low=0.2, clip_high=0.3)
    value = aggregated(loss, tokens, step.t_max)
    assert float(value.detach()) == pytest.approx(objective(), rel=1e-12)
    value.backward()
    for got, by in ((tokens.logp_T, live), (tokens.head_S, log_z)):
        assert got is not None
        assert got.grad is not None
        assert got.grad.tolist() == pytest.approx(central_differences(objective, by), rel=1e-6, abs=1e-9)
    assert (loss.clipped(tokens) is None) is (weight == "unclipped")


MAXIMISING = [name for name in KNOWN if name != "flowrl"]


@pytest.mark.parametrize("name", MAXIMISING)
def test_on_policy_every_loss_has_the_gradient_of_the_policy_gradient(name: str) -> None:
    step, live, entropy = random_step(0)
    gradients = []
    for which in (name, "policy_gradient"):
        tokens = tokens_of(Responses(live, step.reference, step.advantages, step.t_max, live), live, entropy)
        build(which).total(tokens).sum().backward()
        assert tokens.logp_T.grad is not None
        gradients.append(tokens.logp_T.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", MAXIMISING)
def test_a_cap_leaves_nothing_to_clip_since_the_learner_itself_is_then_old(name: str) -> None:
    step, live, entropy = random_step(1)
    gradients = []
    for which in (name, "policy_gradient"):
        tokens, loss = tokens_of(step, live, entropy), build(which, importance_cap=1.2)
        loss.total(tokens).sum().backward()
        assert tokens.logp_T.grad is not None
        gradients.append(tokens.logp_T.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("far", [-1e4, 1e4])
@pytest.mark.parametrize("cap", [{}, {"importance_cap": 2.0, "importance_level": "sequence", "mask_low": 0.1}])
def test_log_probabilities_that_are_worlds_apart_give_finite_numbers(
    name: str, far: float, cap: dict[str, Any]
) -> None:
    step, live, entropy = random_step(0)
    away = [[x + far for x in row] for row in live]
    tokens = tokens_of(replace(step, sampler=away, reference=away), live, entropy)
    losses_T = build(name, kl_coefficient=0.1, **cap).total(tokens)
    losses_T.sum().backward()
    assert torch.isfinite(losses_T).all()
    assert tokens.logp_T.grad is not None
    assert torch.isfinite(tokens.logp_T.grad).all()


def test_terms_without_what_they_need_are_refused() -> None:
    step, live, entropy = random_step(0)
    tokens = tokens_of(step, live, entropy)
    detached = Tokens(**{**vars(tokens), "entropy_T": tokens.entropy_T.detach(), "reference_logp_T": None})
    with pytest.raises(ValueError, match="entropy with its gradient"):
        build("policy_gradient", entropy_coefficient=0.1).total(detached)
    with pytest.raises(ValueError, match="reference's log-probabilities"):
        build("policy_gradient", kl_coefficient=0.1).total(detached)
    with pytest.raises(ValueError, match="log Z"):
        build("flowrl").total(detached)


def test_a_loss_says_what_it_needs() -> None:
    assert build("gspo").needs == frozenset()
    assert not build("gspo").zero_advantage_matters
    assert build("flowrl").needs == {"reference", "prompt_hidden"}
    assert build("flowrl").zero_advantage_matters
    both = build("gspo", kl_coefficient=0.1, entropy_coefficient=0.1)
    assert both.needs == {"reference", "entropy"}
    assert both.zero_advantage_matters


def test_bounds_that_contradict_each_other_are_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"loss\.mask_high=0\.4 does not fit gspo: must be above mask_low=0\.5"):
        build("gspo", mask_low=0.5, mask_high=0.4)


@pytest.mark.parametrize(
    ("overrides", "cap"),
    [
        ((), None),
        (("model.dtype=bfloat16",), 2.0),
        (("model.dtype=bfloat16", "loss.importance_cap=5"), 5.0),
        (("model.dtype=bfloat16", "loss.importance_cap=null"), None),
        (("model.dtype=bfloat16", "loss.name=clipped_surrogate"), None),
    ],
)
def test_rounding_in_bf16_is_corrected_unless_the_config_says_otherwise(
    overrides: tuple[str, ...], cap: float | None
) -> None:
    assert of_run(load(None, overrides, lambda text: None)).config.importance_cap == cap
