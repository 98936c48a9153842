"""The learner's parts on one GPU: are they right, and what does each take? `benchmarks.gpu_learner` measures the whole.

    python -m benchmarks.gpu_parts [--json FILE]     # Qwen3-4B's width, a minute on an H200; small shapes on a CPU

- attention: the flash kernel with shared prompts in bf16, beside float32 a segment at a time; relative errors of output
  and gradients by Euclidean norms
- head: log-probabilities and the gradient of hidden states, bf16 factors, beside float64
- layers: a pass forward and back through 2 and through 6 layers gives the time of one, for each activation
  checkpointing, and compiled
- transfer: CUDA IPC to a second process that opens the handles as vLLM does; equal values, and no memory lost
- digest: copying weights to the host and hashing them there
- AdamW: fused, 4.02e9 weights reckoned from 5e8

Needs torch (2.11 or newer) and transformers 5, and nothing else. A part that fails is named, the others are measured
all the same, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import rebuild_cuda_tensor
from transformers import AttentionInterface, AutoModelForCausalLM

from benchmarks import plain  # noqa: F401  (a stand-in for pydantic, before raypoly asks for it)
from benchmarks.learner_plan import first_layers
from raypoly.learner import attention
from raypoly.learner.attention import PACKED, attend
from raypoly.learner.compiled_layers import compile_layers, recompute
from raypoly.learner.logprobs import token_logprobs
from raypoly.learner.packing import Segments, pack
from raypoly.learner.policy_model import response_logprobs
from raypoly.rollouts.engines.vllm_transfer import IpcSender
from tests.support.learner_load import QWEN3_4B, TINY, sample_rows

Numbers = dict[str, float]
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
SHAPE, PROMPT, RESPONSE, RESPONSES = (QWEN3_4B, 400, 600, 13) if CUDA else (TINY, 9, 14, 4)
ROUNDS = 30
"""Transfers after which memory must be what it was."""


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least of several runs, after one that is not counted."""
    found = []
    for _ in range(times + 1):
        started = time.perf_counter()
        work()
        if CUDA:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def relative(got: Tensor | None, want: Tensor | None) -> float:
    """|got - want| / |want|."""
    assert got is not None
    assert want is not None
    exact = want.detach().double()
    return float((got.detach().double() - exact).norm() / exact.norm())


def packed_attention() -> Numbers:
    """A prompt with responses, and two segments of their own."""
    segments = Segments.of([PROMPT, *[RESPONSE] * RESPONSES, 70, 33], [None, *[0] * RESPONSES, None, RESPONSES + 1])
    segments, size = segments.to(DEVICE), SHAPE.head_dim
    heads = (SHAPE.num_attention_heads, SHAPE.num_key_value_heads, SHAPE.num_key_value_heads)
    shapes = [(1, count, sum(segments.lengths), size) for count in heads]
    rounded = [torch.randn(each, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for each in shapes]
    exact = [each.detach().float().requires_grad_() for each in rounded]
    kernel = attention._flash if CUDA else attention._by_segment
    want = attention._by_segment(exact[0], exact[1], exact[2], segments, size**-0.5, None)
    got = kernel(rounded[0], rounded[1], rounded[2], segments, size**-0.5, None)
    slope = torch.randn_like(want)
    want.backward(slope)
    got.backward(slope.to(got.dtype))
    errors = {f"error of {name}": relative(a.grad, b.grad) for name, a, b in zip("qkv", rounded, exact, strict=True)}

    def passes() -> None:
        kernel(rounded[0], rounded[1], rounded[2], segments, size**-0.5, None).backward(slope.to(torch.bfloat16))

    return {"tokens": sum(segments.lengths), "error of output": relative(got, want), **errors, "s": seconds(passes)}


def head() -> Numbers:
    tokens, width, words = RESPONSE * RESPONSES, SHAPE.hidden_size, SHAPE.vocab_size
    hidden = torch.randn(tokens, width, device=DEVICE, requires_grad=True)
    weight = (torch.randn(words, width, device=DEVICE) * 0.02).requires_grad_()
    targets = torch.randint(0, words, (tokens,), device=DEVICE)

    def logprobs(hidden_TH: Tensor, weight_VH: Tensor, targets_T: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, cache_enabled=False):
            return token_logprobs(hidden_TH, weight_VH, targets_T, 1.0, 1024 if CUDA else 1)[0]

    few = min(64, tokens)
    ours, exact = (hidden[:few].detach().to(kind).requires_grad_() for kind in (torch.float32, torch.float64))
    logits = exact @ weight.detach().double().T
    want = logits.log_softmax(-1).gather(1, targets[:few, None])[:, 0]
    got = logprobs(ours, weight.detach(), targets[:few])
    want.sum().backward()
    got.sum().backward()
    return {
        "tokens": tokens,
        "largest error of a log-probability": float((got - want).detach().abs().max()),
        "error of the gradient": relative(ours.grad, exact.grad),
        "s": seconds(lambda: logprobs(hidden, weight, targets).sum().backward()),
    }


def layers() -> Numbers:
    """Seconds of one layer, and of all but the layers."""
    batch = pack(sample_rows(1, RESPONSES, (PROMPT, PROMPT), (RESPONSE, RESPONSE), SHAPE.vocab_size))
    few, many = (2, 6) if CUDA else (1, 2)
    found: Numbers = {"tokens": batch.input_ids.shape[1]}
    for kind, compiled in (("off", False), ("products", False), ("layers", False), ("products", True)):
        if compiled and not CUDA:
            continue
        took = {}
        for count in (few, many):
            torch.compiler.reset()
            gc.collect()
            with DEVICE:
                shape = first_layers(SHAPE, count)
                model = AutoModelForCausalLM.from_config(shape, dtype=torch.float32, attn_implementation=PACKED)
            if compiled:
                compile_layers(model.train(), True, kind)
            else:
                recompute(model.train(), kind)

            def passes(model: Any = model) -> None:
                response_logprobs(model, batch, 1.0, True, 1024 if CUDA else 1)[0].sum().backward()

            took[count] = seconds(passes)
            AttentionInterface.register(PACKED, attend)
        name = f"{kind}{', compiled' if compiled else ''}"
        found[f"s a layer, {name}"] = (took[many] - took[few]) / (many - few)
        found[f"s beside layers, {name}"] = took[few] - few * found[f"s a layer, {name}"]
    return found


def _reader(inbox: Any, outbox: Any) -> None:
    """A second process: the sums of the tensors behind the handles that come, rounded as an engine does."""
    while (handles := inbox.get()) is not None:
        opened = [rebuild_cuda_tensor(*handle[:6], 0, *handle[7:]) for handle in handles]  # on its own first GPU
        outbox.put([float(tensor.bfloat16().double().sum()) for tensor in opened])
        del opened
        torch.cuda.empty_cache()


def transfer() -> Numbers:
    """1e9 float32 weights in 40 tensors, changed before each round."""
    if not CUDA:
        return {}
    context = torch.multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    other = context.Process(target=_reader, args=(inbox, outbox), daemon=True)
    other.start()
    weights = [(f"w{i}", torch.randn(2560, 9728, device=DEVICE)) for i in range(40)]
    sender, free, took = IpcSender("bfloat16"), [], []
    for version in range(ROUNDS):
        for _, tensor in weights:
            tensor.mul_(1.01)
        started = time.perf_counter()
        parcel = sender.offer(iter(weights), version)
        inbox.put([next(iter(handles.values())) for handles in parcel.details["ipc_handles"]])
        sums = outbox.get(timeout=120)
        sender.withdraw()
        took.append(time.perf_counter() - started)
        free.append(torch.cuda.mem_get_info()[0] / 2**30)
        for (name, tensor), got in zip(weights, sums, strict=True):
            if not math.isclose(got, float(tensor.bfloat16().double().sum()), rel_tol=1e-6):
                raise ValueError(f"{name} has other values in the second process")
    inbox.put(None)
    other.join(30)
    return {"s a round": took[-1], "GiB free after the second": free[1], "and after the last": free[-1]}


def digest() -> Numbers:
    weights = torch.randn((1 << 28) if CUDA else (1 << 20), device=DEVICE)
    started = time.perf_counter()
    host = weights.cpu()
    copied = time.perf_counter()
    hashlib.sha256(host.numpy().data)
    for_all = 4.02e9 / weights.numel()
    return {"s to the host": (copied - started) * for_all, "s of SHA-256": (time.perf_counter() - copied) * for_all}


def adamw() -> Numbers:
    weights = torch.nn.Parameter(torch.randn(500_000_000 if CUDA else 1000, device=DEVICE))
    weights.grad = torch.randn_like(weights)
    optimizer = torch.optim.AdamW([weights], lr=1e-6, fused=CUDA)
    return {"s": seconds(optimizer.step) * 4.02e9 / weights.numel()}


PARTS: Mapping[str, Callable[[], Numbers]] = {
    "attention": packed_attention,
    "head": head,
    "transfer": transfer,
    "digest": digest,
    "AdamW": adamw,
    "layers": layers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers here, by part")
    file, numbers, failed = parser.parse_args().json, dict[str, Any](), list[str]()
    numbers["device"] = torch.cuda.get_device_name() if CUDA else "CPU"
    print(f"{numbers['device']}, PyTorch {torch.__version__}", flush=True)
    for name, part in PARTS.items():
        torch.manual_seed(0)
        try:
            numbers[name] = part()
        except Exception as error:  # noqa: BLE001  (a lent GPU's time is short: the others are measured)
            failed.append(f"{name}: {type(error).__name__}: {error}")
            continue
        finally:
            gc.collect()
            if CUDA:
                torch.cuda.empty_cache()
        for what, value in numbers[name].items():
            print(f"{name:10} {what:38} {value:.4g}", flush=True)
        if file is not None:
            file.write_text(json.dumps(numbers, indent=2))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
