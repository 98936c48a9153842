"""An evaluation's results: one row a sample, and the numbers of all problems and of parts of them.

table = sample_table(groups, {problem.id: problem.metadata for problem in problems})
results = evaluation_results(groups, set_aside, {problem.id: problem.metadata for problem in problems})
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from raypoly.algorithms.objectives.behaviour import behaviour_of
from raypoly.analysis.evaluation.evaluation_slices import slices_of
from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.metrics.pass_at_k import ProblemOutcome, summarise
from raypoly.analysis.metrics.problem_counts import stratum_of
from raypoly.core.values import Group

DECIMAL = (10, 100)
"""The k of published tables that are no power of two."""


def problem_outcome(group: Group, at_once: int | None = None) -> ProblemOutcome:
    """A scored group as an evaluation counts it. `at_once`: samples in each of the judge's groups; default: all."""
    verdicts, labels = group.verdicts or (), None if group.labels is None else group.labels.strategies
    behaviours = tuple(known for each in verdicts if (known := behaviour_of(each)) is not None)
    return replace(GroupOutcomes.of(verdicts, None).outcome(labels, at_once), behaviours=behaviours)


def sample_table(
    groups: Sequence[Group], metadata: Mapping[str, Mapping[str, str]], at_once: int | None = None
) -> pa.Table:
    """One row a sample of these scored groups. `metadata`: the problems', by id. `at_once`: as `problem_outcome`."""
    rows = [
        {
            "problem_id": group.problem_id,
            "stratum": stratum_of(metadata[group.problem_id]),
            "rollout": index,
            "text": rollout.text,
            "response_tokens": len(rollout.tokens),
            "finish_reason": rollout.finish_reason,
            "seed": rollout.seed,
            "status": verdict.status,
            "detail": verdict.detail,
            "behaviour": behaviour_of(verdict),
            "strategy": verdict.evidence.strategy if verdict.evidence else None,
            "label": None if group.labels is None else int(group.labels.ids[index]),
            "label_group": None if group.labels is None else index // (at_once or group.size),
        }
        for group in groups
        for index, (rollout, verdict) in enumerate(zip(group.rollouts, group.verdicts or (), strict=True))
    ]
    return pa.Table.from_pylist(rows)


def evaluation_results(
    groups: Sequence[Group],
    set_aside: Mapping[str, str],
    metadata: Mapping[str, Mapping[str, str]],
    at_once: int | None = None,
    also: Iterable[int] = (),
) -> dict[str, Any]:
    """JSON values: the measures over the problems that are not set aside, and over parts of them by `metadata`.

    `set_aside`: why a problem's samples could not be judged, by its id. `at_once`: as `problem_outcome`. `also`: as
    `summarise`.
    """
    further = tuple(also)
    sound = {group.problem_id: group for group in groups if group.problem_id not in set_aside}
    outcomes = {name: problem_outcome(group, at_once) for name, group in sound.items()}
    slices = slices_of({name: metadata[name] for name in sound})
    ends = [rollout.finish_reason == "length" for group in sound.values() for rollout in group.rollouts]
    empty = [verdict.status == "no_code" for group in sound.values() for verdict in group.verdicts or ()]
    return {
        **summarise(list(outcomes.values()), further),
        "truncated": math.fsum(ends) / len(ends),
        "no_code": math.fsum(empty) / len(empty),
        "slices": {
            key: {
                value: {"problems": len(names), **summarise([outcomes[name] for name in names], further)}
                for value, names in parts.items()
            }
            for key, parts in slices.items()
        },
        "set_aside": dict(set_aside),
    }
