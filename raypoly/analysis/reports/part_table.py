"""pass@k by part of the problems, of arms that were measured on several: puzzles' budgets, or data sets.

table = part_table(comparison)                        # no rows where all problems are of one part
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from raypoly.analysis.experiments.arm_comparison import ArmComparison
from raypoly.analysis.experiments.measured_differences import problem_values, strata_of
from raypoly.analysis.experiments.run_result import STRATEGIES, RunResult
from raypoly.analysis.statistics.intervals import interval_text, share_interval
from raypoly.core.tables import DASH, ReportTable


def part_table(comparison: ArmComparison) -> ReportTable:
    """A row each arm, a column each part with its number of problems, after training; k is 4 where it was measured."""
    sizes: dict[str, set[str]] = {}
    for run in (run for arm in comparison.arms for run in arm.runs):
        for problem, part in (strata_of(run.problems_after) or {}).items():
            sizes.setdefault(part, set()).add(problem)
    ks = [measure for measure in comparison.measures if measure != STRATEGIES]
    if len(sizes) < 2 or not ks:
        return ReportTable((), [])
    k = "4" if "4" in ks else ks[-1]
    parts = sorted(sizes)
    rows = [(arm.name, *(_cell(arm.runs, k, part) for part in parts)) for arm in comparison.arms]
    return ReportTable((f"pass@{k}", *(f"{part} ({len(sizes[part])})" for part in parts)), rows)


def _cell(runs: Sequence[RunResult], k: str, part: str) -> str:
    """The mean of the part's problems over the runs, and its interval over problems."""
    found: list[tuple[str, float]] = []
    for run in runs:
        values, parts = problem_values(run.problems_after, k), strata_of(run.problems_after)
        if values is None or parts is None:
            return DASH
        found += [(name, value) for name, value in values.items() if parts[name] == part]
    if not found:
        return DASH
    values_alone = [value for _, value in found]
    interval = share_interval(values_alone, clusters=[name for name, _ in found])
    return f"{mean(values_alone):.3f} {interval_text(interval)}"
