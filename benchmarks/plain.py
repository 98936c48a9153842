"""A stand-in for pydantic on machines that have PyTorch and transformers alone: sections of a config get what they are
given, and their defaults; nothing is checked. Imported before `raypoly`; does nothing where pydantic is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Self


class BaseModel:
    """What the learner needs of pydantic's."""

    model_extra = None

    def __init__(self, **values: Any) -> None:
        annotated = [name for kind in reversed(type(self).__mro__) for name in vars(kind).get("__annotations__", ())]
        names = [name for name in annotated if not name.startswith("__")]  # those are pydantic's own
        unknown = set(values) - set(names)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        for name in names:
            setattr(self, name, values[name] if name in values else getattr(type(self), name))

    @classmethod
    def model_validate(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


def field(default: Any = None, *, default_factory: Callable[[], Any] | None = None, **_: Any) -> Any:
    """The default itself."""
    return default if default_factory is None else default_factory()


def unchecked(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing."""
    return lambda function: function


if importlib.util.find_spec("pydantic") is None:
    sys.modules["pydantic"] = ModuleType("pydantic", __doc__)
    vars(sys.modules["pydantic"]).update(
        BaseModel=BaseModel,
        ConfigDict=dict,
        Field=field,
        PrivateAttr=lambda default: default,
        ValidationError=ValueError,
        ValidationInfo=object,
        field_validator=unchecked,
        model_validator=unchecked,
    )
