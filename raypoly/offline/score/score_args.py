"""The options of `raypoly score`, and which of its four kinds of work they ask for.

run_score(ScoreArgs(problems="P.jsonl", programs="C.jsonl", out="V.jsonl"))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raypoly.errors import UsageError
from raypoly.offline.command_config import scorer_config
from raypoly.offline.interrupt import describe_interrupt, interruptible
from raypoly.offline.score.score_files import compare_files, score_files, validate_file

_NOTHING_WRITTEN = "Interrupted; nothing was written."


@dataclass(frozen=True)
class ScoreArgs:
    """The command's options."""

    problems: str | None = None
    overrides: Sequence[str] = ()
    programs: str | None = None
    out: str | None = None
    workers: int | None = None
    evidence: bool = False
    validate: bool = False
    calibrated: str | None = None
    duplicates: bool = False
    against: str | None = None
    run: str | None = None

    @property
    def scores_programs(self) -> bool:
        """Whether there is an option that goes with a file of programs, or with the problems' solutions."""
        return bool(self.programs or self.evidence or self.validate or self.calibrated)


def run_score(args: ScoreArgs) -> None:
    """Raises `UsageError` where the options do not go together."""
    if args.run is not None:
        _score_run(args, args.run)
    elif args.problems is None:
        raise UsageError("Give --problems, a file of problems, or --run, a run whose rollouts are scored again.")
    elif args.duplicates:
        _compare(args, Path(args.problems))
    elif args.against is not None:
        raise UsageError("--against goes with --duplicates.")
    elif args.validate:
        _validate(args, Path(args.problems))
    else:
        _score(args, Path(args.problems))


def _score_run(args: ScoreArgs, run: str) -> None:
    if args.scores_programs or args.duplicates or args.against:
        raise UsageError("--run scores a run's own rollouts: beside it go --problems, --out and --workers.")
    from raypoly.offline.rescore.rescore_run import rescore

    problems = None if args.problems is None else Path(args.problems)
    with interruptible(describe_interrupt(args.out)):
        rescore(run, args.out, problems, args.overrides, args.workers)


def _compare(args: ScoreArgs, problems: Path) -> None:
    if args.scores_programs or args.workers is not None or args.overrides:
        raise UsageError("--duplicates runs nothing: give it --problems, --against and --out alone.")
    with interruptible(_NOTHING_WRITTEN):
        compare_files(problems, None if args.against is None else Path(args.against), args.out)


def _validate(args: ScoreArgs, problems: Path) -> None:
    config = scorer_config(args.overrides, args.workers)
    if args.programs is not None or args.evidence:
        raise UsageError("--validate runs the problems' own solutions: leave --programs and --evidence out.")
    with interruptible(_NOTHING_WRITTEN):
        validate_file(problems, args.out, args.calibrated, config)


def _score(args: ScoreArgs, problems: Path) -> None:
    config = scorer_config(args.overrides, args.workers)
    if args.programs is None or args.out is None or args.calibrated is not None:
        raise UsageError("Give --programs and --out to score programs, or --validate to check the problems.")
    with interruptible(describe_interrupt(args.out)):
        score_files(problems, Path(args.programs), args.out, config, args.evidence)
