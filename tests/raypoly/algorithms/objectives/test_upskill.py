"""UpSkill pays for what only the own skill would say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.grpo import relative
from raypoly.algorithms.objectives.upskill import information, mutual_information
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem, TestSuite
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.run_scaffolds import distinct_prompts
from tests.support.worked_numbers import worked_cases


def worked(name: str) -> list[Any]:
    """The case of that name, or one that skips."""
    return [case for case in worked_cases("upskill_mi") if case.id in (name, None)]


@pytest.mark.parametrize("case", worked("seq_level_three_skills"))
@pytest.mark.parametrize("parts", [(1.0,), (0.25, 0.75)])
def test_worked_numbers_of_sequences(case: Any, parts: tuple[float, ...]) -> None:
    given = case["input"]
    pairs = zip(given["logp_y_given_each_z"], given["z"], strict=True)
    got = [mutual_information(np.outer(logp_Z, parts), z, "sequence") for logp_Z, z in pairs]
    np.testing.assert_allclose(given["alpha_mi"] * np.array(got), case["expected"]["reward"], atol=1e-9)


@pytest.mark.parametrize("case", worked("token_level"))
def test_worked_numbers_of_tokens(case: Any) -> None:
    logp_ZT, z = np.array(case["input"]["token_logp_by_z"]).T, case["input"]["z"]
    want = case["expected"]["token_reward"]
    np.testing.assert_allclose(information(logp_ZT, z), want, atol=1e-9)
    assert mutual_information(logp_ZT, z, "token") == pytest.approx(sum(want), abs=1e-9)


def group(seed: int, rollouts: int, skills: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "rewards": rng.integers(0, 2, rollouts),
        "cross_logprobs": [-3 * rng.random((skills, int(n))) for n in rng.integers(0, 9, rollouts)],
        "own_prompt": np.arange(rollouts) % skills,
    }


@pytest.mark.parametrize("std", ["none", "sample", "population"])
@pytest.mark.parametrize("level", ["sequence", "token"])
def test_advantages_are_grpo_s_of_the_reward_and_the_information(level: Any, std: Any) -> None:
    given = group(1, 8, 3)
    pairs = zip(given["cross_logprobs"], given["own_prompt"], strict=True)
    bonus = 2.0 * np.array([mutual_information(*pair, level) for pair in pairs])
    objective = build("upskill", skills=3, alpha=2.0, level=level, std=std)
    credit = objective.credit(**given)
    np.testing.assert_allclose(credit.numbers, relative(given["rewards"] + bonus, std), atol=1e-12)
    assert credit.measures == {"mi_reward": pytest.approx(bonus.mean())}


def test_without_alpha_or_where_skills_say_the_same_it_is_grpo() -> None:
    given = group(2, 8, 4)
    want = build("grpo", std="sample").advantages(rewards=given["rewards"])
    np.testing.assert_array_equal(build("upskill", skills=4, alpha=0).advantages(**given), want)
    alike = [np.tile(each[:1], (4, 1)) for each in given["cross_logprobs"]]
    same = build("upskill", skills=4).advantages(**given | {"cross_logprobs": alike})
    np.testing.assert_allclose(same, want, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_information_of_a_sequence_is_at_most_log_of_the_skills_and_survives_unlikely_responses(seed: int) -> None:
    given = group(seed, 12, 4)
    for logp_ZT, z in zip(given["cross_logprobs"], given["own_prompt"], strict=True):
        for scale in (1.0, 1000.0):
            found = mutual_information(scale * logp_ZT, z, "sequence")
            assert np.isfinite(found)
            assert found <= np.log(4) + 1e-12


def test_skills_come_round_in_turn_before_the_prompt() -> None:
    skills = scaffolds.of_run(load(None, ["objective.name=upskill", "objective.skills=3"], lambda text: None))
    asks = skills.ask(Problem("add", "Add.", "f", TestSuite("calls", "[]")), (), 5)
    assert [ask.prompt for ask in asks] == [f"Strategy {z} | Add." for z in (1, 2, 3, 1, 2)]
    assert distinct_prompts(skills, 5) == 3
    assert distinct_prompts(scaffolds.build("direct"), 8) == 1


def test_more_skills_than_rollouts_are_refused() -> None:
    build("upskill").check(5)
    with pytest.raises(
        UsageError, match=r"objective\.skills=5 needs a rollout for each skill, but train\.rollouts is 4"
    ):
        build("upskill").check(4)
    with pytest.raises(UsageError, match=r"objective\.skills=1 does not fit upskill"):
        build("upskill", skills=1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cross_logprobs": None}, "needs cross_logprobs, and got none"),
        ({"own_prompt": None}, "2 cross_logprobs need 2 own_prompt"),
        ({"own_prompt": [0]}, "2 cross_logprobs need 2 own_prompt"),
        ({"own_prompt": [0, 2]}, r"from 0 to P - 1, got \[0, 2\] with P = 2"),
        ({"cross_logprobs": [np.zeros((2, 1)), np.zeros((3, 1))]}, "of the same P prompts"),
        ({"cross_logprobs": [np.zeros(2), np.zeros(2)]}, "of the same P prompts"),
        ({"cross_logprobs": [np.zeros((2, 1)), np.full((2, 1), np.nan)]}, "must be finite"),
        ({"rewards": [1, 0, 0]}, "3 rewards need 3 cross_logprobs, got 2"),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], said: str) -> None:
    given = {"rewards": [1, 0], "cross_logprobs": [np.zeros((2, 1))] * 2, "own_prompt": [0, 1]} | changed
    with pytest.raises(ValueError, match=said):
        build("upskill", skills=2).advantages(**given)
