"""A run before and after training: pass@k and distinct correct strategies on the test split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raypoly.core.tables import DASH, ReportTable, number
from raypoly.run.run_files import RunFiles

_BETWEEN = ("2", "32")
"""The k of pass@k that tables leave out, to be short, where there is a larger one."""
STRATEGIES = {
    "strategies_correct": "by execution",
    "strategies_correct_judge": "by the judge",
    "strategies_correct_structural": "by structure",
}
"""Evaluations' counts of distinct correct strategies, and who tells strategies apart."""
_COUNT = "distinct correct strategies in 8"


def first_and_last(
    summary: Mapping[str, Any], split: str = "test"
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The evaluations of `split` at its first and last step; the same one twice is no comparison: after is None."""
    of_split = sorted((e for e in summary.get("evaluations", []) if e["split"] == split), key=lambda e: e["step"])
    if not of_split:
        return None, None
    return of_split[0], of_split[-1] if len(of_split) > 1 else None


def shown_ks(curves: Iterable[Mapping[str, float | None]]) -> tuple[str, ...]:
    """The k that tables show of these pass@k, {k: value} each: those that one of them has, and each one's largest."""
    measured = [{k for k, value in curve.items() if value is not None and k.isdigit()} for curve in curves]
    largest = {max(ks, key=int) for ks in measured if ks}
    return tuple(sorted(largest | set[str]().union(*measured).difference(_BETWEEN), key=int))


def results_table(summary: Mapping[str, Any]) -> ReportTable:
    """Each measure on test before and after training, and its change; no rows where it was not evaluated."""
    before, after = first_and_last(summary, "test")
    sides: list[Mapping[str, Any]] = [before or {}, after or {}]
    old_curve, new_curve = curves = [side.get("pass_at_k", {}) for side in sides]
    measures = [(f"pass@{k}", old_curve.get(k), new_curve.get(k)) for k in shown_ks(curves)]
    alike = len(_counted_alike(sides)) > 1
    measures += [
        (_COUNT if alike else f"{_COUNT}, {by}", sides[0].get(key), sides[1].get(key))
        for key, by in list(STRATEGIES.items())[: 1 if alike else None]
    ]
    heads = zip(("before", "after"), (before, after), strict=True)
    return ReportTable(
        ("", *(f"step {side['step']}" if side else word for word, side in heads), "change"),
        [(name, number(old), number(new), _change(old, new)) for name, old, new in measures if old is not None],
        title=f"{summary.get('objective', '?')}, test split, {sides[0].get('samples', '?')} samples a problem",
    )


def results_note(summary: Mapping[str, Any]) -> str:
    """Why strategies have one row and not three; empty where they have three, or fewer were counted."""
    ways = _counted_alike([side or {} for side in first_and_last(summary, "test")])
    if len(ways) < 2:
        return ""
    return f"Counted {', '.join(ways[:-1])} and {ways[-1]}, the strategies are equally many."


def later_table(runs: Mapping[str, RunFiles]) -> ReportTable:
    """What `raypoly evaluate --run` measured, by the runs' names: a row each, and one for each scaffold of those that
    had several. A dash where a file is damaged."""
    later = [
        (run, name, {**found, **measured})
        for run, files in runs.items()
        for name, found in files.later_evaluations
        for measured in (found, *found.get("scaffolds", ()))
    ]
    ks = shown_ks(found.get("pass_at_k", {}) for _, _, found in later)
    named = any("scaffold" in found for _, _, found in later)
    keys = ["step", "split", "samples", "problems"]
    rows = []
    for run, name, found in later:
        curve = found.get("pass_at_k", {})
        facts = [str(found.get(key, DASH)) for key in keys]
        scaffold = [str(found.get("scaffold", "direct" if found else DASH))] * named
        values = [*(curve.get(k) for k in ks), found.get("strategies_correct")]
        rows.append((*[run] * (len(runs) > 1), name, *scaffold, *facts, *map(number, values)))
    heads = [*["run"] * (len(runs) > 1), "file", *["scaffold"] * named, *keys]
    return ReportTable((*heads, *(f"pass@{k}" for k in ks), _COUNT), rows, range(len(heads), len(heads) + len(ks) + 1))


def _counted_alike(sides: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who counted strategies, where all who did found the same numbers on both sides; else nobody."""
    found = {by: [side.get(key) for side in sides] for key, by in STRATEGIES.items()}
    known = {by: values for by, values in found.items() if values != [None] * len(sides)}
    by_trace = known.get(STRATEGIES["strategies_correct"])
    return list(known) if by_trace and all(values == by_trace for values in known.values()) else []


def _change(old: float | None, new: float | None) -> str:
    """`+0.213`, or nothing where a side is missing."""
    return "" if old is None or new is None else f"{new - old:+.3f}"
