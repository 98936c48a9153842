"""Results of an evaluation: a row for each sample, and numbers of all problems, of parts of them, and of its scaffold.

table = sample_table(groups, {problem.id: problem.metadata for problem in problems})
results = evaluation_results(groups, set_aside, {problem.id: problem.metadata for problem in problems})
results |= scaffold_results(groups, "tuple", scaffold, samples)

A judge labels a problem's samples a few at a time; labels of two of its groups don't compare, so strategies are counted
within each group of 8 samples or more, and averaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.algorithms.objectives.behaviour import behaviour_of
from raypoly.analysis.evaluation.planned_strategy import is_followed
from raypoly.analysis.metrics.decoded_tokens import DecodedTokens, mean_by_role, pass_per_10k
from raypoly.analysis.metrics.pass_at_k import (
    STRATEGY_DRAWS,
    ProblemOutcome,
    Select,
    block_ks,
    block_pass_at_k,
    ks,
    maj_at_k,
    summarise,
)
from raypoly.analysis.metrics.plan_diversity import has_duplicate, semantic_diversity, surface_diversity
from raypoly.analysis.metrics.problem_counts import GroupOutcomes, stratum_of
from raypoly.core.config import Config
from raypoly.core.values import Float64, Group, Labels
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.strategies.judge.algorithm_categories import Category, CategoryAgreement, algorithmic_diversity
from raypoly.verifier.code_extraction import find_code
from raypoly.verifier.response_text import has_thoughts

DECIMAL = (10, 100)
"""k of published tables that are no power of two."""


def problem_outcome(group: Group, at_once: int | None = None) -> ProblemOutcome:
    """A scored group as an evaluation counts it. `at_once`: samples in each of the judge's groups (default: all)."""
    verdicts, labels = group.verdicts or (), None if group.labels is None else group.labels.strategies
    behaviours = tuple(known for each in verdicts if (known := behaviour_of(each)) is not None)
    return replace(GroupOutcomes.of(verdicts, None).outcome(labels, at_once), behaviours=behaviours)


def sample_table(
    groups: Sequence[Group], metadata: Mapping[str, Mapping[str, str]], at_once: int | None = None
) -> pa.Table:
    """A row for each sample. `metadata`: by problem id. `at_once`: as `problem_outcome`."""
    talks = any(rollout.turns for group in groups for rollout in group.rollouts)
    rows = [
        {
            "problem_id": group.problem_id,
            "stratum": stratum_of(metadata[group.problem_id]),
            "rollout": index,
            "text": rollout.text,
            "response_tokens": rollout.length,
            "finish_reason": rollout.finish_reason,
            "seed": rollout.seed,
            "status": verdict.status,
            "detail": verdict.detail,
            "behaviour": behaviour_of(verdict),
            "strategy": verdict.evidence.strategy if verdict.evidence else None,
            "label": None if group.labels is None else int(group.labels.ids[index]),
            "label_group": None if group.labels is None else index // (at_once or group.size),
            **({"turns": list(map(asdict, rollout.turns)), "outcome": rollout.outcome} if talks else {}),
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
    """JSON values: measures over the problems that are not set aside, and over parts of them by `metadata`.

    `set_aside`: reasons by problem id. `at_once`: as `problem_outcome`. `also`: as `summarise`.
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


MOST_PARTS = 12
_FEWEST_PROBLEMS = 2  # mean problems of a part: a title or a number divides nothing
_DAY = re.compile(r"\d{4}-\d\d-\d\d")

Slices = Mapping[str, Mapping[str, Sequence[str]]]
"""By key and value, ids of problems."""


def slices_of(metadata: Mapping[str, Mapping[str, str]]) -> Slices:
    """Parts of problems by each key of their metadata that divides them into a few.

    Keys and values in order; dates by month, or by year where that gives too many parts.
    """
    found: dict[str, Mapping[str, Sequence[str]]] = {}
    for key in sorted({key for own in metadata.values() for key in own}):
        parts = _parts({name: own[key] for name, own in metadata.items() if own.get(key)})
        if 2 <= len(parts) <= min(MOST_PARTS, sum(map(len, parts.values())) // _FEWEST_PROBLEMS):
            found[key] = parts
    return found


def _parts(values: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    if values and all(_DAY.match(value) for value in values.values()):
        months = {name: value[:7] for name, value in values.items()}
        values = months if len(set(months.values())) <= MOST_PARTS else {n: value[:4] for n, value in months.items()}
    ordered = sorted(set(values.values()), key=_order)
    return {value: [name for name, own in values.items() if own == value] for value in ordered}


def _order(value: str) -> tuple[float, str]:
    # Numbers by value, before other texts.
    try:
        return float(value), value
    except ValueError:
        return float("inf"), value


def judged_at_once(config: Config) -> int | None:
    """Samples in each of the judge's groups: as in training, at least 8; None: all, for the structural judge."""
    return None if config.judge.name == "structural" else max(config.train.rollouts, STRATEGY_DRAWS)


def judged_groups(group: Group, size: int | None) -> list[Group]:
    """The scored group in parts of `size` samples, the last perhaps smaller; None: the group itself."""
    if size is None:
        return [group]
    verdicts = group.verdicts or ()
    parts = [slice(place, place + size) for place in range(0, group.size, size)]
    return [replace(group, rollouts=group.rollouts[part], findings={"score": verdicts[part]}) for part in parts]


def joined_labels(found: Sequence[Labels | None]) -> Labels | None:
    """Labels of all parts, in order; None where one could not be labelled."""
    known = [labels for labels in found if labels is not None]
    if len(known) < len(found):
        return None
    ids, degenerate = (np.concatenate([getattr(labels, name) for labels in known]) for name in ("ids", "degenerate"))
    return Labels(ids, degenerate, " and ".join(sorted({labels.judge for labels in known})))


Encode = Callable[[Sequence[str]], Float64]
"""float64 [texts, width]."""


def scaffold_results(
    groups: Sequence[Group],
    name: str,
    scaffold: Scaffold,
    attempts: int,
    select: Select = "first",
    encode: Encode | None = None,
    also: Sequence[int] = (),
) -> dict[str, Any]:
    """JSON values: block, decoded tokens, diversity; and `pass_at_k` where attempts come in blocks.

    `select`: which k of a block's attempts count. `encode`: for `semantic_diversity`; None: left out. `also`: more k.
    """
    block = scaffold.block(attempts)
    tokens = [DecodedTokens.of_group(group) for group in groups]
    passed = [[verdict.passed for verdict in group.verdicts or ()] for group in groups]
    curve = blocks_curve(passed, block, select, also)
    return {
        "scaffold": name,
        "block": block,
        "decoded_tokens": {role: round(mean, 2) for role, mean in mean_by_role(tokens).items()},
        "thoughts": _mean([float(has_thoughts(draft.rollout.text)) for group in groups for draft in group.drafts]),
        "pass_per_10k": {
            k: pass_per_10k(
                [block_pass_at_k(each, block, int(k), select) for each in passed],
                [each.expected(int(k), attempts, block) for each in tokens],
            )
            for k in curve
        },
        **_diversity(groups, scaffold, attempts, block, encode),
        **({"pass_at_k": curve, "select": select} if block > 1 else {}),
    }


def blocks_curve(
    passed: Sequence[Sequence[bool]], block: int, select: Select = "first", also: Sequence[int] = ()
) -> dict[str, float]:
    """Mean pass@k over problems, by k; `passed`: outcomes of each problem's attempts in order."""
    return {
        str(k): math.fsum(block_pass_at_k(each, block, k, select) for each in passed) / len(passed)
        for k in block_ks(min(map(len, passed)), block, also)
    }


def answer_votes(group: Group) -> Sequence[str | None]:
    """[N]: a text that is equal for equal answers, of a scored group whose problem asks for a value; None: no vote."""
    valued = ("passed", "wrong")
    return [behaviour_of(verdict) if verdict.status in valued else None for verdict in group.verdicts or ()]


def majority_results(groups: Sequence[Group], votes: Sequence[Sequence[str | None] | None]) -> dict[str, Any]:
    """`majority_at_k` by k, over the `majority_problems` that have votes. `votes` [problems][N]: what each attempt
    answers, or its program gives; None for a problem without."""
    known = [
        (own, [verdict.passed for verdict in group.verdicts or ()])
        for group, own in zip(groups, votes, strict=True)
        if own is not None
    ]
    shown = ks(min(len(passed) for _, passed in known)) if known else []
    curve = {str(k): math.fsum(maj_at_k(*pair, k) for pair in known) / len(known) for k in shown}
    return {"majority_at_k": curve, "majority_problems": len(known)}


def _diversity(
    groups: Sequence[Group], scaffold: Scaffold, attempts: int, block: int, encode: Encode | None
) -> dict[str, Any]:
    methods = [scaffold.methods(group.drafts, attempts) for group in groups]
    known = any(own is not None for own in methods)
    # independent attempts are one block
    blocks = list(chain.from_iterable(compared_texts(groups, scaffold, attempts, block if block > 1 else attempts)))
    return {
        "diversity_of": "methods" if known else "programs",
        "surface_diversity": _mean([d for each in blocks if (d := surface_diversity(each)) is not None]),
        "semantic_diversity": None
        if encode is None
        else _mean([d for each in blocks if len(each) > 1 and (d := semantic_diversity(encode(each))) is not None]),
        "duplicates": _mean([float(_repeats(each, known)) for each in blocks]),
        "followed": _followed(groups, methods),
    }


def compared_texts(
    groups: Sequence[Group], scaffold: Scaffold, attempts: int, size: int
) -> Sequence[Sequence[Sequence[str]]]:
    """By group, the texts of each block of `size` attempts: its methods, or its programs where there are no methods."""
    methods = [scaffold.methods(group.drafts, attempts) for group in groups]
    texts = [
        [find_code(rollout.text) for rollout in group.rollouts] if own is None else [text or None for text in own]
        for group, own in zip(groups, methods, strict=True)
    ]
    # cut first: a method that a plan lacks has its place in it
    whole = [[own[start : start + size] for start in range(0, len(own), size)] for own in texts]
    return [[each for block in own if (each := [text for text in block if text is not None])] for own in whole]


def category_results(
    blocks: Sequence[Sequence[Category | None]], agreement: CategoryAgreement | None
) -> dict[str, Any]:
    """JSON values: D_alg, the mean over blocks whose texts all have a category, if the classifier agrees with people;
    `agreement` is None where it is unknown. `unclassified`: share of texts without one."""
    known = [share for block in blocks if None not in block and (share := algorithmic_diversity(block)) is not None]
    return {
        "algorithmic_diversity": _mean(known) if agreement is not None and agreement.reported else None,
        "unclassified": _mean([float(name is None) for block in blocks for name in block]),
        "category_agreement": None if agreement is None else asdict(agreement),
    }


def _repeats(texts: Sequence[str], methods: bool) -> bool:
    # Methods by words alone, programs by every sign but white space.
    return has_duplicate(texts) if methods else len({"".join(text.split()) for text in texts}) < len(texts)


def _followed(groups: Sequence[Group], methods: Sequence[Sequence[str | None] | None]) -> float | None:
    """Share of attempts whose strategy, by execution, is the one that their method names, where both are known."""
    found: list[bool] = []
    for group, own in zip(groups, methods, strict=True):
        for text, verdict in zip(own or (), group.verdicts or (), strict=False):
            done = verdict.evidence.strategy if verdict.evidence else None
            if text and (known := is_followed(text, done)) is not None:
                found.append(known)
    return _mean(found)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
