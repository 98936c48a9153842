"""What a step says of its loss: against plain sums, in whichever pieces it comes, and unknown where nothing says it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

from raypoly.algorithms.losses import Tokens, build
from raypoly.learner.loss_sums import LossSums
from raypoly.learner.update_stats import LossStats
from tests.raypoly.algorithms.losses.test_losses import tokens_of
from tests.support.losses_by_loop import random_step

OF_THE_SAMPLER = {
    "mismatch_max",
    "mismatch_mean",
    "mismatch_k1",
    "mismatch_k3",
    "importance_mean",
    "importance_ess",
}


def step() -> Tokens:
    return tokens_of(*random_step(0))


def measured(tokens: Tokens, name: str = "policy_gradient", **params: Any) -> LossStats:
    sums = LossSums()
    sums.add(tokens, build(name, **params), 0.0)
    return sums.measured()


def without_reference(tokens: Tokens) -> Tokens:
    return Tokens(**{**vars(tokens), "reference_logp_T": None})


def test_the_mismatch_is_that_of_plain_sums() -> None:
    tokens = step()
    off = (tokens.logp_T.detach() - tokens.sampler_logp_T).numpy()
    w, found = np.exp(off), measured(tokens, importance_cap=1.1, mask_low=0.8)
    assert found.mismatch_max == pytest.approx(np.abs(off).max())
    assert found.mismatch_mean == pytest.approx(np.abs(off).mean())
    assert found.mismatch_k1 == pytest.approx(-off.mean())
    assert found.mismatch_k3 == pytest.approx((w - 1 - off).mean())
    assert found.importance_mean == pytest.approx(w.mean())
    assert found.importance_ess == pytest.approx(w.sum() ** 2 / (w**2).sum() / len(w))
    assert found.importance_truncated == pytest.approx((w > 1.1).mean())
    assert found.tokens_masked == pytest.approx((w < 0.8).mean())


def test_the_kl_to_the_reference_is_k3_whichever_is_trained_on() -> None:
    tokens = step()
    assert tokens.reference_logp_T is not None
    d = (tokens.logp_T.detach() - tokens.reference_logp_T).numpy()
    wanted = pytest.approx((np.exp(-d) - 1 + d).mean())
    assert measured(tokens, kl_coefficient=0.1, kl="k1").kl_reference == wanted


def test_clip_shares_are_those_of_the_loss() -> None:
    tokens, bounds = step(), {"clip_low": 0.1, "clip_high": 0.1}
    clipped = build("clipped_surrogate", **bounds).clipped(tokens)
    found = measured(tokens, "clipped_surrogate", **bounds)
    assert clipped is not None
    assert found.ratio_clipped_low == pytest.approx(float(clipped.low_T.double().mean()))
    assert found.ratio_clipped_high == pytest.approx(float(clipped.high_T.double().mean()))
    assert found.ratio_clipped_low > 0
    assert found.ratio_clipped_high > 0


def test_pieces_of_whole_responses_add_up_to_the_same() -> None:
    tokens, loss = step(), build("gspo", importance_level="sequence", importance_cap=1.1, clip_low=0.1, clip_high=0.1)
    sums = LossSums()
    for start, stop in ((0, 2), (2, 3), (3, 6)):
        inside_T = (tokens.response_T >= start) & (tokens.response_T < stop)
        piece = {
            name: value[inside_T] for name, value in vars(tokens).items() if name.endswith("_T") and value is not None
        }
        piece["response_T"] = piece["response_T"] - start
        sums.add(Tokens(**piece, length_S=tokens.length_S[start:stop]), loss, 0.0)
    whole = measured(tokens, "gspo", importance_level="sequence", importance_cap=1.1, clip_low=0.1, clip_high=0.1)
    assert asdict(sums.measured()) == pytest.approx(asdict(whole), rel=1e-12, nan_ok=True)


def test_what_a_loss_does_not_have_is_unknown_and_not_zero() -> None:
    found = asdict(measured(without_reference(step())))
    assert {name for name, value in found.items() if not math.isnan(value)} == OF_THE_SAMPLER


def test_nothing_trained_is_nothing_known() -> None:
    assert all(math.isnan(value) for value in asdict(LossSums().measured()).values())


def test_a_log_probability_that_is_no_number_is_not_covered_by_another() -> None:
    tokens = step()
    tokens.sampler_logp_T[0] = math.nan
    sums = LossSums()
    for one in (tokens, step()):
        sums.add(one, build("policy_gradient"), 0.0)
    assert math.isnan(sums.measured().mismatch_max)


def test_equal_policies_have_the_whole_effective_sample_size() -> None:
    tokens = step()
    same = Tokens(**{**vars(tokens), "sampler_logp_T": tokens.logp_T.detach()})
    found = measured(same)
    assert (found.importance_ess, found.importance_mean, found.mismatch_max) == (pytest.approx(1.0), 1.0, 0.0)
    assert found.mismatch_k3 == 0.0
    torch.testing.assert_close(build("gspo").total(same).detach(), -same.advantage_T)
