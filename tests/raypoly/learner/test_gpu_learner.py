"""The learner's benchmarks: the plan fits, its small form finds wrong gradients, and it needs PyTorch and transformers
alone."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from raypoly.learner.packing import pack
from raypoly.learner.training_rows import TrainingRow
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
from raypoly.learner import compiled_layers

def broken(graph, inputs):
    raise RuntimeError("no compiler")

compiled_layers.BACKEND = broken
"""

WITHOUT_ADAMW = """
import torch

def broken(*given, **named):
    raise RuntimeError("no AdamW")

torch.optim.AdamW.step = broken
"""

WRONG_PROMPT = """
from dataclasses import replace
from benchmarks import plain
from raypoly.learner import policy_learner
from raypoly.learner.packing import Segments

right = policy_learner.pack

def wrong(rows):
    batch = right(rows)
    first = [None if prompt is None else 0 for prompt in batch.segments.prompts]
    return replace(batch, segments=Segments.of(batch.segments.lengths, first))

policy_learner.pack = wrong
"""
"""All responses see the first prompt, but for the rows with which a learner checks itself."""


def run(*words: str, before: str = "", module: str = "benchmarks.gpu_learner") -> subprocess.CompletedProcess[str]:
    """Run the command in a process that executes `before` first."""
    argv = [module, *words]
    code = f"import sys, runpy\nsys.argv = {argv}\n{before}\nrunpy.run_module(sys.argv[0], run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("layers", "before"),
    [
        pytest.param(["eager"], WITH_LITTLE_INSTALLED, id="eager, on PyTorch and transformers alone"),
        pytest.param(["eager", "compiled"], "", marks=[pytest.mark.slow, needs_compiler], id="both"),
    ],
)
def test_the_small_form_prints_every_number_and_agrees_with_float32(
    tmp_path: Path, layers: list[str], before: str
) -> None:
    file = tmp_path / "numbers.json"
    kind = "both" if len(layers) == 2 else layers[0]
    done = run("--tiny", "--response-tokens", "24", "32", "--layers", kind, "--json", str(file), before=before)
    assert done.returncode == 0, done.stderr
    told = json.loads(file.read_text())
    assert list(told) == [f"{kind} {what}" for kind in layers for what in ("gradient", "24", "32")]
    for name, numbers in told.items():
        assert name in done.stdout
        assert all(key.replace("_", " ") in done.stdout for key in numbers if key != "tensor_errors")
        if name.endswith("gradient"):
            assert 0 < numbers["gradient_error"] < 0.02  # of bf16
            assert len(numbers["tensor_errors"]) == 2 * 11 + 2, "every tensor of two layers, embedding and last norm"
            continue
        assert numbers["sequences"] == 16
        assert numbers["update_seconds"] > 0
        assert numbers["utilisation"] is None  # a CPU's peak is not known
    hashed = [name for name, numbers in told.items() if numbers.get("digest_seconds") is not None]
    assert hashed == ["eager 24"]


def test_a_wrong_gradient_is_named_and_ends_it_with_1() -> None:
    done = run("--tiny", "--layers", "eager", before=WRONG_PROMPT)
    assert done.returncode == 1
    assert "eager: the learner's gradient is not the float32 reference's" in done.stderr
    assert "update seconds" in done.stdout, "times are measured all the same"


def test_what_was_measured_is_kept_where_nothing_can_be_compiled(tmp_path: Path) -> None:
    done = run("--tiny", "--json", str(tmp_path / "numbers.json"), before=WITHOUT_COMPILER)
    assert done.returncode != 0
    assert "can't compile this model here" in done.stderr
    assert "update seconds" in done.stdout
    assert list(json.loads((tmp_path / "numbers.json").read_text())) == ["eager gradient", "eager 24"]


WHOLE, FEWER, NONE, HERE = ["--gib", "78"], ["--gib", "40", "--layers", "eager"], ["--gib", "4"], list[str]()
PLANS = """
import contextlib, io, json, runpy
found = []
for words in {plans}:
    sys.argv, said, end = ["benchmarks.gpu_learner", "--plan", *words], io.StringIO(), None
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_module("benchmarks.gpu_learner", run_name="__main__")
        except SystemExit as exit:
            end = exit.code
    found.append([said.getvalue(), end])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def plans() -> list[tuple[str, str | None]]:
    """What each of these plans says, and why it ends early: of one process, whose imports take the time."""
    code = (
        "import sys"
        + WITH_LITTLE_INSTALLED
        + PLANS.format(plans=[WHOLE, FEWER, NONE, [*WHOLE, "--token-budget", "512"], HERE])
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return [(said, end) for said, end in json.loads(done.stdout)]


@pytest.mark.parametrize(("place", "words"), [(0, WHOLE), (1, FEWER)], ids=["the whole model", "fewer layers"])
def test_the_plan_fits_the_memory_and_starts_nothing(
    plans: list[tuple[str, str | None]], place: int, words: list[str]
) -> None:
    said, end = plans[place]
    assert end is None
    assert ("layers: 36 of 36\n" in said) == (words is WHOLE)
    assert "seconds" not in said
    together, of = (
        [float(cell) for cell in line.removeprefix(name).split() if cell != "GiB"]
        for name in ("together", "of ")
        for line in said.splitlines()
        if line.startswith(name)
    )
    assert len(together) == (2 if "eager" in words else 4)
    assert all(0.85 * memory < needed < memory for needed, memory in zip(together, of, strict=True))
    assert set(of) == {float(words[1])}


def test_what_can_not_be_planned_is_said(plans: list[tuple[str, str | None]]) -> None:
    ends = [str(end) for _, end in plans[2:]]
    assert ends[0].startswith("Not one layer of this shape can be trained within 4.0 GiB")
    assert ends[1].startswith("--token-budget has to be")
    assert torch.cuda.is_available() or ends[2].startswith("There is no GPU here"), "else it plans for that one"


def test_each_part_is_measured_on_pytorch_and_transformers_alone_and_is_right(tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    done = run("--json", str(file), before=WITH_LITTLE_INSTALLED, module="benchmarks.gpu_parts")
    assert done.returncode == 0, done.stderr
    told = json.loads(file.read_text())
    assert list(told) == ["device", "attention", "head", "transfer", "digest", "AdamW", "layers"]
    parts = {part: numbers for part, numbers in told.items() if part != "device"}
    errors = {f"{part} {what}": it for part, all_ in parts.items() for what, it in all_.items() if "error" in what}
    assert len(errors) == 6
    assert all(0 < value < 0.02 for value in errors.values()), errors  # of bf16
    assert all(value > 0 for part in ("head", "AdamW") for what, value in told[part].items() if what == "s")


@pytest.mark.slow
def test_a_part_that_fails_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    done = run("--json", str(file), before=WITHOUT_ADAMW, module="benchmarks.gpu_parts")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("AdamW: RuntimeError: no AdamW")
    assert list(json.loads(file.read_text())) == ["device", "attention", "head", "transfer", "digest", "layers"]


def test_flops_are_those_of_every_weight_and_token_and_of_a_shared_prompt_once() -> None:
    """Six a weight of the body and token, six a weight of the head and response token, and attention's pairs."""
    tokens = np.zeros(10, np.int32)
    row = TrainingRow(tokens[:4], tokens[4:], np.zeros(6, np.float32), 1.0, 0)
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 128
    pair = 3 * 2 * 2 * 4 * 16  # forward and twice backward, scores and values
    head = 6 * 64 * 4096 * 6
    alone = 2 * (6 * layer * 10 + pair * 10 * 10 / 2) + head  # causal half
    assert model_flops(TINY, [row]) == alone
    other = replace(row, prompt_tokens=tokens[:4] + 1)
    assert model_flops(TINY, [row, other]) == 2 * alone
    prompt = 2 * (6 * layer * 4 + pair * 4 * 4 / 2)
    assert model_flops(TINY, [row, row, row]) == 3 * alone - 2 * prompt


def test_rows_are_groups_that_share_prompts_as_long_as_asked_and_the_same_each_time() -> None:
    rows = sample_rows(5, 8, (8, 16), (24, 96), 4096)
    assert len(rows) == 40
    assert all(8 <= len(row.prompt_tokens) <= 16 and 24 <= len(row.tokens) <= 96 for row in rows)
    assert pack(rows).segments.prompts.count(None) == 5
    again = sample_rows(5, 8, (8, 16), (24, 96), 4096)
    assert all(np.array_equal(row.tokens, other.tokens) for row, other in zip(rows, again, strict=True))
