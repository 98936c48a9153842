"""Reads a YAML file and dotted overrides into a `Config`.

    config = load("configs/tiny.yaml", ["train.steps=20", "objective.name=grpo"])

Every mistake is a `UsageError` of one sentence that names the key, the value and what was expected.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from raypoly.config import Config
from raypoly.errors import UsageError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
"""Lies beside the package: in a checkout, in an installation and in a job's copy of the working directory."""
DEFAULT = CONFIGS / "tiny.yaml"
GIVEN = "on the command line"
"""The origin that messages name for an override."""

Sections = dict[str, dict[str, Any]]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 with four changes: 1e-3 is a number, `on` and `off` are words (pydantic turns them into booleans
    where a key is one), a day such as 2025-02-01 is text, and a key that is there twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            own = node.start_mark.index <= key.start_mark.index < node.end_mark.index  # not merged from elsewhere
            if isinstance(key, yaml.ScalarNode) and own:
                if key.value in seen:
                    said = f"the key {key.value} is there a second time"
                    raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
for _letter in "oO":
    del _Loader.yaml_implicit_resolvers[_letter]
for _digit in "0123456789":
    _Loader.yaml_implicit_resolvers[_digit] = [
        resolver for resolver in _Loader.yaml_implicit_resolvers[_digit] if not resolver[0].endswith(":timestamp")
    ]


@dataclass(frozen=True)
class Key:
    """One documented key of the config."""

    name: str
    """Dotted: `train.steps`."""
    field: FieldInfo

    @property
    def on_resume(self) -> bool:
        """Whether the key may differ between the starts of one run."""
        extra = self.field.json_schema_extra
        return isinstance(extra, Mapping) and bool(extra.get("on_resume"))


def config_keys() -> Iterator[Key]:
    """All documented keys, in the order of the config."""
    for section, outer in Config.model_fields.items():
        assert isinstance(outer.annotation, type)
        assert issubclass(outer.annotation, BaseModel)
        yield from _keys(section, outer.annotation)


def _keys(section: str, model: type[BaseModel]) -> Iterator[Key]:
    """Those of a section and of the sections in it."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(f"{section}.{name}", field.annotation)
        else:
            yield Key(f"{section}.{name}", field)


def load(
    path: str | None,
    overrides: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Config:
    """The config of `path` (None: configs/tiny.yaml) with `overrides` (`section.key=value`) applied.

    A new name of an objective, a loss, a program or a gate drops the parameters that the file gives to the old one;
    `note` reports it. Raises `UsageError`.
    """
    file = Path(path) if path is not None else DEFAULT
    sections = _read(file)
    sections.setdefault("run", {}).setdefault("name", file.stem)
    given = [_parse(override) for override in overrides]
    _drop_old_parameters(sections, dict(given), note)
    known = {key.name for key in config_keys()}
    for name, value in given:
        *outer, key = name.split(".") if name in known else name.split(".", 1)
        inner: dict[str, Any] = sections
        for part in outer:
            inner[part] = inner.get(part) or {}
            if not isinstance(inner[part], dict):
                raise UsageError(f"{part}={inner[part]!r} in {file} must be a section of keys, not a value.")
            inner = inner[part]
        inner[key] = value
    return _validate(sections, file, {name for name, _ in given})


def dump(config: Config, changed: bool = False) -> str:
    """The config as YAML that `load` reads back to an equal one; `changed`: only keys that are not at their default."""
    values = config.model_dump(mode="json", exclude_defaults=changed)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)


def read_yaml(file: Path) -> Any:
    """The content of a YAML file. Raises `UsageError` if it is missing, can't be read, or is not YAML."""
    try:
        return yaml.load(file.read_text(), Loader=_Loader)
    except FileNotFoundError as error:
        raise UsageError(f"The config file {file} does not exist.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The config file {file} can't be read: {error}.") from error
    except yaml.YAMLError as error:
        raise UsageError(f"The config file {file} is not YAML: {_yaml_problem(error)}.") from error


def parse_value(name: str, text: str, field: FieldInfo | None) -> Any:
    """The value of an override: YAML, or the text itself if the key takes text. Raises `UsageError`."""
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        if field is not None and _takes_text(field):
            return text
        raise UsageError(f"{name}={text} ({GIVEN}) is not a YAML value: {_yaml_problem(error)}.") from error
    if field is not None and _takes_text(field) and value is not None and not isinstance(value, str):
        return text  # a folder named 2026 is a name, not a number
    return value


def _read(file: Path) -> Sections:
    sections = read_yaml(file)
    if sections is None:
        return {}
    if not isinstance(sections, dict):
        raise UsageError(
            f"The config file {file} must hold sections such as `train:`, not a {type(sections).__name__}."
        )
    for section, content in sections.items():
        if content is not None and not isinstance(content, dict):
            if section not in Config.model_fields:
                raise UsageError(_unknown(str(section), f"in {file}"))
            raise UsageError(f"{section}={content!r} in {file} must be a section of keys, not a value.")
    return {str(section): dict(content) if content else {} for section, content in sections.items()}


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} at line {error.problem_mark.line + 1}"
    return " ".join(str(error).split())


def _parse(override: str) -> tuple[str, Any]:
    """`train.steps=20` to ("train.steps", 20)."""
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals:
        raise UsageError(f"{override!r} is not an override: write section.key=value, such as train.steps=20.")
    section, dot, key = name.partition(".")
    if not (dot and key) or section not in Config.model_fields:
        raise UsageError(_unknown(name, GIVEN))
    known = {key.name: key.field for key in config_keys()}
    return name, parse_value(name, text, known.get(name))


def _takes_text(field: FieldInfo) -> bool:
    optional = get_origin(field.annotation) in (Union, UnionType)
    return field.annotation is str or (optional and str in get_args(field.annotation))


def _drop_old_parameters(sections: Sections, given: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Drop the file's parameters of an objective, loss or program that an override replaces."""
    for section in ("objective", "loss", "program", "gate"):
        old = sections.get(section, {})
        default = Config.model_fields[section].get_default(call_default_factory=True).name
        name, old_name = given.get(f"{section}.name"), old.get("name", default)
        dropped = {key: value for key, value in old.items() if key != "name"}
        if name is None or name == old_name or not dropped:
            continue
        sections[section] = {}
        listed = ", ".join(f"{key}={value}" for key, value in dropped.items())
        note(f"{section}.name={name}: the parameters of {old_name} were dropped ({listed}).")


def _validate(sections: Sections, file: Path, given: set[str]) -> Config:
    _refuse_booleans(sections, file, given)
    try:
        return Config.model_validate(sections)
    except ValidationError as error:
        raise UsageError("\n".join(_sentence(dict(item), file, given) for item in error.errors())) from error


def _refuse_booleans(sections: Sections, file: Path, given: set[str]) -> None:
    """Raise `UsageError` for `train.steps: yes`, which pydantic would read as 1."""
    for key in config_keys():
        value: Any = sections
        for part in key.name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        accepted = (key.field.annotation, *get_args(key.field.annotation))
        if isinstance(value, bool) and bool not in accepted:
            raise UsageError(
                f"{key.name}={value} ({_origin(key.name, file, given)}) should be {describe_expected(key.field)}."
            )


def describe_expected(field: FieldInfo) -> str:
    """The values that a key accepts, in words: `a whole number, at least 0`."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    annotation: Any = field.annotation
    if annotation in words:
        text = words[annotation]
    elif all(argument in words for argument in get_args(annotation)) and type(None) in get_args(annotation):
        text = " or ".join(words[argument] for argument in get_args(annotation))
    elif all(isinstance(argument, str) for argument in get_args(annotation)):
        text = " or ".join(f"`{argument}`" for argument in get_args(annotation))
    elif get_origin(annotation) is dict:
        text = "names with values: {name: value, ...}"
    else:
        text = "a list: [" + ", ".join(words.get(argument, "...") for argument in get_args(annotation)) + "]"
    limits = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [
        f"{phrase} {getattr(rule, name)}"
        for rule in field.metadata
        for name, phrase in limits.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([text, *bounds])


def _sentence(error: Mapping[str, Any], file: Path, given: set[str]) -> str:
    whole, name = (".".join(str(part) for part in error["loc"][:length]) for length in (3, 2))
    if whole in {key.name for key in config_keys()} or error["type"] == "extra_forbidden":
        name = whole
    origin = _origin(name, file, given)
    if error["type"] == "extra_forbidden":
        return _unknown(name, origin)
    if error["type"] == "model_type":
        return f"{name}={error['input']!r} ({origin}) must be a section of keys, not a value."
    known = {key.name: key.field for key in config_keys()}
    wanted = f"should be {describe_expected(known[name])}" if name in known else str(error["msg"])
    return f"{name}={error['input']} ({origin}) {wanted}."


def _origin(name: str, file: Path, given: set[str]) -> str:
    return GIVEN if name in given else f"in {file}"


def _unknown(name: str, origin: str) -> str:
    """The sentence for an unknown key or section, with the nearest known one."""
    known = [key.name for key in config_keys()]
    if name in Config.model_fields:
        example = next(key for key in known if key.startswith(f"{name}."))
        return f"{name} ({origin}) is a section of keys: name one of them, such as {example}."
    same_last = [key for key in known if key.partition(".")[2] == name.rpartition(".")[2]]
    if not same_last and "." not in name and (section := get_close_matches(name, Config.model_fields, n=1)):
        return f"There is no section {name} ({origin}); did you mean {section[0]}?"
    near = get_close_matches(name, same_last, n=1, cutoff=0.75) or same_last
    near = near or get_close_matches(name, known, n=1) or _nearest_last(name, known)
    if near:
        return f"There is no key {name} ({origin}); did you mean {' or '.join(near)}?"
    sections = ", ".join(Config.model_fields)
    return f"There is no key {name} ({origin}); the sections are {sections}, and docs/configuration.md lists all keys."


def _nearest_last(name: str, known: Sequence[str]) -> list[str]:
    last = {key.partition(".")[2]: key for key in known}
    return [last[match] for match in get_close_matches(name.rpartition(".")[2], last, n=1)]
