"""From a rehearsal's seconds to the whole run's, and what is said of a part that fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from raypoly.core.config import Config
from raypoly.core.errors import SandboxError
from raypoly.core.settings import load
from raypoly.planning.gpus import Device, find_board
from workflows.startup.forecast import RehearsalTimes, describe_forecast, forecast
from workflows.startup.rehearsal import RehearsalFailed, RehearsalProbe

MEASURED = RehearsalTimes(
    sampling=2.0,
    prompts=2,
    responses=16,
    response_tokens=1600,
    update=0.5,
    gradients=4.0,
    gradient_tokens=4000,
    hand_over=0.25,
    judge_call_usd=0.01,
)
CPU = Device("this machine's CPU", 1 << 34, gpu=False)


def run(*overrides: str) -> Config:
    base = ["train.steps=100", "train.prompts_per_step=4", "evaluate.every=50", "evaluate.validation_samples=1"]
    return load(None, [*base, *overrides], lambda text: None)


def test_where_no_plan_is_known_sampling_grows_with_the_tokens_at_most() -> None:
    found = forecast(run(), CPU, MEASURED, {"validation": 32})
    assert found.at_most
    assert found.sampling == 4.0, "32 responses of 16"
    assert found.gradients == pytest.approx(4.0 * 32 * 100 / 4000)
    assert found.step == pytest.approx(4.0 + 3.2 + 0.5 + 0.25)
    assert found.evaluations == pytest.approx(3 * 32 * 4.0 / 32), "three evaluations, as many responses as a step"
    assert found.total == pytest.approx(100 * found.step + found.evaluations)
    assert found.gpus == 0
    said = describe_forecast(run(), MEASURED, found, datetime(2026, 1, 1))
    assert "which ends 2026-01-01 00:13" in said
    assert "GPU-hours" not in said


def test_what_the_learner_is_asked_beside_grows_with_the_responses() -> None:
    plain, found = (forecast(run(), CPU, replace(MEASURED, crossing=seconds), {}) for seconds in (0.0, 1.5))
    assert found.crossing == 3.0
    assert found.step == pytest.approx(plain.step + 3.0)
    said = describe_forecast(run(), MEASURED, found, datetime(2026, 1, 1))
    assert "log-probs behind several prompts 3.0 s, gradients" in said
    assert "several prompts" not in describe_forecast(run(), MEASURED, plain, datetime(2026, 1, 1))


def test_on_a_known_gpu_a_wider_batch_is_not_paid_for_by_the_token() -> None:
    config = run("model.path=Qwen/Qwen3-4B", "model.dtype=bfloat16", "train.prompts_per_step=32")
    found = forecast(config, find_board("h200"), replace(MEASURED, response_tokens=16_000), {})
    assert not found.at_most
    assert MEASURED.sampling < found.sampling < MEASURED.sampling * 256 / 16
    assert "GPU-hours: " in describe_forecast(config, MEASURED, found, datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("overrides", "call", "usd"),
    [
        ([], 0.01, 4.0),
        (["judge.votes=3"], 0.01, 12.0),
        ([], None, None),
        (["objective.name=grpo"], None, 0.0),
    ],
)
def test_a_judges_cost_is_what_its_questions_cost_or_unknown(
    overrides: list[str], call: float | None, usd: float | None
) -> None:
    found = forecast(run(*overrides), CPU, replace(MEASURED, judge_call_usd=call), {})
    assert found.judge_usd == (None if usd is None else pytest.approx(usd))


def failing(error: Exception, name: str) -> str:
    async def work() -> None:
        raise error

    with pytest.raises(RehearsalFailed) as caught:
        asyncio.run(RehearsalProbe().part(name, work()))
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_a_part_that_fails_names_itself_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    said = failing(RuntimeError("CUDA out of memory. Tried to allocate 2.3 GiB."), "gradients of rows at their limits")
    assert said.startswith("The rehearsal failed at `gradients of rows at their limits`: RuntimeError: CUDA out of")
    assert "train.activation_checkpointing=layers" in said
    assert "FAILED" in capsys.readouterr().out


def test_an_error_that_says_what_to_do_is_told_as_it_is() -> None:
    wrapped = ExceptionGroup("tasks", [SandboxError("No user namespaces here: set scorer.isolation=none.")])
    assert failing(wrapped, "one step") == (
        "The rehearsal failed at `one step`: No user namespaces here: set scorer.isolation=none."
    )


def test_a_part_that_works_is_a_line_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        return 7

    tried = RehearsalProbe()
    assert asyncio.run(tried.part("engine, started", work())) == 7
    assert tried.seconds["engine, started"] >= 0
    assert capsys.readouterr().out.startswith("engine, started                      ok")
