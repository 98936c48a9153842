"""A run's numbers and evaluations reach TensorBoard and Weights & Biases, each once, over all its starts."""

from __future__ import annotations

from pathlib import Path

from raypoly import Run
from tests.support.board_files import event_rows, offline_rows, offline_runs, points
from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines

KEY = "5ec2e7" * 6 + "5ec2"


def test_each_step_and_evaluation_is_shown_once_over_the_starts_of_a_run_and_no_key_is_in_a_file(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "grpo-s0"
    home = {name: str(tmp_path / "home") for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    wandb = {"WANDB_MODE": "offline", "WANDB_API_KEY": KEY, "WANDB_RUN_GROUP": "mine", **home}
    words = [*small_run, "run.tensorboard=true", "run.wandb_project=raypoly-tests"]
    words += ["evaluate.every=1", "evaluate.samples=8", "evaluate.validation_samples=2"]
    words += ["problems.validation=2", "problems.test=2"]
    for steps in (1, 2):
        environment = {"RAY_ADDRESS": machines.address, **wandb}
        driver = LocalDriver(folder, [*words, f"train.steps={steps}"], environment)
        assert driver.finish() == 0, driver.log()

    measured = {(each["step"], each["split"]): each for each in Run(folder).evaluations}
    assert sorted(measured) == [(at, split) for at in (0, 1, 2) for split in ("test", "validation")]
    for found in (event_rows(folder), offline_rows(folder)):
        assert [step for step, _ in points(found, "reward")] == [0, 1]
        for name, splits in (("pass@1", ("test", "validation")), ("pass@8", ("test",))):
            for split in splits:
                kept = [(at, each["pass_at_k"][name[5:]]) for (at, of), each in measured.items() if of == split]
                shown = points(found, f"{split}/{name}")
                assert [(at, round(value, 6)) for at, value in shown] == [(at, round(value, 6)) for at, value in kept]
    runs = offline_runs(folder)
    assert (len(runs), len({run.run_id for run in runs})) == (2, 1)
    assert runs[0].run_id != folder.name
    assert {(run.display_name, run.run_group, run.project) for run in runs} == {("grpo-s0", "mine", "raypoly-tests")}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
