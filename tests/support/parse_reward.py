"""A reward that programs earn by parsing, for short runs whose policy seldom solves a problem."""

from raypoly.core.values import Problem, Rollout, Verdict


def parses(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    """1 for a right program, 1/2 for one that parses."""
    return 1.0 if verdict.passed else 0.5 if verdict.evidence else 0.0


def sometimes_unknown(problem: Problem, rollout: Rollout, verdict: Verdict) -> float | None:
    """The same, unknown for about a tenth of the rollouts."""
    return None if rollout.seed % 10 == 3 else parses(problem, rollout, verdict)
