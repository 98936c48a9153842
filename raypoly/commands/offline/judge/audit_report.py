"""`raypoly judge audit`: the table, the worst groups, the JSON file, and whether the judge meets the requirements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from raypoly.analysis.reports.whole_files import write_output
from raypoly.commands.offline.command_config import JudgeChoice
from raypoly.commands.offline.command_output import say
from raypoly.commands.offline.judge.audit_measures import (
    CONSISTENCIES,
    MEASURES,
    AuditedGroup,
    JudgeDifference,
    Measure,
    compare_judges,
    find_unmet,
    measure_judge,
    parse_requirements,
)
from raypoly.commands.offline.judge.judge_audit import AuditResult, audit
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.tables import ReportTable
from raypoly.strategies.judge.gold import GoldGroup, read_gold_groups


def audit_file(
    gold: Path | None,
    choices: Sequence[JudgeChoice],
    *,
    require: Sequence[str] = (),
    runs: int = 1,
    consistency: bool = True,
    worst: int = 0,
    json_out: Path | None = None,
) -> None:
    """Audit the first judge, beside the second where there is one, and print a table.

    Raises `UsageError` before anything starts, and `RaypolyError` at the end where a requirement is not met.
    """
    required = parse_requirements(require)
    if "run_to_run" in required and runs < 2:
        raise UsageError("--require run_to_run needs --runs 2 or more.")
    if not consistency and (asked := [name for name in required if name in CONSISTENCIES]):
        raise UsageError(f"--require {asked[0]} and --no-consistency don't go together: drop one.")
    golds = read_gold_groups(gold)
    if json_out is not None and not json_out.absolute().parent.is_dir():
        raise UsageError(f"--json {json_out} can't be written: there is no such folder.")
    audited = audit(golds, choices, runs, consistency)
    tables = [measure_judge(each.results) for each in audited]
    tests = compare_judges(audited[0].results, audited[1].results) if len(audited) > 1 else {}
    console = Console()
    if not console.is_terminal:  # nobody says how wide it is: room for two judges
        console = Console(width=max(console.width, 120))
    console.print(_table(audited, tables, tests))
    for each in audited:
        if each.spent:
            say(console, f"{each.judge}: {each.spent}")
    # refused groups first, then by adjusted Rand index; groups that are wholly right are left out
    ranked = sorted(audited[0].results, key=lambda result: -2.0 if result.ari is None else result.ari)
    for result in [result for result in ranked if result.ari is None or result.ari < 1][:worst]:
        say(console, _describe_group(result, next(each for each in golds if each.id == result.id)))
    if json_out is not None:
        _write(json_out, gold, audited, tables, tests)
    if short := find_unmet(tables[0], required):
        raise RaypolyError(f"The judge {audited[0].judge} is not good enough: {'; '.join(short)}.")


def _table(
    audited: Sequence[AuditResult], tables: Sequence[Mapping[str, Measure]], tests: Mapping[str, JudgeDifference]
) -> ReportTable:
    rows = []
    for name in tables[0]:
        cells = [_cell(each.get(name, Measure(None))) for each in tables]
        if tests:
            test = tests.get(name)
            cells += (
                [""] * 3 if test is None else [f"{test.difference:+.3f}", f"{test.p_value:.3g}", f"{test.holm:.3g}"]
            )
        rows.append((MEASURES[name], *cells))
    head = ("measure", *_columns(audited), *(("difference", "p", "Holm's p") if tests else ()))
    return ReportTable(head, rows, title=f"{len(audited[0].results)} groups; 95 % intervals over problems")


def _columns(audited: Sequence[AuditResult]) -> list[str]:
    """A name for each judge, with the keys that differ where both have one name."""
    if len(audited) == 1 or audited[0].judge != audited[1].judge:
        return [each.judge for each in audited]
    first, second = (each.config.model_dump(mode="json") for each in audited)
    differ = [key for key in first if first[key] != second[key]]
    return [
        "\n".join([each.judge, *(f"{key}={config[key]}" for key in differ)])
        for each, config in zip(audited, (first, second), strict=True)
    ]


def _cell(measure: Measure) -> str:
    if measure.value is None:
        return "-"
    text = f"{measure.value:.3f}"
    return text if measure.interval is None else f"{text} [{measure.interval.low:.2f}, {measure.interval.high:.2f}]"


def _describe_group(result: AuditedGroup, gold: GoldGroup) -> str:
    lines = [f"{result.id}: " + (f"refused: {result.reason}" if result.ari is None else f"ARI {result.ari:.3f}")]
    lines.append("  gold   " + " ".join(map(str, result.gold)))
    if result.found is not None:
        lines.append("  found  " + " ".join(map(str, result.found)))
    lines += [f"  {name} = {text}" for name, text in sorted(gold.strategies.items())]
    return "\n".join(lines)


def _write(
    path: Path,
    gold: Path | None,
    audited: Sequence[AuditResult],
    tables: Sequence[Mapping[str, Measure]],
    tests: Mapping[str, JudgeDifference],
) -> None:
    """Raises `StorageError`."""
    judges: list[dict[str, Any]] = [
        {
            "judge": each.judge,
            "config": each.config.model_dump(mode="json"),
            "measures": {name: asdict(measure) for name, measure in table.items()},
            "groups": [{**asdict(result), "ari": result.ari} for result in each.results],
        }
        for each, table in zip(audited, tables, strict=True)
    ]
    document = {
        "gold": "" if gold is None else str(gold),
        "judges": judges,
        "tests": {name: asdict(test) for name, test in tests.items()},
    }
    write_output(path, (json.dumps(document, indent=1) + "\n").encode())
