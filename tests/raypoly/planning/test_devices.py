"""Which device is planned for, and how much of its memory is in use."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.planning.devices import BOARDS, GIB, MemoryPeak, ask_nvidia_smi, choose_device, parse_nvidia_smi


def test_a_board_is_named_by_its_word_in_any_case() -> None:
    assert choose_device("H200", 0) is BOARDS["h200"]
    assert choose_device("a100_40gb", 0) is BOARDS["a100-40gb"]
    with pytest.raises(UsageError, match="--gpu h300 is not known: b200, h200"):
        choose_device("h300", 0)
    assert 139 * GIB < BOARDS["h200"].memory < 141e9 * 1.07, "less than the name says"


@pytest.mark.parametrize(
    ("line", "board"),
    [
        ("NVIDIA H200, 143771, 615", "h200"),
        ("NVIDIA H100 80GB HBM3, 81559, 551", "h100"),
        ("NVIDIA A100-SXM4-40GB, 40960, 500", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB, 81920, 600", "a100"),
        ("NVIDIA L4, 23034, 430", "l4"),
        ("NVIDIA L40S, 46068, 600", "l40s"),
        ("NVIDIA GeForce RTX 4090, 24564, [N/A]", "rtx4090"),
    ],
)
def test_a_gpu_that_is_found_has_about_the_memory_of_its_board(line: str, board: str) -> None:
    found = parse_nvidia_smi(f"{line}\n{line}\n")
    assert found is not None
    assert found.count == 2
    assert found.memory == pytest.approx(BOARDS[board].memory, rel=0.03)


@pytest.mark.parametrize("answer", ["", "No devices were found\n", "NVIDIA GB10, [N/A], [N/A]\n"])
def test_an_answer_without_memory_is_no_gpu(answer: str) -> None:
    assert parse_nvidia_smi(answer) is None


def test_without_a_gpu_the_cpu_is_planned_for_with_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    device = choose_device(None, 7 * GIB)
    assert (device.gpu, device.memory) == (False, 7 * GIB)


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
    assert peak.gpu == 96000 << 20
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
