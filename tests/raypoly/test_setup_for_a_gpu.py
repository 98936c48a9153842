"""`make setup` on a machine with a GPU, which `nvidia-smi` stands for, and what it would install there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def setup(folder: Path, driver: str, *words: str) -> str:
    """What `make setup` says where the GPU has this driver and there is no Python 3.11, so that it ends early."""
    tools, project = folder / "tools", folder / "project"
    tools.mkdir()
    project.mkdir()
    for tool in ("make", "sh", "grep", "head"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    smi = tools / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\ncase "$1" in -L) echo "GPU 0";; *) echo "{driver}";; esac\n')
    smi.chmod(0o755)
    for file in ("Makefile", "pyproject.toml", "constraints/overrides.txt"):
        (project / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, project / file)
    done = subprocess.run(
        ["make", "setup", *words], cwd=project, env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("driver", "words", "refused"),
    [("570.86.10", (), True), ("580.65.06", (), False), ("[N/A]", (), True), ("535.1", ("DRIVER=0",), False)],
)
def test_a_driver_that_is_too_old_is_told_before_anything_is_installed(
    driver: str, words: tuple[str, ...], refused: bool, tmp_path: Path
) -> None:
    said = setup(tmp_path, driver, *words)
    assert (f"The NVIDIA driver here is {driver}; " in said) == refused
    assert ("raypoly needs python3.11" in said) != refused


@pytest.mark.slow
def test_the_cuda_build_resolves_with_one_cuda_and_the_pinned_torch() -> None:
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "-q", "pyproject.toml", "--extra=cuda"]
    command += ["--override=constraints/overrides.txt", "--python-version=3.11"]
    found = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    if "Could not connect" in found.stderr or "dns error" in found.stderr or "error sending request" in found.stderr:
        pytest.skip("no package index")
    assert found.returncode == 0, found.stderr
    pinned = dict(line.split("==") for line in found.stdout.splitlines() if "==" in line)
    assert (pinned["torch"], pinned["vllm"]) == ("2.13.0", "0.32.0")
    assert pinned["cuda-toolkit"].startswith("13.0"), "Makefile and docs/gpu.md name the driver for another one"
