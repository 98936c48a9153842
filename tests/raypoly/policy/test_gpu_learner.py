"""The learner's benchmark in its small form: what it prints is true, and it runs where only PyTorch is installed."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_learner import TINY, main, model_flops, sample_rows
from raypoly.policy import compiled_layers
from raypoly.policy.training_rows import TrainingRow
from tests.support.compilers import needs_compiler


@pytest.mark.parametrize("layers", ["eager", pytest.param("both", marks=[pytest.mark.slow, needs_compiler])])
def test_the_small_form_prints_every_number_and_agrees_with_full_logits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layers: str
) -> None:
    main(["--tiny", "--layers", layers, "--json", str(tmp_path / "numbers.json")])
    told = json.loads((tmp_path / "numbers.json").read_text())
    printed = capsys.readouterr().out
    assert list(told) == (["eager", "compiled"] if layers == "both" else ["eager"])
    for numbers in told.values():
        assert all(key.replace("_", " ") in printed for key in numbers)
        assert numbers["sequences"] == 8
        assert numbers["reference_loss_error"] < 1e-3
        assert numbers["reference_logp_error"] < 0.05  # of bf16; logits there are rounded to it
        assert numbers["update_seconds"] > 0
        assert numbers["utilisation"] is None  # a CPU's peak is not known


def test_what_was_measured_is_kept_where_nothing_can_be_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_layers, "BACKEND", broken)
    with pytest.raises(SystemExit, match="can't compile this model here"):
        main(["--tiny", "--json", str(tmp_path / "numbers.json")])
    assert "update seconds" in capsys.readouterr().out
    assert list(json.loads((tmp_path / "numbers.json").read_text())) == ["eager"]


def broken(graph: object, inputs: object) -> Callable[..., Any]:
    raise RuntimeError("no compiler")


def test_flops_are_those_of_every_weight_and_token() -> None:
    """Six a weight of the body and token, six a weight of the head and response token, and attention's square."""
    tokens = np.zeros(10, np.int32)
    row = TrainingRow(tokens[:4], tokens[4:], np.zeros(6, np.float32), 1.0, 0)
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128
    attention = 3 * 2 * 2 * 4 * 16 * 10 * 10 / 2  # forward and twice backward, scores and values, causal half
    assert model_flops(TINY, [row]) == 2 * (6 * layer * 10 + attention) + 6 * 64 * 4096 * 6


def test_sequences_are_as_long_as_asked_and_the_same_each_time() -> None:
    rows = sample_rows(50, 24, 96, 4096)
    assert all(24 <= row.length <= 96 for row in rows)
    assert [row.length for row in rows] == [row.length for row in sample_rows(50, 24, 96, 4096)]


def test_it_runs_on_pytorch_and_transformers_alone() -> None:
    code = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        hidden = "ray vllm pyarrow obstore openai typer rich matplotlib peft pydantic pydantic_core"
        return None if name.split(".")[0] in hidden.split() else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
from benchmarks.gpu_learner import main
main(["--tiny", "--layers", "eager"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "update seconds" in done.stdout
