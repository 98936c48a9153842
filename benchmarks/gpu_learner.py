"""What one update costs on one GPU, and whether its gradient is right: Qwen3-4B's shape with random weights.

    python -m benchmarks.gpu_learner [--gib 78] [--json FILE]     # on a GPU: 2.5 minutes on an H200 for 600 tokens
    python -m benchmarks.gpu_learner --plan --gib 78              # only the plan, as on a machine without a GPU
    python -m benchmarks.gpu_learner --tiny                       # all of it on a small shape, on a CPU in a minute

Needs torch (2.11 or newer) and transformers 5, and nothing else: no Ray, no engine, no pydantic. It writes random bf16
weights (8 GB) to the temporary folder. The learner is the one that trains: float32 weights, gradients and AdamW, bf16
products, packed rows; as PyTorch runs it (eager), and with `train.compile`.

First the gradient of four layers of the shape is compared with a float32 reference. Then one update is timed for each
mean length of responses, after a small one that allocates what it needs; eight responses share a prompt of some 400
tokens. From what fits into `--gib` the cheapest activation checkpointing and token budget are chosen, and fewer layers
if all never fit. So `--recompute products --token-budget 8192` shows an H200's setting on an H100, on fewer layers.

Model FLOPs utilisation is what the mathematics needs (`model_flops`) over the GPU's dense bf16 peak: a prompt counts
once a group, the head at response tokens alone, and what is computed again not at all. The update is gradients and
AdamW. The digest of the new weights, which a run keeps for each step, and the hashes that prove them in an engine are
timed once.

Exit code 1: a gradient is wrong, or the plan's memory did not hold.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.gradient_reference import GradientErrors, GradientReference
from benchmarks.learner_plan import (
    BUDGETS,
    KINDS,
    MODEL,
    LearnerPlan,
    describe,
    first_layers,
    micro_batches,
    minutes,
    plan_within,
)
from raypoly.algorithms.losses import build
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import TrainConfig
from raypoly.core.errors import UsageError
from raypoly.learner import ranks
from raypoly.learner.packing import pack
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.planning.devices import GIB, Device, DeviceLayout, parse_nvidia_smi, this_machine
from tests.support.learner_load import QWEN3_4B, TINY, model_flops, sample_rows

T = TypeVar("T")
GROUP = 8
"""Responses that share a prompt."""
CHECKED = 4
"""Layers whose gradient is compared."""
_PEAKS = {"B200": 2250, "H200": 989, "H100PCIE": 756, "H100": 989, "A100": 312, "L40S": 362, "RTX4090": 165}
"""Dense bf16 products with float32 sums, 10^12 operations a second, by NVIDIA's data sheets; the first that fits."""


@dataclass(frozen=True)
class Result:
    """Of one update. What is unknown, or was measured before, is None."""

    device: str
    model_layers: int
    sequences: int
    tokens: int
    """Of prompts, once a group, and responses."""
    activation_checkpointing: str
    token_budget: int
    micro_batches: int
    start_seconds: float
    """Until it can train: loading, checking, compiling."""
    update_seconds: float
    tokens_per_second: float
    flops_per_second: float
    utilisation: float | None
    """None where the device's peak is not known."""
    planned_gib: float
    """With 1.5 GiB for CUDA's context and what the allocator can't use."""
    peak_gib: float
    """Allocated on the GPU, or the process's largest size on a CPU."""
    reserved_gib: float | None
    """Held by PyTorch's allocator on the GPU."""
    digest_seconds: float | None
    hash_seconds: float | None
    """An engine takes as long again for its own."""


def write_model(shape: Qwen3Config, folder: Path) -> Path:
    """Random bf16 weights, made on the device."""
    with ranks.device():
        AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def check_gradients(reference: GradientReference, folder: Path, plan: LearnerPlan) -> GradientErrors:
    """The plan's kind of learner. One micro-batch ends within a group, and one has several prompts."""
    budget = pack(reference.rows).input_ids.shape[1] * 5 // 8
    kept = {key: getattr(plan.train, key) for key in ("logits_mib", "activation_checkpointing", "compile")}
    train = TrainConfig.model_validate({"lr": 1e-6, "token_budget": budget, "max_grad_norm": 1e9, **kept})
    return reference.compare(folder, train, MODEL)


def measure(plan: LearnerPlan, folder: Path, hashes: bool) -> Result:
    """One update of a new learner, after a small one; with `hashes` also its digest and hashes."""
    on_gpu = torch.cuda.is_available()
    device = _gpu() if on_gpu else Device("CPU", 0, gpu=False)
    learner, start_seconds = _timed(lambda: PolicyLearner(folder, plan.train, build("policy_gradient"), 1.0, MODEL))
    longest = max(len(row.tokens) for row in plan.rows)
    learner.begin(0, Normalisers(prompts=len(plan.rows), rollouts=1, t_max=longest))

    def update(rows: Sequence[TrainingRow]) -> None:
        learner.accumulate(rows)
        learner.update()

    update(next(micro_batches(plan.rows, plan.train.token_budget)))
    _, seconds = _timed(lambda: update(plan.rows))
    process_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = _peak(device.name)
    tokens, flops = pack(plan.rows).input_ids.shape[1], model_flops(plan.model, plan.rows) / seconds
    return Result(
        device=device.name,
        model_layers=plan.model.num_hidden_layers,
        sequences=len(plan.rows),
        tokens=tokens,
        activation_checkpointing=plan.train.activation_checkpointing,
        token_budget=plan.train.token_budget,
        micro_batches=plan.micro_batches,
        start_seconds=start_seconds,
        update_seconds=seconds,
        tokens_per_second=tokens / seconds,
        flops_per_second=flops,
        utilisation=None if peak is None else flops / peak,
        planned_gib=plan.memory.needed / GIB,
        peak_gib=(torch.cuda.max_memory_allocated() if on_gpu else process_bytes) / GIB,
        reserved_gib=torch.cuda.max_memory_reserved() / GIB if on_gpu else None,
        digest_seconds=_timed(learner.digest)[1] if hashes else None,
        hash_seconds=_timed(learner.weight_hashes)[1] if hashes else None,
    )


def _gpu() -> Device:
    """The GPU here; its memory is what is free."""
    free, total = torch.cuda.mem_get_info()
    found = parse_nvidia_smi(f"{torch.cuda.get_device_name()},{total >> 20},0")
    assert found is not None
    return replace(found, memory=free)


def _peak(name: str) -> float | None:
    """Operations a second; None for a GPU that is not in the table."""
    return next((tera * 1e12 for word, tera in _PEAKS.items() if word in name.upper().replace(" ", "")), None)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Its result and seconds."""
    _synchronise()
    started = time.perf_counter()
    result = work()
    _synchronise()
    return result, time.perf_counter() - started


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _collect() -> None:
    """Free the last model, which compiled code may keep."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def run(plans: Sequence[LearnerPlan], checked: Sequence[TrainingRow], numbers: dict[str, Any]) -> None:
    """Fill `numbers` and print them as they come. Raises `SystemExit` at the end if a gradient is wrong."""

    def tell(name: str, found: GradientErrors | Result) -> None:
        numbers[name] = asdict(found)
        print(f"\n{name}\n{table(numbers[name])}", flush=True)

    faults, model = [], plans[0].model
    with tempfile.TemporaryDirectory() as name:
        few = write_model(first_layers(model, min(CHECKED, model.num_hidden_layers)), Path(name, "few"))
        whole = write_model(model, Path(name, "whole"))
        reference = GradientReference.of(few, checked, ranks.device())
        for layers, of_layers in groupby(plans, key=lambda plan: plan.layers):
            mine = list(of_layers)
            _collect()
            errors = check_gradients(reference, few, mine[0])
            tell(f"{layers} gradient", errors)
            faults += [f"{layers}: {errors.fault}"] if errors.fault else []
            for plan in mine:
                _collect()
                tell(plan.name, measure(plan, whole, hashes=plan is plans[0]))
    if faults:
        raise SystemExit("\n".join(faults))


def table(numbers: Mapping[str, Any]) -> str:
    """One line a number."""
    shown = {key: value for key, value in numbers.items() if not isinstance(value, dict)}
    return "\n".join(f"{key.replace('_', ' '):24} {_shown(value)}" for key, value in shown.items())


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plan_of(given: argparse.Namespace) -> tuple[list[LearnerPlan], int, Qwen3Config]:
    """The plans, the memory that they are for, and the whole model. Raises `UsageError` where that is unknown."""
    on_gpu = torch.cuda.is_available()
    model, prompt = (TINY, (8, 16)) if given.tiny else (QWEN3_4B, (300, 500))
    if given.gib is None and not on_gpu and not given.tiny:
        raise UsageError("There is no GPU here: say how much memory to plan for, such as --gib 78.")
    here = _gpu().memory if on_gpu else this_machine(Path(tempfile.gettempdir())).memory
    memory = here if given.gib is None else round(given.gib * GIB)
    lengths = given.response_tokens or ([24] if given.tiny else [600, 2048])
    groups = 2 if given.tiny else given.groups
    loads = {
        length: sample_rows(groups, GROUP, prompt, (length * 3 // 4, length * 5 // 4), model.vocab_size)
        for length in lengths
    }
    plans = plan_within(
        memory,
        model,
        loads,
        ("eager", "compiled") if given.layers == "both" else (given.layers,),
        DeviceLayout("cpu" if given.tiny and not on_gpu else "split"),
        logits_mib=1 if given.tiny else given.logits_mib,
        kinds=(given.recompute,) if given.recompute else KINDS,
        budgets=(given.token_budget,) if given.token_budget else (256,) if given.tiny else BUDGETS,
    )
    return plans, memory, model


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, help="GiB of GPU memory to plan within; default: what is free")
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    parser.add_argument("--tiny", action="store_true", help="a small shape and short responses")
    parser.add_argument("--response-tokens", type=int, nargs="+", help="mean lengths of responses; default: 600 2048")
    parser.add_argument("--groups", type=int, default=8, help="prompts, each with eight responses")
    parser.add_argument("--layers", choices=("eager", "compiled", "both"), default="both")
    parser.add_argument("--recompute", choices=KINDS, help="train.activation_checkpointing; default: planned")
    parser.add_argument("--token-budget", type=int, help="default: planned")
    parser.add_argument("--logits-mib", type=int, default=512)
    parser.add_argument("--json", type=Path, help="also write the numbers here, by what is printed above them")
    given = parser.parse_args(arguments)
    numbers: dict[str, Any] = {}
    try:
        plans, memory, model = plan_of(given)
        print(describe(plans, memory, model), flush=True)
        if not given.tiny:
            print(f"\nabout {minutes(plans):.0f} minutes on an H100, reckoned", flush=True)
        if given.plan or not (given.tiny or torch.cuda.is_available()):
            return
        if given.gib is not None and torch.cuda.is_available():  # so that it is the plan that is tried
            torch.cuda.set_per_process_memory_fraction(min(1.0, memory / torch.cuda.mem_get_info()[1]))
        checked = sample_rows(
            3, 3, (8, 16) if given.tiny else (100, 200), (24, 48) if given.tiny else (100, 300), model.vocab_size
        )
        run(plans, checked, numbers)
    except UsageError as error:  # where nothing can be compiled, what was measured before still counts
        raise SystemExit(str(error)) from error
    except torch.OutOfMemoryError as error:
        raise SystemExit(f"The plan's memory did not hold: name less than it with --gib. {error}") from error
    finally:
        if given.json is not None and numbers:
            given.json.write_text(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    main()
