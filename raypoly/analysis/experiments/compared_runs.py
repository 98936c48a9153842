"""Named runs beside each other: which are seeds of one arm, how arms differ, and which make no pair.

    runs = compare_runs([Run("grpo-s0"), Run("poly-s0")])
    compare_arms([run.result for run in runs])
    for sentence in why_not_compared(runs): print(sentence)

Two runs are seeds of one arm where they differ in nothing that affects results but the seed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.analysis.experiments.arm_comparison import ArmComparison
from raypoly.analysis.experiments.planned_runs import start_of
from raypoly.analysis.experiments.run_result import RunResult, read_result
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import keys_without_effect

_SEED = "train.seed"
_SEEDS = (_SEED, "warm_start.seed", "problems.seed")
_OWN = ("run.dir", "run.name", "run.fresh")  # keys that say where a run is


@dataclass(frozen=True)
class ComparedRun:
    name: str
    """Its folder's name; its place, where two have the same name."""
    files: RunFiles
    result: RunResult


def compare_runs(runs: Sequence[RunFiles]) -> list[ComparedRun]:
    """In their order, with the names of their arms and their seeds."""
    values = [_for_every_seed(run.config) for run in runs]
    seeds = [key for key in _SEEDS if all(each[key] == each[_SEED] for each in values)]
    starts = [start_of(each, seeds) for each in values]
    arms = _arms(values, starts, seeds)
    names = Counter(run.name for run in runs)
    called = [run.name if names[run.name] == 1 else run.uri for run in runs]
    arm_names = _arm_names(arms, values, called)
    return [
        ComparedRun(name, run, read_result(arm_names[arm], run.config.train.seed, start, run.config.train.steps, run))
        for name, run, arm, start in zip(called, runs, arms, starts, strict=True)
    ]


def _for_every_seed(config: Config) -> dict[str, Any]:
    # Dotted values without the seed in other runs' folders (`FOLDER/sft-s*/model`), and without their hashes.
    ending = re.compile(rf"-s{config.train.seed}(?=(/model)?$)")
    values = dotted_values(config)
    for key, value in list(values.items()):
        if isinstance(value, list):
            values[key] = [ending.sub("-s*", each) if isinstance(each, str) else each for each in value]
        elif isinstance(value, str) and key not in _OWN and ending.search(value):
            values[key] = ending.sub("-s*", value)
            values |= {own: None for own in (f"{key.rpartition('.')[0]}.sha256",) if own in values}
    return values


def _arms(values: Sequence[Mapping[str, Any]], starts: Sequence[str], seeds: Sequence[str]) -> list[int]:
    """The place of the first run of each run's arm; a second run of a seed is an arm of its own."""
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


def _arm_names(arms: Sequence[int], values: Sequence[Mapping[str, Any]], called: Sequence[str]) -> dict[int, str]:
    # By objective, if that is enough; else by the first run's folder.
    firsts = list(dict.fromkeys(arms))
    objectives = {arm: str(values[arm]["objective.name"]) for arm in firsts}
    folders = {arm: called[arm].removesuffix(f"-s{values[arm][_SEED]}") for arm in firsts}
    for names in (objectives, folders):
        if len(set(names.values())) == len(firsts):
            return names
    return {arm: called[arm] for arm in firsts}


def differing_keys(values: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted keys, in order, whose values differ between configs, but for those that say where a run is."""
    keys = dict.fromkeys(key for each in values for key in each)
    return [key for key in keys if key not in _OWN and any(each.get(key) != values[0].get(key) for each in values)]


def why_not_compared(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> list[str]:
    """Sentences on runs that have no difference from another one."""
    name = {id(run.result): run.name for run in runs}
    said = [sentence for run in runs if (sentence := _unmeasured(run))]
    for comparison in comparisons:
        first = comparison.arms[0]
        seeds = {run.seed for run in first.runs}
        said += [
            f"{name[id(run)]} has no difference: no finished run of {first.name} has its seed {run.seed}."
            for arm in comparison.arms[1:]
            for run in arm.runs
            if run.seed not in seeds
        ]
        said += [
            f"{name[id(mine)]} and {name[id(theirs)]} have no difference: {why}."
            for why, pairs in comparison.unlike.items()
            for mine, theirs in pairs
        ]
    if len(comparisons) > 1:
        steps = " and ".join(str(comparison.steps) for comparison in comparisons)
        said.append(f"Runs of {steps} steps are compared apart: longer training is a difference of its own.")
    elif comparisons and len(comparisons[0].arms) == 1 and comparisons[0].arms[0].planned > 1:
        said.append("The runs are seeds of one arm. Seeds have no difference to measure: their spread is in the table.")
    return said


def _unmeasured(run: ComparedRun) -> str:
    result = run.result
    if result.found is not None:
        return f"{run.name} was made by `raypoly {result.command}`: it has no numbers on test."
    if result.trouble:
        return f"{run.name} can't be read: {result.trouble}"
    if not result.finished:
        done = f"{run.name} has done {run.files.steps_done} of {result.steps} steps."
        return f"{done} Differences are of finished runs alone."
    return "" if result.after else f"{run.name} was not measured on test after training: it has no difference."
