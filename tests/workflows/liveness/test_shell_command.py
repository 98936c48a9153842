"""What a run prints as its next command can be pasted where the run was started."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workflows.liveness.shutdown import shell_command


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "RAYPOLY_RUNS"):
        monkeypatch.delenv(name, raising=False)


AGAIN = ["-m", "raypoly.train", "run.on_pause=a b"]


def test_a_command_names_this_python_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(sys.executable).parents[1])
    assert shell_command(AGAIN) == f"bin/{Path(sys.executable).name} -m raypoly.train 'run.on_pause=a b'"
    monkeypatch.chdir("/")
    assert shell_command(AGAIN[:2]).endswith(f"{sys.executable[1:]} -m raypoly.train")


def test_a_pasted_command_finds_the_same_modules_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "my modules"
    own.mkdir()
    (own / "mine.py").write_text("import os; print('found', os.environ['RAYPOLY_RUNS'])")
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAYPOLY_RUNS")}
    monkeypatch.setenv("PYTHONPATH", str(own))
    monkeypatch.setenv("RAYPOLY_RUNS", "some runs")
    pasted = subprocess.run(
        ["bash", "-c", shell_command(["-m", "mine"])], env=bare, capture_output=True, text=True, check=True
    )
    assert pasted.stdout == "found some runs\n"


@pytest.mark.parametrize(
    ("runtime_env", "options"), [({"working_dir": "gcs://_ray_pkg_1.zip"}, " --working-dir ."), ({}, ""), (None, "")]
)
def test_in_a_ray_job_it_submits_another(
    runtime_env: dict[str, str] | None, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": runtime_env, "metadata": {}}))
    assert shell_command(AGAIN) == f"ray job submit{options} -- python -m raypoly.train 'run.on_pause=a b'"
