"""Tables of an evaluation: measures, parts, and scaffolds side by side, with 95 % intervals over problems.

for shown in evaluation_tables(results, samples, metadata, "smollm2-q4"): console.print(shown)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from raypoly.analysis.evaluation.evaluation_results import Slices, slices_of
from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS, expected_distinct, pass_at_k
from raypoly.analysis.metrics.problem_counts import Counts, ProblemCounts
from raypoly.analysis.reports.run_table import shown_ks
from raypoly.analysis.statistics.intervals import mean_interval, mean_text, share_interval
from raypoly.analysis.statistics.paired_differences import PairedDifferences
from raypoly.core.tables import ReportTable, number


def evaluation_tables(
    results: Mapping[str, Any], samples: pa.Table, metadata: Mapping[str, Mapping[str, str]], model: str
) -> list[ReportTable]:
    """The measures, a table for each key that `slices_of` finds, and the scaffolds side by side."""
    counts = ProblemCounts.of(samples, results.get("block", 1))
    assert counts is not None, "a sample table has verdicts"
    known = counts.of_known()
    shown = shown_ks([results["pass_at_k"]])
    slices = slices_of({name: metadata[name] for name in known.id})
    parts = _slices(slices, known, sorted({1, int(shown[-1])}))
    return [_measures(results, known, model, shown), *parts, *scaffold_tables(results, samples)]


def _measures(results: Mapping[str, Any], known: ProblemCounts, model: str, shown: Sequence[str]) -> ReportTable:
    select = results.get("select", "first")
    curves = [(k, known.pass_at_k(int(k), select)) for k in shown]
    rows = [(f"pass@{k}", mean_text(share_interval(list(values.values())))) for k, values in curves if values]
    majority = results.get("majority_at_k", {})
    rows += [(f"maj@{k}", number(majority[k])) for k in shown if k in majority]
    solved = sum(1 for right in known.correct if right)
    rows.append(("problems solved at least once", f"{solved:,} of {len(known.id):,}"))
    for name, column in (("cut off at generator.max_tokens", known.truncated), ("without a program", known.no_code)):
        rows.append((f"responses {name}", _share(column, known.samples)))
    for name, key, sizes in (
        ("distinct correct strategies in 8, by execution", "strategies_correct", known.strategies),
        ("distinct correct strategies in 8, by structure", "strategies_correct_structural", None),
        ("distinct correct strategies in 8, by the judge", "strategies_correct_judge", None),
        ("distinct behaviours in 8, right or wrong", "behaviours", known.behaviours),
    ):
        if results.get(key) is not None:
            rows.append((name, _drawn(sizes, known.samples) if sizes else number(results[key])))
    if results["set_aside"]:
        rows.append(("problems set aside", f"{len(results['set_aside']):,}"))
    title = f"{results['samples']} samples a problem; in brackets the 95 % interval over problems"
    return ReportTable(("", model), rows, title=title)


def _slices(slices: Slices, known: ProblemCounts, draws: Sequence[int]) -> list[ReportTable]:
    """Problems and pass@k for each of `draws`, by value."""
    columns = zip(known.id, known.samples, known.correct, strict=True)
    outcomes = {name: (samples, right or 0) for name, samples, right in columns}

    def row(value: str, names: Sequence[str]) -> tuple[str, ...]:
        cells = [share_interval([pass_at_k(*outcomes[name], k) for name in names]) for k in draws]
        return value, f"{len(names):,}", *map(mean_text, cells)

    head = ("problems", *(f"pass@{k}" for k in draws))
    return [ReportTable((key, *head), [row(*part) for part in parts.items()]) for key, parts in slices.items()]


def _share(column: Counts, samples: Sequence[int]) -> str:
    """Of all responses that count."""
    shares = [count / size for count, size in zip(column, samples, strict=True) if count is not None]
    return mean_text(share_interval(shares)) if shares else number(None)


def _drawn(sizes: Sequence[tuple[int, ...] | None], samples: Sequence[int]) -> str:
    kept = zip(sizes, samples, strict=True)
    return mean_text(mean_interval([expected_distinct(n, own, STRATEGY_DRAWS) for own, n in kept if own is not None]))


Values = Mapping[str, float]


def scaffold_tables(payload: Mapping[str, Any], table: pa.Table) -> list[ReportTable]:
    """A row for each scaffold, and each one's difference from the first; none for `direct` alone.

    `table`: samples of all scaffolds, in the groups' order.
    """
    measured = [payload, *payload.get("scaffolds", ())]
    if "scaffold" not in payload:
        return []
    curves = [each["pass_at_k"] for each in measured]
    shared = shown_ks([{k: value for k, value in curves[0].items() if all(k in curve for curve in curves)}])
    values = [_values(table, each, shared) for each in measured]
    tables = [_side_by_side(measured, values, shared)]
    if len(measured) > 1:
        tables.append(_differences(measured, values, shared))
    return tables


def _side_by_side(
    measured: Sequence[Mapping[str, Any]], values: Sequence[Sequence[Values]], shared: Sequence[str]
) -> ReportTable:
    classified = "algorithmic_diversity" in measured[0]
    rows = [
        (
            each["scaffold"],
            f"{each['block']:,}",
            f"{sum(each['decoded_tokens'].values()):,.0f}",
            *(mean_text(share_interval(list(by_problem.values()))) for by_problem in own),
            number(each["pass_per_10k"][shared[-1]]) if shared else number(None),
            number(each["surface_diversity"]),
            *([number(each["algorithmic_diversity"])] if classified else []),
            number(each["duplicates"]),
            number(each["followed"]),
        )
        for each, own in zip(measured, values, strict=True)
    ]
    head = (
        *("scaffold", "block", "tokens a problem"),
        *(f"pass@{k}" for k in shared),
        f"pass@{shared[-1]} per 10k tokens" if shared else "per 10k tokens",
        *("surface diversity", *(["algorithmic diversity"] if classified else []), "duplicates", "followed"),
    )
    title = "in brackets the 95 % interval over problems; diversity of methods, or of programs where there are none"
    return ReportTable(head, rows, title=title)


def _differences(
    measured: Sequence[Mapping[str, Any]], values: Sequence[Sequence[Values]], shared: Sequence[str]
) -> ReportTable:
    rows = []
    for other, own in zip(measured[1:], values[1:], strict=True):
        cells = []
        for one, two in zip(own, values[0], strict=True):
            both = [name for name in two if name in one]
            found = PairedDifferences.of([[one[name] for name in both]], [[two[name] for name in both]]).over_problems()
            cells.append(f"{mean_text(found.interval)}, p {found.p_value:.3f}")
        rows.append((f"{other['scaffold']} less {measured[0]['scaffold']}", *cells))
    return ReportTable(("difference", *(f"pass@{k}" for k in shared)), rows)


def _values(table: pa.Table, measured: Mapping[str, Any], shared: Sequence[str]) -> list[Values]:
    """pass@k of one scaffold for each k, without problems whose tests can't be run."""
    counts = ProblemCounts.of(table, measured["block"], measured["scaffold"])
    assert counts is not None, "a sample table has verdicts"
    known, select = counts.of_known(), measured.get("select", "first")
    return [known.pass_at_k(int(k), select) or {} for k in shared]
