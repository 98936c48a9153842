"""What a run does now, in numbers: the metrics of `raypoly/run/run_metrics.py` whose source is `now`."""

from __future__ import annotations

from collections import Counter

from workflows.durability.journal import Journal
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.step.services import Services

_STAGES = ("generate", "score", "judge", "learn", "commit")  # those that are always shown
_ACTORS = ("generator", "scorer", "judge", "learner")


def live_numbers(
    services: Services, journal: Journal, usage: RunJudgeUsage, pause: JudgeOutagePause
) -> dict[str, float]:
    """The numbers by name. May be called from any thread, at any time."""
    context, use, losses = services.context, usage.total, dict(services.context.retries.losses)
    calls = Counter(call.stage for call in context.in_flight.open)
    return {
        "paused": float(pause.is_paused),
        "programs_waiting": float(services.scorers.waiting),
        "retries_left": float(context.retries.left),
        "judge_calls": use.get("calls", 0.0),
        "judge_cache_hits": use.get("cache_hits", 0.0),
        "commit_age_seconds": journal.seconds_since_commit,
        **{f"calls/{stage}": float(calls[stage]) for stage in {*_STAGES, *calls}},
        **{f"scorers/{state}": float(count) for state, count in services.scorers.counts().items()},
        **{f"restarts/{kind}": float(sum(losses[who] for who in losses if kind in who.lower())) for kind in _ACTORS},
    }
