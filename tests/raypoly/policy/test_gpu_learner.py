"""The learner's benchmark in its small form: what it prints is true, and it runs where only PyTorch is installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_learner import TINY, main, model_flops, sample_rows
from raypoly.policy.rows import Row


def test_the_small_form_prints_every_number_and_agrees_with_full_logits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--tiny", "--json", str(tmp_path / "numbers.json")])
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    printed = capsys.readouterr().out
    assert all(key.replace("_", " ") in printed for key in numbers)
    assert numbers["sequences"] == 8
    assert numbers["reference_loss_error"] < 1e-3
    assert numbers["reference_logp_error"] < 0.05  # of bf16; logits there are rounded to it
    assert numbers["update_seconds"] > 0
    assert numbers["utilisation"] is None  # a CPU's peak is not known


def test_flops_are_those_of_every_weight_and_token() -> None:
    """Six a weight of the body and token, six a weight of the head and response token, and attention's square."""
    tokens = np.zeros(10, np.int32)
    row = Row(tokens[:4], tokens[4:], np.zeros(6, np.float32), 1.0, 0)
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128
    attention = 3 * 2 * 2 * 4 * 16 * 10 * 10 / 2  # forward and twice backward, scores and values, causal half
    assert model_flops(TINY, [row]) == 2 * (6 * layer * 10 + attention) + 6 * 64 * 4096 * 6


def test_sequences_are_as_long_as_asked_and_the_same_each_time() -> None:
    rows = sample_rows(50, 24, 96, 4096)
    assert all(24 <= row.length <= 96 for row in rows)
    assert [row.length for row in rows] == [row.length for row in sample_rows(50, 24, 96, 4096)]


def test_it_imports_no_ray_no_engine_and_no_client() -> None:
    names = "{'ray', 'vllm', 'pyarrow', 'obstore', 'openai', 'typer', 'rich', 'matplotlib', 'peft'}"
    code = f"import sys, benchmarks.gpu_learner; print(sorted({names} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
