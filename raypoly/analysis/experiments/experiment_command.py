"""`raypoly experiment`: check, run what is not finished, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from raypoly.analysis.experiments.experiment_config import load_experiment
from raypoly.analysis.experiments.experiment_forecast import planned_power
from raypoly.analysis.experiments.planned_runs import PlannedRun, check_runs, plan_runs, take_results
from raypoly.analysis.experiments.run_queue import RunQueue, TrainingExit, at_work, folder_of
from raypoly.analysis.reports.experiment_report import (
    FIGURE,
    RESULTS,
    TABLE,
    page_with_place,
    write_experiment_figures,
    write_experiment_report,
    write_into_page,
)
from raypoly.core.errors import PausedTooLong, RaypolyError, UsageError
from raypoly.core.interrupt import interruptible

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
    figures: Path | None = None,
) -> None:
    """Make the runs that are left, and report. `also`: results.json files of other folders; `figures`: a folder for
    each panel and table as files for a paper.

    Raises `UsageError` before anything starts. When all other runs are done, raises `PausedTooLong` where a judge
    stayed away from a run, and `RaypolyError` where one failed, or its command found what does not pass.
    """
    experiment = load_experiment(config)
    folder = folder_of(out, experiment.name)
    if page is not None:
        page_with_place(experiment, page)
    runs, beside = take_results(plan_runs(experiment, folder, given), also, say)

    def report() -> None:
        results = write_experiment_report(experiment, folder, runs, beside)
        for result in results:
            if result.trouble:
                say(f"Note: {result.arm}-s{result.seed} is left out: {result.trouble}")
        say("\n" + (folder / TABLE).read_text())
        say(f"table: {folder / TABLE}\nfigure: {folder / FIGURE}\nresults: {folder / RESULTS}")
        if page is not None:
            write_into_page(experiment, page, folder)
            say(f"written into {page}")
        if figures is not None:
            say(f"{len(write_experiment_figures(experiment, results, figures))} files of figures and tables: {figures}")

    if report_only:
        if not folder.is_dir():
            raise UsageError(f"{folder} does not exist: there is nothing to report on.")
        report()
        return
    remarks = check_runs(runs, at_once)
    say(str(folder))
    for remark in remarks:
        say(f"Note: {remark}")
    if len(experiment.arms) > 1:
        say(planned_power(runs))
    with at_work(folder, at_once), interruptible("Interrupted. The same command goes on from here."):
        left = sum(not run.finished for run in runs)
        done = f", {len(runs) - left} of them finished already" if left < len(runs) else ""
        say(f"{len(runs)} run{'s' * (len(runs) > 1)}{done}; what each says is in {folder}/ARM-sSEED.log")
        ended = RunQueue(runs, at_once, say).to_the_end()
        report()
    raise_outcome(ended, refusals(runs))


def refusals(runs: Iterable[PlannedRun]) -> list[str]:
    """A sentence for each result that does not pass."""
    refused = [(run.name, found) for run in runs if (found := run.found) is not None and not found.passes]
    return [
        f"{name} does not pass: {found.line}. Nothing after it is started: go back to {found.go_back_to}."
        for name, found in refused
    ]


def raise_outcome(ended: Iterable[TrainingExit], refused: Sequence[str] = ()) -> None:
    """Raise `RaypolyError` where a run failed, stopped early or is `refused`, else `PausedTooLong` where one paused."""
    names: dict[str, list[str]] = {}
    for each in ended:
        names.setdefault(each.outcome, []).append(each.run.name)
    words = {"failed": "failed", "stopped": "stopped early", "paused": "paused for a judge that stayed away"}
    what = "; ".join(f"{', '.join(names[outcome])} {said}" for outcome, said in words.items() if outcome in names)
    said = [f"{what}. The same command goes on with what is not finished."] if what else []
    if said or refused:
        waits = set(names) <= {"finished", "paused"} and not refused
        raise (PausedTooLong if waits else RaypolyError)("\n".join([*said, *refused]))
