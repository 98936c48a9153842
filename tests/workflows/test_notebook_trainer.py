"""A notebook's cell that trains: by value, killed, and run again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raypoly import Run, Trainer
from raypoly.core.errors import UsageError
from tests.support.driver_process import ROOT, SMALL
from tests.support.ray_machines import Machines

CELL = """
import raypoly, yaml
from raypoly.algorithms.objectives import Objective

def value(text): return 0.25 if "for" in text else 0.75

def my_reward(problem, rollout, verdict): return value(rollout.text)

class Mine(Objective):
    def compute(self, group): return group.rewards - group.rewards.mean()

overrides = dict(item.split("=", 1) for item in {small!r} if not item.startswith("reward"))
overrides = {{key: yaml.safe_load(value) for key, value in overrides.items()}} | {{"train.steps": 3}}
trainer = raypoly.Trainer({model!r}, reward=my_reward, objective=Mine, generator={{"engine": "transformers"}},
                          run={{"dir": {folder!r}}}, **overrides)
print(trainer.train())
"""


def test_a_killed_cell_goes_on_where_it_is_run_again(machines: Machines, warm_model: Path, tmp_path: Path) -> None:
    folder, cell = tmp_path / "run", tmp_path / "cell.py"
    cell.write_text(CELL.format(small=SMALL, model=str(warm_model), folder=str(folder)))
    ours = os.environ | {"RAY_ADDRESS": machines.address, "PYTHONPATH": str(ROOT), "RAYPOLY_CACHE": str(tmp_path)}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, str(cell)], cwd=tmp_path, env=ours, text=True, stdout=subprocess.PIPE)

    with start() as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if line.startswith("step "):
                break
        killed.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while str(folder) in subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True).stdout:
        assert time.monotonic() < until, "the training process outlived its notebook"
        time.sleep(0.2)
    with start() as again:
        said, _ = again.communicate(timeout=300)
    assert again.returncode == 0
    assert "3 of 3 steps" in said
    run = Run(folder)
    assert len(run.store.list("starts/")) == 2
    rewards = {value for step in range(3) for value in run.rollouts(step).column("reward").to_pylist()}
    assert rewards == {0.25, 0.75}


def test_mistakes_are_told_before_anything_starts_and_by_the_process_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^There is no key train\.step"):
        Trainer(train={"step": 3})
    with pytest.raises(UsageError, match=r"^Problem 1 can't be used"):
        Trainer(problems=[{"prompt": 3}])
    early = Trainer(run={"dir": str(tmp_path / "run")}, train={"prompts_per_step": 5000})
    with pytest.raises(UsageError, match=r"^train\.prompts_per_step=5000"):
        early.train()
    assert list(tmp_path.iterdir()) == []
