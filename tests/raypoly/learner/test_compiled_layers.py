"""`train.compile`: the same numbers within rounding, nothing compiled twice, less kept; what can't be is refused.

PyTorch's graphs and their division into forward and backward are real here; the kernels are written in the slow tests.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch import config as partitioning
from transformers import AttentionInterface

from raypoly.core.errors import UsageError
from raypoly.learner import compiled_layers
from raypoly.learner.attention import PACKED, attend
from raypoly.learner.compiled_layers import Recomputing
from tests.raypoly.learner.test_precision import distance, gradients, kept, learner
from tests.support.compilers import needs_compiler
from tests.support.random_rows import random_rows, update

KINDS: tuple[Recomputing, ...] = ("products", "layers")


@pytest.fixture(autouse=True)
def graphs_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Graphs are run as they are, but for tests that are marked slow."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(compiled_layers, "BACKEND", "aot_eager_decomp_partition")
    monkeypatch.setattr(partitioning, "aggressive_recomputation", False)
    yield
    AttentionInterface.register(PACKED, attend)
    torch.compiler.reset()


@pytest.mark.parametrize(("kind", "dtype"), [("off", "float32"), ("products", "bfloat16")])
def test_gradients_are_the_same_and_nothing_is_compiled_twice(folder: Path, kind: str, dtype: str) -> None:
    want = gradients(learner(folder, dtype, activation_checkpointing=kind))
    one = learner(folder, dtype, activation_checkpointing=kind, compile=True, token_budget=120)
    with torch.compiler.set_stance("fail_on_recompile"):
        got = gradients(one)
        (row, *_) = random_rows(1)
        one.logprobs(row.prompt_tokens, row.tokens, 1.0)
        update(one, random_rows(1) * 3)
    assert distance(want, got) < (1e-5 if dtype == "float32" else 0.02)


def test_less_waits_for_the_backward_pass(folder: Path) -> None:
    eager = kept(folder, bf16=True)
    sizes = []
    for kind in KINDS:
        torch.compiler.reset()  # a process compiles for one kind, and keeps what it has compiled
        sizes.append(kept(folder, kind, bf16=True, compiled=True))
    products, layers = sizes
    assert layers < 0.5 * products
    assert products < 0.75 * eager


def test_where_nothing_can_be_compiled_that_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(compiled_layers, "BACKEND", no_compiler)
    with pytest.raises(UsageError, match=r"train.compile=true.*C\+\+ compiler.*train.compile=false"):
        learner(folder, compile=True)


def test_compilation_that_is_switched_off_is_no_compilation(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    with pytest.raises(UsageError, match=r"train.compile=true, but TORCHDYNAMO_DISABLE=1"):
        learner(folder, compile=True)


def test_what_computes_something_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            return [out * 1.1 if isinstance(out, torch.Tensor) else out for out in graph(*given)]

        return run

    monkeypatch.setattr(compiled_layers, "BACKEND", wrong)
    with pytest.raises(UsageError, match=r"Compiled, this model .* differs"):
        learner(folder, compile=True)


@pytest.mark.parametrize(("float32_norm", "accepted"), [(1.0, True), (4.5, False)])
def test_what_is_no_further_off_than_rounding_is_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, float32_norm: float, accepted: bool
) -> None:
    """SmolLM2-135M on an H200: compiled, the gradient of tokens that no training has seen was five times as long."""
    norms = iter([5.0, float32_norm, 1.0])  # as they are in bf16, in float32, compiled
    monkeypatch.setattr(compiled_layers, "_gradient", lambda *_, **__: (torch.zeros(1), next(norms)))
    with nullcontext() if accepted else pytest.raises(UsageError, match=r"the gradient's norm by 0\.8 "):
        learner(folder, "bfloat16", compile=True)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernels_that_are_written_here_compute_the_same(folder: Path, dtype: str) -> None:
    want = gradients(learner(folder, dtype))
    got = gradients(learner(folder, dtype, activation_checkpointing="products", compile=True))
    assert distance(want, got) < (1e-5 if dtype == "float32" else 0.02)
