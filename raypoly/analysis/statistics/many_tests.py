"""p-values of several hypotheses of one table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from statsmodels.stats.multitest import multipletests

Key = TypeVar("Key", bound=Hashable)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Each p-value adjusted for all of them (Holm 1979): the chance that any of those true hypotheses falls below .05
    is .05 at most, whatever their dependence."""
    if not p_values:
        return {}
    adjusted = multipletests(list(p_values.values()), method="holm")[1]
    return {key: float(value) for key, value in zip(p_values, adjusted, strict=True)}
