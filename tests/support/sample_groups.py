"""Groups with every kind of value in them, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from raypoly.core.values import STATUSES, UNKNOWN, CrossLogprobs, Evidence, Failure, Group, Labels, Rollout, Verdict
from raypoly.run.store.step_records import Generated, StageFinding

AFTER = {"score": (), "judge": ("score",)}
"""The stages that whole groups have passed, and those before each."""
TEXTS = ("    return n * (n + 1) // 2\n", "", "räksmörgås 🦐 \x00 tab\t", "raypoly.sha256 @" + "0" * 64)


def make_group(step: int, slot: int, size: int = 8, *, tokens: int = 48, unjudged: bool = False) -> Group:
    """A whole group: rollouts, verdicts with and without evidence, and labels (or `unjudged`)."""
    rng = np.random.default_rng([step, slot])
    rollouts = tuple(make_rollout(rng, int(rng.integers(1, tokens + 1))) for _ in range(size))
    labels = Labels(rng.integers(0, 4, size).astype(np.int32), rng.random(size) < 0.2, "structural-1")
    problem_id = f"puzzle/{int(rng.integers(1000))}"
    verdicts = tuple(make_verdict(rng) for _ in range(size))
    return Group(step, slot, problem_id, rollouts, {"score": verdicts, "judge": UNKNOWN if unjudged else labels})


def make_crossed(group: Group, prompts: int = 3) -> Group:
    """The group with log-probabilities of its responses behind so many prompts, in turn."""
    rng = np.random.default_rng([group.step, group.slot, 1])
    logprobs = tuple(-10 * rng.random((prompts, len(each.tokens)), np.float32) for each in group.rollouts)
    own = (np.arange(group.size) % prompts).astype(np.int32)
    return group.with_findings(prompt_logprobs=CrossLogprobs(own, logprobs))


def make_rollout(rng: np.random.Generator, tokens: int) -> Rollout:
    return Rollout(
        prompt_tokens=rng.integers(0, 480, 30).astype(np.int32),
        tokens=rng.integers(0, 480, tokens).astype(np.int32),
        logprobs=(-rng.random(tokens) * 10).astype(np.float32),
        text=str(rng.choice(TEXTS)),
        finish_reason="stop" if rng.random() < 0.8 else "length",
        seed=int(rng.integers(0, 2**63)),
        weight_version=int(rng.integers(0, 80)),
    )


def make_verdict(rng: np.random.Generator) -> Verdict:
    features = ("depth_1", "hash") if rng.random() < 0.5 else ()
    evidence = Evidence("def f(n):\n return n", ("for", "map"), {"for": 40.0, "map": 1 / 3}, "for", features)
    status = STATUSES[int(rng.integers(len(STATUSES)))]
    known = evidence if rng.random() < 0.7 else None
    failure = Failure(2, "f(3)", "'\ud800'", "ö") if rng.random() < 0.5 else None
    detail, cpu_seconds = "line one: ValueError('ö')", float(rng.random())
    return Verdict(status, int(rng.integers(4)), 4, cpu_seconds, detail, known, failure, bool(rng.random() < 0.9))  # type: ignore[arg-type]


def stages(group: Group) -> tuple[Generated, StageFinding, StageFinding]:
    """The group's first three records."""
    parts = [StageFinding(group.step, group.slot, name, group.findings[name], after) for name, after in AFTER.items()]
    return Generated(replace(group, findings={})), *parts  # type: ignore[return-value]


def same_group(left: Group, right: Group) -> bool:
    """Whether two groups are equal in every value, arrays bit by bit."""
    plain = ("step", "slot", "problem_id", "verdicts", "unjudged")
    return (
        all(getattr(left, name) == getattr(right, name) for name in plain)
        and left.size == right.size
        and all(map(_same_rollout, left.rollouts, right.rollouts))
        and _same_labels(left.labels, right.labels)
        and _same_crossed(left.cross_logprobs, right.cross_logprobs)
    )


def _same_rollout(left: Rollout, right: Rollout) -> bool:
    arrays = ("prompt_tokens", "tokens", "logprobs")
    plain = ("text", "finish_reason", "seed", "weight_version")
    return all(getattr(left, name) == getattr(right, name) for name in plain) and all(
        getattr(left, name).dtype == getattr(right, name).dtype
        and getattr(left, name).tobytes() == getattr(right, name).tobytes()
        for name in arrays
    )


def _same_crossed(left: CrossLogprobs | None, right: CrossLogprobs | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.own_prompt.tolist() == right.own_prompt.tolist() and all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in zip(left.logprobs, right.logprobs, strict=True)
    )


def _same_labels(left: Labels | None, right: Labels | None) -> bool:
    if left is None or right is None:
        return left is right
    return (
        left.judge == right.judge
        and (left.ids.dtype, left.degenerate.dtype) == (right.ids.dtype, right.degenerate.dtype)
        and left.ids.tolist() == right.ids.tolist()
        and left.degenerate.tolist() == right.degenerate.tolist()
    )
