"""The work of `raypoly judge audit`: label gold groups, and again after changes that change no strategy.

    (audited,) = audit(read_gold_groups(), [choice], runs=2)
    measure_judge(audited.results)["ari"].value

Each change is made to a seeded half of each group's programs, so that a judge that is misled by it splits the group.
Programs run once for all judges.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from rich.console import Console

from raypoly.analysis.audit_measures import (
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
from raypoly.commands.command_output import NOTES, say
from raypoly.commands.section_config import JudgeChoice
from raypoly.core.config import JudgeConfig, ScorerConfig
from raypoly.core.errors import RaypolyError, SandboxError, UsageError
from raypoly.core.progress_display import track
from raypoly.core.seeds import derive
from raypoly.core.tables import DASH, ReportTable
from raypoly.core.whole_files import check_output, write_output
from raypoly.strategies.judge import Judge, build_judge
from raypoly.strategies.judge.ask_judge import Answer, ask_all, describe_spending
from raypoly.strategies.judge.gold import GoldGroup, read_gold_groups
from raypoly.strategies.judge.label_agreement import adjusted_rand, run_to_run
from raypoly.strategies.judge.program_groups import ObservedGroup, ProgramGroup, group_of_gold, observing
from raypoly.strategies.judge.program_transforms import CHANGES, Change, keywords

_AS_IT_IS = ""
_REORDERED = "reordering"


@dataclass(frozen=True)
class AuditResult:
    """A judge and its labels of the gold groups, in their order."""

    judge: str
    config: JudgeConfig
    results: tuple[AuditedGroup, ...]
    spent: str
    """In words; empty for a judge that counts none."""

    @cached_property
    def measures(self) -> Mapping[str, Measure]:
        return measure_judge(self.results)


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
    """Audit the first judge, beside the second if there is one, and print a table.

    Raises `UsageError` before anything starts, `RaypolyError` at the end where a requirement is not met.
    """
    required = parse_requirements(require)
    if "run_to_run" in required and runs < 2:
        raise UsageError("--require run_to_run needs --runs 2 or more.")
    if not consistency and (asked := [name for name in required if name in CONSISTENCIES]):
        raise UsageError(f"--require {asked[0]} and --no-consistency don't go together: drop one.")
    golds = read_gold_groups(gold)
    if json_out is not None:
        check_output(json_out, "--json")
    audited = audit(golds, choices, runs, consistency)
    tests = compare_judges(audited[0].results, audited[1].results) if len(audited) > 1 else {}
    console = Console()
    if not console.is_terminal:  # nobody says how wide it is: room for two judges
        console = Console(width=max(console.width, 120))
    console.print(_table(audited, tests))
    for each in audited:
        if each.spent:
            say(console, f"{each.judge}: {each.spent}")
    _show_worst(console, audited[0].results, golds, worst)
    if json_out is not None:
        _write(json_out, gold, audited, tests)
    if short := find_unmet(audited[0].measures, required):
        raise RaypolyError(f"The judge {audited[0].judge} is not good enough: {'; '.join(short)}.")


def audit(
    golds: Sequence[GoldGroup], choices: Sequence[JudgeChoice], runs: int, consistency: bool = True
) -> list[AuditResult]:
    """Each judge's labels of the groups; runs after the first ask again, without the cache.

    Raises `JudgeUnavailable` in an outage, `SandboxError` where a group's programs could not be run.
    """
    judges = [build_judge(choice.judge) for choice in choices]  # first of all: a missing key should not cost minutes
    seen = _observe(golds, choices[0].scorer, CHANGES if consistency else {})
    if consistency:
        seen[_REORDERED] = [_reorder(one) for one in seen[_AS_IT_IS]]
    return [_audit_one(golds, seen, choice.judge, judge, runs) for choice, judge in zip(choices, judges, strict=True)]


def change_half(group: ProgramGroup, name: str, change: Change, kept: frozenset[str]) -> ProgramGroup:
    """The group with a seeded half of its programs changed."""
    rng = random.Random(derive("audit", name, group.id))
    places = set(rng.sample(range(len(group.programs)), len(group.programs) // 2))
    programs = (change(text, rng, kept) if i in places else text for i, text in enumerate(group.programs))
    return replace(group, programs=tuple(programs))


def _observe(
    golds: Sequence[GoldGroup], scorer: ScorerConfig, changes: Mapping[str, Change]
) -> dict[str, list[ObservedGroup]]:
    """The groups as they are and after each change, by its name."""
    variants = {_AS_IT_IS: [group_of_gold(gold) for gold in golds]}
    for name, change in changes.items():
        pairs = zip(variants[_AS_IT_IS], golds, strict=True)
        variants[name] = [change_half(group, name, change, keywords(gold.tests)) for group, gold in pairs]
    every = [group for groups in variants.values() for group in groups]
    with observing(scorer, sum(len(group.programs) for group in every)) as observe:
        found = []
        for seen in track(observe(every), len(every), "groups run", NOTES):
            if seen.trouble:
                raise SandboxError(f"The programs of {seen.group.id} could not be run: {seen.trouble}.")
            found.append(seen)
    return {name: found[i * len(golds) : (i + 1) * len(golds)] for i, name in enumerate(variants)}


def _reorder(seen: ObservedGroup) -> ObservedGroup:
    order = _order(seen)
    programs = tuple(seen.group.programs[i] for i in order)
    return ObservedGroup(replace(seen.group, programs=programs), tuple(seen.verdicts[i] for i in order))


def _order(seen: ObservedGroup) -> list[int]:
    order = list(range(len(seen.verdicts)))
    random.Random(derive("audit", _REORDERED, seen.group.id)).shuffle(order)
    return order


def _audit_one(
    golds: Sequence[GoldGroup],
    seen: Mapping[str, Sequence[ObservedGroup]],
    config: JudgeConfig,
    judge: Judge,
    runs: int,
) -> AuditResult:
    asked = {name: _ask(judge, groups, name) for name, groups in seen.items()}
    plain = asked.pop(_AS_IT_IS)
    again = _without_cache(config, judge) if runs > 1 else judge
    more = [_ask(again, seen[_AS_IT_IS], f"run {run}") for run in range(2, runs + 1)]
    results = []
    for place, (gold, answer) in enumerate(zip(golds, plain, strict=True)):
        after = {name: answers[place].ids for name, answers in asked.items()}
        agreements = _agreements(answer.ids, after, _order(seen[_AS_IT_IS][place]))
        every = [each.ids for each in (answer, *(run[place] for run in more))]
        if len(repeated := [ids for ids in every if ids is not None]) > 1:
            agreements["run_to_run"] = run_to_run(repeated)
        found = None if answer.ids is None else tuple(answer.ids)
        problem = gold.task_id or gold.problem
        results.append(AuditedGroup(gold.id, gold.labels, found, answer.reason, agreements, problem))
    names = {answer.labels.judge for answer in plain if answer.labels is not None}
    spent = "; again, ".join(filter(None, [describe_spending(judge), describe_spending(again) if more else ""]))
    return AuditResult(" and ".join(sorted(names)) or repr(judge), config, tuple(results), spent)


def _agreements(
    before: list[int] | None, labels: Mapping[str, list[int] | None], order: Sequence[int]
) -> dict[str, float]:
    """Agreement of a group's labels after each change with those before it, where both are known."""
    if before is None:
        return {}
    reordered = [before[place] for place in order]
    return {
        name: adjusted_rand(reordered if name == _REORDERED else before, after)
        for name, after in labels.items()
        if after is not None
    }


def _without_cache(config: JudgeConfig, judge: Judge) -> Judge:
    """The judge, which with its cache would agree with itself; it has what is left of the budget."""
    spent = getattr(getattr(judge, "stats", lambda: None)(), "cost_usd", None) or 0.0
    left = None if config.budget_usd is None else config.budget_usd - spent
    return build_judge(config.model_copy(update={"cache_mib": 0, "budget_usd": left}))


def _ask(judge: Judge, groups: Sequence[ObservedGroup], name: str) -> list[Answer]:
    what = f"groups labelled {name}".rstrip()
    return [answer for _, answer in track(ask_all(judge, groups), len(groups), what, NOTES)]


def _table(audited: Sequence[AuditResult], tests: Mapping[str, JudgeDifference]) -> ReportTable:
    rows = []
    for name in audited[0].measures:
        cells = [_cell(each.measures.get(name, Measure(None))) for each in audited]
        if (test := tests.get(name)) is not None:
            cells += [f"{test.difference:+.3f}", f"{test.p_value:.3g}", f"{test.holm:.3g}"]
        elif tests:
            cells += [""] * 3
        rows.append((MEASURES[name], *cells))
    head = ("measure", *_columns(audited), *(("difference", "p", "Holm's p") if tests else ()))
    return ReportTable(head, rows, title=f"{len(audited[0].results)} groups; 95 % intervals over problems")


def _columns(audited: Sequence[AuditResult]) -> list[str]:
    """A name for each judge, with the keys that differ where both have one name."""
    if len({each.judge for each in audited}) == len(audited):
        return [each.judge for each in audited]
    configs = [each.config.model_dump(mode="json") for each in audited]
    differ = [key for key, value in configs[0].items() if value != configs[1][key]]
    return [
        "\n".join([each.judge, *(f"{key}={config[key]}" for key in differ)])
        for each, config in zip(audited, configs, strict=True)
    ]


def _cell(measure: Measure) -> str:
    if measure.value is None:
        return DASH
    text = f"{measure.value:.3f}"
    return text if measure.interval is None else f"{text} [{measure.interval.low:.2f}, {measure.interval.high:.2f}]"


def _show_worst(console: Console, results: Sequence[AuditedGroup], golds: Sequence[GoldGroup], worst: int) -> None:
    # Refused groups, then by adjusted Rand index.
    wrong = [pair for pair in zip(results, golds, strict=True) if pair[0].ari != 1]
    wrong.sort(key=lambda pair: -2.0 if pair[0].ari is None else pair[0].ari)
    for result, gold in wrong[:worst]:
        how = f"refused: {result.reason}" if result.ari is None else f"ARI {result.ari:.3f}"
        say(console, f"{result.id}: {how}")
        say(console, "  gold   " + " ".join(map(str, result.gold)))
        if result.found is not None:
            say(console, "  found  " + " ".join(map(str, result.found)))
        for name, text in sorted(gold.strategies.items()):
            say(console, f"  {name} = {text}")


def _write(path: Path, gold: Path | None, audited: Sequence[AuditResult], tests: Mapping[str, JudgeDifference]) -> None:
    judges = [
        {
            "judge": each.judge,
            "config": each.config.model_dump(mode="json"),
            "measures": {name: asdict(measure) for name, measure in each.measures.items()},
            "groups": [{**asdict(result), "ari": result.ari} for result in each.results],
        }
        for each in audited
    ]
    document = {
        "gold": "" if gold is None else str(gold),
        "judges": judges,
        "tests": {name: asdict(test) for name, test in tests.items()},
    }
    write_output(path, (json.dumps(document, indent=1) + "\n").encode())
