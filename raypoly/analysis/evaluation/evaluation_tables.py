"""What a person is shown of an evaluation: its measures, and those of its parts, with 95 % intervals over problems.

for table in evaluation_tables(results, counts, metadata, "smollm2-q4"): console.print(table)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raypoly.analysis.evaluation.evaluation_slices import Slices, slices_of
from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS, expected_distinct, pass_at_k
from raypoly.analysis.metrics.problem_counts import Counts, ProblemCounts
from raypoly.analysis.reports.run_table import shown_ks
from raypoly.analysis.statistics.intervals import mean_interval, mean_text, share_interval
from raypoly.core.tables import ReportTable, number


def evaluation_tables(
    results: Mapping[str, Any], counts: ProblemCounts, metadata: Mapping[str, Mapping[str, str]], model: str
) -> list[ReportTable]:
    """The measures, then a table for each key that `slices_of` finds in the problems' metadata.

    `counts`: by problem, of the same evaluation.
    """
    columns = zip(counts.id, counts.samples, counts.correct, strict=True)
    known = {name: (samples, right) for name, samples, right in columns if right is not None}
    shown = shown_ks([results["pass_at_k"]])
    slices = slices_of({name: metadata[name] for name in known})
    return [_measures(results, counts, model, shown), *_slices(slices, known, sorted({1, int(shown[-1])}))]


def _measures(results: Mapping[str, Any], counts: ProblemCounts, model: str, shown: Sequence[str]) -> ReportTable:
    tried = [(n, right) for n, right in zip(counts.samples, counts.correct, strict=True) if right is not None]
    select = results.get("select", "first")
    curves = [(k, counts.of_known().pass_at_k(int(k), select)) for k in shown]
    rows = [(f"pass@{k}", mean_text(share_interval(list(values.values())))) for k, values in curves if values]
    rows.append(("problems solved at least once", f"{sum(right > 0 for _, right in tried):,} of {len(tried):,}"))
    for name, column in (("cut off at generator.max_tokens", counts.truncated), ("without a program", counts.no_code)):
        rows.append((f"responses {name}", _share(column, counts)))
    for name, key, sizes in (
        ("distinct correct strategies in 8, by execution", "strategies_correct", counts.strategies),
        ("distinct correct strategies in 8, by structure", "strategies_correct_structural", None),
        ("distinct correct strategies in 8, by the judge", "strategies_correct_judge", None),
        ("distinct behaviours in 8, right or wrong", "behaviours", counts.behaviours),
    ):
        if results.get(key) is not None:
            rows.append((name, _drawn(sizes, counts) if sizes else number(results[key])))
    if results["set_aside"]:
        rows.append(("problems set aside", f"{len(results['set_aside']):,}"))
    title = f"{results['samples']} samples a problem; in brackets the 95 % interval over problems"
    return ReportTable(("", model), rows, title=title)


def _slices(slices: Slices, known: Mapping[str, tuple[int, int]], draws: Sequence[int]) -> list[ReportTable]:
    """Problems, and pass@k for each of `draws`, by value. `known`: samples and correct ones by problem."""

    def row(value: str, names: Sequence[str]) -> tuple[str, ...]:
        cells = [share_interval([pass_at_k(*known[name], k) for name in names]) for k in draws]
        return value, f"{len(names):,}", *map(mean_text, cells)

    head = ("problems", *(f"pass@{k}" for k in draws))
    return [ReportTable((key, *head), [row(*part) for part in parts.items()]) for key, parts in slices.items()]


def _share(column: Counts, counts: ProblemCounts) -> str:
    """Of the responses of all problems that count."""
    kept = zip(column, counts.samples, counts.correct, strict=True)
    shares = [count / size for count, size, right in kept if count is not None and right is not None]
    return mean_text(share_interval(shares)) if shares else number(None)


def _drawn(sizes: Sequence[tuple[int, ...] | None], counts: ProblemCounts) -> str:
    kept = zip(sizes, counts.samples, counts.correct, strict=True)
    values = [
        expected_distinct(samples, each, STRATEGY_DRAWS)
        for each, samples, right in kept
        if each is not None and right is not None
    ]
    return mean_text(mean_interval(values))
