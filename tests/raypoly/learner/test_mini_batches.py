"""Several updates a step: each as a step of its own, all of them one version."""

from pathlib import Path

import pytest

from raypoly.algorithms.losses import build
from raypoly.core.config import TrainConfig
from raypoly.core.errors import WeightsMismatch
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from tests.support.random_rows import NORMALISERS, random_rows


def learner(folder: Path, **train: object) -> PolicyLearner:
    loss = build("clipped_surrogate", aggregation="token_mean")
    return PolicyLearner(folder, TrainConfig.model_validate({"lr": 1e-2, **train}), loss, temperature=1.0)


def step(one: PolicyLearner, number: int, *mini_batches: list[TrainingRow]) -> UpdateStats:
    one.begin(number, NORMALISERS)
    for index, rows_of_one in enumerate(mini_batches):
        if index:
            one.update()
        one.accumulate(rows_of_one)
    return one.apply()


def honest(sampler: PolicyLearner) -> list[TrainingRow]:
    """Rows whose log-probabilities are the sampler's."""
    return [
        TrainingRow(
            row.prompt_tokens, row.tokens, sampler.logprobs(row.prompt_tokens, row.tokens, 1.0), row.advantage, 0
        )
        for row in random_rows()
    ]


def test_a_step_of_two_updates_gives_the_weights_of_two_steps(folder: Path) -> None:
    first, second = random_rows()[:3], random_rows()[3:]
    twice, plain = learner(folder), learner(folder)
    whole, parts = step(twice, 0, first, second), [step(plain, 0, first), step(plain, 1, second)]
    assert whole.weight_digest == parts[1].weight_digest
    assert (whole.version, whole.rows) == (1, 8)
    assert whole.tokens == sum(part.tokens for part in parts)
    assert whole.loss == pytest.approx(sum(part.loss for part in parts) / 2)
    assert whole.grad_norm == pytest.approx(sum(part.grad_norm for part in parts) / 2)
    assert whole.entropy * whole.tokens == pytest.approx(sum(part.entropy * part.tokens for part in parts))
    assert whole.weight_digest != step(learner(folder), 0, random_rows()).weight_digest


def test_the_second_update_meets_a_ratio(folder: Path) -> None:
    """The same rows twice: the policy has moved, and the sampler's word for pi_old has not."""
    rows_of_step = honest(learner(folder))
    assert step(learner(folder), 0, rows_of_step).measured.mismatch_max < 1e-4
    assert step(learner(folder), 0, rows_of_step, rows_of_step).measured.mismatch_max > 1e-3


def test_weights_between_updates_are_of_no_version(folder: Path) -> None:
    one = learner(folder)
    one.begin(0, NORMALISERS)
    one.accumulate(random_rows()[:4])
    assert not one.midway
    one.begin(0, NORMALISERS)  # nothing but gradients is forgotten
    one.accumulate(random_rows()[:4])
    one.update()
    assert one.midway
    for ask in (one.snapshot, lambda: one.begin(0, NORMALISERS)):
        with pytest.raises(RuntimeError, match="step 0 is midway between its updates"):
            ask()
    one.accumulate(random_rows()[4:])
    assert one.apply().version == 1
    assert not one.midway
    one.snapshot()


def test_stale_weights_are_looked_for_in_the_first_update_alone(folder: Path) -> None:
    """Rows after it differ from the sampler because the policy has moved."""
    rows_of_step = honest(learner(folder))
    assert step(learner(folder, max_mismatch=1e-3), 0, rows_of_step, rows_of_step).measured.mismatch_mean > 1e-3
    with pytest.raises(WeightsMismatch, match="stale or wrong"):
        step(learner(folder, max_mismatch=1e-3), 0, random_rows())
