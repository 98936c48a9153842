"""Data of a page's interactive charts, which `templates/charts.js` draws: all numbers of steps and of evaluations.

run_charts(run)                                       # a chart for each kind of number
arm_charts([("grpo", run), ("grpo", other_seed)])     # a chart for each number, with a line for each arm

`{"axes": [{"step": [...], "seconds": [...]}], "charts": [{"title", "more", "lines": [{"name", "axis", "y"}]}]}`. Lines
of one name are seeds of an arm. `seconds` count training so far without pauses, null where unknown. Evaluations have
`evaluated` for `step`, and curves over k `k` alone. Charts with `more` are folded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate, chain
from typing import Any

from raypoly.analysis.reports.run_table import first_and_last
from raypoly.core.text import visible
from raypoly.run.run_files import RunFiles
from raypoly.run.sinks import evaluation_numbers, flatten

_TITLES: Mapping[str, Sequence[str]] = {
    "reward": ["reward"],
    "pass@k, validation": ["validation/pass@*"],
    "pass@k, test": ["test/pass@*"],
    "strategies in a group": ["strategies", "strategies_*"],
    "strategies in 8, validation": ["validation/strategies_*"],
    "entropy, nats a token": ["entropy"],
    "response length, tokens": ["response_length"],
    "clipped and cut, shares": ["truncated", "clip_share", "ratio_clipped_*", "importance_truncated", "tokens_masked"],
    "groups without a gradient, share": ["zero_advantage"],
    "gradient norm": ["grad_norm"],
    "norm of the weights' change": ["update_norm"],
    "loss": ["loss"],
    "KL to the starting model, nats a token": ["kl_reference", "reference_logprobs/kl"],
    "KL to the teacher, nats a token": ["teacher_logprobs/kl"],
    "mismatch of engine and learner, nats": ["mismatch_mean", "mismatch_k1", "mismatch_k3"],
    "largest mismatch, nats": ["mismatch_max"],
    "learning rate": ["lr"],
    "seconds a step, by stage": ["seconds/*"],
    "seconds that a step waited for, by stage": ["exposed/*"],
    "tokens a second": ["tokens_per_second"],
}
"""By a chart's title, patterns of the numbers that it shows."""
_MORE: Mapping[str, Sequence[str]] = {
    "tail, seconds": ["tail/*"],
    "verdicts, rollouts": ["statuses/*"],
    "groups labelled, by judge": ["labelled_by/*"],
    "tokens, by role": ["decoded_tokens/*"],
}
"""Folded ones; each number that is left has one of its own."""
_COVERAGE = "pass@k by k, test"
Charts = Mapping[str, Any]
_Values = Sequence[float | None]
_Axis = Mapping[str, _Values]
_Line = tuple[str, _Axis, _Values]
"""Name, places by kind, and values there."""


def run_charts(run: RunFiles) -> Charts:
    """Charts of one run. Raises `CorruptData` and `StorageError`."""
    columns = _columns(run)
    charts = {
        title: [(name if name == title else name.rpartition("/")[2], *columns[name]) for name in names]
        for title, names in _by_title(columns).items()
    }
    curves = [(f"{side}, step {it['step']}", it) for side, it in _sides(run)]
    return _made({**charts, _COVERAGE: _by_k(curves)}, (*_TITLES, _COVERAGE))


def arm_charts(runs: Iterable[tuple[str, RunFiles]]) -> Charts:
    """Charts of several runs, each with its arm's name. Raises `CorruptData` and `StorageError`."""
    found = [(arm, _columns(run), _sides(run)) for arm, run in runs]
    charts: dict[str, list[_Line]] = {}
    shown = {_COVERAGE}
    for kind, names in _by_title(chain.from_iterable(columns for _, columns, _ in found)).items():
        for name in names:
            prefix, slash, own = name.partition("/")
            title = kind if [name] == _TITLES.get(kind) else f"{own}, {prefix}" if slash else name
            charts[title] = [(arm, *columns[name]) for arm, columns, _ in found if name in columns]
            if kind in _TITLES and ("pass@" not in kind or name in (names[0], names[-1])):
                shown.add(title)
    starts = {side.get("weights") for _, _, sides in found for word, side in sides if word == "before"}
    before = "before" if len(starts) == 1 else "{}, before"
    curves = [(arm if word == "after" else before.format(arm), side) for arm, _, sides in found for word, side in sides]
    arms = [visible(arm) for arm in dict.fromkeys(arm for arm, _, _ in found)]
    return {"arms": arms, **_made({**charts, _COVERAGE: _by_k(curves)}, shown)}


def _columns(run: RunFiles) -> dict[str, tuple[_Axis, _Values]]:
    # By their names, as sinks have them: `seconds/total`, `test/pass@8`.
    rows, evaluations = run.rows, run.evaluations
    spent = list(accumulate(map(_seconds, rows), lambda a, b: None if a is None or b is None else a + b))
    columns = _on({"step": [row["step"] for row in rows], "seconds": spent}, map(flatten, rows))
    after = {0: 0.0} | {row["step"] + 1: seconds for row, seconds in zip(rows, spent, strict=True)}
    for split in dict.fromkeys(each["split"] for each in evaluations):
        measured = sorted((each for each in evaluations if each["split"] == split), key=lambda each: int(each["step"]))
        steps = [each["step"] for each in measured]
        numbers = (flatten({split: evaluation_numbers(each)}) for each in measured)
        columns |= _on({"evaluated": steps, "seconds": [after.get(step) for step in steps]}, numbers)
    return columns


def _seconds(row: Mapping[str, Any]) -> float | None:
    total = (row.get("seconds") or {}).get("total")
    return None if total is None else total - (row.get("paused_seconds") or 0.0)


def _on(axis: _Axis, rows: Iterable[Mapping[str, float]]) -> dict[str, tuple[_Axis, _Values]]:
    kept = list(rows)
    names = dict.fromkeys(name for row in kept for name in row if name != "step")
    return {name: (axis, [row.get(name) for row in kept]) for name in names}


def _by_title(names: Iterable[str]) -> dict[str, list[str]]:
    left = dict.fromkeys(names)
    found: dict[str, list[str]] = {}
    for title, patterns in {**_TITLES, **_MORE}.items():
        for name in [name for pattern in patterns for name in left if fnmatchcase(name, pattern)]:
            if name in left:
                del left[name]
                found.setdefault(title, []).append(name)
    return found | {name: [name] for name in left}


def _sides(run: RunFiles) -> list[tuple[str, Mapping[str, Any]]]:
    sides = zip(("before", "after"), first_and_last(run.summary), strict=True)
    return [(word, side) for word, side in sides if side is not None]


def _by_k(curves: Iterable[tuple[str, Mapping[str, Any]]]) -> list[_Line]:
    lines: list[_Line] = []
    for name, evaluation in curves:
        curve = {int(k): value for k, value in sorted(evaluation["pass_at_k"].items(), key=lambda it: int(it[0]))}
        lines.append((name, {"k": list(curve)}, list(curve.values())))
    return lines


def _made(charts: Mapping[str, Sequence[_Line]], shown: Collection[str]) -> Charts:
    # Those of `shown` that have lines, then the others, folded.
    axes: dict[int, _Axis] = {}
    for axis in (axis for lines in charts.values() for _, axis, _ in lines):
        axes.setdefault(id(axis), axis)
    places = {of: place for place, of in enumerate(axes)}
    made = [
        {
            "title": visible(title),
            "more": title not in shown,
            "lines": [{"name": visible(name), "axis": places[id(axis)], "y": _rounded(y)} for name, axis, y in lines],
        }
        for title, lines in charts.items()
        if lines
    ]
    return {"axes": [{kind: _rounded(axis[kind]) for kind in axis} for axis in axes.values()], "charts": made}


def _rounded(values: _Values) -> list[float | None]:
    return [value if value is None or isinstance(value, int) else float(f"{value:.6g}") for value in values]
