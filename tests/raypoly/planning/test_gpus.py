"""Which device is planned for."""

from __future__ import annotations

import pytest

from raypoly.core.errors import UsageError
from raypoly.planning.gpus import BOARDS, GIB, choose_device, find_board, parse_nvidia_smi


def test_a_board_is_named_by_its_word_in_any_case() -> None:
    assert find_board("H200") is BOARDS["h200"]
    assert find_board("a100_40gb") is BOARDS["a100-40gb"]
    with pytest.raises(UsageError, match="--gpu h300 is not known: b200, h200"):
        find_board("h300")


def test_boards_hold_less_than_their_name_says() -> None:
    assert 139 * GIB < find_board("h200").memory < 141e9 * 1.07


@pytest.mark.parametrize(
    ("line", "board"),
    [
        ("NVIDIA H200, 143771, 615", "h200"),
        ("NVIDIA H100 80GB HBM3, 81559, 551", "h100"),
        ("NVIDIA H100 PCIe, 81559, 551", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB, 40960, 500", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB, 81920, 600", "a100"),
        ("NVIDIA L4, 23034, 430", "l4"),
        ("NVIDIA L40S, 46068, 600", "l40s"),
        ("NVIDIA GeForce RTX 4090, 24564, [N/A]", "rtx4090"),
    ],
)
def test_a_gpu_that_is_found_is_known_by_name_and_memory(line: str, board: str) -> None:
    found = parse_nvidia_smi(f"{line}\n{line}\n")
    assert found is not None
    assert found.flops == BOARDS[board].flops
    assert found.bandwidth == BOARDS[board].bandwidth
    assert found.count == 2
    assert found.memory == pytest.approx(BOARDS[board].memory, rel=0.03)


def test_a_gpu_that_nobody_knows_has_memory_and_no_speed() -> None:
    found = parse_nvidia_smi("NVIDIA Z9000, 50000, 0")
    assert found is not None
    assert found.memory == 50000 << 20
    assert found.flops is None
    assert found.bandwidth is None


@pytest.mark.parametrize("answer", ["", "No devices were found\n", "NVIDIA GB10, [N/A], [N/A]\n"])
def test_an_answer_without_memory_is_no_gpu(answer: str) -> None:
    assert parse_nvidia_smi(answer) is None


def test_without_a_gpu_the_cpu_is_planned_for_with_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    device = choose_device(None, 7 * GIB)
    assert (device.gpu, device.memory, device.flops) == (False, 7 * GIB, None)
