"""What one update costs on one GPU: Qwen3-4B's shape with random weights, 256 sequences of 1k to 4k tokens.

    python -m benchmarks.gpu_learner [--recompute products] [--token-budget 8192] [--json FILE]     # H200, minutes
    python -m benchmarks.gpu_learner --tiny                                                         # CPU, a minute

Needs torch (2.11 or newer) and transformers 5, and nothing else: no Ray, no engine, no pydantic. The learner is the one
that trains: float32 weights, gradients and AdamW, bf16 products, packed rows; once as PyTorch runs it, and once with
`train.compile` (`--layers eager` or `compiled` for one of them). It writes and reads a folder of random bf16 weights
(8 GB) in the temporary folder.

Model FLOPs utilisation counts what the mathematics needs (2 a weight and token forward, 4 backward, the head at
response tokens alone, attention to the tokens before) and not what is computed again, over the GPU's dense bf16 peak.
The update is gradients and AdamW; the digest of the new weights, which a run keeps for each step, and the hashes that
prove them in an engine are told apart.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks import plain  # noqa: F401  (a stand-in for pydantic, before raypoly asks for it)
from raypoly.config import ModelConfig, TrainConfig
from raypoly.errors import UsageError
from raypoly.losses import build
from raypoly.losses.aggregation import Normalisers
from raypoly.policy import ranks
from raypoly.policy.packing import pack
from raypoly.policy.policy_learner import PolicyLearner
from raypoly.policy.policy_model import load_model, response_logprobs
from raypoly.policy.training_rows import TrainingRow
from tests.support.learner_load import QWEN3_4B, TINY, model_flops, sample_rows

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16, by a part of the device's name; SXM boards."""
GIB = 1 << 30


@dataclass(frozen=True)
class Result:
    """Of one update. What is unknown is None."""

    layers: str
    """`eager` or `compiled`."""
    device: str
    weights: int
    sequences: int
    tokens: int
    """Prompts and responses."""
    start_seconds: float
    """Until it can train: loading, checking, compiling."""
    update_seconds: float
    digest_seconds: float
    hash_seconds: float
    """An engine takes as long again for its own."""
    tokens_per_second: float
    flops_per_second: float
    utilisation: float | None
    """None where the device's peak is not known."""
    peak_gib: float
    """Allocated on the GPU, or the process's largest size on a CPU."""
    reserved_gib: float | None
    """Held by PyTorch's allocator on the GPU."""
    reference_loss_error: float
    """|loss - reference| / |reference| by transformers' attention and full logits, a few sequences, same precision."""
    reference_logp_error: float
    """Largest |difference| of a token's log-probability there."""


def against_reference(
    folder: Path, rows: Sequence[TrainingRow], device: torch.device, chunk_mib: int
) -> tuple[float, float]:
    """Relative error of the loss, and the largest of a log-probability, against one row at a time and full logits."""
    model = load_model(folder, device, bf16=True)
    with torch.no_grad():
        got, _ = response_logprobs(model, pack(rows), 1.0, bf16=True, chunk_mib=chunk_mib)
        model.set_attn_implementation("sdpa")
        want = []
        for row in rows:
            ids = torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]).astype(np.int64)).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits_LV = model(ids[None], use_cache=False).logits[0, len(row.prompt_tokens) - 1 : -1]
            targets = ids[len(row.prompt_tokens) :, None]
            want.append(logits_LV.float().log_softmax(-1).gather(1, targets).squeeze(1))
    loss, reference = float(got.mean()), float(torch.cat(want).mean())
    return abs(loss - reference) / abs(reference), float((got - torch.cat(want)).abs().max())


def write_model(shape: Qwen3Config, folder: Path, device: torch.device) -> int:
    """A folder of random bf16 weights, made on the device; how many they are."""
    with device:
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return int(model.num_parameters())


def measure(shape: Qwen3Config, rows: Sequence[TrainingRow], trains: Sequence[TrainConfig]) -> Iterator[Result]:
    """One update of each, after a small one that allocates what every update needs."""
    device = ranks.device()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = write_model(shape, folder, device)
        errors = against_reference(folder, _shortest(rows), device, trains[0].logits_mib)
        for train in trains:
            _collect(device)
            yield _measured(folder, shape, rows, train, weights, errors)


def _measured(
    folder: Path,
    shape: Qwen3Config,
    rows: Sequence[TrainingRow],
    train: TrainConfig,
    weights: int,
    errors: tuple[float, float],
) -> Result:
    device = ranks.device()
    started = time.perf_counter()
    model = ModelConfig.model_validate({"dtype": "bfloat16"})
    learner = PolicyLearner(folder, train, build("policy_gradient"), 1.0, model)
    start_seconds = time.perf_counter() - started
    _update(learner, _shortest(rows), device)
    _collect(device)
    update_seconds, digest_seconds = _update(learner, rows, device)
    hashing = time.perf_counter()
    learner.weight_hashes()
    hash_seconds = time.perf_counter() - hashing
    tokens, flops = sum(row.length for row in rows), model_flops(shape, rows) / update_seconds
    on_gpu = device.type == "cuda"
    named = torch.cuda.get_device_name() if on_gpu else "CPU"
    peak = next((peak for part, peak in PEAK_FLOPS.items() if part in named), None)
    process_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Result(
        layers="compiled" if train.compile else "eager",
        device=named,
        weights=weights,
        sequences=len(rows),
        tokens=tokens,
        start_seconds=start_seconds,
        update_seconds=update_seconds,
        digest_seconds=digest_seconds,
        hash_seconds=hash_seconds,
        tokens_per_second=tokens / update_seconds,
        flops_per_second=flops,
        utilisation=None if peak is None else flops / peak,
        peak_gib=(torch.cuda.max_memory_allocated() if on_gpu else process_bytes) / GIB,
        reserved_gib=torch.cuda.max_memory_reserved() / GIB if on_gpu else None,
        reference_loss_error=errors[0],
        reference_logp_error=errors[1],
    )


def _shortest(rows: Sequence[TrainingRow]) -> list[TrainingRow]:
    return sorted(rows, key=lambda row: row.length)[:3]


def _update(learner: PolicyLearner, rows: Sequence[TrainingRow], device: torch.device) -> tuple[float, float]:
    """Seconds of gradients and AdamW, and of the digest of the weights."""
    longest = max(len(row.tokens) for row in rows)
    _synchronise(device)
    started = time.perf_counter()
    learner.begin(learner.version, Normalisers(prompts=len(rows), rollouts=1, t_max=longest))
    learner.accumulate(rows)
    learner.apply()
    _synchronise(device)
    applied = time.perf_counter()
    learner.digest()
    digest = time.perf_counter() - applied
    return applied - started - digest, digest


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _collect(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def table(result: Result) -> str:
    """One line a number, and an empty one."""
    lines = [f"{key.replace('_', ' '):22} {_shown(value)}" for key, value in asdict(result).items()]
    return "\n".join([*lines, ""])


def _shown(value: float | str | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a small shape and short sequences")
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--layers", choices=("eager", "compiled", "both"), default="both")
    parser.add_argument("--recompute", choices=("off", "products", "layers"), default="products")
    parser.add_argument("--token-budget", type=int, default=8192)
    parser.add_argument("--logits-mib", type=int, default=1024)
    parser.add_argument("--json", type=Path, help="also write the numbers here: of `eager`, of `compiled`")
    given = parser.parse_args(arguments)
    shape, lengths = (TINY, (24, 96)) if given.tiny else (QWEN3_4B, (1024, 4096))
    rows = sample_rows(8 if given.tiny else given.sequences, *lengths, shape.vocab_size)
    values = {
        "lr": 1e-6,
        "token_budget": 256 if given.tiny else given.token_budget,
        "logits_mib": 1 if given.tiny else given.logits_mib,
        "activation_checkpointing": given.recompute,
    }
    kinds = ("eager", "compiled") if given.layers == "both" else (given.layers,)
    trains = [TrainConfig.model_validate({**values, "compile": kind == "compiled"}) for kind in kinds]
    results = {}
    try:
        for result in measure(shape, rows, trains):
            print(table(result), flush=True)
            results[result.layers] = asdict(result)
    except UsageError as error:  # where nothing can be compiled, what was measured before still counts
        raise SystemExit(str(error)) from error
    finally:
        if given.json is not None:
            given.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
