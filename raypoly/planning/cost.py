"""Hours and cost of a whole run, from the seconds that a rehearsal or a pilot measured.

    run_seconds(config, 31.0, 0.04, problems)       # seconds of a step, and of a sample of an evaluation
    forecast_judge(config).usd              # US dollars a step, before anything is asked

`problems` says how many problems with tests each split has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.core.text import duration
from raypoly.strategies.judge import SAMPLED_SHARE
from raypoly.strategies.judge.judge_usage import dollars

# Counted (docs/judge.md): eight LeetCode programs make 956 tokens, 581 of them instructions, and an answer of 100.
_INSTRUCTIONS, _A_PROGRAM, _AN_ANSWER = 581, (956 - 581) / 8, 100 / 8


def run_seconds(config: Config, step: float, sample: float, problems: Mapping[str, int]) -> float:
    """Seconds of all steps and evaluations of a run. `step`: of a whole step, with everything that it waits for;
    `sample`: of one sample of an evaluation, among all the others that are sampled with it."""
    samples = sum(times * count * each for times, count, each in planned_evaluations(config, problems))
    return config.train.steps * step + samples * sample


def describe_forecast(
    config: Config, gpus: int, seconds: float, judge_usd: float | None, now: datetime
) -> Iterator[str]:
    """The forecast of a run as lines for a person. `judge_usd`: of one step; None if unknown."""
    yield (
        f"{config.train.steps:,} steps and evaluations: {duration(seconds)}, which ends "
        f"{now + timedelta(seconds=seconds):%Y-%m-%d %H:%M} if it starts now"
    )
    if gpus:
        yield f"GPU-hours: {gpus * seconds / 3600:,.1f}"
    if judge_usd is None:
        yield "judge: its cost is unknown (judge.price_input, judge.price_output)"
    else:
        total = judge_usd * config.train.steps
        yield f"judge: {dollars(total)}, evaluations apart" if total else "judge: without cost"


def planned_evaluations(config: Config, problems: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    """Of each split that is evaluated: how often, on how many problems, with how many samples each."""
    evaluate, steps = config.evaluate, config.train.steps
    if not evaluate.every:
        return
    on_validation = len({*range(0, steps + 1, evaluate.every), steps})
    if problems.get("test"):
        yield (2 if steps else 1), problems["test"], evaluate.samples
    if problems.get("validation"):
        yield on_validation, problems["validation"], evaluate.validation_samples


@dataclass(frozen=True)
class JudgeForecast:
    """The judge's part in one step."""

    groups: float
    """Groups that are judged; 0 if none is."""
    usd: float | None
    """None where the judge's prices are unknown; 0 for a judge without a server."""


def forecast_judge(config: Config) -> JudgeForecast:
    """The judge's groups and dollars a step, by the number of tokens that questions had."""
    needs = "labels" in objectives.of_run(config).needs
    share = 1.0 if needs else {"always": 1.0, "sampled": 1 / SAMPLED_SHARE, "needed": 0.0}[config.judge.when]
    groups, usd = share * config.train.prompts_per_step, _group_usd(config)
    return JudgeForecast(groups, None if usd is None else groups * usd)


def _group_usd(config: Config) -> float | None:
    if config.judge.name != "openai":
        return 0.0 if config.judge.name in ("structural", "local") else None
    # The client takes a second to import.
    from raypoly.strategies.judge.openai.token_cost import TokenUsage, compute_cost, configured_prices

    known, rollouts = configured_prices(config.judge), config.train.rollouts
    if known is None:
        return None
    question = TokenUsage(round(_INSTRUCTIONS + rollouts * _A_PROGRAM), 0, round(rollouts * _AN_ANSWER))
    return config.judge.votes * compute_cost(known, question)
