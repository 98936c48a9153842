"""Tables of one run: pass@k and strategies before and after, later evaluations, times, tokens, the judge, pauses.

Evaluations are as in summary.json, rows as in metrics.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from raypoly.core.tables import DASH, ReportTable, number
from raypoly.core.text import duration
from raypoly.run.run_files import RunFiles
from raypoly.run.sinks import MEASURES
from raypoly.strategies.judge.judge_usage import JudgeSpending, dollars, sum_spending

Rows = Sequence[Mapping[str, Any]]
_ENDS = 5  # steps at a run's beginning and end whose mean is shown
_BETWEEN = ("2", "32")  # the k of pass@k that tables leave out where there is a larger one
STRATEGIES = {
    "strategies_correct": "by execution",
    "strategies_correct_judge": "by the judge",
    "strategies_correct_structural": "by structure",
}
"""Evaluations' counts of strategies, and who tells them apart."""
_COUNT = "distinct correct strategies in 8"
WAITS = ("generate", "score", "judge", "cross", "learn", "sync", "idle")
"""What a step waits for, in the order in which a group meets it; not every run has all."""
_UNKNOWN = "unknown: give judge.price_input and judge.price_output"
_JUDGE_COUNTS = (
    ("groups", "groups labelled"),
    ("free", "of these without asking (all programs alike)"),
    ("calls", "calls"),
    ("retries", "retries"),
    ("limited", "calls refused by a rate limit"),
    ("refusals", "refusals"),
    ("invalid", "answers that could not be used"),
    ("failovers", "answers from the second server"),
    ("prompt_tokens", "prompt tokens"),
    ("completion_tokens", "answer tokens"),
)


def first_and_last(
    summary: Mapping[str, Any], split: str = "test"
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The evaluations of `split` at its first and last step; None after, where both are one."""
    of_split = sorted((e for e in summary.get("evaluations", []) if e["split"] == split), key=lambda e: e["step"])
    if not of_split:
        return None, None
    return of_split[0], of_split[-1] if len(of_split) > 1 else None


def shown_ks(curves: Iterable[Mapping[str, float | None]]) -> tuple[str, ...]:
    """The k that tables show of these pass@k: those that one of them has, and each one's largest."""
    measured = [{k for k, value in curve.items() if value is not None and k.isdigit()} for curve in curves]
    largest = {max(ks, key=int) for ks in measured if ks}
    return tuple(sorted(largest | set[str]().union(*measured).difference(_BETWEEN), key=int))


def results_table(summary: Mapping[str, Any]) -> ReportTable:
    """Each measure on test before and after training, and its change."""
    before, after = first_and_last(summary, "test")
    sides: list[Mapping[str, Any]] = [before or {}, after or {}]
    old_curve, new_curve = curves = [side.get("pass_at_k", {}) for side in sides]
    measures = [(f"pass@{k}", old_curve.get(k), new_curve.get(k)) for k in shown_ks(curves)]
    old_votes, new_votes = votes = [side.get("majority_at_k", {}) for side in sides]
    measures += [(f"maj@{k}", old_votes.get(k), new_votes.get(k)) for k in shown_ks(votes)]
    measures += [(f"{_COUNT}, {by}", sides[0].get(key), sides[1].get(key)) for key, by in STRATEGIES.items()]
    heads = zip(("before", "after"), (before, after), strict=True)
    return ReportTable(
        ("", *(f"step {side['step']}" if side else word for word, side in heads), "change"),
        [
            (name, number(old), number(new), "" if new is None else f"{new - old:+.3f}")
            for name, old, new in measures
            if old is not None
        ],
        title=f"{summary.get('objective', '?')}, test split, {sides[0].get('samples', '?')} samples a problem",
    )


def later_table(runs: Mapping[str, RunFiles]) -> ReportTable:
    """What `raypoly evaluate --run` measured, a row for each file and scaffold; dashes for a damaged file."""
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


def time_table(stage_seconds: Mapping[str, float], rows: Rows) -> ReportTable:
    """Seconds that stages were at work and that steps waited for them, of all steps together."""
    waited: Counter[str] = Counter()
    for row in rows:
        waited.update(row.get("exposed") or {})
    total = sum(waited.values())
    names = [*WAITS, *(name for name in stage_seconds if name not in (*WAITS, "total"))]
    shown = [(name, stage_seconds.get(name), waited.get(name)) for name in names]
    lines = [
        (name, _seconds(busy), _seconds(exposed), f"{exposed / total:.1%}" if exposed is not None and total else DASH)
        for name, busy, exposed in shown
        if busy is not None or exposed is not None
    ]
    if "total" in stage_seconds:
        lines.append(("total", _seconds(stage_seconds["total"]), _seconds(total or None), ""))
    return ReportTable(("stage", "seconds at work", "waited for", "share"), lines)


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:,.1f}"


def tail_words(rows: Rows) -> str:
    """One sentence on the last group of a step; empty where nothing is known of it."""
    tails = [row["tail"] for row in rows if row.get("tail") and row["tail"].get("seconds") is not None]
    if not tails:
        return ""
    length, exposed = (sum(tail[key] for tail in tails) / len(tails) for key in ("seconds", "exposed"))
    return (
        f"In the mean step the last group had its labels {length:.2f} s after the end of generation; for "
        f"{exposed:.2f} s of that nothing hid scoring and judging."
    )


def role_table(rows: Rows) -> ReportTable:
    """Drafts and decoded tokens by role. A draft that is an attempt counts as a draft."""
    counted = [row for row in rows if row.get("decoded_tokens")]
    tokens = [row["decoded_tokens"] for row in counted]
    drafts = [row.get("drafts", {}) for row in counted]
    roles = dict.fromkeys(role for step in (*drafts, *tokens) for role in step)
    total = sum(sum(step.values()) for step in tokens)
    lines = []
    for role in roles:
        values = [step.get(role, 0) for step in tokens]
        made = sum(step.get(role, 0) for step in drafts)
        means = (sum(some) / len(some) for some in (values[:_ENDS], values[-_ENDS:]))
        share = f"{sum(values) / total:.1%}" if total else DASH
        lines.append(
            (role, f"{made:,}" if made else DASH, f"{sum(values):,}", share, *(f"{mean:,.0f}" for mean in means))
        )
    ends = (f"a step, {end} {_ENDS}" for end in ("first", "last"))
    return ReportTable(("role", "drafts", "decoded tokens", "share", *ends), lines, title="drafts and attempts")


def measure_table(rows: Rows, prefix: str = MEASURES) -> ReportTable:
    """The rows' `objective/...` numbers: means of the first and last steps, least and most."""
    lines = []
    for name in sorted({key for row in rows for key in row if key.startswith(prefix)}):
        values = [row[name] for row in rows if row.get(name) is not None]
        first, last = values[:_ENDS], values[-_ENDS:]
        shown = [sum(first) / len(first), sum(last) / len(last), min(values), max(values)] if values else [None] * 4
        lines.append((name.removeprefix(prefix), *map(number, shown)))
    return ReportTable(("", f"first {_ENDS} steps", f"last {_ENDS} steps", "least", "most"), lines)


def leading_terms(run: RunFiles) -> list[str]:
    """A sentence for each term of the reward that differs more within groups than the outcome does."""
    found = []
    for name, term in run.config.reward.terms.items():
        names = f"reward/{name}_spread", "reward/outcome_spread"
        rows = [row for row in run.rows if None not in map(row.get, names)]
        own, outcome = (sum(row[each] for row in rows) / max(1, len(rows)) for each in names)
        own *= abs(term.weight)
        if own > outcome:
            found.append(
                f"The term {name} leads: times its weight it varies by {own:.3g} within a group, the outcome by "
                f"{outcome:.3g} (means over steps)."
            )
    return found


def judge_table(run: RunFiles) -> ReportTable:
    """Calls and money of the judge, and whether it still judges as it did."""
    rows, config = run.rows, run.config.judge
    spent = sum_spending(rows, run.evaluations)
    agreements = [(row["step"], row["judge_agreement"]) for row in rows if row.get("judge_agreement") is not None]
    if spent is None and not agreements:
        return ReportTable((), [])
    groups: Counter[str] = Counter()
    for row in rows:
        groups.update(row.get("labelled_by", {}))
    return ReportTable(
        ("", ""),
        [
            ("judge", f"{config.name}, {config.model}" if config.name in ("openai", "local") else config.name),
            *((f"training groups labelled by {judge}", f"{count:,}") for judge, count in groups.most_common()),
            *([] if spent is None else _judge_use(spent, max(0, run.config.train.steps - run.steps_done))),
            ("unjudged groups", f"{sum(row.get('unjudged', 0) for row in rows):,}"),
            *_agreement(agreements),
        ],
    )


def _judge_use(spent: JudgeSpending, left: int) -> list[tuple[str, str]]:
    found = [(name, f"{spent.use.get(key, 0):,.0f}") for key, name in _JUDGE_COUNTS]
    found += [
        ("prompt tokens that the server had cached", _share(spent, "cached_tokens", ("cached_of",))),
        ("answers found in the cache", _share(spent, "cache_hits", ("cache_hits", "answers"))),
        ("money so far", _UNKNOWN if spent.cost_usd is None else dollars(spent.cost_usd)),
    ]
    if lost := spent.use.get("lost_usd"):
        found.append(("calls without an answer may have cost, at most", dollars(lost)))
    a_step = spent.a_step_usd
    if a_step is not None:
        found.append(("money a step, newest steps", dollars(a_step)))
    if left:
        found.append((f"money for the {left} steps to come", _UNKNOWN if a_step is None else dollars(left * a_step)))
    return found


def _share(spent: JudgeSpending, part: str, whole: Sequence[str]) -> str:
    of = sum(spent.use.get(name, 0) for name in whole)
    return f"{spent.use.get(part, 0) / of:.0%}" if of else DASH


def _agreement(agreements: Sequence[tuple[int, float]]) -> list[tuple[str, str]]:
    if not agreements:
        return []
    (first, before), (last, now) = agreements[0], agreements[-1]
    text = f"{number(before)} at step {first}" + (f", {number(now)} at step {last}" if len(agreements) > 1 else "")
    return [(f"agreement with gold groups, {len(agreements)} looks (adjusted Rand index)", text)]


def pause_table(summary: Mapping[str, Any]) -> ReportTable:
    pauses = [{**each, "lasted": _length(each)} for each in summary.get("pauses", [])]
    return _listed(pauses, {"since": "since", "lasted": "lasted", "why": "reason"}, {1})


def _length(pause: Mapping[str, Any]) -> str:
    if pause.get("seconds") is not None:
        return duration(pause["seconds"])
    again = pause.get("interrupted")
    return f"unknown: the run was killed in it, and started again {again}" if again else "has not ended"


def set_aside_table(summary: Mapping[str, Any]) -> ReportTable:
    problems = [{"problem": name, **entry} for name, entry in summary.get("set_aside", {}).items()]
    return _listed(problems, {"problem": "problem", "groups": "groups", "reason": "reason"}, {1})


def damage_table(summary: Mapping[str, Any]) -> ReportTable:
    return _listed(summary.get("damaged", []), {"file": "key", "now": "moved_to", "why": "reason"})


def _listed(entries: Rows, columns: Mapping[str, str], numbers: Collection[int] = ()) -> ReportTable:
    return ReportTable(tuple(columns), [[str(it[key]) for key in columns.values()] for it in entries], numbers)
