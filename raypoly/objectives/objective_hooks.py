"""What a run asks of an objective beside advantages, checked: prompts of its own, and numbers for the step's row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields as fields_of

from raypoly.errors import UsageError
from raypoly.objectives.objective import STAGE_OF, Objective, ScoredGroup

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


def prompts_of(objective: Objective, prompt: str, rollouts: int) -> tuple[str, ...]:
    """What each of a problem's rollouts is sampled behind, [N]. Raises `UsageError` where they are not N texts."""
    found = objective.prompts(prompt, rollouts)
    if found is None:
        return (prompt,) * rollouts
    if len(found) != rollouts or not all(isinstance(each, str) and each for each in found):
        raise UsageError(
            f"The objective {type(objective).__name__} must give prompts(prompt, {rollouts}) as {rollouts} texts, "
            f"gave {len(found)}: {str(found)[:200]}."
        )
    return tuple(found)


def distinct_prompts(objective: Objective, prompt: str, rollouts: int) -> tuple[str, ...]:
    """`prompts_of`, each once, in the order in which rollouts first have them."""
    return tuple(dict.fromkeys(prompts_of(objective, prompt, rollouts)))


def needed_stages(objective: Objective) -> frozenset[str]:
    """The stages of a group whose parts the objective needs: where one is unknown, the group has no gradient."""
    fields = {spec.name for spec in fields_of(ScoredGroup)}
    return frozenset(STAGE_OF.get(need, need) for need in objective.needs if need in STAGE_OF or need not in fields)


def measures_of(objective: Objective) -> Mapping[str, float]:
    """Its numbers of the group that it valued last. Raises `UsageError` for a bad name, or what is no finite number."""
    found = dict(objective.measures())
    for name, value in found.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"The objective {type(objective).__name__} measures {name!r}: a name is a letter and then letters, "
                "digits or _, all lower case, at most 60."
            )
        if isinstance(value, bool) or not _is_finite(value):
            raise UsageError(
                f"The objective {type(objective).__name__} measures {name}={value!r}: give a finite number, and leave "
                "out what is not known."
            )
    return {name: float(value) for name, value in found.items()}


def _is_finite(value: object) -> bool:
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False
