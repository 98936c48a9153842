"""Named runs beside each other: which are seeds of one arm, how arms differ, and which make no pair.

    runs = compare_runs([Run("grpo-s0"), Run("poly-s0")])
    compare_arms([run.result for run in runs])
    for sentence in why_not_compared(runs): print(sentence)

Two runs are seeds of one arm where they differ in nothing that affects results but the seed. Runs that begin with
another one's weights are compared as an experiment's arms with `after`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raypoly.analysis.experiments.arm_comparison import ArmComparison, why_unlike
from raypoly.analysis.experiments.command_result import CommandResult
from raypoly.analysis.experiments.planned_runs import start_of
from raypoly.analysis.experiments.run_result import RunResult, result_of
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import UsageError
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import keys_without_effect

_SEED = "train.seed"
_SEEDS = (_SEED, "warm_start.seed", "problems.seed")
_OWN = ("run.dir", "run.name", "run.fresh")  # keys that say where a run is
_BEGINS = ("model.path", "model.sha256", "warm_start.")
_WEIGHTS = "model"
_LONGEST = 40  # characters of an arm's name that is made of keys


@dataclass(frozen=True)
class ComparedRun:
    name: str
    """Its folder's name; its place, where two have the same name."""
    files: RunFiles
    result: RunResult


def compare_runs(runs: Sequence[RunFiles]) -> list[ComparedRun]:
    """In their order, with the names of their arms and their seeds."""
    values, after = [_for_every_seed(run.config) for run in runs], _after(runs)
    seeds = [key for key in _SEEDS if all(each[key] == each[_SEED] for each in values)]
    roots = [_root(after, i) for i in range(len(runs))]
    starts = [start_of({**each, **_beginning(values[root])}, seeds) for each, root in zip(values, roots, strict=True)]
    arms = _arms(values, starts, seeds)
    names = Counter(run.name for run in runs)
    called = [run.name if names[run.name] == 1 else run.uri for run in runs]
    arm_names = _arm_names(arms, values, called, seeds)
    results = [
        _result(run, result_of(arm_names[arm], run.config.train.seed, start, run.config.train.steps, run))
        for run, arm, start in zip(runs, arms, starts, strict=True)
    ]
    for i, before in enumerate(after):
        if before is not None:
            root = results[roots[i]].first_weights
            results[i] = replace(results[i], begins_with=arm_names[arms[before]], root_weights=root)
    return [ComparedRun(*each) for each in zip(called, runs, results, strict=True)]


def _result(run: RunFiles, result: RunResult) -> RunResult:
    try:
        found = CommandResult.read(run.store)
    except UsageError as error:
        return replace(result, trouble=str(error))
    return result if found is None else replace(result, command=found.command, found=found)


def _for_every_seed(config: Config) -> dict[str, Any]:
    # Dotted values without the seed in other runs' folders (`FOLDER/sft-s*/model`), and without their hashes.
    ending = re.compile(rf"-s{config.train.seed}(?=(/{_WEIGHTS})?$)")
    values = dotted_values(config)
    for key, value in list(values.items()):
        if isinstance(value, list):
            values[key] = [ending.sub("-s*", each) if isinstance(each, str) else each for each in value]
        elif isinstance(value, str) and key not in _OWN and ending.search(value):
            values[key] = ending.sub("-s*", value)
            values |= {own: None for own in (f"{key.rpartition('.')[0]}.sha256",) if own in values}
    return values


def _after(runs: Sequence[RunFiles]) -> list[int | None]:
    """The place of the run whose weights each begins with, if it is in the list."""
    places = {place: number for number, run in enumerate(runs) for place in (run.config.run.dir, run.uri)}
    made = {f"{place}/{_WEIGHTS}": number for place, number in places.items()}
    return [made.get(run.config.model.path or "") for run in runs]


def _root(after: Sequence[int | None], number: int) -> int:
    """The place of the run that its chain begins with."""
    seen = [number]
    while (before := after[seen[-1]]) is not None and before not in seen:
        seen.append(before)
    return seen[-1]


def _beginning(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key.startswith(_BEGINS)}


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


def _arm_names(
    arms: Sequence[int], values: Sequence[Mapping[str, Any]], called: Sequence[str], seeds: Sequence[str]
) -> dict[int, str]:
    # By objective, if that is enough; else with the keys that differ, if they are short; else by the first run.
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
    """The dotted keys, in order, whose values differ between configs, but for those that say where a run is."""
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
    if result.found is not None:
        return f"{run.name} was made by `raypoly {result.command}`: it has no numbers on test."
    if result.trouble:
        return f"{run.name} can't be read: {result.trouble}"
    if not result.finished:
        done = f"{run.name} has done {run.files.steps_done} of {result.steps} steps."
        return f"{done} Differences are of finished runs alone."
    return "" if result.after else f"{run.name} was not measured on test after training: it has no difference."


def _unpaired(runs: Sequence[ComparedRun], comparison: ArmComparison) -> Iterator[str]:
    """On finished runs without a pair in the first arm."""
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
