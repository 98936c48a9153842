"""Time by stage and what a judge costs: by the formulas, and unknown where something of them is."""

from __future__ import annotations

import pytest

from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.tables import duration
from raypoly.planning.dry_run import forecast, forecast_judge, planned_evaluations
from raypoly.planning.gpus import Device, DeviceLayout, find_board
from raypoly.planning.model_shape import PUBLISHED, from_config
from raypoly.planning.step_seconds import forward_operations, operations, sampling_seconds, step_seconds
from tests.support.learner_load import QWEN3_4B as BENCHMARKED
from tests.support.learner_load import model_flops, sample_rows

SHAPE = PUBLISHED["Qwen/Qwen3-4B"]
H200 = find_board("h200")


def run(*overrides: str) -> Config:
    base = ["model.path=Qwen/Qwen3-4B-Base", "model.dtype=bfloat16", "generator.max_prompt_tokens=1024"]
    return load(None, [*base, "generator.max_tokens=4096", *overrides], lambda text: None)


def test_operations_are_those_that_the_benchmark_counts_but_for_what_is_computed_again() -> None:
    assert from_config(BENCHMARKED.to_dict()) == SHAPE
    rows = sample_rows(2, 3, (384, 384), (2688, 2688), 1000)
    config = run("generator.max_prompt_tokens=384")
    again = 2.0 * SHAPE.head * sum(len(row.tokens) for row in rows)
    counted = operations(config, SHAPE, prompts=2, rollouts=6, response=2688)
    assert counted == pytest.approx(model_flops(BENCHMARKED, rows) + again, rel=1e-9)
    layers = run("generator.max_prompt_tokens=384", "train.activation_checkpointing=layers")
    assert 1.2 < operations(layers, SHAPE, 2, 6, 2688) / counted < 1.4


def test_longer_responses_and_more_of_them_take_longer() -> None:
    config, alone = run(), DeviceLayout("colocated")
    short, long = (step_seconds(config, SHAPE, H200, alone, length) for length in (1000, 4000))
    assert short is not None
    assert long is not None
    assert long.sampling > 3 * short.sampling
    assert long.gradients > 3 * short.gradients
    assert (long.update, long.hand_over) == (short.update, short.hand_over)


def test_skills_cost_a_forward_pass_each_and_a_prompt_each() -> None:
    plain, alone = run("objective.name=grpo"), DeviceLayout("colocated")
    found = []
    for skills in (2, 4):
        config = run("objective.name=upskill", f"objective.skills={skills}")
        step = step_seconds(config, SHAPE, H200, alone, 2000)
        assert step is not None
        found.append(step)
    without = step_seconds(plain, SHAPE, H200, alone, 2000)
    assert without is not None
    assert without.crossing == 0
    assert found[1].crossing == pytest.approx(2 * found[0].crossing)
    assert found[0].total > found[0].crossing + without.total, "prompts are more, too"
    groups, rollouts = plain.train.prompts_per_step, plain.train.prompts_per_step * plain.train.rollouts
    forward = forward_operations(plain, SHAPE, 2 * groups, 2 * rollouts, 2000)
    assert found[0].crossing / without.gradients == pytest.approx(
        forward / operations(plain, SHAPE, groups, rollouts, 2000)
    )
    said = "log-probs behind several prompts"
    assert said in forecast(run("objective.name=upskill"), H200, {})
    assert said not in forecast(plain, H200, {})


def test_a_wider_batch_is_faster_by_the_token() -> None:
    few, many = (sampling_seconds(run(), SHAPE, H200, DeviceLayout("colocated"), 2, count, 1000) for count in (16, 64))
    assert few is not None
    assert many is not None
    assert few < many < 4 * few


def test_ranks_and_engines_share_the_work() -> None:
    one = step_seconds(run(), SHAPE, H200, DeviceLayout("split"), 2000)
    four = step_seconds(run(), SHAPE, H200, DeviceLayout("split", ranks=4, engines=4), 2000)
    assert one is not None
    assert four is not None
    assert four.gradients == pytest.approx(one.gradients / 4)
    assert four.sampling < one.sampling


@pytest.mark.parametrize(
    ("overrides", "device"),
    [
        ([], Device("this machine's CPU", H200.memory, gpu=False)),
        ([], Device("a GPU of tomorrow", H200.memory)),
        (["model.dtype=float32"], H200),
        (["generator.engine=mine:Engine"], H200),
    ],
    ids=["cpu", "unknown board", "float32", "own engine"],
)
def test_what_nobody_knows_the_speed_of_has_no_time(overrides: list[str], device: Device) -> None:
    assert step_seconds(run(*overrides), SHAPE, device, DeviceLayout("colocated"), 1000) is None


@pytest.mark.parametrize(
    ("overrides", "groups", "usd"),
    [
        ([], 20, 0.0),
        (["judge.name=openai"], 20, 20 * (956 * 0.4 + 100 * 1.6) / 1e6),
        (["judge.name=openai", "judge.votes=3"], 20, 60 * (956 * 0.4 + 100 * 1.6) / 1e6),
        (["judge.name=openai", "objective.name=grpo"], 0, 0.0),
        (["judge.name=openai", "objective.name=grpo", "judge.when=sampled"], 2, 2 * (956 * 0.4 + 100 * 1.6) / 1e6),
        (["judge.name=openai", "judge.model=mine"], 20, None),
        (["judge.name=http"], 20, None),
    ],
)
def test_a_judge_costs_its_questions_where_its_prices_are_known(
    overrides: list[str], groups: float, usd: float | None
) -> None:
    asked = forecast_judge(run(*overrides))
    assert asked.groups == groups
    assert asked.usd == (None if usd is None else pytest.approx(usd))


def test_evaluations_are_counted_as_they_come_due() -> None:
    config = run("train.steps=50", "evaluate.every=20", "evaluate.samples=4", "evaluate.validation_samples=2")
    assert list(planned_evaluations(config, {"test": 7, "validation": 5})) == [(2, 7, 4), (4, 5, 2)]
    assert list(planned_evaluations(config, {"test": 0, "validation": 5})) == [(4, 5, 2)]
    assert list(planned_evaluations(run("evaluate.every=0"), {"test": 7})) == []


def test_durations_are_read_at_a_glance() -> None:
    assert [duration(seconds) for seconds in (0.31, 44, 270, 40_000)] == ["0.3 s", "44 s", "4.5 min", "11.1 h"]
