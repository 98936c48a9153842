"""What a run would do, in words, without starting anything: `raypoly train --dry-run`."""

from __future__ import annotations

from collections.abc import Iterator

from raypoly import problems
from raypoly.config import Config
from raypoly.planning.gpus import chosen
from raypoly.planning.plan_text import forecast, refuse_what_does_not_fit
from raypoly.preflight import machine
from raypoly.problems import ProblemSet
from raypoly.problems.without_tests import require_tests
from raypoly.run_identity import RunDirectory
from raypoly.settings import dump


def show(config: Config, directory: RunDirectory, gpu: str | None = None) -> None:
    """Print it, for the GPU of that name or for what is here.

    Raises `UsageError` where the problems can't be loaded or lack tests that the run needs, the GPU is unknown, or the
    run can't fit.
    """
    device = chosen(gpu, machine(directory.path).memory)
    source = problems.build_problem_set(config.problems)
    require_tests(source, config)
    print(describe(config, source, directory.uri, directory.resumes), flush=True)
    print("\n" + forecast(config, device, {name: len(split) for name, split in source.splits.items()}), flush=True)
    refuse_what_does_not_fit(config, device)


def describe(config: Config, source: ProblemSet, run_dir: str, resumes: bool) -> str:
    """The resolved config, one rendered prompt, and the plan, as text."""
    train = source.splits["train"]
    first = train[0] if train else None
    sizes = ", ".join(f"{len(split)} {name}" for name, split in source.splits.items())
    parts = [
        "# config",
        dump(config),
        f"# one prompt ({first.id})" if first else "# one prompt",
        first.prompt if first else "(the train split is empty)",
        "",
        "# plan",
        f"problems: {sizes} ({config.problems.source}, content {source.hash[:12]})",
        *_steps(config),
        *_evaluations(config),
        f"run folder: {run_dir}" + (" (resumes the run that is there)" if resumes else " (new)"),
    ]
    return "\n".join(parts)


def _steps(config: Config) -> Iterator[str]:
    train = config.train
    rollouts = train.prompts_per_step * train.rollouts
    tokens = train.steps * rollouts * config.generator.max_tokens
    model = config.model.path or f"the tiny model, warm-started with seed {config.warm_start.seed}"
    yield f"model: {model}"
    yield (
        f"training: {train.steps} steps x {train.prompts_per_step} problems x {train.rollouts} rollouts "
        f"= {train.steps * rollouts:,} rollouts, at most {tokens:,} sampled tokens, by {config.objective.name}"
    )
    if train.refill:
        yield f"refill: up to {train.refill} problems more a step, which no number here counts"
    yield f"checkpoints: every {train.checkpoint_every} steps"


def _evaluations(config: Config) -> Iterator[str]:
    evaluate = config.evaluate
    if evaluate.every == 0:
        yield "evaluation: never (evaluate.every=0)"
        return
    due = {*range(0, config.train.steps + 1, evaluate.every), config.train.steps}
    steps = ", ".join(map(str, sorted(due)))
    yield f"evaluation: test before and after, {evaluate.samples} samples a problem"
    yield f"evaluation: validation at steps {steps}, {evaluate.validation_samples} samples a problem"
