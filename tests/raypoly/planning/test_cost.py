"""Hours of a run from measured seconds, and what a judge costs: unknown where something of them is."""

from __future__ import annotations

from datetime import datetime

import pytest

from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.planning.cost import describe_forecast, forecast_judge, planned_evaluations, run_seconds


def run(*overrides: str) -> Config:
    return load(None, ["model.path=Qwen/Qwen3-4B-Base", *overrides], lambda text: None)


def test_a_run_takes_its_steps_and_every_sample_of_its_evaluations() -> None:
    config = run("train.steps=100", "evaluate.every=50", "evaluate.validation_samples=1")
    seconds = run_seconds(config, 4.0, 0.125, {"validation": 32, "test": 0})
    assert seconds == 100 * 4.0 + 3 * 32 * 0.125
    said = list(describe_forecast(config, 0, seconds, 0.0, datetime(2026, 1, 1)))
    assert said == [
        "100 steps and evaluations: 6.9 min, which ends 2026-01-01 00:06 if it starts now",
        "judge: without cost",
    ]
    dear = "\n".join(describe_forecast(config, 4, 7200.0, 0.25, datetime(2026, 1, 1)))
    assert "GPU-hours: 8.0" in dear
    assert "judge: $25, evaluations apart" in dear
    assert "its cost is unknown" in "\n".join(describe_forecast(config, 0, seconds, None, datetime(2026, 1, 1)))


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
