"""Functions and classes of a notebook, sent by value: each becomes a module of its own that a config can name.

    module_of(my_reward, "reward")      ->  "raypoly_made_1f0c5a37b2d94e60:my_reward"

The module holds the pickled part. Its name has a hash of the part's code and of what that uses (other functions of the
notebook, values that it read), so the same cell gives the same name, and a run under it goes on.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import inspect
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pydantic import BaseModel

from raypoly.core.errors import UsageError
from raypoly.core.plugins import MADE_BY_VALUE, made_folder
from raypoly.core.whole_files import write_output

_MODULE = '''"""Made by raypoly.Trainer from a notebook, for runs that name it."""

import base64
import pickle

{name} = pickle.loads(base64.b64decode("{pickled}"))
'''


def module_of(part: Any, fallback: str) -> str:
    """`package.module:Name` of a function or class: its own where it can be imported, else of a module made for it.

    `fallback`: the name of a lambda. Raises `UsageError` where it holds something that can't be sent.
    """
    name = getattr(part, "__qualname__", "")
    module = sys.modules.get(getattr(part, "__module__", None) or "")
    if module is not None and module.__name__ != "__main__" and getattr(module, name, None) is part:
        return f"{module.__name__}:{name}"
    name = part.__name__ if getattr(part, "__name__", "").isidentifier() else fallback
    made = f"{MADE_BY_VALUE}{fingerprint(part, name)[:16]}"
    try:
        pickled = base64.b64encode(pickler().dumps(part)).decode()
    except Exception as error:  # whatever a value's own pickling raises
        raise UsageError(f"{name} uses something that can't be sent to other processes: {error}.") from error
    place = made_folder() / f"{made}.py"
    if not place.exists():
        write_output(place, _MODULE.format(name=name, pickled=pickled).encode())
    return f"{made}:{name}"


def pickler() -> Any:
    """cloudpickle, which sends a notebook's own code by value, or Ray's copy of it; else Python's, which can't."""
    for name in ("cloudpickle", "ray.cloudpickle"):
        with suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    return pickle


def fingerprint(part: Any, name: str = "") -> str:
    """Hex SHA-256 of a part's `name` and code, and of the values and the notebook's own functions that it uses.

    Comments, line numbers and the file's name don't count; the version of Python does.
    """
    digest = hashlib.sha256(repr((sys.version_info[:2], name)).encode())
    for said in _said(part, set()):
        digest.update(said.encode() + b"\0")
    return digest.hexdigest()


def _said(value: Any, seen: set[int]) -> Iterator[str]:
    own = getattr(value, "__module__", None) in (None, "__main__") or "<locals>" in getattr(value, "__qualname__", "")
    if isinstance(value, FunctionType | type) and (id(value) in seen or not own):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, FunctionType):
        seen.add(id(value))
        yield from _said(value.__code__, seen)
        yield from _said((value.__defaults__, value.__kwdefaults__), seen)
        for cell in value.__closure__ or ():
            yield from _said(cell.cell_contents, seen)
        for name in sorted(_names(value.__code__) & value.__globals__.keys()):
            yield name
            yield from _said(value.__globals__[name], seen)
    elif isinstance(value, type):
        seen.add(id(value))
        yield from _of_class(value, seen)
    elif isinstance(value, CodeType):
        yield repr((value.co_code, value.co_names, value.co_varnames))
        yield from _said(value.co_consts, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, staticmethod | classmethod):
        yield from _said(value.__func__, seen)
    elif isinstance(value, property):
        yield from _said((value.fget, value.fset), seen)
    elif isinstance(value, set | frozenset):  # whose order is another one in each process
        yield repr(sorted(map(repr, value)))
    elif isinstance(value, Mapping):
        yield from _said(list(value.items()), seen)
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} of {len(value)}"
        for item in value:
            yield from _said(item, seen)
    else:
        yield _told(value)


def _of_class(kind: type, seen: set[int]) -> Iterator[str]:
    if issubclass(kind, BaseModel):  # pydantic keeps its fields beside the class
        yield json.dumps(kind.model_json_schema(), sort_keys=True)
    for base in kind.__bases__:
        yield from _said(base, seen)
    for name, value in sorted(vars(kind).items()):
        counts = isinstance(value, FunctionType) or not name.startswith(("__", "_abc_"))
        if counts and not (issubclass(kind, BaseModel) and name.startswith(("model_", "__"))):
            yield name
            yield from _said(value, seen)


def _names(code: CodeType) -> set[str]:
    inner = [_names(it) for it in code.co_consts if isinstance(it, CodeType)]
    return set(code.co_names).union(*inner)


def _told(value: Any) -> str:
    simple = value is None or isinstance(value, bool | int | float | complex | str | bytes) or value is ...
    if simple or inspect.isbuiltin(value):
        return repr(value)
    try:
        return hashlib.sha256(pickler().dumps(value)).hexdigest()
    except Exception:  # noqa: BLE001 - what can't be sent is told when the part itself is
        return type(value).__qualname__
