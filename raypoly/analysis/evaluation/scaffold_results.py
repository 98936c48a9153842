"""What an evaluation says of the scaffold that asked: pass@k of its blocks, decoded tokens, diversity of its methods.

    results |= scaffold_results(groups, "tuple", scaffold, samples)

Attempts that are drawn jointly count in blocks, for k up to the block and for whole blocks (arXiv 2605.27000).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from raypoly.analysis.metrics.block_pass_at_k import Select, block_ks, block_pass_at_k
from raypoly.analysis.metrics.decoded_tokens import DecodedTokens, mean_by_role, pass_per_10k
from raypoly.analysis.metrics.majority_choice import maj_at_k
from raypoly.analysis.metrics.pass_at_k import ks
from raypoly.analysis.metrics.plan_diversity import has_duplicate, semantic_diversity, surface_diversity
from raypoly.core.values import Float64, Group
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.strategies.planned_strategy import is_followed
from raypoly.verifier.code_extraction import find_code

Encode = Callable[[Sequence[str]], Float64]
"""A vector for each text, float64 [texts, width]."""


def scaffold_results(
    groups: Sequence[Group],
    name: str,
    scaffold: Scaffold,
    attempts: int,
    select: Select = "first",
    encode: Encode | None = None,
) -> dict[str, Any]:
    """JSON values over these scored groups; `pass_at_k` only where attempts come in blocks.

    `select`: which k of a block's attempts count. `encode`: for `semantic_diversity`, None where it is left out.
    """
    block = scaffold.block(attempts)
    tokens = [DecodedTokens.of_group(group) for group in groups]
    passed = [[verdict.passed for verdict in group.verdicts or ()] for group in groups]
    curve = blocks_curve(passed, block, select)
    return {
        "scaffold": name,
        "block": block,
        "decoded_tokens": {role: round(mean, 2) for role, mean in mean_by_role(tokens).items()},
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


def blocks_curve(passed: Sequence[Sequence[bool]], block: int, select: Select = "first") -> dict[str, float]:
    """pass@k by k, the mean over problems, each with the outcomes of its attempts in order."""
    return {
        str(k): math.fsum(block_pass_at_k(each, block, k, select) for each in passed) / len(passed)
        for k in block_ks(min(map(len, passed)), block)
    }


def majority_results(groups: Sequence[Group], votes: Sequence[Sequence[str | None] | None]) -> dict[str, Any]:
    """`majority_at_k`: the share of problems whose most frequent answer passes, by k, over the `majority_problems` that
    have votes. `votes`: what each attempt answers, or its program gives, [problems][N]; None for a problem without."""
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
    """Of the methods of a block, or of programs where the scaffold has no methods; attempts that are independent are
    one block."""
    methods = [scaffold.methods(group.drafts, attempts) for group in groups]
    known = any(own is not None for own in methods)
    texts = [
        [find_code(rollout.text) for rollout in group.rollouts] if own is None else [text or None for text in own]
        for group, own in zip(groups, methods, strict=True)
    ]
    size = block if block > 1 else attempts
    whole = (own[start : start + size] for own in texts for start in range(0, len(own), size))
    # cut first: a method that a plan lacks has its place in it
    blocks = [each for block in whole if (each := [text for text in block if text is not None])]
    return {
        "diversity_of": "methods" if known else "programs",
        "surface_diversity": _mean([d for each in blocks if (d := surface_diversity(each)) is not None]),
        "semantic_diversity": None
        if encode is None
        else _mean([d for each in blocks if len(each) > 1 and (d := semantic_diversity(encode(each))) is not None]),
        "duplicates": _mean([float(_repeats(each, known)) for each in blocks]),
        "followed": _followed(groups, methods),
    }


def _repeats(texts: Sequence[str], methods: bool) -> bool:
    """Two that are the same; of methods in words alone, of programs by every sign but white space."""
    return has_duplicate(texts) if methods else len({"".join(text.split()) for text in texts}) < len(texts)


def _followed(groups: Sequence[Group], methods: Sequence[Sequence[str | None] | None]) -> float | None:
    """The share of attempts whose strategy, by execution, is the one that their method names; of those of which both
    are known."""
    found: list[bool] = []
    for group, own in zip(groups, methods, strict=True):
        for text, verdict in zip(own or (), group.verdicts or (), strict=False):
            done = verdict.evidence.strategy if verdict.evidence else None
            if text and (known := is_followed(text, done)) is not None:
                found.append(known)
    return _mean(found)


def _mean(values: Sequence[float]) -> float | None:
    """None where nothing is known."""
    return math.fsum(values) / len(values) if values else None
