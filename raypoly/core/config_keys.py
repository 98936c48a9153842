"""Dotted keys of a config, what each takes, and a config's values by them.

[key.name for key in config_keys()]      # train.seed, train.steps ...; of another kind: config_keys(PrepareConfig)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raypoly.core.config import Config, Section

NAME = "NAME"
"""Stands for a name that the user gives, as that of a preparation's source."""


@dataclass(frozen=True)
class Key:
    name: str
    """`train.steps`."""
    field: FieldInfo

    @property
    def on_resume(self) -> bool:
        """Whether it may differ between the starts of one run."""
        extra = self.field.json_schema_extra
        return isinstance(extra, Mapping) and bool(extra.get("on_resume"))

    @property
    def takes_booleans(self) -> bool:
        return bool in (self.field.annotation, *get_args(self.field.annotation))


def config_keys(kind: type[BaseModel] = Config, prefix: str = "") -> Iterator[Key]:
    """All documented keys, in the order of the config."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if is_named(inner):
            yield from config_keys(get_args(inner)[1], f"{prefix}{name}.{NAME}.")
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from config_keys(inner, f"{prefix}{name}.")
        else:
            yield Key(f"{prefix}{name}", field)


def is_named(annotation: Any) -> bool:
    """Whether it holds sections by names that the user gives."""
    return get_origin(annotation) is dict and get_args(annotation)[1] is not Any


def dotted_values(config: Section) -> dict[str, Any]:
    """A config's JSON values by their dotted keys."""
    return dict(flatten_keys(config.model_dump(mode="json")))


def flatten_keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def describe_expected(field: FieldInfo) -> str:
    """The values that a key accepts, in words: `a whole number, at least 0`."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    annotation: Any = field.annotation
    texts = [each for part in get_args(annotation) for each in get_args(part)]
    if type(None) in get_args(annotation) and texts and all(isinstance(each, str) for each in texts):
        return " or ".join([*(f"`{each}`" for each in texts), "null"])
    if date in get_args(annotation):
        return "a day such as 2025-03-01"
    if annotation in words:
        text = words[annotation]
    elif all(argument in words for argument in get_args(annotation)) and type(None) in get_args(annotation):
        text = " or ".join(words[argument] for argument in get_args(annotation))
    elif all(isinstance(argument, str) for argument in get_args(annotation)):
        text = " or ".join(f"`{argument}`" for argument in get_args(annotation))
    elif get_origin(annotation) is dict:
        text = "names with values: {name: value, ...}"
    else:
        # of a choice, or a type with limits, the first that has a word
        inner = (
            next((each for each in (part, *get_args(part)) if each in words), None) for part in get_args(annotation)
        )
        text = "a list: [" + ", ".join("..." if each is None else words[each] for each in inner) + "]"
    limits = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [
        f"{phrase} {getattr(rule, name)}"
        for rule in field.metadata
        for name, phrase in limits.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([text, *bounds])
