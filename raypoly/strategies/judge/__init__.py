"""Judges: who says which programs of a group share an algorithmic strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from raypoly.core.config import JudgeConfig
from raypoly.core.endpoint_config import refuse_login
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Labels, Problem, Rollout, Verdict

KNOWN: Mapping[str, str] = {
    "structural": "raypoly.strategies.judge.structural:StructuralJudge",
    "openai": "raypoly.strategies.judge.openai:OpenAIJudge",
    "http": "raypoly.strategies.judge.http_judge:HttpJudge",
    "ensemble": "raypoly.strategies.judge.ensemble:EnsembleJudge",
}

SAMPLED_SHARE = 10
"""With `judge.when=sampled`, one group in this many is judged."""


class Judge(Protocol):
    """Clusters one group. Built as `Class(config: JudgeConfig)` inside the judge actor."""

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Labels of the N rollouts.

        Raises `JudgeUnavailable` for an outage (the step waits) and `JudgeRefused` where it answered and can't
        label this group (the group is `unjudged`). Any other exception is a programming error.
        """
        ...

    def probe(self) -> None:
        """Return where the judge can be asked again, else raise `JudgeUnavailable`."""
        ...


def build_judge(config: JudgeConfig) -> Judge:
    """The judge that the config names."""
    judge: Judge = load_plugin(config.name, KNOWN, "judge.name")(config)
    return judge


def is_shared(config: JudgeConfig) -> bool:
    """Whether the judge's limits are a server's, so that all jobs of a cluster should ask one instance of it."""
    return bool(getattr(load_plugin(config.name, KNOWN, "judge.name"), "shared", False))


def reads_texts(config: JudgeConfig) -> bool:
    """Whether the judge also groups the answers to problems without tests, which are no programs."""
    if config.name == "ensemble":
        return all(reads_texts(config.model_copy(update={"name": name})) for name in config.members)
    return bool(getattr(load_plugin(config.name, KNOWN, "judge.name"), "reads_texts", False))


def asks_openai(config: JudgeConfig) -> bool:
    """Whether the judge is, or asks among others, the one named `openai`."""
    return "openai" in (config.members if config.name == "ensemble" else [config.name])


def key_variable_names(config: JudgeConfig) -> list[str]:
    """The environment variables that may hold the judge's keys."""
    first = not (config.api_key_env or config.api_key_file)
    second = config.failover_url is not None and config.failover_key_env is None
    default = "OPENAI_API_KEY" if asks_openai(config) and (first or second) else None
    named = dict.fromkeys([config.api_key_env, config.failover_key_env, default])
    return [name for name in named if name]


def refuse_logins(config: JudgeConfig) -> None:
    """Raise `UsageError` where an address of the judge's servers holds a name or a password."""
    refuse_login("judge.url", config.url, "judge.api_key_env")
    refuse_login("judge.base_url", config.base_url, "judge.api_key_env")
    refuse_login("judge.failover_url", config.failover_url, "judge.failover_key_env")
