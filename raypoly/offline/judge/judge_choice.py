"""Which judge is asked, and how programs are run for it, from the words of the command line.

choice = chosen("openai", ["judge.view=raw", "scorer.memory_mib=512"])
choice.judge.view                      # "raw"
against(choice, "judge.votes=3")       # the same with one key changed
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from raypoly import settings
from raypoly.config import ON_RESUME, JudgeConfig, ScorerConfig
from raypoly.errors import UsageError


@dataclass(frozen=True)
class JudgeChoice:
    """A judge and the limits of the programs that it is shown."""

    judge: JudgeConfig
    scorer: ScorerConfig
    words: tuple[str, ...] = ()
    """The overrides that it came from."""

    @property
    def identity(self) -> dict[str, Any]:
        """All that labels depend on."""
        return {"judge": _lasting(self.judge), "scorer": _lasting(self.scorer)}

    def limits_for(self, programs: int) -> ScorerConfig:
        """The scorer's section with no more workers than there are programs."""
        return self.scorer.model_copy(update={"workers": max(1, min(self.scorer.workers, programs))})


def chosen(name: str | None, overrides: Sequence[str]) -> JudgeChoice:
    """The sections `judge` and `scorer` with overrides laid over them; `name` wins over `judge.name`.

    Raises `UsageError` for a key of another section, for one that is not there, and for no value of a key.
    """
    foreign = [text for text in overrides if not text.strip().startswith(("judge.", "scorer."))]
    if foreign:
        raise UsageError(
            f"{foreign[0]!r} is no key of the judge: raypoly judge takes judge.key=value and scorer.key=value alone."
        )
    words = (*overrides, *([] if name is None else [f"judge.name={name}"]))
    config = settings.load(None, [f"scorer.workers={len(os.sched_getaffinity(0))}", *words])
    return JudgeChoice(config.judge, config.scorer, words)


def sorted_words(words: Sequence[str], required: Sequence[str]) -> tuple[list[str], list[str]]:
    """(overrides, requirements): behind `--require ari=0.7` more measures may follow, whose names have no dot."""
    more = [word for word in words if required and "." not in word.partition("=")[0]]
    return [word for word in words if word not in more], [*required, *more]


def against(first: JudgeChoice, other: str) -> JudgeChoice:
    """The judge to compare with: another's name, or a key of the first that is changed (`judge.view=raw`).

    Raises `UsageError` as `chosen` does, and where that is no other judge: the structural one has no keys.
    """
    key, equals, _ = other.partition("=")
    if equals and not key.strip().startswith("judge."):
        raise UsageError(f"--against {other} changes no key of the judge: give a judge's name, or judge.key=value.")
    second = chosen(None, [*first.words, other if equals else f"judge.name={other}"])
    if second.judge == first.judge or {first.judge.name, second.judge.name} == {"structural"}:
        raise UsageError(f"--against {other} is the same judge: there is nothing to compare.")
    return replace(second, scorer=first.scorer)


def _lasting(config: JudgeConfig | ScorerConfig) -> dict[str, Any]:
    free = {name for name, field in type(config).model_fields.items() if field.json_schema_extra == ON_RESUME}
    return config.model_dump(mode="json", exclude=free)
