"""The options of `raypoly score`, and its four kinds of work. Work is imported late, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raypoly.core.errors import UsageError
from raypoly.core.interrupt import describe_interrupt, interruptible

_NOTHING_WRITTEN = "Interrupted; nothing was written."
_Workers = Annotated[
    int | None,
    typer.Option(help="Programs run at once. Default: as many as CPUs, of the cluster where RAY_ADDRESS is set."),
]
_Comparison = Annotated[
    str, typer.Option(help="How outputs are compared: exact, lines, tokens, tolerance, or as their format says.")
]


def score(
    problems: Annotated[
        str | None, typer.Option(help="A file of problems, a folder or a pattern in quotes: docs/problem-formats.md.")
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="scorer.key=value", show_default=False)] = None,
    programs: Annotated[
        str | None, typer.Option(help="Programs to score: rows of id, problem_id, and code or response.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Where verdicts go, or the exclusion list; - is standard output.")
    ] = None,
    workers: _Workers = None,
    comparison: _Comparison = "format",
    evidence: Annotated[bool, typer.Option("--evidence", help="Add canonical form and approach.")] = False,
    validate: Annotated[bool, typer.Option("--validate", help="Run the problems' own solutions instead.")] = False,
    calibrated: Annotated[
        str | None, typer.Option(help="With --validate: where usable problems go, with their time limits.")
    ] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Look for duplicate problems instead; run nothing.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="With --duplicates: a file of problems that --problems must not contain.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Score a run's rollouts again instead and report differences; change nothing.")
    ] = None,
) -> None:
    """Score programs or a run's rollouts, or check a data set: solutions, tests, duplicates."""
    from raypoly.commands import score_files
    from raypoly.commands.section_config import asked_workers, comparison_choice, scorer_config

    given, file, by = overrides or [], None if problems is None else Path(problems), comparison_choice(comparison)
    scores = bool(programs or evidence or validate or calibrated or by != "format")
    if run is not None:
        if scores or duplicates or against:
            raise UsageError("--run scores a run's own rollouts: beside it go --problems, --out and --workers.")
        from raypoly.commands.score_run import rescore  # stored runs are Parquet files

        with interruptible(describe_interrupt(out)):
            rescore(run, out, file, given, workers)
    elif file is None:
        raise UsageError("Give --problems, a file of problems, or --run, a run whose rollouts are scored again.")
    elif duplicates:
        _compare(file, against, out, bool(scores or workers is not None or given))
    elif against is not None:
        raise UsageError("--against goes with --duplicates.")
    elif validate:
        config = scorer_config(given, workers)
        if programs is not None or evidence:
            raise UsageError("--validate runs the problems' own solutions: leave --programs and --evidence out.")
        with interruptible(_NOTHING_WRITTEN):
            score_files.validate_file(file, out, calibrated, config, by)
    else:
        config = scorer_config(given, workers)
        if programs is None or out is None or calibrated is not None:
            raise UsageError("Give --programs and --out to score programs, or --validate to check the problems.")
        with interruptible(describe_interrupt(out)):
            asked = asked_workers(config, given, workers)
            score_files.score_files(file, Path(programs), out, config, asked, evidence, by)


def _compare(file: Path, against: str | None, out: str | None, runs: bool) -> None:
    from raypoly.commands import score_files

    if runs:
        raise UsageError("--duplicates runs nothing: give it --problems, --against and --out alone.")
    with interruptible(_NOTHING_WRITTEN):
        score_files.compare_files(file, None if against is None else Path(against), out)
