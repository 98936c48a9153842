"""Plan of a run in words, without starting anything: `raypoly train --dry-run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raypoly.algorithms import losses
from raypoly.core.config import Config
from raypoly.core.settings import dump
from raypoly.core.tables import ReportTable
from raypoly.core.text import format_bytes
from raypoly.data import ProblemSet
from raypoly.data.problem_set import count_measured, describe_splits
from raypoly.planning.canned_rewards import describe_rewards
from raypoly.planning.cost import forecast_judge
from raypoly.planning.device_memory import check_memory, engine_room, host_memory, plan_memory
from raypoly.planning.devices import Device, choose_device, layout_of, this_machine
from raypoly.planning.learner_memory import DeviceMemory, checkpoint_bytes, model_bytes, trained_weights
from raypoly.planning.model_shape import RowLayout, row_layout, shape_of
from raypoly.planning.run_config import usable_problems
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.run_scaffolds import distinct_prompts
from raypoly.run.run_identity import RunDirectory
from raypoly.strategies.judge.judge_usage import dollars


def show_dry_run(config: Config, directory: RunDirectory, gpu: str | None = None, verbose: bool = False) -> None:
    """Print the plan for the GPU of that name or for what is here; `verbose` with every key of the config.

    Raises `UsageError` where the problems can't be loaded, are too few or lack tests that the run needs, the GPU is
    unknown, or the run can't fit.
    """
    device = choose_device(gpu, this_machine(directory.path).memory)
    _, source = usable_problems(config, directory.resumes, config)
    print(describe_run(config, source, directory.uri, directory.resumes), flush=True)
    maths = any(problem.tests.comparison == "math" for split in source.splits.values() for problem in split)
    print("\n" + "\n".join([*_memory(config, device, maths), "", *_cost(config)]), flush=True)
    print("\n" + describe_config(config, source, verbose), flush=True)
    refuse_unfit(config, device)


def describe_run(config: Config, source: ProblemSet, run_dir: str, resumes: bool) -> str:
    """The plan, as text."""
    parts = [
        "# plan",
        f"problems: {describe_splits(source, config.problems)}",
        *_step_lines(config),
        *describe_rewards(config, source.splits["train"]),
        *_evaluation_lines(config, count_measured(source, config.reward.name)),
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
    yield f"loss: {describe_loss(config)}"
    if config.environment.converses:
        turns = config.environment
        yield (
            f"turns: up to {turns.max_turns} by {turns.name}, {turns.max_observation_tokens} tokens an observation: a "
            f"row has at most {config.generator.longest_row:,} tokens"
        )
    if train.refill:
        yield f"refill: up to {train.refill} problems more a step, which no number here counts"
    if train.ahead:
        switch = ", newer ones from the token on at which they come" if train.in_flight else ""
        yield (
            f"ahead: the next step is sampled while a step learns, by weights one update older{switch}; both count at "
            "once"
        )
    yield f"checkpoints: every {train.checkpoint_every} steps"


def describe_loss(config: Config) -> str:
    """The loss with what is not at its default, whether the config or the objective set it."""
    changed = losses.of_run(config).config.model_dump(exclude_defaults=True)
    return ", ".join([config.loss.name, *(f"{key}={value}" for key, value in sorted(changed.items()))])


def describe_layout(config: Config, layout: RowLayout | None) -> str:
    """One line of `--dry-run`, with what padding costs."""
    if layout is None:
        return "rows: packed or padded, unknown before the model loads"
    if layout == "packed":
        return "rows: packed, prompts shared"
    prompt = config.generator.max_prompt_tokens
    response = config.generator.longest_row - prompt
    rollouts = config.train.rollouts
    prompts = distinct_prompts(scaffolds.of_run(config), rollouts)
    times = rollouts * (prompt + response) / (prompts * prompt + rollouts * response)
    return (
        f"rows: padded to one length, prompt computed for each response: about {times:.1f} times the tokens of packed "
        "rows with prompts and responses at their limits, more where lengths differ"
    )


def _evaluation_lines(config: Config, problems: Mapping[str, int]) -> Iterator[str]:
    """`problems`: how many each split has that can be measured."""
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
            yield f"evaluation: none on {split} (no problem that can be measured)"


def refuse_unfit(config: Config, device: Device) -> None:
    """Raise `UsageError` where the device can't hold the run; nothing where the model's sizes are unknown."""
    shape = shape_of(config.model.path)
    if shape is not None:
        check_memory(config, shape, device, layout_of(config, device))


def _memory(config: Config, device: Device, maths: bool) -> Iterator[str]:
    """Raises `UsageError` where the engine has no room for one sequence."""
    shape, layout = shape_of(config.model.path), layout_of(config, device)
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
    for holding in plan_memory(config, shape, device, layout, maths):
        yield from _memory_table(holding, device)
    space = engine_room(config, shape, device)
    if space is not None:
        yield (
            f"the engine has room for {space.tokens:,} tokens: {space.sequences:,.0f} sequences of {space.longest:,} "
            f"at once, of {space.wanted:,} that are wanted"
        )
    if device.gpu:
        host = host_memory(config, shape, layout, maths)
        listed = ", ".join(f"{part.name} {format_bytes(part.bytes)}" for part in host.parts)
        yield f"memory of the machine: {format_bytes(host.needed)} ({listed})"
    kept, finished = checkpoint_bytes(config, shape), model_bytes(config, shape)
    count = config.train.keep_last
    yield (
        f"disk: {format_bytes((count + 1) * kept + finished)} for {count} checkpoints of {format_bytes(kept)}, a new "
        f"one, and the finished model, {format_bytes(finished)}"
    )


def _memory_table(holding: DeviceMemory, device: Device) -> Iterator[str]:
    phases = holding.phases
    rows = [
        (part.name, *("" if phase not in part.phases else format_bytes(part.bytes) for phase in phases))
        for part in holding.parts
    ]
    together = "together" if not holding.unknown else "together, at least"
    rows += [
        (together, *(format_bytes(holding.total(phase)) for phase in phases)),
        ("of which there are", format_bytes(device.memory)),
    ]
    return ReportTable((holding.where, *phases), rows).columns(30, 10)


def _cost(config: Config) -> Iterator[str]:
    yield "# time and cost"
    yield "time: `raypoly train --rehearse` does one step where the run will be, and forecasts its hours from that"
    asked = forecast_judge(config)
    if not asked.groups:
        yield "judge: not asked while training"
    elif asked.usd is None:
        yield f"judge: {asked.groups:,.0f} groups a step at an unknown cost (judge.price_input, judge.price_output)"
    else:
        total = f"{dollars(asked.usd)} a step, {dollars(asked.usd * config.train.steps)} in all, evaluations apart"
        yield f"judge: {asked.groups:,.0f} groups a step, {total if asked.usd else 'without cost'}"
