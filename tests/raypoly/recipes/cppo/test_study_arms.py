"""The arms of CPPO's study compare like with like: one loss, as many steps, plans as long, and no thoughts."""

from __future__ import annotations

import pytest

from raypoly.algorithms import losses
from raypoly.analysis.experiments.experiment_config import ArmConfig, load_experiment
from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.planning.dry_run import describe_loss
from raypoly.recipes.cppo.tuple_plans import TuplePlansConfig
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.run_scaffolds import of_evaluations

STUDY = load_experiment("configs/experiments/cppo_h200.yaml")
LIKELIHOOD = ("sft", "gate")
STAGES = (*LIKELIHOOD, "warm_up", "audit")
"""Arms with steps of their own."""


def config_of(arm: ArmConfig) -> Config:
    return load(STUDY.config, list(arm.overrides({})), str)


CONFIGS = {name: config_of(arm) for name, arm in STUDY.arms.items()}


def test_every_arm_that_learns_from_rewards_has_the_studys_loss() -> None:
    found = {name: losses.of_run(config).config.model_dump() for name, config in CONFIGS.items()}
    assert found["joint"].items() >= {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "kl": "k3"}.items()
    assert found["joint"]["kl_coefficient"] == 0.01
    for name, config in CONFIGS.items():
        assert (found[name] == found["joint"]) == (name not in LIKELIHOOD), name
        assert (describe_loss(config) == describe_loss(CONFIGS["joint"])) == (name not in LIKELIHOOD), name


def test_they_take_as_many_steps_with_one_optimizer_and_temperature() -> None:
    trained = {name: CONFIGS[name] for name, arm in STUDY.arms.items() if arm.command == "train"}
    compared = [trained[name] for name in trained.keys() - set(STAGES)]
    assert len(compared) == 9
    same = {
        (it.train.steps, it.train.lr, it.train.prompts_per_step, it.generator.temperature, it.generator.max_tokens)
        for it in compared
    }
    assert same == {(563, 5e-7, 16, 0.7, 4096)}


@pytest.mark.parametrize("name", CONFIGS)
def test_plans_are_as_long_everywhere_and_nothing_is_thought(name: str) -> None:
    config = CONFIGS[name]
    assert config.problems.chat_template_kwargs == {"enable_thinking": False}
    asked = [scaffolds.of_run(config), *of_evaluations(config).values()]
    plans = [it.config for it in asked if isinstance(it.config, TuplePlansConfig)]
    assert all((plan.plan_tokens, plan.methods) == (512, 4) for plan in plans)
    assert bool(plans) == (
        name
        not in (
            "direct",
            "plan_and_solve",
            "plan_search",
            "passk_training",
            "pkpo",
            "upskill",
            "gate",
            "outputs_direct",
            "outputs_plan_and_solve",
            "outputs_fixed_strategy",
            "outputs_pkpo",
        )
    )


def test_upskill_is_trained_and_measured_by_its_skills() -> None:
    config = CONFIGS["upskill"]
    (measured,) = of_evaluations(config).values()
    assert measured.config == scaffolds.of_run(config).config
    assert config.objective.parameters == {"skills": 4, "alpha": 5, "level": "token"}
    assert (config.train.rollouts, measured.block(config.evaluate.samples)) == (4, 4)
