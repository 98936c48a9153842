"""Loads objectives, judges, engines, problem sources and rewards by short name or as `package.module:Name`.

load_plugin("poly_epo", {"poly_epo": "raypoly.algorithms.objectives.poly_epo:PolyEPO"}, "objective.name")
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from raypoly.core.errors import UsageError


def load_plugin(name: str, known: Mapping[str, str], key: str) -> Any:
    """The object of this `name`. `key` is its config key, for messages.

    Raises `UsageError` if it can't be imported.
    """
    target = known.get(name, name)
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        choice = f"Known: {', '.join(sorted(known))}, or one" if known else "Give one"
        raise UsageError(f"{key}={name!r} is unknown{hint} {choice} of your own as package.module:Name.")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, AttributeError) as error:
        asked = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        what = "Is its folder on PYTHONPATH?" if asked else f"That is an error in {module_name} itself."
        raise UsageError(f"{key}={name!r} can't be imported: {error}. {what}") from error
    if not hasattr(module, attribute):
        near = get_close_matches(attribute, vars(module), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UsageError(f"{key}={name!r}: the module {module_name} is there and has no {attribute}{hint}")
    return getattr(module, attribute)


def load_configured_plugin(name: str, known: Mapping[str, str], section: str, params: Mapping[str, Any]) -> Any:
    """An instance of the class of this `name`, made from its own `Config` with the parameters.

    Raises `UsageError` that names the unknown or wrong parameter, and lists those that the class takes.
    """
    kind = load_plugin(name, known, f"{section}.name")
    try:
        return kind(kind.Config(**params))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        wrong = first["msg"].removeprefix("Value error, ").lower()
        takes = ", ".join(kind.Config.model_fields) or "none"
        if first["type"] == "missing":
            raise UsageError(f"{section}.name={name} needs {section}.{key} (it takes: {takes}).") from error
        raise UsageError(
            f"{section}.{key}={first['input']!r} does not fit {name}: {wrong} (it takes: {takes})."
        ) from error
