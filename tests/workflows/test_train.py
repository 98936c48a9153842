"""The loop in this process, while its actors are killed under it; and objectives from outside the tree."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import ray

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from tests.support.local_driver import SMALL, LocalDriver
from tests.support.ray_machines import Machines
from workflows.liveness.shutdown import run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.startup.ray_cluster import connect_ray
from workflows.step.weight_sync import WeightSync
from workflows.train import Training, run

Disturb = Callable[[OpenRun, int], Awaitable[None]]


def config(model: Path, folder: Path, *overrides: str) -> Config:
    engine = "generator.engine=transformers"
    return load(None, [*SMALL, engine, f"model.path={model}", f"run.dir={folder}", *overrides])


def train(config: Config, disturb: Disturb | None = None) -> list[str]:
    """The digests of the weights after each step."""
    digests: list[str] = []

    async def work() -> None:
        async with open_run(resolve_run(config)) as opened:
            training = Training(opened)
            await opened.weights.sync()
            for step in range(config.train.steps):
                trouble = asyncio.create_task(disturb(opened, step)) if disturb else None
                await training.step(step)
                if trouble:
                    await trouble
                digests.append(opened.durability.journal.load_step(step).applied.digest)
            await opened.finish()

    run_workflow(work())
    return digests


def test_too_few_problems_are_refused_before_the_folder_holds_a_run(tmp_path: Path) -> None:
    few = load(None, ["train.prompts_per_step=1000", f"run.dir={tmp_path / 'run'}"])
    with pytest.raises(UsageError, match=r"^train\.prompts_per_step=1000, but there are only \d+ training problems"):
        run(few)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("joined")
def test_losing_each_actor_once_changes_nothing(reference: LocalDriver, warm_model: Path, tmp_path: Path) -> None:
    victims = ["generator", "scorer-0", "judge", "learner"]

    async def kill(opened: OpenRun, step: int) -> None:
        if step < len(victims):
            await asyncio.sleep(0.05 * step)
            ray.kill(ray.get_actor(victims[step]))

    assert train(config(warm_model, tmp_path / "run"), kill) == reference.digests()


@pytest.mark.usefixtures("joined")
def test_losing_the_learner_after_its_update_and_before_the_commit_changes_nothing(
    reference: LocalDriver, warm_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, lost = WeightSync.sync, []

    async def lose_it_first(weights: WeightSync) -> None:
        if weights.services.learner.version == 2 and not lost:
            lost.append(ray.kill(ray.get_actor("learner")))
        await sync(weights)

    monkeypatch.setattr(WeightSync, "sync", lose_it_first)
    assert train(config(warm_model, tmp_path / "run", "train.steps=3")) == reference.digests()[:3]
    assert lost


OBJECTIVE = '''
from raypoly.algorithms.objectives.objective import Objective


class Halved(Objective):
    """Half the reward, centred."""

    def compute(self, group):
        return (group.rewards - group.rewards.mean()) / 2
'''


def test_an_objective_from_outside_the_tree_trains(
    warm_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halved.py").write_text(OBJECTIVE)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = config(warm_model, tmp_path / "own", "objective.name=halved:Halved", "train.steps=2")
    with subprocess.Popen(["sleep", "1000"]) as other:
        assert len(set(train(own))) == 2
        with pytest.raises(subprocess.TimeoutExpired):  # what else this process has started is not the run's to end
            other.wait(6)
        other.kill()


def answers() -> bool:
    """Whether an actor comes up; Ray's head takes it down where it can't reach this process."""
    actor = ray.remote(num_cpus=0)(Counter).remote()
    return bool(ray.get(actor.total.remote(), timeout=300) == 0)


def test_a_ray_of_its_own_changes_nothing_for_a_cluster_that_is_joined_later(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_ray(Config(), "own"):
        assert answers()
    monkeypatch.setenv("RAY_ADDRESS", machines.address)
    with connect_ray(Config(), "joined"):
        assert answers()
