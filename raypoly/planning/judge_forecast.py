"""What a run's questions to its judge cost, before it is started: unknown where the judge's prices are.

A question holds a group's distinct programs, which nobody has seen yet. Taken are those that were counted
(docs/judge.md): 956 tokens for eight LeetCode programs, of which 581 are instructions, and an answer of 100.
"""

from __future__ import annotations

from dataclasses import dataclass

from raypoly import objectives
from raypoly.config import Config

_INSTRUCTIONS = 581
"""Tokens of every question, with the worked example."""
_A_PROGRAM = (956 - _INSTRUCTIONS) / 8
"""Tokens of one program, its part of the problem's text with it."""
_AN_ANSWER = 100 / 8
"""Tokens of the answer for one program."""
SAMPLED_SHARE = 10
"""With `judge.when=sampled` one group in so many is judged."""


@dataclass(frozen=True)
class JudgeForecast:
    """Of one step."""

    groups: float
    """That are judged; 0 where nobody asks."""
    usd: float | None
    """None where the judge's prices are unknown."""


def forecast_judge(config: Config) -> JudgeForecast:
    """`usd` is 0 for a judge without a server."""
    needs = "labels" in objectives.of_run(config).needs
    share = 1.0 if needs or config.judge.when == "always" else 1 / SAMPLED_SHARE
    if not needs and config.judge.when == "needed":
        share = 0.0
    groups = share * config.train.prompts_per_step
    return JudgeForecast(groups, groups * usd if (usd := group_cost_usd(config)) is not None else None)


def group_cost_usd(config: Config) -> float | None:
    """US dollars of one group's question; None where unknown."""
    if config.judge.name == "structural":
        return 0.0
    if config.judge.name != "openai":
        return None
    from raypoly.judge.openai.token_cost import (  # the client takes a second to import
        TokenUsage,
        compute_cost,
        configured_prices,
    )

    known = configured_prices(config.judge)
    if known is None:
        return None
    rollouts = config.train.rollouts
    prompt = round(_INSTRUCTIONS + rollouts * _A_PROGRAM)
    return config.judge.votes * compute_cost(known, TokenUsage(prompt, 0, round(rollouts * _AN_ANSWER)))
