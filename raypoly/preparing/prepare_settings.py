"""Reads a YAML file and dotted overrides into the config of a command: by default a `PrepareConfig`.

    config = load_config("configs/prepare/tiny.yaml", ["sources.leetcode.path=rows.jsonl", "band.high=15"])

Every mistake is a `UsageError` with one sentence for each key, as in `raypoly.settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from raypoly import settings
from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.preparing.prepare_config import PrepareConfig
from raypoly.run_identity import flatten_keys

C = TypeVar("C", bound=BaseModel)
NAME = "NAME"
"""Stands for the name that the user gives to a source."""


def load_config(path: str, overrides: Sequence[str] = ()) -> PrepareConfig:
    """The config of `path` with `overrides` (`section.key=value`, `sources.NAME.key=value`) applied."""
    return load_config_of(PrepareConfig, path, overrides)


def load_config_of(kind: type[C], path: str | None, overrides: Sequence[str], name: str | None = None) -> C:
    """The same for a config of another `kind`; without `path` it is made of the overrides alone. `name`: of the run,
    where nothing else is given; default the file's."""
    values = {} if path is None else settings.read_yaml(Path(path))
    file = "the config" if path is None else path
    if not isinstance(values, dict):
        raise UsageError(f"The config file {file} must hold sections such as `{next(iter(_own(kind)))}:`.")
    values = {section: content for section, content in values.items() if content is not None}
    given = [_lay(values, text, kind) for text in overrides]
    run = values.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("name", name or Path(file).stem)
    _refuse_booleans(values, file, given, kind)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UsageError("\n".join(_sentence(dict(item), file, given, kind) for item in error.errors())) from error


def documented_keys(kind: type[BaseModel] = PrepareConfig) -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted key, with `NAME` for a source's name."""
    yield from _keys(kind, "")


def _own(kind: type[BaseModel]) -> Iterator[str]:
    """The sections that training does not have."""
    return (name for name in kind.model_fields if name not in Config.model_fields)


def _keys(kind: Any, prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if get_origin(inner) is dict and get_args(inner)[1] is not Any:
            yield from _keys(get_args(inner)[1], f"{prefix}{name}.{NAME}.")
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _field(name: str, kind: type[BaseModel]) -> FieldInfo | None:
    """The documented field of a dotted name."""
    section, _, rest = name.partition(".")
    if section in ("sources", "against"):
        name = f"{section}.{NAME}.{rest.partition('.')[2]}"
    return dict(documented_keys(kind)).get(name)


def _lay(values: dict[str, Any], text: str, kind: type[BaseModel]) -> str:
    """Apply one override to the values. Returns its key."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals:
        raise UsageError(f"{text!r} is not an override: write section.key=value, such as sampling.samples=8.")
    field = _field(name, kind)
    if field is None and (name, value.strip()) != ("sampling", "off"):
        raise UsageError(_unknown(name, settings.GIVEN, kind))
    *outer, last = name.split(".")
    node = values
    for part in outer:
        inner = node.get(part)
        node[part] = dict(inner) if isinstance(inner, dict) else {}
        node = node[part]
    node[last] = settings.parse_value(name, value, field)
    return name


def _refuse_booleans(values: Mapping[str, Any], file: str, given: Sequence[str], kind: type[BaseModel]) -> None:
    """Raise `UsageError` for `band.low: yes`, which pydantic would read as 1."""
    for name, value in flatten_keys(values):
        field = _field(name, kind)
        if (
            isinstance(value, bool)
            and field is not None
            and bool not in (field.annotation, *get_args(field.annotation))
        ):
            raise UsageError(f"{name}={value} ({_origin(name, file, given)}) should be {expected_words(field)}.")


def _sentence(error: Mapping[str, Any], file: str, given: Sequence[str], kind: type[BaseModel]) -> str:
    name = ".".join(str(part) for part in error["loc"])
    origin = _origin(name, file, given)
    if error["type"] == "extra_forbidden":
        return _unknown(name, origin, kind)
    if name == "sources":
        return (
            f"{file} names no file of problems: give it sources.NAME.path, or sources.NAME.hub, .revision and .split."
        )
    field = _field(name, kind)
    message = str(error["msg"]).removeprefix("Value error, ")
    if field is not None:
        return f"{name}={error['input']} ({origin}) should be {expected_words(field)}."
    return f"{name} ({origin}): {message[:1].lower()}{message[1:]}."


def expected_words(field: FieldInfo) -> str:
    """The values that a key accepts, in words."""
    return "a day such as 2025-03-01" if date in get_args(field.annotation) else settings.describe_expected(field)


def _origin(name: str, file: str, given: Sequence[str]) -> str:
    return settings.GIVEN if name in given else f"in {file}"


def _unknown(name: str, origin: str, kind: type[BaseModel]) -> str:
    known = [key for key, _ in documented_keys(kind)]
    same_last = [key for key in known if key.rpartition(".")[2] == name.rpartition(".")[2]]
    near = get_close_matches(name, same_last, n=1, cutoff=0.5) or get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"There is no key {name} ({origin}); did you mean {near[0]}?"
    sections = ", ".join(kind.model_fields)
    return f"There is no key {name} ({origin}); the sections are {sections}, and docs/configuration.md lists all keys."
