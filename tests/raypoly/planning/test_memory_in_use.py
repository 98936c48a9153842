"""Memory that is in use while something goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raypoly.planning.gpus import MemoryPeak, ask_nvidia_smi

MIB = 1 << 20


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with what it answers; each time that it is asked it adds a line to `asked` beside it."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program, answer = tmp_path / "nvidia-smi", tmp_path / "answer"
    program.write_text(f"#!/bin/sh\ncat {answer}\necho >> {tmp_path / 'asked'}\n")
    program.chmod(0o755)
    return answer


def test_a_peak_that_is_over_is_seen_on_the_gpu_that_uses_most(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("1000\n5\n")
    asked = nvidia_smi.with_name("asked")
    with MemoryPeak(every=0.01) as peak:
        nvidia_smi.write_text("1000\n96000\n")
        seen = len(asked.read_text())
        while len(asked.read_text()) < seen + 2:  # one may have been under way
            time.sleep(0.01)
        nvidia_smi.write_text("5\n5\n")
    assert peak.gpu == 96000 * MIB
    assert peak.host > 0


def test_without_a_gpu_its_memory_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with MemoryPeak() as peak:
        pass
    assert peak.gpu is None


@pytest.mark.parametrize(("visible", "asked"), [(None, ""), ("3,GPU-7", "--id=3,GPU-7"), ("", None), ("-1", None)])
def test_gpus_are_those_that_the_process_may_use(
    nvidia_smi: Path, visible: str | None, asked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on one of eight GPUs was planned as on eight."""
    program = nvidia_smi.with_name("nvidia-smi")
    program.write_text('#!/bin/sh\nfor each; do case $each in --id=*) echo "$each";; esac; done\n')
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answer = ask_nvidia_smi("name")
    assert (None if answer is None else answer.strip()) == asked
