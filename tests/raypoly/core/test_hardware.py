"""`model.dtype: auto` is bfloat16 where the machine multiplies in it."""

from pathlib import Path

import pytest

from raypoly.core import hardware
from raypoly.core.settings import load


@pytest.mark.parametrize(
    ("said", "gpu", "dtype"),
    [
        ("flags\t\t: fpu avx avx2 avx512bw avx512dq avx512f avx512vl", False, "bfloat16"),
        ("flags\t\t: fpu avx avx2 avx512f", False, "float32"),
        ("Features\t: fp asimd bf16", False, "bfloat16"),
        ("flags\t\t: fpu avx2", True, "bfloat16"),
        ("", False, "float32"),
    ],
)
def test_auto_is_what_the_machine_has(
    said: str, gpu: bool, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{said}\n")
    (tmp_path / "gpus").mkdir()
    if gpu:
        (tmp_path / "gpus" / "0000:01:00.0").mkdir()
    monkeypatch.setattr(hardware, "_CPU", tmp_path / "cpuinfo")
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path / "gpus")
    hardware.multiplies_in_bfloat16.cache_clear()
    try:
        assert load(None, ["model.dtype=auto"]).model.dtype == dtype
    finally:
        hardware.multiplies_in_bfloat16.cache_clear()
