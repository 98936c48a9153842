"""The sections `judge` and `scorer` of the config, from the words of a command line, and the scorers they ask for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, get_args

from raypoly.commands.command_output import NOTES, say
from raypoly.core import settings
from raypoly.core.config import ON_RESUME, ComparisonChoice, Config, JudgeConfig, ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.local_pool import LocalPool, VerdictPool
from raypoly.verifier.score_programs import limit_workers

Section = TypeVar("Section", JudgeConfig, ScorerConfig)


@dataclass(frozen=True)
class JudgeChoice:
    """A judge, and the limits of programs shown to it."""

    judge: JudgeConfig
    scorer: ScorerConfig
    words: tuple[str, ...] = ()


def lasting_keys(section: JudgeConfig | ScorerConfig) -> dict[str, Any]:
    """The keys that results depend on: those that may not change on resume."""
    free = {name for name, field in type(section).model_fields.items() if field.json_schema_extra == ON_RESUME}
    return section.model_dump(mode="json", exclude=free)


def scorer_config(overrides: Sequence[str], workers: int | None) -> ScorerConfig:
    """The scorer's section with overrides; one worker per CPU by default.

    Raises `UsageError` for a key of another section, an unknown key, and a value that a key does not take.
    """
    return _load(overrides, ["scorer"], "scorer", workers).scorer


def run_scorer_config(config: Config, overrides: Sequence[str], workers: int | None) -> ScorerConfig:
    """The run's own scorer section with overrides. Raises as `scorer_config`."""
    given = scorer_config(overrides, workers)
    scorer = _overlay(config.scorer, given, "scorer.", [*overrides, "scorer.workers"])
    return scorer.model_copy(update={"all_tests": True}) if config.reward.runs_all_tests else scorer


def asked_workers(config: ScorerConfig, overrides: Sequence[str], workers: int | None) -> int | None:
    """`config.workers` where a command's words ask for a number."""
    asked = workers is not None or "scorer.workers" in map(_key_of, overrides)
    return config.workers if asked else None


def open_pool(config: ScorerConfig, asked: int | None, programs: int | None = None) -> VerdictPool:
    """Scorers of the cluster where RAY_ADDRESS is set, as in a Ray job: as many as `asked`, or as it has CPUs; else of
    this process. `programs`: there are no more."""
    if os.environ.get("RAY_ADDRESS"):
        from workflows.cluster_pool import ClusterPool

        return ClusterPool(config, asked, programs, partial(say, NOTES))
    limited = config if programs is None else limit_workers(config, programs)
    return LocalPool(limited, StrategyEvidence() if config.evidence else None)


def comparison_choice(name: str) -> ComparisonChoice:
    """Raises `UsageError` for an unknown one."""
    known: tuple[ComparisonChoice, ...] = get_args(ComparisonChoice)
    for choice in known:
        if choice == name:
            return choice
    raise UsageError(f"--comparison {name} is unknown: known are {', '.join(known)}.")


def choose_judge(name: str | None, overrides: Sequence[str]) -> JudgeChoice:
    """The sections `judge` and `scorer` with overrides; `name` wins over `judge.name`. Raises as `scorer_config`."""
    words = (*overrides, *([] if name is None else [f"judge.name={name}"]))
    config = _load(words, ["judge", "scorer"], "judge", None)
    return JudgeChoice(config.judge, config.scorer, words)


def choose_run_judge(config: Config, name: str | None, overrides: Sequence[str]) -> JudgeConfig:
    """The run's own judge with overrides; one of another name begins with the defaults. Raises as `scorer_config`."""
    given = choose_judge(name, overrides)
    if "judge.name" in map(_key_of, given.words) and given.judge.name != config.judge.name:
        return given.judge
    return _overlay(config.judge, given.judge, "judge.", given.words)


def choose_other_judge(first: JudgeChoice, other: str) -> JudgeChoice:
    """Another judge by name, or the first with one key changed (`judge.view=raw`).

    Raises as `scorer_config`, and where both are the same: the structural judge has no keys.
    """
    _, equals, _ = other.partition("=")
    if equals and not other.strip().startswith("judge."):
        raise UsageError(f"--against {other} changes no key of the judge: give a judge's name, or judge.key=value.")
    second = choose_judge(None, [*first.words, other if equals else f"judge.name={other}"])
    if second.judge == first.judge or {first.judge.name, second.judge.name} == {"structural"}:
        raise UsageError(f"--against {other} is the same judge: there is nothing to compare.")
    return replace(second, scorer=first.scorer)


def split_requirements(words: Sequence[str], required: Sequence[str]) -> tuple[list[str], list[str]]:
    """(overrides, requirements): after `--require ari=0.7` more measures may follow, whose names have no dot."""
    more = [word for word in words if required and "." not in _key_of(word)]
    return [word for word in words if word not in more], [*required, *more]


def _load(words: Sequence[str], sections: Sequence[str], what: str, workers: int | None) -> Config:
    """A config with the words, which may change keys of these sections alone."""
    foreign = [word for word in words if not word.strip().startswith(tuple(f"{name}." for name in sections))]
    if foreign:
        allowed = " and ".join(f"{name}.key=value" for name in sections)
        raise UsageError(f"{foreign[0]!r} is no key of the {what}: this command takes {allowed} alone.")
    default = f"scorer.workers={len(os.sched_getaffinity(0))}"
    given = [] if workers is None else [f"scorer.workers={workers}"]
    return settings.load(None, [default, *words, *given])


def _overlay(section: Section, given: Section, prefix: str, words: Sequence[str]) -> Section:
    keys = (_key_of(word).removeprefix(prefix) for word in words if _key_of(word).startswith(prefix))
    return section.model_copy(update={key: getattr(given, key) for key in keys})


def _key_of(word: str) -> str:
    return word.partition("=")[0].strip()
