"""From measurements to the printed tables: medians, ratios round by round, and whether the targets are met."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GIB = 1 << 30


@dataclass(frozen=True)
class MeasuredStep:
    """What one step, or one update, of a paced process took and did."""

    seconds: float
    sampled: int
    """Responses that there were."""
    trained: int
    """Responses whose tokens entered the loss."""
    tokens: int
    """Those tokens."""
    reward: float | None = None
    """Mean of the responses; None where the update alone is measured."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds in which a stage was busy; stages may overlap."""
    grad_norm: float | None = None
    """Before clipping, of an update from the starting weights; None for any other."""


@dataclass
class MeasuredArm:
    """One arm's rounds; the arms take turns, so that round i of each saw about the same machine."""

    name: str
    steps: list[MeasuredStep] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Of each step, all processes of the arm."""
    memory_bytes: int | None = None
    first_norm: float | None = None
    cores: int = 1
    """That the arm may use."""

    @property
    def seconds(self) -> float:
        """Median."""
        return statistics.median(step.seconds for step in self.steps)

    @property
    def least(self) -> float:
        """Seconds of the quickest round: what other work on the machine lengthened least."""
        return min(step.seconds for step in self.steps)

    @property
    def busy(self) -> float:
        """Median share of the cores' time that the arm computed: CPU seconds / (seconds x cores)."""
        rounds = zip(self.cpu_seconds, self.steps, strict=True)
        return statistics.median(spent / (step.seconds * self.cores) for spent, step in rounds)

    @property
    def stages(self) -> dict[str, float]:
        """Median seconds by stage."""
        names = list(self.steps[0].stages)
        return {name: statistics.median(step.stages.get(name, 0.0) for step in self.steps) for name in names}

    @property
    def dropped(self) -> int:
        """Responses that were there and did not enter the loss."""
        return sum(step.sampled - step.trained for step in self.steps)


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one arm is as another, round by round."""

    median: float
    lowest: float
    highest: float


def speed_up(slow: MeasuredArm, fast: MeasuredArm) -> Ratio:
    """Raises `ValueError` where the arms have not the same rounds."""
    pairs = zip(slow.steps, fast.steps, strict=True)
    ratios = [theirs.seconds / ours.seconds for theirs, ours in pairs]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def step_table(title: str, arms: Sequence[MeasuredArm]) -> str:
    """A line an arm; the first is what the others are compared with."""
    head = (
        f"{title:29}{'seconds':>8}{'least':>8}{'times as fast':>22}{'CPU s':>7}"
        f"{'busy':>6}{'rows':>6}{'dropped':>9}{'tokens':>8}{'GiB':>6}"
    )
    lines = [head]
    for arm in arms:
        if arm is arms[0]:
            ratio = "1"
        else:
            by_round = speed_up(arms[0], arm)
            ratio = f"{by_round.median:.2f} ({by_round.lowest:.2f} to {by_round.highest:.2f})"
        rows = statistics.median(step.trained for step in arm.steps)
        tokens = statistics.mean(step.tokens for step in arm.steps)
        lines.append(
            f"{arm.name:29}{arm.seconds:8.3f}{arm.least:8.3f}{ratio:>22}{statistics.median(arm.cpu_seconds):7.2f}"
            f"{arm.busy:6.0%}{rows:6.0f}{arm.dropped:9}{tokens:8.0f}{_gib(arm.memory_bytes):>6}"
        )
    return "\n".join(lines)


def stage_lines(arms: Sequence[MeasuredArm]) -> str:
    """Where each arm's time goes, a line an arm."""
    return "\n".join(
        f"{arm.name:29}" + "  ".join(f"{name} {spent:.2f}" for name, spent in arm.stages.items()) for arm in arms
    )


def check_targets(theirs: MeasuredArm, ours: Sequence[MeasuredArm], least: float, what: str) -> list[tuple[bool, str]]:
    """What was asked for, and whether the best of our arms has it."""
    best = max(ours, key=lambda arm: speed_up(theirs, arm).median)
    ratio = speed_up(theirs, best).median
    found = [(ratio >= least, f"{what}: {ratio:.2f} times as fast with {best.name}, asked for {least:g}")]
    whole = all(arm.dropped == 0 for arm in (theirs, *ours))
    found.append((whole, f"{what}: every response entered the loss on both sides"))
    if theirs.memory_bytes is not None and best.memory_bytes is not None:
        lighter = best.memory_bytes <= theirs.memory_bytes
        sizes = f"{_gib(best.memory_bytes)} GiB against {_gib(theirs.memory_bytes)}"
        found.append((lighter, f"{what}: memory no higher ({sizes})"))
    return found


def _gib(size: int | None) -> str:
    return "?" if size is None else f"{size / GIB:.2f}"
