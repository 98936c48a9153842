"""Judges: who says which programs of a group share an algorithmic strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from raypoly.core.config import JudgeConfig
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge.agreed import AgreedJudge
from raypoly.strategies.judge.judge_keys import asked_judges

KNOWN: Mapping[str, str] = {
    "structural": "raypoly.strategies.judge.structural:StructuralJudge",
    "openai": "raypoly.strategies.judge.openai:OpenAIJudge",
    "local": "raypoly.rollouts.local_judge:LocalJudge",
    "http": "raypoly.strategies.judge.http_judge:HttpJudge",
    "ensemble": "raypoly.strategies.judge.ensemble:EnsembleJudge",
}

SAMPLED_SHARE = 10
"""With `judge.when=sampled`, one group in this many is judged."""


class Judge(Protocol):
    """Clusters one group. Built as `Class(config: JudgeConfig)` inside the judge actor."""

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Labels of the N rollouts.

        Raises `JudgeUnavailable` in an outage (the step waits), and `JudgeRefused` where it answered and can't label
        this group (the group is `unjudged`). Any other exception is a programming error.
        """
        ...

    def probe(self) -> None:
        """Return where the judge can be asked again, else raise `JudgeUnavailable`."""
        ...


def build_judge(config: JudgeConfig) -> Judge:
    """By `judge.name` and `judge.labels`."""
    judge: Judge = load_plugin(config.name, KNOWN, "judge.name")(config)
    return AgreedJudge(judge) if config.labels == "agreed" and config.name != "structural" else judge


def is_shared(config: JudgeConfig) -> bool:
    """Whether its limits are a server's, or a member's are, so that all jobs of a cluster should share one instance."""
    kinds = [load_plugin(name, KNOWN, "judge.name") for name in asked_judges(config)]
    return any(getattr(kind, "shared", False) for kind in kinds)


def in_engine(config: JudgeConfig) -> bool:
    """Whether it holds a model in an engine of its own, which has its turn where it shares the policy's GPU."""
    return bool(getattr(load_plugin(config.name, KNOWN, "judge.name"), "in_engine", False))


def reads_texts(config: JudgeConfig) -> bool:
    """Whether it also groups answers to problems without tests, which are no programs."""
    if config.name == "ensemble":
        return all(reads_texts(config.model_copy(update={"name": name})) for name in config.members)
    return bool(getattr(load_plugin(config.name, KNOWN, "judge.name"), "reads_texts", False))
