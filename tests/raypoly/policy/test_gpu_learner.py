"""The learner's benchmark in its small form: what it prints is true, and it runs where only PyTorch is installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from raypoly.policy.training_rows import TrainingRow
from tests.support.compilers import needs_compiler
from tests.support.driver_process import ROOT
from tests.support.learner_load import TINY, model_flops, sample_rows

WITH_LITTLE_INSTALLED = """
class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        hidden = "ray vllm pyarrow obstore openai typer rich matplotlib peft pydantic pydantic_core"
        return None if name.split(".")[0] in hidden.split() else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
"""
"""Only PyTorch and transformers, and what they need, can be imported."""
WITHOUT_COMPILER = """
from raypoly.policy import compiled_layers

def broken(graph, inputs):
    raise RuntimeError("no compiler")

compiled_layers.BACKEND = broken
"""


def run_small(numbers: Path, layers: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command's small form in a process that executes `before` first. It writes its numbers to a file."""
    words = ["benchmarks.gpu_learner", "--tiny", "--layers", layers, "--json", str(numbers)]
    code = f"import sys, runpy\nsys.argv = {words}\n{before}\nrunpy.run_module(sys.argv[0], run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("layers", "before"),
    [
        pytest.param(["eager"], WITH_LITTLE_INSTALLED, id="eager, on PyTorch and transformers alone"),
        pytest.param(["eager", "compiled"], "", marks=[pytest.mark.slow, needs_compiler], id="both"),
    ],
)
def test_the_small_form_prints_every_number_and_agrees_with_full_logits(
    tmp_path: Path, layers: list[str], before: str
) -> None:
    done = run_small(tmp_path / "numbers.json", "both" if len(layers) == 2 else layers[0], before)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "numbers.json").read_text())
    assert list(told) == layers
    for numbers in told.values():
        assert all(key.replace("_", " ") in done.stdout for key in numbers)
        assert numbers["sequences"] == 8
        assert numbers["reference_loss_error"] < 1e-3
        assert numbers["reference_logp_error"] < 0.05  # of bf16; logits there are rounded to it
        assert numbers["update_seconds"] > 0
        assert numbers["utilisation"] is None  # a CPU's peak is not known


def test_what_was_measured_is_kept_where_nothing_can_be_compiled(tmp_path: Path) -> None:
    done = run_small(tmp_path / "numbers.json", "both", WITHOUT_COMPILER)
    assert done.returncode != 0
    assert "can't compile this model here" in done.stderr
    assert "update seconds" in done.stdout
    assert list(json.loads((tmp_path / "numbers.json").read_text())) == ["eager"]


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
