"""The command `raypoly` and its exit codes.

    raypoly train [--config PATH] [--dry-run [--gpu h200] [--verbose] | --rehearse] [section.key=value ...]
    raypoly evaluate --run RUN [--split test] [--samples N] [--program NAME ... program.key=value]
    raypoly evaluate --model MODEL --problems FILE [--samples N] [--config PATH] [section.key=value ...]
    raypoly evaluate --endpoint URL --name MODEL --problems FILE [--samples N] [section.key=value ...]
    raypoly prepare --config PATH [--explain ID] [section.key=value ...]
    raypoly experiment --config PATH [--out FOLDER] [--at-once K] [--report] [--into PAGE] [--also FILE] [KEY=VALUE ...]
    raypoly experiment --config PATH (--power [--pilot FILE] | --dry-run [--gpu h200])
    raypoly report RUN [RUN ...] [--out FILE] [--figures FOLDER]
    raypoly doctor [--config PATH] [--json] [section.key=value ...]
    raypoly doctor --run RUN [--json]
    raypoly score --problems P.jsonl --programs C.jsonl --out V.jsonl [--workers W] [scorer.key=value ...]
    raypoly score --run RUN [--out D.jsonl] [--workers W] [scorer.key=value ...]
    raypoly score --problems P.jsonl --duplicates [--against E.jsonl] [--out exclude.jsonl]
    raypoly judge label|audit|cache [--judge NAME] [judge.key=value ...]
    raypoly judge label --run RUN [--out L.jsonl] [--judge NAME] [judge.key=value ...]

Exit codes: 0 done, 1 failed, 2 the command line or config is wrong and nothing was started, 75 paused too long (the
same command goes on), 130 interrupted. On SIGTERM, training commits and exits with 0; the others exit with 143.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console

from raypoly import settings
from raypoly.crash import Crash
from raypoly.errors import RaypolyError, UsageError
from raypoly.free_resources import ELSEWHERE
from raypoly.offline.judge.judge_commands import judge_app
from raypoly.offline.score.score_command import score
from raypoly.run import Run
from raypoly.run_identity import resolve_run, storage_options
from raypoly.version import __version__

_EXAMPLES = """Examples:

raypoly train --dry-run

raypoly train train.steps=6 evaluate.samples=16

raypoly train --config my.yaml objective.name=grpo

raypoly evaluate --run FOLDER --split test

raypoly evaluate --model smollm2-q4 --problems human-eval --samples 10

raypoly COMMAND --help says more; all keys are in docs/configuration.md."""
_TRAIN_EXAMPLES = """Examples:

raypoly train train.steps=6 evaluate.samples=16

raypoly train --dry-run --verbose --config my.yaml

raypoly train objective.name=my_module:MyObjective train.seed=1

Give the same command again, and a stopped run goes on."""
_EVALUATE_EXAMPLES = """Examples:

raypoly evaluate --model smollm2-q4 --problems human-eval --samples 10 model.dtype=bfloat16

raypoly evaluate --model RUN/model --problems rows.jsonl --samples 64 generator.temperature=1.0

raypoly evaluate --endpoint http://127.0.0.1:8000/v1 --name my-model --problems human-eval

raypoly evaluate --run RUN --split test"""

_REPORT_EXAMPLES = """Examples:

raypoly report RUN

raypoly report GRPO-S0 GRPO-S1 POLY-S0 POLY-S1 --out ours.html"""


class ReportingGroup(typer.core.TyperGroup):
    """Commands whose `RaypolyError`s become one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RaypolyError as error:
            # Ray wraps an actor's error: the original has the message without the remote traceback.
            original = getattr(error, "cause", None) or error
            typer.echo(str(original), err=True)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            what = f"{error.filename or 'A file'} could not be written ({error.strerror})"
            typer.echo(f"{what}; free some space and run the same command again.", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo(str(error) or "Interrupted. The same command goes on from here.", err=True)
            raise typer.Exit(getattr(error, "exit_code", 130)) from error


app = typer.Typer(
    cls=ReportingGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.add_typer(judge_app, name="judge")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"raypoly {__version__}")
        raise typer.Exit


@app.callback(epilog=_EXAMPLES)
def _raypoly(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Reinforcement learning from verifiable rewards over sets of rollouts, on Ray."""


ConfigPath = Annotated[
    str | None, typer.Option("--config", help="A YAML file. Default: the embedded configs/tiny.yaml.")
]
Figures = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Also write each panel as PDF, SVG, PNG, each table as CSV and LaTeX."),
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="section.key=value", show_default=False)]


@app.command(epilog=_TRAIN_EXAMPLES)
def train(
    overrides: Overrides = None,
    config: ConfigPath = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print plan, memory, time, changed keys and a prompt; start nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --dry-run: print every key.")] = False,
    gpu: Annotated[
        str | None, typer.Option(help="With --dry-run: plan for this GPU (h200, a100 ...). Default: this machine's.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Try every part once on two problems, in a folder aside; then exit.")
    ] = False,
) -> None:
    """Train, or go on with a stopped run. Print the results of a finished one."""
    from raypoly import preflight

    if ((gpu is not None or verbose) and not dry_run) or (dry_run and rehearse):
        raise UsageError(
            "--gpu and --verbose need --dry-run, and --rehearse excludes it: a rehearsal runs on this machine."
        )
    dropped: list[str] = []  # told when the config is known to be sound
    chosen = settings.load(config, overrides or [], dropped.append)
    directory = resolve_run(chosen)
    fixed = directory.config
    here = None if gpu is None else ELSEWHERE
    remarks = preflight.check_config(fixed, directory.path, here, remote=directory.location.folder is None)
    for remark in [*dropped, *remarks]:
        typer.echo(f"Note: {remark}", err=True)
    if dry_run:
        from raypoly.planning.dry_run import show_dry_run

        show_dry_run(fixed, directory, gpu, verbose)
        return
    if rehearse:
        from workflows.startup.rehearsal import rehearse as run_rehearsal

        run_rehearsal(fixed, directory)
        return
    Crash.run_dir = directory.location.folder
    from raypoly import objectives
    from workflows.train import run

    run(chosen)
    _show(Run(directory.location, storage_options(chosen)))
    if objectives.of_run(chosen).reads_rewards:
        typer.echo(_to_compare(chosen.objective.name, config, overrides or []))


def _to_compare(objective: str, config: str | None, overrides: Sequence[str]) -> str:
    """The command of the other arm, or why it can't be the same with another objective."""
    from raypoly import preflight
    from raypoly.reports.run_page import other_arm_overrides
    from workflows.liveness.shell_command import shell_command

    others = other_arm_overrides(objective, overrides)
    try:
        directory = resolve_run(settings.load(config, others, lambda text: None))
        preflight.check_config(directory.config, directory.path, ELSEWHERE)
    except UsageError as error:
        return f"to compare: {others[-1]} needs other keys than this run: {error}"
    given = ["--config", config] if config is not None else []
    return f"to compare: {shell_command(['-m', 'raypoly.train', *given, *others])}"


@app.command(epilog=_EVALUATE_EXAMPLES)
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
    program: Annotated[
        list[str] | None,
        typer.Option(help="With --run: ask for samples by this program (docs/programs.md). Repeat it to compare."),
    ] = None,
) -> None:
    """Measure pass@k of a run's newest weights, of any model, or of a server's. The same command goes on."""
    if sum(each is not None for each in (run, model, endpoint)) != 1:
        raise UsageError("Say what to measure, by one of --run RUN, --model MODEL, and --endpoint URL with --name.")
    if run is not None:
        if any(each is not None for each in (name, problems, config)):
            raise UsageError("--run measures a run by its own config: leave out --name, --problems and --config.")
        _evaluate_run(run, split, samples, program or (), overrides or ())
        return
    if program:
        raise UsageError("--program goes with --run: --model and --endpoint ask for samples directly.")
    if split is not None:
        raise UsageError("--split is of --run: name a file of problems by --problems.")
    if (endpoint is None) != (name is None):
        raise UsageError("--endpoint URL needs --name, the model's name there, and --name needs --endpoint.")
    from raypoly.evaluating import evaluation_config

    given = {
        "model.path": model,
        "endpoint.url": endpoint,
        "endpoint.name": name,
        "problems.path": problems,
        "sampling.samples": samples,
    }
    words = [f"{key}={value}" for key, value in given.items() if value is not None]
    chosen = evaluation_config(config, [*words, *(overrides or [])])
    from workflows.model_evaluation import evaluate_model

    evaluate_model(chosen)


def _evaluate_run(
    run: str, split: str | None, samples: int | None, program: Sequence[str], overrides: Sequence[str]
) -> None:
    if any(not key.startswith("program.") for key in overrides) or (overrides and not program):
        raise UsageError(
            "--run measures a run by its own config: leave out all overrides but program.key=value with --program."
        )
    opened = Run(run)
    Crash.run_dir = opened.store.location.folder
    from raypoly.programs.run_programs import named_programs
    from workflows.evaluate import evaluate_run

    asked = named_programs(opened.config, program, overrides)
    evaluate_run(opened.uri, opened.config, split or "test", samples, asked)


@app.command()
def prepare(
    config: Annotated[
        str, typer.Option("--config", help="A YAML file, such as configs/prepare/tiny.yaml: docs/data.md.")
    ],
    overrides: Overrides = None,
    explain: Annotated[
        str | None, typer.Option(metavar="ID", help="Say why this problem was kept or left out; start nothing.")
    ] = None,
) -> None:
    """Make a data set from files of problems: check, compare, sample, split, write. Or go on with one."""
    from raypoly.preparing.prepare_settings import load_config

    chosen = load_config(config, overrides or [])
    if explain is not None:
        from raypoly.preparing.decision_log import explain_problem
        from raypoly.preparing.preparation_folder import PreparationFolder

        typer.echo(explain_problem(PreparationFolder.of(chosen).look(), explain))
        return
    from workflows.prepare import prepare as run_preparation

    run_preparation(chosen)


@app.command()
def experiment(
    config: Annotated[
        str, typer.Option("--config", help="A YAML file, such as configs/experiments/tiny.yaml: docs/experiments.md.")
    ],
    overrides: Overrides = None,
    out: Annotated[
        str | None, typer.Option(help="The folder of the runs. Default: experiment-NAME under $RAYPOLY_RUNS.")
    ] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Runs at the same time.")] = 1,
    into: Annotated[
        str | None, typer.Option(metavar="PAGE", help="Also write table and figure into this Markdown page.")
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A results.json of other folders, whose finished runs are used."),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Write table and figure of the runs so far; start nothing.")
    ] = False,
    power: Annotated[
        bool, typer.Option("--power", help="Say how small a difference the experiment can show; start nothing.")
    ] = False,
    pilot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For --power: a results.json that says how differences spread.")
    ] = None,
    figures: Figures = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the experiment will cost and can show; start nothing.")
    ] = False,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="For --dry-run: plan for this GPU, such as h200.")
    ] = None,
) -> None:
    """Train several arms over several seeds and compare them. The same command goes on."""
    from raypoly.experiments.experiment_command import run_experiment, show_forecast, show_power

    if gpu is not None and not dry_run:
        raise UsageError("--gpu is for --dry-run, which says what an experiment will cost.")
    if dry_run:
        show_forecast(config, overrides or [], gpu, out)
        return
    if power:
        show_power(config, overrides or [], pilot, out=out)
        return
    if pilot is not None:
        raise UsageError("--pilot is for --power, which says how small a difference an experiment can show.")
    page = None if into is None else Path(into)
    run_experiment(config, overrides or [], out, at_once, page, report, also or [], figures=figures)


@app.command(hidden=True)
def train_gate(
    overrides: Overrides = None,
    config: ConfigPath = None,
    recall: float = 0.95,
    tau: float | None = None,
    held_out: str | None = None,
) -> None:
    """What `raypoly experiment` starts for an arm of `kind: gate`."""
    from workflows.gate_training import train_gate as run

    run(settings.load(config, overrides or [], lambda text: None), recall, tau, held_out)


@app.command(hidden=True)
def audit_plans(
    overrides: Overrides = None, config: ConfigPath = None, least_pass: float = 0.0, least_density: float = 0.0
) -> None:
    """What `raypoly experiment` starts for an arm of `kind: audit`."""
    from workflows.plan_audit import audit_plans as run

    run(settings.load(config, overrides or [], lambda text: None), least_pass, least_density)


@app.command(epilog=_REPORT_EXAMPLES)
def report(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN", show_default=False)] = None,
    run: Annotated[list[str] | None, typer.Option("--run", help="A run folder, as RUN; for scripts.")] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page of several runs. Default: comparison.html, here.")
    ] = None,
    figures: Figures = None,
) -> None:
    """Write a page on one run, into its folder, or compare several. With a browser of their rollouts."""
    opened = [Run(place) for place in [*(runs or []), *(run or [])]]
    if not opened:
        raise UsageError("Name a run, or several to compare: raypoly report RUN [RUN ...].")
    if len(opened) > 1:
        from raypoly.reports.comparison_page import show_comparison

        show_comparison(opened, Path(out or "comparison.html").expanduser(), Console(), figures)
        return
    if out is not None:
        raise UsageError("--out is for several runs: the page of one run is report.html in its folder.")
    Crash.run_dir = opened[0].store.location.folder
    _show(opened[0], figures)


@app.command()
def doctor(
    overrides: Overrides = None,
    config: ConfigPath = None,
    run: Annotated[str | None, typer.Option("--run", help="A run folder, to examine it and not the machine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say whether this machine, and each node of its cluster, is ready for a config. With --run, check every file of a
    run and say where it would go on. Change nothing. Exit code 1 if something is not ok or a file is damaged."""
    if run is None:
        from workflows.doctor.machine import examine_machine
        from workflows.doctor.machine_findings import print_findings

        sound = print_findings(examine_machine(settings.load(config, overrides or [])), json)
    elif config is not None or overrides:
        raise UsageError("--run examines a run, whose config is its own: leave out --config and section.key=value.")
    else:
        from workflows.doctor.show import print_report

        sound = print_report(run, json)
    if not sound:
        raise typer.Exit(1)


app.command()(score)


def main(arguments: Sequence[str] | None = None, name: str = "raypoly") -> None:
    """Run the console command with `arguments` (without the program's name). Raises `SystemExit` at its end."""
    sys.excepthook = Crash.hook
    command = typer.main.get_command(app)
    command(args=list(sys.argv[1:] if arguments is None else arguments), prog_name=name)


def _show(run: Run, figures: Path | None = None) -> None:
    from raypoly.reports.run_page import show_results

    show_results(run, Console(), figures)


if __name__ == "__main__":
    main()
