"""Values of any kind side by side: plain ones, equal up to a tolerance, and shown in a line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def plain_of(value: Any) -> Any:
    """Lists, dicts and scalars; arrays and tensors with their dtype."""
    value = value.detach().numpy() if hasattr(value, "detach") else value
    value = value.to_pydict() if hasattr(value, "to_pydict") else value  # Arrow's
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), value.tolist()]
    if is_dataclass(value) and not isinstance(value, type):
        value = {spec.name: getattr(value, spec.name) for spec in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_of(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    return list(map(plain_of, value)) if isinstance(value, list | tuple) else value


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether two values have equal plain ones, floats up to the tolerance. NaN equals NaN."""
    return alike(plain_of(left), plain_of(right), tolerance)


def alike(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        near = abs(left - right) <= tolerance * max(1.0, abs(left))
        return left == right or near or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(alike(*pair, tolerance) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key], tolerance) for key in left)
    return type(left) is type(right) and bool(left == right)


def short(value: Any) -> str:
    """A value on a line of some 200 characters."""
    shown = f"{value.dtype} {value.tolist()}" if isinstance(value, np.ndarray) else repr(value)
    shown = " ".join(shown.split())
    return shown if len(shown) < 200 else f"{shown[:190]} ..."
