"""A run whose judge is a model of its own: its turn on a shared device, a lost actor, evaluations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import ray

from raypoly import Run
from tests.support.canned_engine import canned, judge_folder
from tests.workflows.test_train import config, train
from workflows.startup.open_run import OpenRun
from workflows.train import run

TURNS = ("generator.placement=colocated", "generator.transport=objects")


@pytest.fixture
def judged(warm_model: Path, tmp_path: Path) -> list[str]:
    """The judge's keys."""
    engine = "judge.engine=tests.support.canned_engine:CannedEngine"
    keys = ["judge.max_prompt_tokens=20000", "judge.cache_mib=0"]
    return ["judge.name=local", f"judge.model={judge_folder(warm_model, tmp_path)}", engine, *keys]


@pytest.mark.usefixtures("joined")
def test_it_is_awake_in_its_turn_alone_and_a_lost_one_is_replaced(
    warm_model: Path, judged: list[str], tmp_path: Path
) -> None:
    want = train(config(warm_model, tmp_path / "beside", *judged, "train.steps=2"))
    log = canned(tmp_path)
    assert not {"sleep", "wake"} & set(log()), "nothing sleeps where nothing is shared"
    canned(tmp_path)
    (tmp_path / "log").unlink()

    async def lose(opened: OpenRun, step: int) -> None:
        if step == 1:
            while "judge" not in {call.stage for call in opened.services.context.in_flight.open}:
                await asyncio.sleep(0.001)
            ray.kill(opened.services.judge.actors["judge"])

    got = train(config(warm_model, tmp_path / "turns", *judged, *TURNS, "train.steps=2"), lose)
    assert got == want
    for before, after in zip(log(), log()[1:], strict=False):
        assert (before, after) != ("wake", "sleep")
    assert log().count("built bfloat16 64") == 2
    assert log()[-1] == "sleep"
    rows = Run(tmp_path / "turns").rows
    assert all(row["judge_step"]["prompt_tokens"] > 0 and row["judge_step"]["cost_usd"] == 0 for row in rows)
    assert all(row["seconds"]["judge"] > 0 and row["unjudged"] == 0 for row in rows)
    assert all(name.startswith("local:judge-") for row in rows for name in row["labelled_by"])


@pytest.mark.usefixtures("joined")
def test_evaluations_have_their_turns_too(warm_model: Path, judged: list[str], tmp_path: Path) -> None:
    log, few = canned(tmp_path), ("problems.test=0", "problems.validation=2", "evaluate.validation_samples=8")
    asked = ("evaluate.every=1", "evaluate.judge=true", "train.steps=1", *few)
    run(config(warm_model, tmp_path / "run", *judged, *TURNS, *asked))
    evaluations = Run(tmp_path / "run").evaluations
    assert [(each["step"], each["split"]) for each in evaluations] == [(0, "validation"), (1, "validation")]
    assert all(each["judge"]["calls"] > 0 and each["judge"]["cost_usd"] == 0 for each in evaluations)
    turns = [line for line in log() if line in ("sleep", "wake")]
    assert turns == ["sleep", *["wake", "sleep"] * 3], "of two evaluations and a step"
