"""`raypoly experiment`: check everything, make the warm start, run what is not finished, and write what it came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from raypoly.errors import PausedTooLong, RaypolyError, UsageError
from raypoly.experiments.experiment_config import ExperimentConfig, load
from raypoly.experiments.experiment_folder import at_work, place_of
from raypoly.experiments.other_results import with_results
from raypoly.experiments.planned_runs import PlannedRun, check, planned, warm_starts
from raypoly.experiments.run_queue import RunQueue
from raypoly.experiments.run_result import RunResult
from raypoly.experiments.training_process import TrainingExit
from raypoly.offline.interrupt import interruptible
from raypoly.reports.experiment_report import FIGURE, RESULTS, TABLE, into, page_with_place, report

Say = Callable[[str], None]


def run_experiment(
    config: str,
    given: Sequence[str],
    out: str | None,
    at_once: int,
    page: Path | None,
    report_only: bool,
    also: Sequence[Path] = (),
    say: Say = lambda text: print(text, flush=True),
) -> None:
    """Do what is left, and report; `also`: results.json of other folders, where runs of it were trained.

    Raises `UsageError` before anything starts; `PausedTooLong` where a judge stayed away from a run, `RaypolyError`
    where one failed, when all others are done.
    """
    experiment = load(config)
    folder = place_of(out, experiment.name)
    if page is not None:
        page_with_place(experiment, page)
    runs, beside = with_results(planned(experiment, folder, given), also, say)
    if report_only:
        if not folder.is_dir():
            raise UsageError(f"{folder} does not exist: there is nothing to report on.")
        _reported(experiment, folder, runs, beside, page, say)
        return
    remarks = check(runs, at_once)
    say(str(folder))
    for remark in remarks:
        say(f"Note: {remark}")
    with at_work(folder, at_once), interruptible("Interrupted. The same command goes on from here."):
        ended = _run(runs, at_once, say)
        _reported(experiment, folder, runs, beside, page, say)
    judged(ended)


def _run(runs: Sequence[PlannedRun], at_once: int, say: Say) -> Sequence[TrainingExit]:
    left = [run for run in runs if not run.finished]
    done = f", {len(runs) - len(left)} of them finished already" if len(left) < len(runs) else ""
    say(f"{len(runs)} run{'s' * (len(runs) > 1)}{done}; what each says is in {runs[0].place.parent}/ARM-sSEED.log")
    if not left:
        return []
    made = RunQueue(warm_starts(left), 1, say).to_the_end()
    if any(each.outcome != "finished" for each in made):
        raise RaypolyError("Without its warm start no run can begin. The same command tries again.")
    return RunQueue(runs, at_once, say).to_the_end()


def _reported(
    experiment: ExperimentConfig, folder: Path, runs: Sequence[PlannedRun], at_once: int, page: Path | None, say: Say
) -> Sequence[RunResult]:
    results = report(experiment, folder, runs, at_once)
    for result in results:
        if result.trouble:
            say(f"Note: {result.arm}-s{result.seed} is left out: {result.trouble}")
    say("\n" + (folder / TABLE).read_text())
    say(f"table: {folder / TABLE}\nfigure: {folder / FIGURE}\nresults: {folder / RESULTS}")
    if page is not None:
        into(experiment, page, folder)
        say(f"written into {page}")
    return results


def judged(ended: Iterable[TrainingExit]) -> None:
    """Raise what the exit code says: `PausedTooLong` where nothing worse happened than a judge that stayed away."""
    names: dict[str, list[str]] = {}
    for each in ended:
        names.setdefault(each.outcome, []).append(each.run.name)
    words = {"failed": "failed", "stopped": "stopped early", "paused": "paused for a judge that stayed away"}
    told = "; ".join(f"{', '.join(names[outcome])} {said}" for outcome, said in words.items() if outcome in names)
    if told:
        kind = PausedTooLong if set(names) <= {"finished", "paused"} else RaypolyError
        raise kind(f"{told}. The same command goes on with what is not finished.")
