"""Forecasts the whole run from a rehearsal's times: hours, GPU-hours, the judge's cost, the end.

A rehearsal samples two problems at a time. A wider batch takes less time per token. So on a known GPU the rehearsal's
sampling time is multiplied by the ratio that the plan gives (`raypoly.planning.step_seconds`). On other devices it is
scaled with the tokens, which is an upper bound. Gradient times are scaled with the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from raypoly.core.config import Config
from raypoly.core.tables import duration
from raypoly.planning.dry_run import forecast_judge, planned_evaluations
from raypoly.planning.gpus import Device, layout_of
from raypoly.planning.model_shape import shape_of
from raypoly.planning.step_seconds import sampling_seconds
from raypoly.strategies.judge.judge_usage import dollars


@dataclass(frozen=True)
class RehearsalTimes:
    """Times that a rehearsal measured, in seconds."""

    sampling: float
    prompts: int
    responses: int
    response_tokens: int
    update: float
    """An update without rows: AdamW, and the digest of the weights."""
    gradients: float
    """Gradients of rows at their limits."""
    gradient_tokens: int
    """Tokens of those rows' responses."""
    hand_over: float
    judge_call_usd: float | None
    """US dollars of one question; None if unknown."""
    crossing: float = 0.0
    """The learner's log-probabilities behind several prompts, if the objective needs them."""

    @property
    def length(self) -> float:
        """Mean tokens in a response."""
        return self.response_tokens / self.responses


@dataclass(frozen=True)
class Forecast:
    """The forecast of a whole run, in seconds."""

    sampling: float
    gradients: float
    step: float
    evaluations: float
    total: float
    gpus: int
    at_most: bool
    """Whether the times are upper bounds, since sampling was scaled with the tokens."""
    judge_usd: float | None
    """None if unknown."""
    crossing: float = 0.0


def forecast(config: Config, device: Device, measured: RehearsalTimes, problems: Mapping[str, int]) -> Forecast:
    """The forecast of a run. `problems`: how many with tests each split has."""
    train = config.train
    responses = train.prompts_per_step * train.rollouts
    factor, at_most = _sampling_factor(config, device, measured, responses)
    sampling = measured.sampling * factor
    tokens = responses * measured.length
    gradients = measured.gradients * tokens / measured.gradient_tokens
    crossing = measured.crossing * responses / measured.responses
    step = sampling + crossing + gradients + measured.update + measured.hand_over
    samples = sum(times * count * each for times, count, each in planned_evaluations(config, problems))
    evaluations = samples * sampling / responses
    asked = forecast_judge(config)
    usd = None if measured.judge_call_usd is None else measured.judge_call_usd * config.judge.votes * asked.groups
    return Forecast(
        sampling=sampling,
        gradients=gradients,
        step=step,
        evaluations=evaluations,
        total=train.steps * step + evaluations,
        gpus=layout_of(config, device).gpus,
        at_most=at_most,
        judge_usd=0.0 if not asked.groups else None if usd is None else usd * train.steps,
        crossing=crossing,
    )


def describe_forecast(config: Config, measured: RehearsalTimes, found: Forecast, now: datetime) -> str:
    """The forecast as lines for a person."""
    most = ", at most" if found.at_most else ""
    crossing = f"log-probs behind several prompts {duration(found.crossing)}, " if found.crossing else ""
    lines = [
        f"responses had {measured.length:,.0f} tokens in the mean; longer ones take longer",
        f"a step{most}: {duration(found.step)} (sampling {duration(found.sampling)}, {crossing}"
        f"gradients {duration(found.gradients)}, update {duration(measured.update)}, hand-over "
        f"{duration(measured.hand_over)}), and what scoring and judging add for its last groups",
        f"{config.train.steps:,} steps and evaluations{most}: {duration(found.total)}, which ends "
        f"{now + timedelta(seconds=found.total):%Y-%m-%d %H:%M} where it starts now",
    ]
    if found.gpus:
        lines.append(f"GPU-hours{most}: {found.gpus * found.total / 3600:,.1f}")
    if found.judge_usd is None:
        lines.append("judge: its cost is unknown (judge.price_input, judge.price_output)")
    else:
        lines.append(
            f"judge: {dollars(found.judge_usd)}, evaluations apart" if found.judge_usd else "judge: without cost"
        )
    return "\n".join(lines)


def _sampling_factor(config: Config, device: Device, measured: RehearsalTimes, responses: int) -> tuple[float, bool]:
    """The ratio of a step's sampling time to the rehearsal's, and whether it is an upper bound."""
    shape, layout = shape_of(config.model.path), layout_of(config, device)
    linear = responses / measured.responses
    if shape is None:
        return linear, True
    length, prompts = round(measured.length), config.train.prompts_per_step
    whole = sampling_seconds(config, shape, device, layout, prompts, responses, length)
    small = sampling_seconds(config, shape, device, layout, measured.prompts, measured.responses, length)
    if whole is None or not small:
        return linear, True
    return whole / small, False
