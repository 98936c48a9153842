"""A killed run, started again with the same command, ends with the weights of an undisturbed one, bit for bit.

`RAYPOLY_KILLS=12` makes it the long form; `RAYPOLY_KILLS_ENGINE=vllm` takes the other engine.
"""

import os
import random
import re
from pathlib import Path

import pytest

from benchmarks.chaos.compare import differences
from raypoly import Run
from tests.workflows.runs import SMALL, Driver, run_with_kills

KILLS = int(os.environ.get("RAYPOLY_KILLS", "3"))
ENGINE = os.environ.get("RAYPOLY_KILLS_ENGINE", "transformers")


@pytest.fixture(scope="module")
def overrides(warm_model: Path) -> list[str]:
    return [*SMALL, f"model.path={warm_model}", f"generator.engine={ENGINE}"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, overrides: list[str]) -> Driver:
    driver = Driver(tmp_path_factory.mktemp("runs") / "undisturbed", overrides)
    assert driver.finish() == 0, driver.log()
    assert len(set(driver.digests())) == 5, "training must change the weights, or there is nothing to compare"
    return driver


def test_killed_run_ends_bit_identical(undisturbed: Driver, overrides: list[str], tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("RAYPOLY_KILLS_SEED", "0"))
    struck = 0
    for number in range(-(-KILLS // 4)):
        driver = Driver(tmp_path / f"killed-{number}", overrides)
        struck += run_with_kills(driver, min(4, KILLS - 4 * number), rng)
        assert differences(Run(driver.folder), Run(undisturbed.folder)) == []
    assert struck > 0
    print(f"{struck} kills struck")


def test_a_second_driver_is_refused_with_the_holders_name(overrides: list[str], tmp_path: Path) -> None:
    first = Driver(tmp_path / "run", [*overrides, "train.steps=500"])
    holder = first.start()
    assert first.wait_for_commits(1)
    second = Driver(tmp_path / "run", [*overrides, "train.steps=500"])
    assert second.finish() == 2
    assert re.search(rf"held by pid {holder.pid}\b", second.log())
    first.kill()
    steps = len(list(first.folder.glob("rollouts/step-*.parquet"))) + 1
    rest = Driver(tmp_path / "run", [*overrides, f"train.steps={steps}"])
    assert rest.finish() == 0, "the holder is dead: the run goes on"
    assert len(rest.digests()) == steps


def test_a_finished_run_is_left_as_it_is_and_more_steps_go_on(undisturbed: Driver) -> None:
    before = undisturbed.weights()
    assert undisturbed.finish() == 0
    assert undisturbed.weights() == before
    more = Driver(undisturbed.folder, [*undisturbed.overrides, "train.steps=6"])
    assert more.finish() == 0, more.log()
    assert len(more.digests()) == 6
    assert more.weights() != before


def test_another_seed_is_another_run(undisturbed: Driver) -> None:
    other = Driver(undisturbed.folder, [*undisturbed.overrides, "train.seed=1"])
    assert other.finish() == 2
    assert "train.seed is 1 now and was 0" in other.log()
