"""What `raypoly score` is asked for, told by its options: one of four kinds of work.

do(Asked(problems="P.jsonl", programs="C.jsonl", out="V.jsonl"))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raypoly.errors import UsageError
from raypoly.offline.interrupt import goes_on, interruptible
from raypoly.offline.score import score_files as command

NOTHING_WRITTEN = "Interrupted; nothing was written."


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
        """Whether an option is there that goes with programs of one's own or with the problems' solutions alone."""
        return bool(self.programs or self.evidence or self.validate or self.calibrated)


def do(asked: ScoreArgs) -> None:
    """Raises `UsageError` where the options do not go together."""
    if asked.run is not None:
        _score_run(asked, asked.run)
    elif asked.problems is None:
        raise UsageError("Give --problems, a file of problems, or --run, a run whose rollouts are scored again.")
    elif asked.duplicates:
        _compare(asked, Path(asked.problems))
    elif asked.against is not None:
        raise UsageError("--against goes with --duplicates.")
    elif asked.validate:
        _validate(asked, Path(asked.problems))
    else:
        _score(asked, Path(asked.problems))


def _score_run(asked: ScoreArgs, run: str) -> None:
    if asked.scores_programs or asked.duplicates or asked.against:
        raise UsageError("--run scores a run's own rollouts: beside it go --problems, --out and --workers.")
    from raypoly.offline.rescore.rescore_run import rescore

    problems = None if asked.problems is None else Path(asked.problems)
    with interruptible(goes_on(asked.out)):
        rescore(run, asked.out, problems, asked.overrides, asked.workers)


def _compare(asked: ScoreArgs, problems: Path) -> None:
    if asked.scores_programs or asked.workers is not None or asked.overrides:
        raise UsageError("--duplicates runs nothing: give it --problems, --against and --out alone.")
    from raypoly.offline.score.find_duplicates import compare_files

    with interruptible(NOTHING_WRITTEN):
        compare_files(problems, None if asked.against is None else Path(asked.against), asked.out)


def _validate(asked: ScoreArgs, problems: Path) -> None:
    config = command.scorer_config(asked.overrides, asked.workers)
    if asked.programs is not None or asked.evidence:
        raise UsageError("--validate runs the problems' own solutions: leave --programs and --evidence out.")
    with interruptible(NOTHING_WRITTEN):
        command.validate_file(problems, asked.out, asked.calibrated, config)


def _score(asked: ScoreArgs, problems: Path) -> None:
    config = command.scorer_config(asked.overrides, asked.workers)
    if asked.programs is None or asked.out is None or asked.calibrated is not None:
        raise UsageError("Give --programs and --out to score programs, or --validate to check the problems.")
    with interruptible(goes_on(asked.out)):
        command.score_files(problems, Path(asked.programs), asked.out, config, asked.evidence)
