"""Audit a judge: label gold groups as they are, and again after changes that change no strategy.

    (audited,) = audit(read_gold_groups(), [choice], runs=2)
    measured(audited.results)["ari"].value

Each change is made to a seeded half of each group's programs, so that a judge that is misled by it splits the group.
Programs run once for all judges.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raypoly.commands.offline.command_config import JudgeChoice
from raypoly.commands.offline.command_output import NOTES
from raypoly.commands.offline.command_progress import track
from raypoly.commands.offline.judge.ask_judge import Answer, ask_all, describe_spending
from raypoly.commands.offline.judge.audit_measures import AuditedGroup
from raypoly.commands.offline.judge.program_groups import ObservedGroup, ProgramGroup, group_of_gold, observing
from raypoly.commands.offline.judge.program_transforms import CHANGES, Change, keywords
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import SandboxError
from raypoly.core.seeds import derive
from raypoly.strategies.judge import Judge, build_judge
from raypoly.strategies.judge.gold import GoldGroup
from raypoly.strategies.judge.label_agreement import adjusted_rand, run_to_run

_AS_IT_IS = ""


@dataclass(frozen=True)
class AuditResult:
    """One judge and its labels of the gold groups, in their order."""

    judge: str
    """As it calls itself on its labels."""
    config: JudgeConfig
    results: tuple[AuditedGroup, ...]
    spent: str
    """Calls, tokens and money in one line; empty for a judge that counts none."""


def audit(
    golds: Sequence[GoldGroup], choices: Sequence[JudgeChoice], runs: int, consistency: bool = True
) -> list[AuditResult]:
    """Each judge's labels of the groups; runs after the first ask again, without the judge's cache.

    Raises `JudgeUnavailable` in an outage, and `SandboxError` where a group's programs could not be run.
    """
    judges = [build_judge(choice.judge) for choice in choices]  # first of all: a missing key should not cost minutes
    seen = _observe(golds, choices[0], CHANGES if consistency else {})
    if consistency:
        seen["reordering"] = [_reorder(one) for one in seen[_AS_IT_IS]]
    return [_audit_one(golds, seen, choice.judge, judge, runs) for choice, judge in zip(choices, judges, strict=True)]


def change_half(group: ProgramGroup, name: str, change: Change, kept: frozenset[str]) -> ProgramGroup:
    """The group with a seeded half of its programs changed."""
    rng = random.Random(derive("audit", name, group.id))
    places = set(rng.sample(range(len(group.programs)), len(group.programs) // 2))
    programs = (change(text, rng, kept) if i in places else text for i, text in enumerate(group.programs))
    return replace(group, programs=tuple(programs))


def _observe(
    golds: Sequence[GoldGroup], choice: JudgeChoice, changes: Mapping[str, Change]
) -> dict[str, list[ObservedGroup]]:
    """The groups as they are, and after each change, with verdicts and evidence."""
    plain = [group_of_gold(gold) for gold in golds]
    variants = {_AS_IT_IS: plain}
    for name, change in changes.items():
        variants[name] = [
            change_half(group, name, change, keywords(gold.tests)) for group, gold in zip(plain, golds, strict=True)
        ]
    every = [group for groups in variants.values() for group in groups]
    with observing(choice.scorer, sum(len(group.programs) for group in every)) as observe:
        found = track(observe(every), len(every), "groups run", NOTES)
        return {name: [_check_sound(next(found)) for _ in groups] for name, groups in variants.items()}


def _check_sound(seen: ObservedGroup) -> ObservedGroup:
    if seen.trouble:
        raise SandboxError(f"The programs of {seen.group.id} could not be run: {seen.trouble}.")
    return seen


def _reorder(seen: ObservedGroup) -> ObservedGroup:
    order = _order(seen)
    programs = tuple(seen.group.programs[i] for i in order)
    return ObservedGroup(replace(seen.group, programs=programs), tuple(seen.verdicts[i] for i in order))


def _order(seen: ObservedGroup) -> list[int]:
    order = list(range(len(seen.verdicts)))
    random.Random(derive("audit", "reordering", seen.group.id)).shuffle(order)
    return order


def _audit_one(
    golds: Sequence[GoldGroup],
    seen: Mapping[str, Sequence[ObservedGroup]],
    config: JudgeConfig,
    judge: Judge,
    runs: int,
) -> AuditResult:
    asked = {name: _ask(judge, groups, name) for name, groups in seen.items()}
    again = _without_cache(config, judge) if runs > 1 else judge
    more = [_ask(again, seen[_AS_IT_IS], f"run {run}") for run in range(2, runs + 1)]
    results = []
    for place, gold in enumerate(golds):
        answers = {name: each[place] for name, each in asked.items()}
        agreements = _agreements(answers, _order(seen[_AS_IT_IS][place]))
        every = [answer.ids for answer in (answers[_AS_IT_IS], *(run[place] for run in more))]
        if len(repeated := [ids for ids in every if ids is not None]) > 1:
            agreements["run_to_run"] = run_to_run(repeated)
        plain = answers[_AS_IT_IS]
        labels = None if plain.ids is None else tuple(plain.ids)
        results.append(
            AuditedGroup(gold.id, gold.labels, labels, plain.reason, agreements, gold.task_id or gold.problem)
        )
    names = {answer.labels.judge for answer in asked[_AS_IT_IS] if answer.labels is not None}
    spent = "; again, ".join(filter(None, [describe_spending(judge), describe_spending(again) if more else ""]))
    return AuditResult(" and ".join(sorted(names)) or repr(judge), config, tuple(results), spent)


def _agreements(answers: Mapping[str, Answer], order: Sequence[int]) -> dict[str, float]:
    """Agreement of the labels after each change with those before it; nothing if either is missing."""
    found: dict[str, float] = {}
    before = answers[_AS_IT_IS].ids
    for name, answer in answers.items():
        after = answer.ids
        if name != _AS_IT_IS and before is not None and after is not None:
            found[name] = adjusted_rand([before[i] for i in order] if name == "reordering" else before, after)
    return found


def _without_cache(config: JudgeConfig, judge: Judge) -> Judge:
    """The same judge without its cache: a kept answer would agree with itself. Its budget is what is left."""
    if config.budget_usd is None:
        return build_judge(config.model_copy(update={"cache_mib": 0}))
    spent = getattr(getattr(judge, "stats", lambda: None)(), "cost_usd", None) or 0.0
    return build_judge(config.model_copy(update={"cache_mib": 0, "budget_usd": config.budget_usd - spent}))


def _ask(judge: Judge, groups: Sequence[ObservedGroup], name: str) -> list[Answer]:
    what = f"groups labelled {name}".rstrip()
    return [answer for _, answer in track(ask_all(judge, groups), len(groups), what, NOTES)]
