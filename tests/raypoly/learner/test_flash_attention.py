"""The attention of a GPU, over a CPU kernel of the same operator: its arguments, its gradients, its graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._functorch import config as partitioning
from transformers import AttentionInterface

from raypoly.learner import attention, compiled_layers
from raypoly.learner.attention import PACKED, _by_segment, _flash, attend
from raypoly.learner.packing import Segments
from tests.raypoly.learner.test_precision import distance, gradients, learner
from tests.support.random_rows import NORMALISERS, random_rows
from tests.support.varlen_on_cpu import register_varlen_on_cpu

LAYERS = 3


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attention as on a GPU."""
    register_varlen_on_cpu().clear()
    monkeypatch.setattr(attention, "FLASH_DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(compiled_layers, "BACKEND", "aot_eager_decomp_partition")
    monkeypatch.setattr(partitioning, "aggressive_recomputation", False)
    monkeypatch.setattr(partitioning, "is_non_builtin_to_include", False)
    yield
    AttentionInterface.register(PACKED, attend)
    torch.compiler.reset()


@pytest.mark.usefixtures("flash")
@pytest.mark.parametrize("window", [None, 1, 4, 9])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_it_is_the_attention_of_each_segment_forward_and_backward(window: int | None, scale: float | None) -> None:
    segments = Segments.of([5, 3, 7, 2, 1, 4], prompts=[None, 0, 0, None, 3, 3])
    drawn = torch.Generator().manual_seed(0)
    shapes = [(1, 6, 22, 8), (1, 2, 22, 8), (1, 2, 22, 8)]
    given = [torch.randn(shape, generator=drawn, dtype=torch.float64) for shape in shapes]
    weight = torch.randn(1, 22, 6, 8, generator=drawn, dtype=torch.float64)

    def outputs(function: object) -> list[Tensor]:
        own = [tensor.clone().requires_grad_() for tensor in given]
        out = function(*own, segments, scale, window)  # type: ignore[operator]
        (out * weight).sum().backward()
        return [out.detach(), *(tensor.grad for tensor in own if tensor.grad is not None)]

    for got, want in zip(outputs(_flash), outputs(_by_segment), strict=True):
        assert got.shape == want.shape
        assert torch.allclose(got, want, atol=1e-6), float((got - want).abs().max())


@pytest.mark.parametrize("kind", ["off", "products", "layers"])
def test_a_learner_s_gradients_are_those_of_a_cpu_s(folder: Path, kind: str, request: pytest.FixtureRequest) -> None:
    want = gradients(learner(folder, "bfloat16"))
    request.getfixturevalue("flash")
    assert distance(want, gradients(learner(folder, "bfloat16", activation_checkpointing=kind))) < 0.02


@pytest.mark.parametrize("kind", ["off", "products", "layers"])
def test_a_compiled_layer_is_one_graph_for_rows_of_any_number_and_length(
    folder: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    want = gradients(learner(folder, "bfloat16"))
    request.getfixturevalue("flash")
    counters.clear()
    one = learner(folder, "bfloat16", activation_checkpointing=kind, compile=True, token_budget=120)
    assert not counters["graph_break"]
    calls = register_varlen_on_cpu()
    calls.clear()
    with torch.compiler.set_stance("fail_on_recompile"):
        got = gradients(one)
        passes = calls["backward"] / LAYERS
        assert calls["forward"] == calls["backward"] * (2 if kind == "layers" else 1), "attention is computed once"
        assert passes > 1
        for step in (1, 2):
            one.begin(step, NORMALISERS)
            one.accumulate(random_rows(step) * step)
            one.apply()
        (row, *_) = random_rows(1)
        one.logprobs(row.prompt_tokens, row.tokens, 1.0)
    assert distance(want, got) < 0.02


def test_by_default_layers_are_compiled_where_that_works_and_the_learner_says_which(
    folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = learner(folder, "bfloat16")
    want = gradients(plain)
    assert plain.rows.endswith("prompts shared"), "not on a CPU"
    request.getfixturevalue("flash")
    assert learner(folder, "bfloat16").rows.endswith("; layers compiled")
    assert learner(folder).rows.endswith("prompts shared"), "not in float32"

    def no_compiler(graph: object, inputs: object) -> None:
        raise RuntimeError("No working C++ compiler found")

    torch.compiler.reset()
    monkeypatch.setattr(compiled_layers, "BACKEND", no_compiler)
    one = learner(folder, "bfloat16", activation_checkpointing="products")
    assert "; layers not compiled (" in one.rows
    assert "C++ compiler" in one.rows
    assert "train.compile=true" not in one.rows, "nobody said that"
    assert distance(want, gradients(one)) < 0.02
