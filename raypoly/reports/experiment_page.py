"""An experiment's tables in Markdown, and the place between two markers of a file that they are written to.

text = fragment("objectives", results, at_once=1, figure="figure.png", elsewhere=0)
written(page, "objectives", text)       # the page with what stands between its markers replaced
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from raypoly import __version__
from raypoly.errors import UsageError
from raypoly.experiments.arm_comparison import Arm, ArmComparison, SeedSpread, Start, comparisons
from raypoly.experiments.run_result import MEASURES, STRATEGIES, RunResult
from raypoly.reports.markdown import row
from raypoly.reports.run_table import DASH

END = "<!-- end -->"
HEADS = tuple("distinct correct strategies in 8" if m == STRATEGIES else f"pass@{m}" for m in MEASURES)


def marker(name: str) -> str:
    """What stands above an experiment's tables."""
    return f"<!-- experiment: {name} -->"


def written(page: str, name: str, text: str, what: str) -> str:
    """The page with `text` between the experiment's marker and the next end. Raises `UsageError`, naming `what`."""
    before, found, rest = page.partition(f"{marker(name)}\n")
    _, end, after = rest.partition(END)
    if not (found and end):
        raise UsageError(
            f"{what} has no place for the experiment: write the lines {marker(name)} and {END} where its tables belong."
        )
    return f"{before}{found}{text}{end}{after}"


def fragment(name: str, results: Sequence[RunResult], at_once: int, figure: str, elsewhere: int) -> str:
    """The tables of the experiment `name`; `figure` is the picture's file beside the page, `elsewhere` how many of the
    runs were trained in other folders."""
    return "\n".join(_parts(name, results, at_once, figure, elsewhere)) + "\n"


def _parts(name: str, results: Sequence[RunResult], at_once: int, figure: str, elsewhere: int) -> Iterator[str]:
    finished = [result for result in results if result.finished]
    if not finished:
        yield "*No run is finished yet.*"
        return
    told = f"{_counted(results)}.{_beside(elsewhere)}{_side_by_side(at_once)}"
    yield f"*Written by `raypoly experiment` ({__version__}): {told}*\n"
    for comparison in comparisons(results):
        if any(arm.runs for arm in comparison.arms):
            yield from _compared(comparison)
    yield f"![{name}: pass@k, strategies and reward by arm]({figure})"


def _compared(comparison: ArmComparison) -> Iterator[str]:
    yield f"**After {comparison.steps} steps.** Means, and the range where there are several runs.\n"
    yield row("", "runs", *HEADS, "s a step", "min a run")
    yield row(*["---"] * (len(HEADS) + 4))
    starts = comparison.starts
    for start in starts:
        yield _start_row(start, alone=len(starts) == 1)
    for arm in comparison.arms:
        yield _arm_row(arm)
    yield ""
    first, others = comparison.arms[0], [arm for arm in comparison.arms[1:] if comparison.pairs(arm)]
    if others:
        yield f"**Difference from {first.name}**, by pairs of runs with the same seed.\n"
        yield row("", "pairs", *HEADS)
        yield row(*["---"] * (len(HEADS) + 2))
        for arm in others:
            cells = [cell(comparison.difference(arm, measure), sign="+") for measure in MEASURES]
            yield row(arm.name, str(comparison.pairs(arm)), *cells)
        yield ""


def _start_row(start: Start, alone: bool) -> str:
    name = "before" if alone else f"before {', '.join(start.arms)}"
    return row(name, str(len(start.measured)), *(cell(start.before(m)) for m in MEASURES), "", "")


def _arm_row(arm: Arm) -> str:
    runs = str(len(arm.runs)) if len(arm.runs) == arm.planned else f"{len(arm.runs)} of {arm.planned}"
    step = cell(arm.over_seeds(lambda run: run.step_seconds), decimals=2)
    minutes = cell(arm.over_seeds(lambda run: run.seconds / 60), decimals=1)
    return row(f"**{arm.name}**", runs, *(cell(arm.after(measure)) for measure in MEASURES), step, minutes)


def cell(spread: SeedSpread | None, sign: str = "", decimals: int = 3) -> str:
    """Mean, and the range where there is more than one value."""
    if spread is None:
        return DASH
    mean, low, high = (f"{value:{sign}.{decimals}f}" for value in (spread.mean, spread.low, spread.high))
    return mean if spread.count == 1 else f"{mean} ({low} to {high})"


def _counted(results: Sequence[RunResult]) -> str:
    finished = sum(result.finished for result in results)
    told = f"{finished} of {len(results)} runs are finished"
    missing = Counter(result.arm for result in results if not result.finished)
    return told + (f"; {', '.join(f'{arm} lacks {count}' for arm, count in missing.items())}" if missing else "")


def _beside(elsewhere: int) -> str:
    return f" {elsewhere} of them were trained elsewhere, with times of that machine." if elsewhere else ""


def _side_by_side(at_once: int) -> str:
    return f" Up to {at_once} runs went on at once, so times are those of a shared machine." if at_once > 1 else ""
