"""Rows of conversations: what the policy wrote is trained as by hand-made rows, and an observation has no gradient."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from raypoly.algorithms.losses import KNOWN, Loss, Tokens, build
from raypoly.core.config import TrainConfig
from raypoly.core.values import ASSISTANT, CrossLogprobs, Rollout, Turn
from raypoly.learner.packing import MicroBatch, pack
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow, rows_of
from tests.support.random_rows import update

WORDS = 40
EVERY_TERM: dict[str, Any] = {"kl_coefficient": 0.2, "entropy_coefficient": 0.1, "mask_high": 2.0}
PARTS = [3, 4, 2, 1, 5]  # tokens of turns: the policy's first


def conversation(seed: int, parts: list[int] = PARTS) -> TrainingRow:
    rng = np.random.default_rng(seed)
    mask = np.concatenate([np.full(size, number % 2 == 0) for number, size in enumerate(parts)])
    logprobs = np.where(mask, rng.normal(-1.5, 0.4, len(mask)), np.nan).astype(np.float32)
    tokens = rng.integers(2, WORDS, len(mask)).astype(np.int32)
    return TrainingRow(rng.integers(2, WORDS, 6).astype(np.int32), tokens, logprobs, float(rng.normal()), 0, mask)


def turn_by_turn(row: TrainingRow, parts: list[int] = PARTS) -> list[TrainingRow]:
    """Each turn of the policy as a row of its own, after all that came before it."""
    found, ends = [], np.cumsum([0, *parts]).tolist()
    for start, end in list(pairwise(ends))[::2]:
        prompt = np.concatenate([row.prompt_tokens, row.tokens[:start]])
        found.append(TrainingRow(prompt, row.tokens[start:end], row.sampler_logprobs[start:end], row.advantage, 0))
    return found


def tokens_of(batch: MicroBatch, logits: torch.Tensor, reference: torch.Tensor) -> Tokens:
    logp = torch.log_softmax(logits[batch.predicts], -1)
    return Tokens(
        logp_T=logp.gather(1, batch.targets[:, None])[:, 0],
        sampler_logp_T=batch.sampler_logprobs.double(),
        advantage_T=batch.advantages.double(),
        response_T=batch.row_of,
        length_S=torch.tensor(batch.lengths),
        entropy_T=-(logp.exp() * logp).sum(-1),
        reference_logp_T=torch.log_softmax(reference[batch.predicts], -1).gather(1, batch.targets[:, None])[:, 0],
        head_S=torch.zeros(len(batch.lengths), dtype=torch.float64),
    )


def gradient(loss: Loss, tokens: Tokens, logits: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(loss.total(tokens).sum(), logits)
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_a_loss_sees_the_policys_tokens_alone_and_their_gradient_is_that_of_the_formula(name: str) -> None:
    torch.manual_seed(0)
    loss, rows = build(name, **EVERY_TERM), [conversation(0), conversation(1, [2, 1, 3])]
    batch = pack(rows)
    size = batch.input_ids.shape[1]
    logits = torch.randn(size, WORDS, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(size, WORDS, dtype=torch.float64)
    got = gradient(loss, tokens_of(batch, logits, reference), logits)
    # by hand: a token's place in the packed batch, one row after the other
    places, targets, sampler, advantages, row_of, start = [], [], [], [], [], 0
    for number, row in enumerate(rows):
        assert row.mask is not None
        for t in np.flatnonzero(row.mask).tolist():
            places.append(start + len(row.prompt_tokens) + t - 1)
            targets.append(int(row.tokens[t]))
            sampler.append(float(row.sampler_logprobs[t]))
            advantages.append(float(np.float32(row.advantage)))
            row_of.append(number)
        start += row.length
    logp = torch.log_softmax(logits[places], -1)
    of_reference = torch.log_softmax(reference[places], -1)
    by_hand = Tokens(
        logp_T=torch.stack([logp[i, target] for i, target in enumerate(targets)]),
        sampler_logp_T=torch.tensor(sampler, dtype=torch.float64),
        advantage_T=torch.tensor(advantages, dtype=torch.float64),
        response_T=torch.tensor(row_of),
        length_S=torch.tensor([row.trained for row in rows]),
        entropy_T=-(logp.exp() * logp).sum(-1),
        reference_logp_T=torch.stack([of_reference[i, target] for i, target in enumerate(targets)]),
        head_S=torch.zeros(2, dtype=torch.float64),
    )
    torch.testing.assert_close(got, gradient(loss, by_hand, logits), rtol=1e-10, atol=1e-10)
    unread = sorted(set(range(size)) - set(places))
    assert not got[unread].any(), "an observation has no gradient"
    assert got[places].any(dim=-1).all()


def test_the_learner_trains_a_conversation_as_its_turns_after_what_came_before(folder: Path) -> None:
    rows = [conversation(seed) for seed in range(4)]
    by_turn = [each for row in rows for each in turn_by_turn(row)]
    found = [update(learner(folder), given) for given in (rows, by_turn)]
    assert found[0].grad_norm == pytest.approx(found[1].grad_norm, rel=1e-5)
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-5)
    assert (found[0].tokens, found[0].rows) == (found[1].tokens, 4)
    assert found[0].measured.mismatch_mean == pytest.approx(found[1].measured.mismatch_mean, rel=1e-4)


def test_a_row_without_a_mask_is_what_it_was_bit_for_bit(folder: Path) -> None:
    rows = [replace(conversation(seed), mask=None) for seed in range(4)]
    rows = [replace(row, sampler_logprobs=np.nan_to_num(row.sampler_logprobs)) for row in rows]
    masked = [replace(row, mask=np.ones(len(row.tokens), np.bool_)) for row in rows]
    assert update(learner(folder), rows).weight_digest == update(learner(folder), masked).weight_digest


def test_a_rollout_counts_its_own_tokens() -> None:
    row = conversation(0)
    turns = (Turn(ASSISTANT, 0, "a"), Turn("user", 3, "b"), Turn(ASSISTANT, 7, "c"))
    mask, logprobs = row.mask, row.sampler_logprobs
    rollout = Rollout(row.prompt_tokens, row.tokens, logprobs, "c", "stop", 1, 0, mask, turns)
    assert (rollout.length, len(rollout.tokens), rollout.given) == (10, 15, False)
    assert not np.isnan(rollout.own(logprobs)).any()
    crossed = CrossLogprobs(np.zeros(1, np.int32), (rollout.own(np.zeros((2, 15), np.float32)),))
    assert crossed.logprobs[0].shape == (2, 10)
    (made,) = rows_of([rollout], [0.5])
    assert made.trained == 10


def learner(folder: Path) -> PolicyLearner:
    return PolicyLearner(folder, TrainConfig(max_grad_norm=1e9), build("policy_gradient"), temperature=1.0)
