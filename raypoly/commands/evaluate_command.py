"""`raypoly evaluate`: measure a run, a model or a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from raypoly.commands.command_options import Overrides
from raypoly.core.errors import UsageError
from raypoly.run.crash import Crash

EXAMPLES = """Examples:

raypoly evaluate --model smollm2-q4 --problems human-eval --samples 10 model.dtype=bfloat16

raypoly evaluate --model RUN/model --problems rows.jsonl --samples 64 generator.temperature=1.0

raypoly evaluate --endpoint http://127.0.0.1:8000/v1 --name my-model --problems human-eval

raypoly evaluate --run RUN --split test"""


def evaluate(
    overrides: Overrides = None,
    run: Annotated[
        str | None, typer.Option("--run", help="A run folder: measure its newest weights on its own problems.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model's folder, a hub id, a .gguf file, or smollm2-q4: measure it.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Measure the model --name of this OpenAI-compatible server.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="With --endpoint: the model's name there.")] = None,
    problems: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --model, --endpoint: rows of problems, or human-eval.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="With --run: train, validation or test (default).")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Responses for each problem. Default: the run's config, or 16.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", help="With --model, --endpoint: a YAML file (docs/evaluate.md).")
    ] = None,
    scaffold: Annotated[
        list[str] | None,
        typer.Option(help="With --run: ask for samples by this scaffold (docs/scaffolds.md). Repeat it to compare."),
    ] = None,
) -> None:
    """Measure pass@k of a run's newest weights, of any model, or of a server's. The same command goes on."""
    if sum(each is not None for each in (run, model, endpoint)) != 1:
        raise UsageError("Say what to measure, by one of --run RUN, --model MODEL, and --endpoint URL with --name.")
    if run is not None:
        if any(each is not None for each in (name, problems, config)):
            raise UsageError("--run measures a run by its own config: leave out --name, --problems and --config.")
        _evaluate_run(run, split, samples, scaffold or (), overrides or ())
        return
    if scaffold:
        raise UsageError("--scaffold goes with --run: --model and --endpoint ask for samples directly.")
    if split is not None:
        raise UsageError("--split is of --run: name a file of problems by --problems.")
    if (endpoint is None) != (name is None):
        raise UsageError("--endpoint URL needs --name, the model's name there, and --name needs --endpoint.")
    from raypoly.analysis.evaluation import check_files, evaluation_config

    given = {
        "model.path": model,
        "endpoint.url": endpoint,
        "endpoint.name": name,
        "problems.path": problems,
        "sampling.samples": samples,
    }
    words = [f"{key}={value}" for key, value in given.items() if value is not None]
    chosen = evaluation_config(config, [*words, *(overrides or [])])
    check_files(chosen)  # before engines are imported, which takes seconds
    from workflows.model_evaluation import evaluate_model

    evaluate_model(chosen)


def _evaluate_run(
    run: str, split: str | None, samples: int | None, scaffold: Sequence[str], overrides: Sequence[str]
) -> None:
    if any(not key.startswith("scaffold.") for key in overrides) or (overrides and not scaffold):
        raise UsageError(
            "--run measures a run by its own config: leave out all overrides but scaffold.key=value with --scaffold."
        )
    from raypoly.analysis.run import Run

    opened = Run(run)
    Crash.run_dir = opened.store.location.folder
    from raypoly.rollouts.scaffolds.run_scaffolds import named_scaffolds
    from workflows.evaluate import evaluate_run

    asked = named_scaffolds(opened.config, scaffold, overrides)
    evaluate_run(opened.uri, opened.config, split or "test", samples, asked)
