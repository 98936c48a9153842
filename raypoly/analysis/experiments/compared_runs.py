"""Runs that somebody names beside each other: which are seeds of one arm, how arms differ, and which make no pair.

    runs = compare_runs([Run("grpo-s0"), Run("poly-s0")])
    compare_arms([run.result for run in runs])
    for sentence in why_not_compared(runs): print(sentence)

Two runs are seeds of one arm where they differ in nothing that affects results but the seed. Stages, which begin with
each other's weights (`raypoly.analysis.experiments.run_chain`), are compared as an experiment's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raypoly.analysis.experiments.arm_comparison import ArmComparison, why_unlike
from raypoly.analysis.experiments.experiment_config import Kind
from raypoly.analysis.experiments.planned_runs import begun_by, start_of
from raypoly.analysis.experiments.run_chain import RunChain
from raypoly.analysis.experiments.run_result import RunResult, result_of
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.recipes.cppo.gates.audit import AUDIT_KEY
from raypoly.recipes.cppo.gates.gate_folder import FILE as GATE_FILE
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import keys_without_effect

_SEED = "train.seed"
_SEEDS = (_SEED, "warm_start.seed", "problems.seed")
_OWN = ("run.dir", "run.name", "run.fresh")
"""Keys that say where a run is."""
_NO_ARM = {"audit": "is an audit of plans", "gate": "trained a gate"}
_LONGEST = 40
"""Characters of an arm's name that is made of keys."""


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs."""

    name: str
    """Its folder's name; its place, where two have the same name."""
    files: RunFiles
    result: RunResult


def compare_runs(runs: Sequence[RunFiles]) -> list[ComparedRun]:
    """The runs in their order, with the names of their arms and their seeds."""
    chain = RunChain.of(runs)
    values = [dotted_values(config) for config in chain.configs]
    seeds = [key for key in _SEEDS if all(each[key] == each[_SEED] for each in values)]
    starts = [start_of(begun_by(chain.configs[chain.root(i)], each), seeds) for i, each in enumerate(chain.configs)]
    arms = _arms(values, starts, seeds)
    names = Counter(run.name for run in runs)
    called = [run.name if names[run.name] == 1 else run.uri for run in runs]
    arm_names = _arm_names(arms, values, called, seeds)
    results = [
        replace(result_of(arm_names[arm], run.config.train.seed, start, run.config.train.steps, run), kind=_kind(run))
        for run, arm, start in zip(runs, arms, starts, strict=True)
    ]
    for i, before in enumerate(chain.after):
        if before is not None:
            root = results[chain.root(i)].first_weights
            results[i] = replace(results[i], begins_with=arm_names[arms[before]], root_weights=root)
    return [ComparedRun(*each) for each in zip(called, runs, results, strict=True)]


def _kind(run: RunFiles) -> Kind:
    """Only what it left behind tells what a run was for."""
    return "audit" if run.store.exists(AUDIT_KEY) else "gate" if run.store.exists(f"model/{GATE_FILE}") else "train"


def _arms(values: Sequence[Mapping[str, Any]], starts: Sequence[str], seeds: Sequence[str]) -> list[int]:
    """A number for each run: that of the first run of its arm. A second run of the same seed is an arm of its own."""
    free = keys_without_effect(Config) | set(seeds)
    first: dict[tuple[Any, ...], int] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    found = []
    for i, each in enumerate(values):
        kept = json.dumps({key: value for key, value in each.items() if key not in free}, sort_keys=True)
        arm = (kept, starts[i], each["train.steps"])
        copy = seen[(*arm, each[_SEED])]
        seen[(*arm, each[_SEED])] += 1
        found.append(first.setdefault((*arm, copy), i))
    return found


def _arm_names(
    arms: Sequence[int], values: Sequence[Mapping[str, Any]], called: Sequence[str], seeds: Sequence[str]
) -> dict[int, str]:
    """By objective; where that is not enough, with the keys that differ; else by the arm's first run, without its seed
    where that is enough."""
    firsts = list(dict.fromkeys(arms))
    objectives = {arm: str(values[arm]["objective.name"]) for arm in firsts}
    if len(set(objectives.values())) == len(firsts):
        return objectives
    keys = [key for key in differing_keys([values[arm] for arm in firsts]) if key not in seeds]
    shown = [key for key in keys if key != "objective.name"]
    named = {
        arm: ", ".join([objectives[arm], *(f"{k}={values[arm][k]}" for k in shown if k in values[arm])])
        for arm in firsts
    }
    if (
        "model.path" not in shown  # a place is no name
        and len(set(named.values())) == len(firsts)
        and max(map(len, named.values())) <= _LONGEST
    ):
        return named
    folders = {arm: called[arm].removesuffix(f"-s{values[arm][_SEED]}") for arm in firsts}
    return folders if len(set(folders.values())) == len(firsts) else {arm: called[arm] for arm in firsts}


def differing_keys(values: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted keys, in their order, whose values differ between configs; not those that say where a run is. A config
    may lack a parameter of another one's objective, program or gate."""
    keys = dict.fromkeys(key for each in values for key in each)
    return [key for key in keys if key not in _OWN and any(each.get(key) != values[0].get(key) for each in values)]


def why_not_compared(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> list[str]:
    """Sentences on runs that have no difference from another one."""
    return [
        *(sentence for run in runs if (sentence := _unmeasured(run))),
        *(sentence for comparison in comparisons for sentence in _unpaired(runs, comparison)),
        *_apart(comparisons),
    ]


def _unmeasured(run: ComparedRun) -> str:
    result = run.result
    if result.kind in _NO_ARM:
        return f"{run.name} {_NO_ARM[result.kind]}: it has no numbers on test."
    if result.trouble:
        return f"{run.name} can't be read: {result.trouble}"
    if not result.finished:
        done = f"{run.name} has done {run.files.steps_done} of {result.steps} steps."
        return f"{done} Differences are of finished runs alone."
    return "" if result.after else f"{run.name} was not measured on test after training: it has no difference."


def _unpaired(runs: Sequence[ComparedRun], comparison: ArmComparison) -> Iterator[str]:
    """On finished runs that make no pair with one of the first arm."""
    name = {id(run.result): run.name for run in runs}
    reference = comparison.arms[0]
    for arm in comparison.arms[1:]:
        for mine in arm.runs:
            theirs = next((run for run in reference.runs if run.seed == mine.seed), None)
            if theirs is None:
                lacking = f"no finished run of {reference.name} has its seed {mine.seed}"
                yield f"{name[id(mine)]} has no difference: {lacking}."
            elif (why := why_unlike(mine, theirs)) is not None:
                yield (
                    f"{name[id(mine)]} and {name[id(theirs)]} have no difference: {why}. What they came to also shows "
                    "how they began."
                )


def _apart(comparisons: Sequence[ArmComparison]) -> Iterator[str]:
    if len(comparisons) > 1:
        steps = " and ".join(str(comparison.steps) for comparison in comparisons)
        yield f"Runs of {steps} steps are compared apart: longer training is a difference of its own."
    if len(comparisons) == 1 and len(comparisons[0].arms) == 1 and comparisons[0].arms[0].planned > 1:
        yield "The runs are seeds of one arm. Seeds have no difference to measure: their spread is in the table."
