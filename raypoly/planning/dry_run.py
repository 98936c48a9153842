"""What a run would do, need and cost, in words, without starting anything: `raypoly train --dry-run`.

    print(forecast(config, device, problems={"train": 863, "validation": 45, "test": 0}))

A question to the judge holds a group's distinct programs, which nobody has seen yet. Its tokens are those that were
counted (docs/judge.md): 956 for eight LeetCode programs, of which 581 are instructions, and an answer of 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raypoly import data as problems
from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.core.settings import dump
from raypoly.core.tables import ReportTable, duration
from raypoly.data import ProblemSet
from raypoly.data.problem_order import require_enough
from raypoly.data.problem_set import count_with_tests, describe_splits
from raypoly.data.readable_prompts import require_readable
from raypoly.planning.device_memory import check_memory, host_memory, plan_memory
from raypoly.planning.engine_memory import engine_room
from raypoly.planning.free_resources import this_machine
from raypoly.planning.gpus import Device, DeviceLayout, choose_device, layout_of
from raypoly.planning.learner_memory import checkpoint_bytes, trained_weights
from raypoly.planning.memory_parts import PHASES, DeviceMemory, format_bytes
from raypoly.planning.model_shape import ModelShape, shape_of
from raypoly.planning.required_tests import require_tests
from raypoly.planning.row_layout import describe_layout, row_layout
from raypoly.planning.step_seconds import StepSeconds, sampling_seconds, step_seconds
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems
from raypoly.run.run_identity import RunDirectory
from raypoly.strategies.judge import SAMPLED_SHARE
from raypoly.strategies.judge.judge_usage import dollars

_NAME = 36
"""Width of a table's first column."""


def show_dry_run(config: Config, directory: RunDirectory, gpu: str | None = None, verbose: bool = False) -> None:
    """Print it, for the GPU of that name or for what is here; `verbose` with every key of the config.

    Raises `UsageError` where the problems can't be loaded, are too few or lack tests that the run needs, the GPU is
    unknown, or the run can't fit.
    """
    device = choose_device(gpu, this_machine(directory.path).memory)
    read = problems.build_problem_set(config.problems)
    source = fit_problems(read, config)
    require_tests(source, config)
    require_enough(source.splits["train"], config)
    require_readable(read, source, config, directory.resumes)
    print(describe_run(config, source, directory.uri, directory.resumes), flush=True)
    print("\n" + forecast(config, device, count_with_tests(source)), flush=True)
    print("\n" + describe_config(config, source, verbose), flush=True)
    refuse_unfit(config, device)


def describe_run(config: Config, source: ProblemSet, run_dir: str, resumes: bool) -> str:
    """The plan, as text."""
    parts = [
        "# plan",
        f"problems: {describe_splits(source, config.problems)}",
        *_step_lines(config),
        *_evaluation_lines(config, count_with_tests(source)),
        f"run folder: {run_dir}" + (" (resumes the run that is there)" if resumes else " (new)"),
    ]
    return "\n".join(parts)


def describe_config(config: Config, source: ProblemSet, verbose: bool) -> str:
    """One rendered prompt, and the keys that are not at their default, or every key."""
    train = source.splits["train"]
    first = train[0] if train else None
    parts = [
        f"# one prompt ({first.id})" if first else "# one prompt",
        first.prompt if first else "(the train split is empty)",
        "",
        "# config: every key" if verbose else "# config: the keys that are not at their default; --verbose shows all",
        dump(config, changed=not verbose),
    ]
    return "\n".join(parts).rstrip("\n")


def _step_lines(config: Config) -> Iterator[str]:
    train = config.train
    rollouts = train.prompts_per_step * train.rollouts
    tokens = train.steps * rollouts * config.generator.max_tokens
    model = config.model.path or f"the tiny model, warm-started with seed {config.warm_start.seed}"
    yield f"model: {model}"
    yield describe_layout(config, row_layout(config.model.path))
    what = f"at most {tokens:,} sampled tokens" if scaffolds.of_run(config).samples else "all given, none sampled"
    yield (
        f"training: {train.steps} steps x {train.prompts_per_step} problems x {train.rollouts} rollouts "
        f"= {train.steps * rollouts:,} rollouts, {what}, by {config.objective.name}"
    )
    if train.refill:
        yield f"refill: up to {train.refill} problems more a step, which no number here counts"
    yield f"checkpoints: every {train.checkpoint_every} steps"


def _evaluation_lines(config: Config, problems: Mapping[str, int]) -> Iterator[str]:
    """`problems`: how many with tests each split has."""
    evaluate = config.evaluate
    if evaluate.every == 0:
        yield "evaluation: never (evaluate.every=0)"
        return
    due = {*range(0, config.train.steps + 1, evaluate.every), config.train.steps}
    steps = ", ".join(map(str, sorted(due)))
    for split, when, samples in (
        ("test", "before and after", evaluate.samples),
        ("validation", f"at steps {steps}", evaluate.validation_samples),
    ):
        if problems.get(split):
            yield f"evaluation: {split} {when}, {samples} samples a problem"
        else:
            yield f"evaluation: none on {split} (no problem with tests)"


def forecast(config: Config, device: Device, problems: Mapping[str, int]) -> str:
    """The sections `memory` and `time and cost`. `problems`: how many with tests each split has.

    Raises `UsageError` where the engine has no room for one sequence.
    """
    shape, layout = shape_of(config.model.path), layout_of(config, device)
    return "\n".join([*_memory(config, shape, device, layout), "", *_time(config, shape, device, layout, problems)])


def refuse_unfit(config: Config, device: Device) -> None:
    """Raise `UsageError` where the device can't hold the run; nothing where the model's sizes are unknown."""
    shape = shape_of(config.model.path)
    if shape is not None:
        check_memory(config, shape, device, layout_of(config, device))


def _memory(config: Config, shape: ModelShape | None, device: Device, layout: DeviceLayout) -> Iterator[str]:
    model = config.model.path or "the tiny model"
    yield f"# memory: {device.name}, {format_bytes(device.memory)}"
    if shape is None:
        yield (
            f"unknown: the sizes of {model} are neither in a folder here, the hub's cache nor raypoly's own table, or "
            "its architecture is none that is counted (Qwen2, Qwen3, Llama, Mistral)"
        )
        return
    trained = trained_weights(config, shape)
    only = "" if trained == shape.parameters else f", of adapters {trained:,} are trained"
    yield f"model: {model}, {shape.parameters:,} weights{only}"
    for holding in plan_memory(config, shape, device, layout):
        yield from _memory_table(holding, device)
    space = engine_room(config, shape, device)
    if space is not None:
        yield (
            f"the engine has room for {space.tokens:,} tokens: {space.sequences:,.0f} sequences of {space.longest:,} "
            f"at once, of {space.wanted:,} that are wanted"
        )
    if device.gpu:
        host = host_memory(config, shape, layout)
        listed = ", ".join(f"{part.name} {format_bytes(part.bytes)}" for part in host.parts)
        yield f"memory of the machine: {format_bytes(host.needed)} ({listed})"
    kept = checkpoint_bytes(config, shape)
    count = config.train.keep_last
    yield f"disk: {format_bytes((count + 1) * kept)} for {count} checkpoints of {format_bytes(kept)} and a new one"


def _memory_table(holding: DeviceMemory, device: Device) -> Iterator[str]:
    rows = [
        (part.name, *("" if phase not in part.phases else format_bytes(part.bytes) for phase in PHASES))
        for part in holding.parts
    ]
    together = "together" if not holding.unknown else "together, at least"
    rows += [
        (together, *(format_bytes(holding.total(phase)) for phase in PHASES)),
        ("of which there are", format_bytes(device.memory)),
    ]
    return ReportTable((holding.where, *PHASES), rows).columns(30, 10)


def _time(
    config: Config, shape: ModelShape | None, device: Device, layout: DeviceLayout, problems: Mapping[str, int]
) -> Iterator[str]:
    lengths = _lengths(config)
    steps = [None if shape is None else step_seconds(config, shape, device, layout, length) for length in lengths]
    yield "# time and cost: a first guess, which `--rehearse` replaces by what it measures"
    if shape is None or steps[0] is None or steps[1] is None:
        reason = "on a CPU" if not device.gpu else "for this device, engine or model.dtype"
        yield f"time of a step: unknown {reason}"
    else:
        whole = [_evaluation_seconds(config, shape, device, layout, problems, length) for length in lengths]
        yield from _time_table([step for step in steps if step is not None], whole, lengths, config, layout)
    yield "scoring: unknown before programs run; most of it hides behind sampling"
    asked = forecast_judge(config)
    if not asked.groups:
        yield "judge: not asked while training"
    elif asked.usd is None:
        yield f"judge: {asked.groups:,.0f} groups a step at an unknown cost (judge.price_input, judge.price_output)"
    else:
        total = f"{dollars(asked.usd)} a step, {dollars(asked.usd * config.train.steps)} in all, evaluations apart"
        yield f"judge: {asked.groups:,.0f} groups a step, {total if asked.usd else 'without cost'}"


def _lengths(config: Config) -> tuple[int, int]:
    """Tokens of a response that the two columns of times assume."""
    return config.generator.max_tokens // 2, config.generator.max_tokens


def run_hours(config: Config, device: Device, problems: Mapping[str, int]) -> tuple[float, float] | None:
    """GPU-hours of a run with its evaluations, for responses of half and of all of generator.max_tokens; None where
    unknown. `problems`: how many with tests each split has."""
    shape, layout = shape_of(config.model.path), layout_of(config, device)
    if shape is None:
        return None
    found = []
    for length in _lengths(config):
        step = step_seconds(config, shape, device, layout, length)
        more = _evaluation_seconds(config, shape, device, layout, problems, length)
        if step is None or more is None:
            return None
        found.append(layout.gpus * (config.train.steps * step.total + more) / 3600)
    return found[0], found[1]


def _time_table(
    steps: Sequence[StepSeconds],
    whole: Sequence[float | None],
    lengths: Sequence[int],
    config: Config,
    layout: DeviceLayout,
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


def _evaluation_seconds(
    config: Config, shape: ModelShape, device: Device, layout: DeviceLayout, problems: Mapping[str, int], length: int
) -> float | None:
    """Seconds of sampling in all of a run's evaluations."""
    seconds = 0.0
    for times, count, samples in planned_evaluations(config, problems):
        each = sampling_seconds(config, shape, device, layout, count, count * samples, length)
        if each is None:
            return None
        seconds += times * each
    return seconds


def planned_evaluations(config: Config, problems: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    """Of each split that is evaluated: how often, on how many problems, with how many samples each."""
    evaluate, steps = config.evaluate, config.train.steps
    if not evaluate.every:
        return
    on_validation = len({*range(0, steps + 1, evaluate.every), steps})
    if problems.get("test"):
        yield (2 if steps else 1), problems["test"], evaluate.samples
    if problems.get("validation"):
        yield on_validation, problems["validation"], evaluate.validation_samples


_INSTRUCTIONS = 581
"""Tokens of every question, with the worked example."""
_A_PROGRAM = (956 - _INSTRUCTIONS) / 8
"""Tokens of one program, its part of the problem's text with it."""
_AN_ANSWER = 100 / 8
"""Tokens of the answer for one program."""


@dataclass(frozen=True)
class JudgeForecast:
    """The judge's part in one step."""

    groups: float
    """Groups that are judged; 0 if none is."""
    usd: float | None
    """None where the judge's prices are unknown."""


def forecast_judge(config: Config) -> JudgeForecast:
    """`usd` is 0 for a judge without a server."""
    needs = "labels" in objectives.of_run(config).needs
    share = 1.0 if needs else {"always": 1.0, "sampled": 1 / SAMPLED_SHARE, "needed": 0.0}[config.judge.when]
    groups = share * config.train.prompts_per_step
    return JudgeForecast(groups, groups * usd if (usd := group_cost_usd(config)) is not None else None)


def group_cost_usd(config: Config) -> float | None:
    """US dollars of one group's question; None where unknown."""
    if config.judge.name == "structural":
        return 0.0
    if config.judge.name != "openai":
        return None
    from raypoly.strategies.judge.openai.token_cost import (  # the client takes a second to import
        TokenUsage,
        compute_cost,
        configured_prices,
    )

    known = configured_prices(config.judge)
    if known is None:
        return None
    rollouts = config.train.rollouts
    prompt = round(_INSTRUCTIONS + rollouts * _A_PROGRAM)
    return config.judge.votes * compute_cost(known, TokenUsage(prompt, 0, round(rollouts * _AN_ANSWER)))
