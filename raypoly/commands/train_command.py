"""`raypoly train`: train, or go on with a stopped run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from raypoly.commands.command_options import ConfigPath, Overrides
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.run.crash import Crash

if TYPE_CHECKING:
    from raypoly.core.config import Config
    from raypoly.run.run_files import RunFiles
    from raypoly.run.run_identity import RunDirectory

EXAMPLES = """Examples:

raypoly train train.steps=6 evaluate.samples=16

raypoly train --dry-run --verbose --config my.yaml

raypoly train objective.name=my_module:MyObjective train.seed=1

Give the same command again, and a stopped run goes on."""
_OF_A_MODEL = re.compile(
    r"[^/]+\.safetensors(\.index\.json)?|merges\.txt|chat_template\.jinja|"
    r"(generation_config|added_tokens|special_tokens_map|tokenizer(_config)?|vocab)\.json"
)


def train(
    overrides: Overrides = None,
    config: ConfigPath = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print plan, memory, changed keys and a prompt; start nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --dry-run: print every key.")] = False,
    gpu: Annotated[
        str | None, typer.Option(help="With --dry-run: plan for this GPU (h200, a100 ...). Default: this machine's.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Try every part in one step aside, forecast the run, exit.")
    ] = False,
    timings: Annotated[bool, typer.Option("--timings", help="Say what each second of the start went to.")] = False,
) -> None:
    """Train, or go on with a stopped run. Print the results of a finished one."""
    if ((gpu is not None or verbose) and not dry_run) or (dry_run and rehearse):
        raise UsageError(
            "--gpu and --verbose need --dry-run, and --rehearse excludes it: a rehearsal runs on this machine."
        )
    chosen, directory, gpu = _checked(config, overrides or [], dry_run, gpu)
    fixed = directory.config
    if dry_run:
        from raypoly.planning.dry_run import show_dry_run

        show_dry_run(fixed, directory, gpu, verbose)
        return
    from raypoly.planning import preflight

    preflight.require_gpu(fixed)
    preflight.require_model(fixed.model.path, directory.location.folder)
    if rehearse:
        from workflows.startup.rehearsal import rehearse as run_rehearsal

        run_rehearsal(fixed, directory)
        return
    Crash.run_dir = directory.location.folder
    from workflows.observers.progress import Progress
    from workflows.train import run

    Progress.timings = timings
    run(chosen)
    _show_end(chosen, directory, config, overrides or [])


def _show_end(config: Config, directory: RunDirectory, file: str | None, overrides: Sequence[str]) -> None:
    # Imported after the run: matplotlib takes a second, in which nothing else would start.
    from rich.console import Console

    from raypoly.algorithms import objectives
    from raypoly.analysis.reports.run_page import show_results
    from raypoly.analysis.run import Run
    from raypoly.core.progress_display import waiting
    from raypoly.run.run_identity import storage_options

    run = Run(directory.location, storage_options(config))
    with waiting("Writing figure and report", console := Console()):
        show_results(run, console)
    if config.run.push_to_hub is not None:
        kept = [text for text in overrides if not text.strip().startswith(("run.dir=", "run.fresh="))]
        again = _command(file, [*kept, f"run.dir={directory.uri}"])
        with waiting(f"Uploading the model to {config.run.push_to_hub}", console):
            told = upload_model(run, config.run.push_to_hub, again)
        typer.echo(told)
    if objectives.of_run(config).reads_rewards:
        typer.echo(_to_compare(config.objective.name, file, overrides))


def upload_model(run: RunFiles, repository: str, again: str) -> str:
    """Upload a finished run's model and its card to the Hugging Face hub, in place of an earlier model's files. Returns
    a sentence of where it is, or of what went wrong, with the command `again`: a failure is none of the run's."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    from raypoly.analysis.reports.run_page import model_card
    from raypoly.run.store.shards import MODEL

    disable_progress_bars()
    try:
        files = sorted(file for file in run.store.fetch(MODEL).iterdir() if file.name[0] != ".")
        card = CommitOperationAdd("README.md", model_card(run).encode())
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)  # whoever made it public keeps it so
        there = set(api.list_repo_files(repository)) - {file.name for file in files}
        stale = [CommitOperationDelete(name) for name in sorted(there) if _OF_A_MODEL.fullmatch(name)]
        added = [card, *(CommitOperationAdd(file.name, file) for file in files)]
        found = api.create_commit(repository, [*added, *stale], commit_message=f"{run.name}, {run.steps_done} steps")
    except Exception as error:  # noqa: BLE001 - of the hub's, HTTP's or the disk's library: told, and the run is done
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        said = re.sub(r"\?\S*", "", said)  # of an address, which may be signed
        said = said.replace(get_token() or "\n", "...")[:200].rstrip(".: ")
        return f"The run is done, and its model was not uploaded to {repository} ({said}); this tries again: {again}"
    return f"model: {found.repo_url}"


def _checked(
    path: str | None, overrides: Sequence[str], dry_run: bool, gpu: str | None
) -> tuple[Config, RunDirectory, str | None]:
    """(config, its run's folder, the GPU that a dry run plans for), with all that is wrong told, and remarks."""
    from raypoly.planning.run_config import MADE, ProblemReader, check_problems, load_run_config, usable_problems

    notes: list[str] = []  # told when the config is known to be sound
    reader = ProblemReader()
    config = load_run_config(path, overrides, notes.append, reader)
    from raypoly.planning import preflight
    from raypoly.planning.devices import ELSEWHERE, gpu_to_plan
    from raypoly.run.run_identity import resolve_run

    directory = resolve_run(config)
    fixed = directory.config
    if dry_run:
        gpu = gpu_to_plan(gpu, [fixed], lambda note: typer.echo(note, err=True))
    here = None if gpu is None else ELSEWHERE
    notes += preflight.check_config(fixed, directory.path, here, remote=directory.location.folder is None)
    if fixed.problems.source not in MADE:
        try:
            check_problems(reader.read(fixed), fixed, fixed, resumes=True)
        except RaypolyError:
            usable_problems(fixed, resumes=True, trains=fixed)  # raises again, and logs what it leaves out
    for note in notes:
        typer.echo(f"Note: {note}", err=True)
    return config, directory, gpu


def _to_compare(objective: str, config: str | None, overrides: Sequence[str]) -> str:
    """The command of the other arm, or why it can't be the same with another objective."""
    from raypoly.analysis.reports.run_page import other_arm_overrides
    from raypoly.planning import preflight
    from raypoly.planning.devices import ELSEWHERE
    from raypoly.planning.run_config import load_run_config
    from raypoly.run.run_identity import resolve_run

    others = other_arm_overrides(objective, overrides)
    try:
        directory = resolve_run(load_run_config(config, others))
        preflight.check_config(directory.config, directory.path, ELSEWHERE)
    except UsageError as error:
        return f"to compare: {others[-1]} needs other keys than this run: {error}"
    return f"to compare: {_command(config, others)}"


def _command(config: str | None, overrides: Sequence[str]) -> str:
    from workflows.liveness.shutdown import shell_command

    given = ["--config", config] if config is not None else []
    return shell_command(["-m", "raypoly.train", *given, *overrides])
