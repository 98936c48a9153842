"""Values of any kind side by side, and the sentence of a breach."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


class Breach(Exception):
    """A contract is broken; the text is one sentence."""


class Untried(Exception):
    """A check can't be made; the text is the reason."""


def need(holds: Any, said: str, *values: Any, error: type[Exception] = Breach) -> None:
    """Raise with the sentence unless it holds; `values`: what was given, and what in place of."""
    if not holds:
        raise error(said.rstrip(".") + (f"; it gave {', and not '.join(map(short, values))}." if values else "."))


def need_same(got: Any, right: Any, said: str, tolerance: float = 0.0) -> None:
    need(same(got, right, tolerance), said, got, right)


def need_array(found: Any, dtype: type, size: int, of: str) -> None:
    """An array of this dtype, [size], of finite numbers."""
    said = f"{of} has to be a numpy array, {np.dtype(dtype)} [{size}]"
    need(isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == (size,), said, found)
    need(np.all(np.isfinite(found)), f"{of} has to be finite", found)


def need_json(value: Any, of: str) -> Any:
    """The value as it comes back from JSON, which has to be the same."""
    try:
        kept = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        kept = error
    need(same(value, kept), f"{of} has to be JSON values, with texts as keys and finite numbers", value)
    return kept


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether two values have equal plain ones, floats up to the tolerance. NaN equals NaN."""
    left, right = plain_of(left), plain_of(right)
    if isinstance(left, float) and isinstance(right, float):
        near = math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
        return near or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(*pair, tolerance) for pair in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key], tolerance) for key in left)
    return type(left) is type(right) and bool(left == right)


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


def short(value: Any) -> str:
    """A value on a line of some 200 characters."""
    shown = f"{value.dtype} {value.tolist()}" if isinstance(value, np.ndarray) else repr(value)
    shown = " ".join(shown.split())
    return shown if len(shown) < 200 else f"{shown[:190]} ..."
