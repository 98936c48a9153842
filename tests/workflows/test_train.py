"""The loop in this process, while its actors are killed under it; and objectives from outside the tree."""

import asyncio
import json
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import ray
import torch

from raypoly import Run
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from tests.support.local_driver import ROOT, SMALL
from tests.support.ray_machines import Machines
from tests.support.structure import PRODUCT
from workflows.liveness.shutdown import run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.startup.ray_cluster import connect_ray
from workflows.train import Training, run

Disturb = Callable[[OpenRun, int], Awaitable[None]]


def config(model: Path, folder: Path, *overrides: str) -> Config:
    engine = "generator.engine=transformers"
    return load(None, [*SMALL, engine, f"model.path={model}", f"run.dir={folder}", *overrides])


def train(config: Config, disturb: Disturb | None = None) -> list[str]:
    """The digests of the weights after each step."""
    digests: list[str] = []

    async def work() -> None:
        async with open_run(resolve_run(config), trains=config) as opened:
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


OBJECTIVE = '''
import json, os, pathlib, traceback
import ray, torch
from raypoly.algorithms.objectives.objective import Objective


class Halved(Objective):
    """Half the reward, centred."""

    def compute(self, group):
        return (group.rewards - group.rewards.mean()) / 2


def noted(call, name, wanted=lambda owner: True):
    """`call`, which notes the files on its stack."""

    def noting(self, *args, **kwargs):
        if wanted(self):
            files = [frame.filename for frame in traceback.extract_stack()]
            pathlib.Path(FOLDER, f"{name}-{os.getpid()}.json").write_text(json.dumps(files))
        return call(self, *args, **kwargs)

    return noting


torch.optim.AdamW.step = noted(torch.optim.AdamW.step, "actor")
ray.actor.ActorMethod._remote = noted(ray.actor.ActorMethod._remote, "driver", lambda it: it._method_name == "apply")
'''
FILES = 7
"""The most of our files on the stack of `optimizer.step()`, from the entry on and through the learner's actor."""


def test_an_objective_from_outside_the_tree_trains_a_few_files_from_the_entry_to_the_optimizer(
    warm_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halved.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{OBJECTIVE}")
    monkeypatch.syspath_prepend(str(tmp_path))
    engine, model = "generator.engine=transformers", f"model.path={warm_model}"
    own = [engine, model, f"run.dir={tmp_path / 'own'}", "objective.name=halved:Halved", "train.steps=2"]
    monkeypatch.setattr(sys, "argv", ["train", *SMALL, *own])
    for owner, name in ((sys, "excepthook"), (torch.optim.AdamW, "step"), (ray.actor.ActorMethod, "_remote")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    with subprocess.Popen(["sleep", "1000"]) as other:
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("raypoly.train", run_name="__main__")
        assert not ended.value.code
        with pytest.raises(subprocess.TimeoutExpired):  # what else this process has started is not the run's to end
            other.wait(4)  # what reaps a run's own Ray strikes after three seconds
        other.kill()
    assert len({row["weight_digest"] for row in Run(tmp_path / "own").rows}) == 2
    (driver,), (actor,) = tmp_path.glob("driver-*.json"), tmp_path.glob("actor-*.json")
    stack = [Path(name) for file in (driver, actor) for name in json.loads(file.read_text())]
    ours = {str(path.relative_to(ROOT)) for path in stack if any(ROOT / top in path.parents for top in PRODUCT)}
    assert {"raypoly/train.py", "workflows/train.py", "actors/learner.py"} < ours
    assert len(ours) <= FILES, sorted(ours)


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
