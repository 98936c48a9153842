"""What a person reads of a plan: memory by part and phase, time by stage, cost.

print(forecast(config, device, problems={"train": 863, "validation": 45, "test": 0}))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raypoly.config import Config
from raypoly.judge.judge_usage import dollars
from raypoly.planning.device_layout import Layout, layout_of
from raypoly.planning.device_memory import check, host_memory, memory
from raypoly.planning.engine_memory import room
from raypoly.planning.gpus import Device
from raypoly.planning.judge_forecast import judging
from raypoly.planning.learner_memory import checkpoint_bytes, trained_weights
from raypoly.planning.memory_parts import PHASES, DeviceMemory, size
from raypoly.planning.model_shape import Shape, shape_of
from raypoly.planning.step_seconds import Step, sampling_seconds, step_seconds
from raypoly.reports.tables import ReportTable, duration

_NAME = 36
"""Width of a table's first column."""


def forecast(config: Config, device: Device, problems: Mapping[str, int]) -> str:
    """The sections `memory` and `time and cost`. `problems`: how many each split has.

    Raises `UsageError` where the engine has no room for one sequence.
    """
    shape, layout = shape_of(config.model.path), layout_of(config, device)
    return "\n".join([*_memory(config, shape, device, layout), "", *_time(config, shape, device, layout, problems)])


def refuse_what_does_not_fit(config: Config, device: Device) -> None:
    """Raise `UsageError` where the device can't hold the run; nothing where the model's sizes are unknown."""
    shape = shape_of(config.model.path)
    if shape is not None:
        check(config, shape, device, layout_of(config, device))


def _memory(config: Config, shape: Shape | None, device: Device, layout: Layout) -> Iterator[str]:
    model = config.model.path or "the tiny model"
    yield f"# memory: {device.name}, {size(device.memory)}"
    if shape is None:
        yield f"unknown: the sizes of {model} are neither in a folder here, the hub's cache nor raypoly's own table"
        return
    trained = trained_weights(config, shape)
    only = "" if trained == shape.parameters else f", of adapters {trained:,} are trained"
    yield f"model: {model}, {shape.parameters:,} weights{only}"
    for holding in memory(config, shape, device, layout):
        yield from _memory_table(holding, device)
    space = room(config, shape, device)
    if space is not None:
        yield (
            f"the engine has room for {space.tokens:,} tokens: {space.sequences:,.0f} sequences of {space.longest:,} "
            f"at once, of {space.wanted:,} that are wanted"
        )
    if device.gpu:
        host = host_memory(config, shape, layout)
        listed = ", ".join(f"{part.name} {size(part.bytes)}" for part in host.parts)
        yield f"memory of the machine: {size(host.needed)} ({listed})"
    kept = checkpoint_bytes(config, shape)
    count = config.train.keep_last
    yield f"disk: {size((count + 1) * kept)} for {count} checkpoints of {size(kept)} and a new one"


def _memory_table(holding: DeviceMemory, device: Device) -> Iterator[str]:
    rows = [
        (part.name, *("" if phase not in part.phases else size(part.bytes) for phase in PHASES))
        for part in holding.parts
    ]
    together = "together" if not holding.unknown else "together, at least"
    rows += [
        (together, *(size(holding.total(phase)) for phase in PHASES)),
        ("of which there are", size(device.memory)),
    ]
    return ReportTable((holding.where, *PHASES), rows).columns(_NAME, 11)


def _time(
    config: Config, shape: Shape | None, device: Device, layout: Layout, problems: Mapping[str, int]
) -> Iterator[str]:
    limit = config.generator.max_tokens
    lengths = (limit // 2, limit)
    steps = [None if shape is None else step_seconds(config, shape, device, layout, length) for length in lengths]
    yield "# time and cost: a first guess, which `--rehearse` replaces by what it measures"
    if shape is None or steps[0] is None or steps[1] is None:
        reason = "on a CPU" if not device.gpu else "for this device, engine or model.dtype"
        yield f"time of a step: unknown {reason}"
    else:
        whole = [_evaluations(config, shape, device, layout, problems, length) for length in lengths]
        yield from _time_table([step for step in steps if step is not None], whole, lengths, config, layout)
    rollouts = config.train.prompts_per_step * config.train.rollouts
    most = rollouts * config.scorer.cpu_seconds_per_program / config.scorer.workers
    yield f"scoring: unknown before programs run, at most {duration(most)} a step; most of it hides behind sampling"
    asked = judging(config)
    if not asked.groups:
        yield "judge: not asked while training"
    elif asked.usd is None:
        yield f"judge: {asked.groups:,.0f} groups a step at an unknown cost (judge.price_input, judge.price_output)"
    else:
        total = f"{dollars(asked.usd)} a step, {dollars(asked.usd * config.train.steps)} in all, evaluations apart"
        yield f"judge: {asked.groups:,.0f} groups a step, {total if asked.usd else 'without cost'}"


def _time_table(
    steps: Sequence[Step], whole: Sequence[float | None], lengths: Sequence[int], config: Config, layout: Layout
) -> Iterator[str]:
    """A column for each length of responses. `whole`: seconds of all evaluations, None where unknown."""
    count = config.train.steps
    seconds: dict[str, Sequence[float | None]] = {
        "sampling": [step.sampling for step in steps],
        "log-probs behind several prompts": [step.crossing for step in steps],
        "gradients": [step.gradients for step in steps],
        "AdamW, digest of the weights": [step.update for step in steps],
        "hand-over of the weights": [step.hand_over for step in steps],
        "a step, scoring and judging hidden": [step.total for step in steps],
        f"{count:,} steps": [count * step.total for step in steps],
        "evaluations, sampling": whole,
    }
    if not any(step.crossing for step in steps):
        del seconds["log-probs behind several prompts"]
    rows = [(name, *("unknown" if v is None else duration(v) for v in values)) for name, values in seconds.items()]
    known = [count * step.total + (more or 0.0) for step, more in zip(steps, whole, strict=True)]
    rows.append(("GPU-hours", *(f"{layout.gpus * each / 3600:,.1f}" for each in known)))
    return ReportTable(("responses of", *(f"{length:,} tokens" for length in lengths)), rows).columns(_NAME, 21)


def _evaluations(
    config: Config, shape: Shape, device: Device, layout: Layout, problems: Mapping[str, int], length: int
) -> float | None:
    """Seconds of sampling in all of a run's evaluations."""
    seconds = 0.0
    for times, count, samples in evaluated(config, problems):
        each = sampling_seconds(config, shape, device, layout, count, count * samples, length)
        if each is None:
            return None
        seconds += times * each
    return seconds


def evaluated(config: Config, problems: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    """Of each split that is evaluated: how often, on how many problems, with how many samples each."""
    evaluate, steps = config.evaluate, config.train.steps
    if not evaluate.every:
        return
    on_validation = len({*range(0, steps + 1, evaluate.every), steps})
    if problems.get("test"):
        yield (2 if steps else 1), problems["test"], evaluate.samples
    if problems.get("validation"):
        yield on_validation, problems["validation"], evaluate.validation_samples
