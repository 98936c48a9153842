"""What a run asks of an objective beside advantages: the stages that it needs, and numbers for the step's row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields as fields_of

from raypoly.algorithms.objectives.objective import STAGE_OF, Objective, ScoredGroup
from raypoly.core.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


def needed_stages(objective: Objective) -> frozenset[str]:
    """The stages of a group whose findings the objective needs: where one is unknown, the group has no gradient."""
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
