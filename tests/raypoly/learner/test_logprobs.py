"""Chunked log-probabilities against the plain full-logits computation: values, gradients, memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from raypoly.learner import logit_chunks
from raypoly.learner.logit_chunks import tokens_of_chunk
from raypoly.learner.logprobs import bf16_factors, token_logprobs

TOKENS, WIDTH, VOCABULARY = 29, 24, 1000
TEMPERATURE = 0.7


def plain(hidden_TH: Tensor, head_VH: Tensor, targets_T: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logp_TV = torch.log_softmax(hidden_TH @ head_VH.T / temperature, -1)
    return logp_TV.gather(1, targets_T[:, None])[:, 0], -(logp_TV.exp() * logp_TV).sum(-1)


def case(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    head = torch.randn(VOCABULARY, WIDTH, dtype=dtype, requires_grad=True)
    return hidden, head, torch.randint(0, VOCABULARY, (TOKENS,))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A "MiB" of 28,000 bytes: seven tokens a chunk, the last one partly filled."""
    monkeypatch.setattr(logit_chunks, "MIB", 7 * 4 * VOCABULARY)
    assert tokens_of_chunk(VOCABULARY, 1) == 7


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("used", ["both", "logp", "entropy"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 5e-5)])
def test_values_and_gradients_are_those_of_full_logits(used: str, dtype: torch.dtype, tolerance: float) -> None:
    results = []
    for compute in (plain, lambda *args: token_logprobs(*args, chunk_mib=1)):
        hidden, head, targets = case(dtype)
        logp_T, entropy_T = compute(hidden, head, targets, TEMPERATURE)
        weight_T = torch.linspace(-1, 1, TOKENS, dtype=dtype)
        loss = {"both": weight_T * logp_T + weight_T.flip(0) * entropy_T, "logp": weight_T * logp_T}
        loss["entropy"] = weight_T * entropy_T
        loss[used].sum().backward()
        results.append([logp_T, entropy_T, hidden.grad, head.grad])
    for want, got in zip(*results, strict=True):
        assert got.dtype == dtype
        assert float((want - got).detach().abs().max() / want.detach().abs().max().clamp(min=1)) < tolerance


@pytest.mark.usefixtures("small_chunks")
def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(1)
    hidden = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    head = torch.randn(VOCABULARY, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, VOCABULARY, (9,))
    direction = torch.randn(VOCABULARY, 3, dtype=torch.float64)

    def along(hidden: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(hidden, head + step * direction, targets, TEMPERATURE, 1)

    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(along, (hidden, step))


@pytest.mark.usefixtures("small_chunks")
def test_a_frozen_head_or_body_gets_no_gradient() -> None:
    hidden, head, targets = case(torch.float64)
    token_logprobs(hidden, head.detach(), targets, 1.0, 1)[0].sum().backward()
    alone = hidden.grad
    hidden, head, targets = case(torch.float64)
    token_logprobs(hidden, head, targets, 1.0, 1)[0].sum().backward()
    assert alone is not None
    assert torch.equal(alone, hidden.grad)
    hidden, head, targets = case(torch.float64)
    token_logprobs(hidden.detach(), head, targets, 1.0, 1)[0].sum().backward()
    assert hidden.grad is None
    assert head.grad is not None


def test_no_targets_are_no_numbers_and_no_gradient() -> None:
    hidden, head, targets = case(torch.float32)
    logp_T, entropy_T = token_logprobs(hidden[:0], head, targets[:0], 1.0)
    assert (logp_T.shape, entropy_T.shape) == ((0,), (0,))
    (logp_T.sum() + entropy_T.sum()).backward()
    assert float(head.grad.abs().max()) == 0.0


def test_certain_and_impossible_tokens_stay_finite() -> None:
    """A distribution that is one token: entropy 0, and logits far beyond exp's range."""
    hidden = torch.tensor([[300.0], [300.0]], requires_grad=True)
    head = torch.tensor([[1.0], [0.0], [-1.0]], requires_grad=True)
    logp_T, entropy_T = token_logprobs(hidden, head, torch.tensor([0, 2]), 1.0)
    (logp_T.sum() + entropy_T.sum()).backward()
    assert logp_T.tolist() == [0.0, -600.0]
    assert entropy_T.tolist() == [0.0, 0.0]
    assert torch.isfinite(hidden.grad).all()
    assert torch.isfinite(head.grad).all()


def test_under_bf16_only_the_factors_are_rounded() -> None:
    """Log-probabilities are those of float32 arithmetic on rounded hidden states and head, not of rounded logits."""
    hidden, head, targets = case(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp_T, entropy_T = token_logprobs(hidden, head, targets, 1.0)
        from_rounded_logits, _ = plain(hidden, head, targets, 1.0)
    assert logp_T.dtype == entropy_T.dtype == torch.float32
    with torch.no_grad():
        want_logp_T, want_entropy_T = plain(hidden.bfloat16().float(), head.bfloat16().float(), targets, 1.0)
        assert float((logp_T - want_logp_T).abs().max()) < 1e-5
        assert float((entropy_T - want_entropy_T).abs().max()) < 1e-5
        assert float((from_rounded_logits - want_logp_T).abs().max()) > 1e-3
    (logp_T.sum() + 0.1 * entropy_T.sum()).backward()
    assert (hidden.grad.dtype, head.grad.dtype) == (torch.float32, torch.float32)
    exact_hidden, exact_head, _ = case(torch.float32)
    logp_T, entropy_T = plain(exact_hidden, exact_head, targets, 1.0)
    (logp_T.sum() + 0.1 * entropy_T.sum()).backward()
    assert float((hidden.grad - exact_hidden.grad).norm() / exact_hidden.grad.norm()) < 0.02
    assert float((head.grad - exact_head.grad).norm() / exact_head.grad.norm()) < 0.02


def test_rounding_of_factors_ends_with_the_product() -> None:
    hidden, head, targets = case(torch.float32)
    before = torch.backends.mkldnn.matmul.fp32_precision
    with bf16_factors():
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        token_logprobs(hidden, head, targets, 1.0)[0].sum().backward()
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_a_chunk_holds_as_many_tokens_as_its_memory() -> None:
    assert tokens_of_chunk(152_000, 512) == 768
    assert tokens_of_chunk(152_000, 1) == 1
    assert tokens_of_chunk(480, 512) * 480 * 4 <= 512 * 2**20


QWENS_VOCABULARY = 151_936

MEASURE = """
import json, sys
import torch
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM
from raypoly.learner.logprobs import bf16_factors, token_logprobs

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

def step(tokens, chunk_mib):
    ids = torch.arange(tokens)[None]
    hidden_TH = model.model(ids, use_cache=False).last_hidden_state[0]
    logp_T, entropy_T = token_logprobs(hidden_TH, model.lm_head.weight, ids[0], 1.0, chunk_mib)
    (logp_T.sum() + entropy_T.sum()).backward()
    peaks.append(peak())

torch.set_num_threads(1)
sizes = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=int(sys.argv[1]), tie_word_embeddings=False, **sizes))
peaks = []
step(8, 16)
step(128, 16)
step(512, 16)
step(512, 96)
print(json.dumps(peaks))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc to measure peak memory")
def test_peak_memory_grows_with_the_chunk_and_not_with_the_tokens() -> None:
    returned = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}  # every freed array goes back to the system at once
    command = [sys.executable, "-c", MEASURE, str(QWENS_VOCABULARY)]
    done = subprocess.run(command, env={**os.environ, **returned}, capture_output=True, text=True, check=True)
    _, few, many, larger_chunk = json.loads(done.stdout.splitlines()[-1])
    full_logits = (512 - 128) * QWENS_VOCABULARY * 4 / 2**20  # MiB, of one array
    assert many - few < 0.25 * full_logits
    assert 80 < larger_chunk - many < 6 * 80
