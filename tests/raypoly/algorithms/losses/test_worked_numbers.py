"""Losses, weights and estimators against the worked numbers of the field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from raypoly.algorithms.losses import Tokens, build
from raypoly.algorithms.losses.aggregation import Aggregation, Normalisers, final_factor, response_weight
from raypoly.algorithms.losses.flowrl_loss import FlowRLLoss
from raypoly.algorithms.losses.gspo import GSPO
from raypoly.algorithms.losses.importance_correction import correction
from raypoly.algorithms.losses.loss import kl_terms
from raypoly.algorithms.losses.loss_tokens import ratio_of
from tests.support.worked_numbers import worked_cases

CLOSE = {"rel": 1e-9, "abs": 1e-9}


def one_response(
    log_ratio: Sequence[float], advantages: Sequence[float] | float = 1.0, logp: Sequence[float] | None = None
) -> Tokens:
    off_T = torch.tensor(log_ratio, dtype=torch.float64)
    logp_T = torch.full_like(off_T, -1.0) if logp is None else torch.tensor(logp, dtype=torch.float64)
    return Tokens(
        logp_T=logp_T.requires_grad_(),
        sampler_logp_T=logp_T.detach() - off_T,
        advantage_T=torch.as_tensor(advantages, dtype=torch.float64).expand(len(off_T)),
        response_T=torch.zeros(len(off_T), dtype=torch.int64),
        length_S=torch.tensor([len(off_T)]),
        entropy_T=torch.zeros_like(off_T),
    )


@pytest.mark.parametrize("case", [case for case in worked_cases("dapo") if case.id != "overlong_penalty"])
def test_clipped_surrogate(case: Any) -> None:
    given = case["input"]
    tokens = one_response(torch.tensor(given["ratio"], dtype=torch.float64).log().tolist(), given["adv"])
    loss = build("clipped_surrogate", clip_low=given["eps_low"], clip_high=given["eps_high"])
    assert (-loss.total(tokens)).tolist() == pytest.approx(case["expected"]["objective"], **CLOSE)


def test_dual_clip_bounds_what_a_negative_advantage_can_cost() -> None:
    tokens = one_response([2.0, 2.0, 0.5], [-1.0, 1.0, -1.0])
    assert (-build("clipped_surrogate").total(tokens)).tolist() == pytest.approx([-3.0, 1.28, -1.6487212707])
    free = build("clipped_surrogate", dual_clip=None)
    assert (-free.total(tokens)).tolist() == pytest.approx([-7.3890560989, 1.28, -1.6487212707])


@pytest.mark.parametrize("case", worked_cases("gspo"))
def test_gspo(case: Any) -> None:
    given, wanted = case["input"], case["expected"]
    tokens = one_response(given["token_log_ratio"], given["adv"])
    loss = build("gspo", clip_low=given["eps_low"], clip_high=given["eps_high"])
    assert isinstance(loss, GSPO)
    length = len(given["token_log_ratio"])
    assert loss.sequence_ratio(tokens).tolist() == pytest.approx([wanted["seq_ratio"]] * length, **CLOSE)
    assert (-loss.total(tokens)).tolist() == pytest.approx([wanted["clipped_objective"]] * length, **CLOSE)
    if "token_ratios" in wanted:
        assert loss.ratio(tokens).tolist() == pytest.approx(wanted["token_ratios"], **CLOSE)


@pytest.mark.parametrize("case", worked_cases("cispo"))
def test_cispo(case: Any) -> None:
    given, wanted = case["input"], case["expected"]
    tokens = one_response(given["token_log_ratio"], given["adv"], given["logp"])
    losses_T = build("cispo", clip_low=given["eps_low"], clip_high=given["eps_high"]).total(tokens)
    assert losses_T.tolist() == pytest.approx(wanted["loss_terms"], **CLOSE)
    losses_T.sum().backward()
    assert tokens.logp_T.grad is not None
    weights = [-given["adv"] * weight for weight in wanted["weights_sg"]]
    assert tokens.logp_T.grad.tolist() == pytest.approx(weights, **CLOSE)


@pytest.mark.parametrize("weight", ["clipped", "unclipped"])
@pytest.mark.parametrize("case", worked_cases("flowrl"))
def test_flowrl(case: Any, weight: str) -> None:
    given, wanted = case["input"], case["expected"]
    off = np.array([0.7, -0.2, -0.5])
    log_ratio = off + math.log(given["is_weight"]) / 3
    tokens = replace(
        one_response(log_ratio.tolist(), given["reward_hat"], (given["mean_logp"] + off).tolist()),
        reference_logp_T=torch.tensor(given["mean_ref_logp"] - off, dtype=torch.float64),
        head_S=torch.tensor([given["log_z"]], dtype=torch.float64),
    )
    loss = build("flowrl", beta=given["beta"], weight=weight)
    assert isinstance(loss, FlowRLLoss)
    assert loss.residual(tokens).tolist() == pytest.approx([wanted["residual"]] * 3, **CLOSE)
    assert loss.total(tokens).tolist() == pytest.approx([wanted["loss"]] * 3, **CLOSE)


def test_flowrls_clip_bounds_the_product_over_a_response() -> None:
    tokens = replace(
        one_response([0.3, 0.3], 0.0), reference_logp_T=torch.zeros(2), head_S=torch.zeros(1, dtype=torch.float64)
    )
    assert build("flowrl").total(tokens).tolist() == pytest.approx([1.2, 1.2])
    assert build("flowrl", weight="unclipped").total(tokens).tolist() == pytest.approx([math.exp(0.6)] * 2)


@pytest.mark.parametrize("case", worked_cases("tis"))
def test_truncated_importance_sampling(case: Any) -> None:
    log_ratio, cap, wanted = case["input"]["logp_train_minus_rollout"], case["input"]["C"], case["expected"]
    tokens, length = one_response(log_ratio), len(log_ratio)

    def weights(**params: Any) -> list[float]:
        weight_T = correction(tokens, build("policy_gradient", **params).config).weight_T
        assert weight_T is not None
        return list(weight_T.tolist())

    assert weights(importance_cap=cap) == pytest.approx(wanted["token_weights"], **CLOSE)
    whole = weights(importance_cap=cap, importance_level="sequence")
    assert whole == pytest.approx([wanted["sequence_weight"]] * length, **CLOSE)
    middle = wanted["geometric_mean_ratio"]
    mean_T = ratio_of(tokens.response_mean(torch.tensor(log_ratio, dtype=torch.float64)))
    assert mean_T.tolist() == pytest.approx([middle] * length, **CLOSE)
    assert weights(mask_high=middle + 1e-6, mask_level="sequence") == [1.0] * length
    assert weights(mask_high=middle - 1e-6, mask_level="sequence") == [0.0] * length
    if "icepop_0.5_5" in wanted:
        kept = weights(importance_cap=5.0, mask_low=0.5, mask_high=5.0)
        assert kept == pytest.approx(wanted["icepop_0.5_5"], **CLOSE)


@pytest.mark.parametrize("case", worked_cases("kl"))
@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_estimators(case: Any, kind: Any) -> None:
    logp_T = torch.tensor(case["input"]["logp"], dtype=torch.float64)
    reference_T = torch.tensor(case["input"]["ref_logp"], dtype=torch.float64)
    assert kl_terms(logp_T, reference_T, kind).tolist() == pytest.approx(case["expected"][kind], **CLOSE)


@pytest.mark.parametrize("case", worked_cases("loss_aggregation"))
@pytest.mark.parametrize("kind", get_args(Aggregation))
def test_aggregations(case: Any, kind: Aggregation) -> None:
    responses = case["input"]["token_losses"]
    normalisers = Normalisers(prompts=1, rollouts=len(responses), t_max=case["input"]["T_max"])
    total = sum(response_weight(kind, len(losses), normalisers) * sum(losses) for losses in responses)
    tokens = sum(len(losses) for losses in responses)
    assert total * final_factor(kind, tokens) == pytest.approx(case["expected"][kind])


def test_a_group_that_drops_out_does_not_change_the_divisor() -> None:
    planned = Normalisers(prompts=20, rollouts=8, t_max=56)
    assert response_weight("seq_mean_token_sum_norm", 10, planned) == pytest.approx(1 / (20 * 8 * 56))
