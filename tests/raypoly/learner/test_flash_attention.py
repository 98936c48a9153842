"""The attention of a GPU, over a CPU kernel of the same operator: its arguments, its gradients, its graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._functorch import config as partitioning
from torch.nn.attention import varlen
from transformers import AttentionInterface

from raypoly.learner import attention, compiled_layers
from raypoly.learner.attention import PACKED, _by_segment, _flash, attend
from raypoly.learner.packing import Segments
from tests.raypoly.learner.test_precision import distance, gradients, learner
from tests.support.random_rows import random_rows, update

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


@pytest.mark.parametrize("kind", ["off", "layers"])
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
            update(one, random_rows(step) * step)
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


@cache
def register_varlen_on_cpu() -> Counter[str]:
    """A CPU kernel for the operator behind PyTorch's `varlen_attn`, written from its definition.

    With w = (left, right) a query at place i of a segment, counted from its end, sees keys from i - left to i + right.
    Returns how often each direction was called.
    """
    calls: Counter[str] = Counter()

    def forward(query: Tensor, key: Tensor, value: Tensor, *how: Any) -> tuple[Tensor, Tensor, Tensor]:
        calls["forward"] += 1
        starts_q, starts_k, _max_q, _max_k, _causal, scale, window, *_ = how
        _check_lengths(how)
        out_SHD = torch.empty_like(query)
        norm_HS = torch.empty(query.shape[1], len(query), dtype=torch.float32)
        for q, k, hidden in _segments(starts_q, starts_k, window):
            scores, v = _scores(query[q], key[k], scale, hidden), _heads(value[k], query.shape[1])
            norm_HS[:, q] = scores.logsumexp(-1).float()
            out_SHD[q] = (scores.softmax(-1) @ v).transpose(0, 1).to(query.dtype)
        return out_SHD, norm_HS, torch.zeros(2, dtype=torch.uint64)

    def backward(
        grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, norm_HS: Tensor, *how: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        calls["backward"] += 1
        starts_q, starts_k, _max_q, _max_k, _causal, _rng, scale, window = how
        heads, (grad_q, grad_k, grad_v) = query.shape[1], (torch.zeros_like(each) for each in (query, key, value))
        for q, k, hidden in _segments(starts_q, starts_k, window):
            own_q, own_k, v = _heads(query[q], heads), _heads(key[k], heads), _heads(value[k], heads)
            p = (_scores(query[q], key[k], scale, hidden) - norm_HS[:, q, None]).exp()
            g, delta = _heads(grad_out[q], heads), (grad_out[q] * out[q]).float().sum(-1).T[..., None]
            by_score = p * (g @ v.transpose(1, 2) - delta) * (scale or 1 / math.sqrt(query.shape[2]))
            grad_q[q] = (by_score @ own_k).transpose(0, 1).to(query.dtype)
            grad_k[k] = _summed(by_score.transpose(1, 2) @ own_q, key)
            grad_v[k] = _summed(p.transpose(1, 2) @ g, value)
        return grad_q, grad_k, grad_v

    varlen._varlen_attn.register_kernel("cpu")(forward)
    varlen._varlen_attn_backward.register_kernel("cpu")(backward)
    return calls


def _check_lengths(how: Sequence[Any]) -> None:
    """A GPU's kernel reads past the end where these are wrong."""
    for starts, longest in zip(how[:2], how[2:4], strict=True):
        assert starts.dtype == torch.int32
        assert int(starts.diff().max()) == longest


def _segments(starts_q: Tensor, starts_k: Tensor, window: Sequence[int]) -> Iterator[tuple[slice, slice, Tensor]]:
    """Each segment's queries and keys, and which of them are hidden from each other."""
    left, right = window
    for q, k in zip(pairwise(starts_q.tolist()), pairwise(starts_k.tolist()), strict=True):
        (first, end), (seen, seen_end) = q, k
        places_q = torch.arange(first - end, 0)[:, None]
        places_k = torch.arange(seen - seen_end, 0)[None]
        hidden = places_k > places_q + right if right >= 0 else torch.zeros(places_q.shape, dtype=torch.bool)
        if left >= 0:
            hidden = hidden | (places_k < places_q - left)
        yield slice(first, end), slice(seen, seen_end), hidden


def _scores(query: Tensor, key: Tensor, scale: float | None, hidden: Tensor) -> Tensor:
    q, k = _heads(query, query.shape[1]), _heads(key, query.shape[1])
    scores = q @ k.transpose(1, 2) * (scale or 1 / math.sqrt(query.shape[2]))
    return scores.masked_fill(hidden, -math.inf)


def _heads(x_LHD: Tensor, heads: int) -> Tensor:
    """[heads, L, D] in float32 or wider; a key's head is repeated for the queries that share it."""
    wide = x_LHD.to(torch.promote_types(x_LHD.dtype, torch.float32))
    return wide.transpose(0, 1).repeat_interleave(heads // x_LHD.shape[1], 0)


def _summed(x_HLD: Tensor, like_LHD: Tensor) -> Tensor:
    """[L, heads of keys, D]: summed over the queries' heads that share one."""
    heads = like_LHD.shape[1]
    return x_HLD.unflatten(0, (heads, -1)).sum(1).transpose(0, 1).to(like_LHD.dtype)
