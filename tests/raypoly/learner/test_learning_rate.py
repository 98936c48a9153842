"""The learning rate of a step follows from the config and the step alone, and every update of the step has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raypoly.algorithms.losses import build
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.learner.learning_rate import Shape, learning_rate
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.update_stats import UpdateStats
from tests.support.compilers import needs_peft
from tests.support.random_rows import NORMALISERS, random_rows

LINEAR: dict[str, Any] = {"lr": 1e-2, "schedule": "linear", "warmup_steps": 1, "schedule_steps": 3}


@pytest.mark.parametrize(
    ("shape", "warmup", "wanted"),
    [
        ("constant", 0, [1, 1, 1, 1, 1, 1, 1, 1]),
        ("constant", 4, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
        ("linear", 0, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 1 / 6, 1 / 6]),
        ("linear", 2, [0.5, 1, 1, 0.75, 0.5, 0.25, 0.25, 0.25]),
        ("cosine", 2, [0.5, 1, 1, 0.853553, 0.5, 0.146447, 0.146447, 0.146447]),
    ],
)
def test_the_rate_rises_decays_and_stays(shape: Shape, warmup: int, wanted: list[float]) -> None:
    """Over a horizon of 6 steps, of which the sixth has the lowest rate."""
    assert [learning_rate(s, 1.0, shape, warmup, warmup, 6) for s in range(8)] == pytest.approx(wanted, abs=1e-6)


def learner(folder: Path, lora_rank: int | None = None, loss: str = "policy_gradient", **train: Any) -> PolicyLearner:
    model = ModelConfig(lora_rank=lora_rank)
    return PolicyLearner(folder, TrainConfig.model_validate(train), build(loss), 1.0, model)


def step(one: PolicyLearner, updates: int = 1) -> UpdateStats:
    one.begin(one.version, NORMALISERS)
    for update in range(updates):
        if update:
            one.update()
        one.accumulate(random_rows(one.version))
    return one.apply()


@pytest.mark.parametrize("given", [{}, {"loss": "flowrl"}, pytest.param({"lora_rank": 2}, marks=needs_peft)])
def test_each_step_gives_the_weights_of_its_own_rate(folder: Path, given: dict[str, Any]) -> None:
    """Every step of a schedule is a step of a learner with that constant rate, which starts from the same state. The
    fourth is behind the horizon."""
    one = learner(folder, **given, **LINEAR)
    for rate in (1e-2, 1e-2, 5e-3, 5e-3):
        alone = learner(folder, **given, lr=rate)
        alone.load(one.save())
        wanted = step(alone)
        assert repr(step(one)) == repr(wanted)
        assert wanted.lr == rate


def test_all_updates_of_a_step_have_one_rate(folder: Path) -> None:
    one, constant = learner(folder, **LINEAR | {"warmup_steps": 2}), learner(folder, lr=5e-3)
    assert step(one, updates=2) == replace(step(constant, updates=2), lr=5e-3)
    assert step(one, updates=2).lr == 1e-2


def test_a_learner_from_a_checkpoint_goes_on_with_the_rates_of_its_steps(folder: Path) -> None:
    whole, again = learner(folder, **LINEAR), learner(folder, **LINEAR)
    step(whole)
    saved = whole.save()
    wanted = [step(whole) for _ in range(2)]
    again.load(saved)
    assert [repr(step(again)) for _ in range(2)] == [repr(stats) for stats in wanted]
    assert wanted[0].lr == 2 * wanted[1].lr
