"""Reads a YAML file and dotted overrides into a `Config`, or into the config of another command.

    config = load("configs/tiny.yaml", ["train.steps=20", "objective.name=grpo"])

Every mistake is a `UsageError` of one sentence that names the key, the value and what was expected.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from raypoly.core.config import RUN_NAME, Config
from raypoly.core.config_keys import NAME, Key, config_keys, describe_expected, flatten_keys, is_named
from raypoly.core.errors import UsageError
from raypoly.core.foreign_keys import own_key
from raypoly.core.text import visible

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
"""Lies beside the package: in a checkout, in an installation and in a job's copy of the working directory."""
# Keys and sections of other names, of which users may have configs.
_RENAMED = {
    "program": "scaffold",
    "evaluate.programs": "evaluate.scaffolds",
    "gate.name": "stages.own",
    "gate": "stages.gate",
    "reward.compute_score": "reward.name",
}
DEFAULT = CONFIGS / "tiny.yaml"
GIVEN = "on the command line"
"""An override's origin in messages."""

C = TypeVar("C", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    # YAML 1.1 with four changes: 1e-3 is a number, `on` and `off` are words (pydantic turns them into booleans where a
    # key is one), a day such as 2025-02-01 is text, and a key that is there twice is an error.
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


def load(
    path: str | None,
    overrides: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Config:
    """The config of `path` (None: configs/tiny.yaml) with `overrides` (`section.key=value`) applied.

    A new name of an objective, a loss or a scaffold drops the old one's parameters, which `note` reports. Raises
    `UsageError`.
    """
    return load_of(Config, path or str(DEFAULT), overrides, note=note)


def load_of(
    kind: type[C],
    path: str | None,
    overrides: Sequence[str],
    name: str | None = None,
    note: Callable[[str], None] = print,
) -> C:
    """As `load`, for a `kind` of config; without `path` from the overrides alone. `name`: the run's default name."""
    file = "the config" if path is None else str(Path(path))
    values = {} if path is None else read_yaml(Path(path)) or {}
    if not isinstance(values, dict):
        example = next((section for section in kind.model_fields if section not in Config.model_fields), "train")
        raise UsageError(
            f"The config file {file} must hold sections such as `{example}:`, not a {type(values).__name__}."
        )
    values = {str(section): content for section, content in values.items() if content is not None}
    given, wrong = _parse_all(overrides, kind)
    _drop_old_parameters(values, given, note)
    for key, value in given.items():
        _lay(values, key, value, file, kind)
    if isinstance(run := values.setdefault("run", {}), dict):
        # of a model of the user's own, a run of the default config has the name
        model = values["model"].get("path") if path == str(DEFAULT) and isinstance(values.get("model"), dict) else None
        stem = Path(str(model)).name.removesuffix(".gguf") if model else Path(file).stem
        run.setdefault("name", name or re.sub(rf"[^{RUN_NAME}]+", "-", stem).strip(" .-") or "run")
    wrong += _booleans(values, file, given, kind)
    try:
        made = kind.model_validate(values)
    except ValidationError as error:
        wrong += [_sentence(dict(item), file, given, kind) for item in error.errors()]
    if wrong:
        raise UsageError("\n".join(dict.fromkeys(wrong)))
    return made


def no_such_option(option: str) -> str:
    """A sentence for `--steps 5`, as other trainers take their keys; empty if no key has that name."""
    name = option.lstrip("-").replace("-", "_")
    known = [key.name for key in config_keys()]
    ours = name if name in known else own_key(name)
    ours = ours or next((key for key in (f"train.{name}", *known) if key in known and key.endswith(f".{name}")), None)
    return f"There is no option {option}: keys are written as section.key=value, here {ours}=..." if ours else ""


def dump(config: Config, changed: bool = False) -> str:
    """YAML that `load` reads back to an equal config; `changed`: without keys that are at their default."""
    values = config.model_dump(mode="json", exclude_defaults=changed)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)


def read_yaml(file: Path) -> Any:
    """The content of a file, or of the packaged config of this name (`tiny`, `experiments/collapse`).

    Raises `UsageError` if the file is missing, can't be read, or is not YAML.
    """
    packaged = CONFIGS / f"{file.as_posix().removeprefix('configs/').removesuffix('.yaml')}.yaml"
    try:
        return yaml.load((file if file.exists() else packaged).read_text(), Loader=_Loader)
    except FileNotFoundError as error:
        known = ", ".join(sorted(config.stem for config in CONFIGS.glob("*.yaml")))
        raise UsageError(
            f"There is no config file {file}, and none of that name among raypoly's own: {known}."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The config file {file} can't be read: {error}.") from error
    except yaml.YAMLError as error:
        raise UsageError(f"The config file {file} is not YAML: {_yaml_problem(error)}.") from error


def parse_value(name: str, text: str, field: FieldInfo | None) -> Any:
    """An override's value: YAML, or the text itself if the key takes text. Raises `UsageError`."""
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        if field is not None and _takes_text(field):
            return text
        raise UsageError(f"{name}={text} ({GIVEN}) is not a YAML value: {_yaml_problem(error)}.") from error
    if field is not None and _takes_text(field) and value is not None and not isinstance(value, str):
        return text  # a folder named 2026 is a name, not a number
    return value


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} at line {error.problem_mark.line + 1}"
    return " ".join(str(error).split())


def _parse_all(overrides: Sequence[str], kind: type[BaseModel]) -> tuple[dict[str, Any], list[str]]:
    """The values by key, and a sentence for each override that is wrong."""
    given, wrong = dict[str, Any](), list[str]()
    for override in overrides:
        try:
            given.update([_parse(override, kind)])
        except UsageError as error:
            wrong.append(str(error))
    return given, wrong


def _parse(override: str, kind: type[BaseModel]) -> tuple[str, Any]:
    """`train.steps=20` to ("train.steps", 20)."""
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals:
        example = "train.steps=20" if kind is Config else "sampling.samples=8"
        raise UsageError(f"{override!r} is not an override: write section.key=value, such as {example}.")
    key = _key(name, kind)
    if key is None and not _may_be(name, text, kind):
        raise UsageError(_unknown(name, GIVEN, kind))
    return name, parse_value(name, text, None if key is None else key.field)


def _may_be(name: str, text: str, kind: type[BaseModel]) -> bool:
    # no documented key, but perhaps one of a part found by name, or a whole section, whose value pydantic looks at
    inner = any(key.name.startswith(f"{name}.") for key in config_keys(kind))
    return ("." in name and (inner or _in_open_section(name, kind))) or (name, text.strip()) == ("sampling", "off")


def _in_open_section(name: str, kind: type[BaseModel]) -> bool:
    """Whether a section on the way to the key takes keys that it does not document."""
    parts, model = name.split("."), kind
    while len(parts) > 1 and parts[0] in model.model_fields:
        inner: Any = model.model_fields[parts[0]].annotation
        taken = 2 if is_named(inner) else 1
        inner, parts = get_args(inner)[1] if taken == 2 else inner, parts[taken:]
        if not parts or not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return False
        if inner.model_config.get("extra") == "allow":
            return True
        model = inner
    return False


def _key(name: str, kind: type[BaseModel]) -> Key | None:
    parts = name.split(".")
    for key in config_keys(kind):
        known = key.name.split(".")
        if len(known) == len(parts) and all(k in (NAME, part) for k, part in zip(known, parts, strict=True)):
            return key
    return None


def _lay(values: dict[str, Any], name: str, value: Any, file: str, kind: type[BaseModel]) -> None:
    # in copies: the sections may be another config's
    *outer, last = name.split(".")
    for part in outer:
        inner = values.get(part) or {}
        if not isinstance(inner, dict):
            raise UsageError(f"{part}={inner!r} in {file} must be a section of keys, not a value.")
        values[part] = dict(inner)
        values = values[part]
    values[last] = value


def _takes_text(field: FieldInfo) -> bool:
    optional = get_origin(field.annotation) in (Union, UnionType)
    return field.annotation is str or (optional and str in get_args(field.annotation))


def _drop_old_parameters(sections: dict[str, Any], given: Mapping[str, Any], note: Callable[[str], None]) -> None:
    for section in ("objective", "loss", "scaffold", "environment"):
        old = sections.get(section)
        if not isinstance(old, dict):
            continue
        default = Config.model_fields[section].get_default(call_default_factory=True).name
        name, old_name = given.get(f"{section}.name"), old.get("name", default)
        kept = Config.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        dropped = {key: value for key, value in old.items() if key not in kept}
        if name is None or name == old_name or not dropped:
            continue
        sections[section] = {key: value for key, value in old.items() if key in kept and key != "name"}
        listed = ", ".join(f"{key}={value}" for key, value in dropped.items())
        note(f"{section}.name={name}: the parameters of {old_name} were dropped ({listed}).")


def _booleans(values: Mapping[str, Any], file: str, given: Mapping[str, Any], kind: type[BaseModel]) -> list[str]:
    """A sentence for each `train.steps: yes`, which pydantic would read as 1."""
    keys = ((name, value, _key(name, kind)) for name, value in flatten_keys(values) if isinstance(value, bool))
    return [
        f"{name}={value} ({_origin(name, file, given)}) should be {describe_expected(key.field)}."
        for name, value, key in keys
        if key is not None and not key.takes_booleans
    ]


def _sentence(error: Mapping[str, Any], file: str, given: Mapping[str, Any], kind: type[BaseModel]) -> str:
    parts = [str(part) for part in error["loc"]]
    name = ".".join(parts)
    # a value where an open section (stages) has only sections of keys is a mistyped key of its own
    mistyped = error["type"] == "dict_type" and len(parts) == 2 and _key(name, kind) is None
    if error["type"] == "extra_forbidden" or mistyped:
        return _unknown(name, _origin(name, file, given), kind)
    if name == "sources":
        return (
            f"{file} names no file of problems: give it sources.NAME.path, or sources.NAME.hub, .revision and .split."
        )
    if error["type"] == "missing" and (key := _key(name, kind)) is not None:
        return f"{name} has to be given: {describe_expected(key.field)}."
    for length in range(len(parts), 0, -1):  # an item of a list is told as its key
        name = ".".join(parts[:length])
        if (key := _key(name, kind)) is not None:
            said = f"{name}={visible(str(error['input']))} ({_origin(name, file, given)})"
            own = error["type"] == "value_error"
            return f"{said}: {_message(error)}." if own else f"{said} should be {describe_expected(key.field)}."
    name = ".".join(parts)
    if error["type"] == "model_type":
        return f"{name}={error['input']!r} ({_origin(name, file, given)}) must be a section of keys, not a value."
    return f"{name} ({_origin(name, file, given)}): {_message(error)}."


def _message(error: Mapping[str, Any]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _origin(name: str, file: str, given: Mapping[str, Any]) -> str:
    return GIVEN if name in given else f"in {file}"


def _unknown(name: str, origin: str, kind: type[BaseModel]) -> str:
    """A sentence with the nearest known key."""
    for old, new in _RENAMED.items():
        if name == old or name.startswith(f"{old}."):
            return f"{name} ({origin}) is called {new}{name.removeprefix(old)} now: use that name."
    known = [key.name for key in config_keys(kind)]
    last = name.rpartition(".")[2]
    if kind is Config and (ours := own_key(name)):
        return f"There is no key {name} ({origin}): raypoly calls it {ours} (docs/from-verl.md)."
    if example := next((key for key in known if key.startswith(f"{name}.")), None):
        return f"{name} ({origin}) is a section of keys: name one of them, such as {example}."
    same_last = [key for key in known if key.rpartition(".")[2] == last]
    if not same_last and "." not in name and (section := get_close_matches(name, kind.model_fields, n=1)):
        return f"There is no section {name} ({origin}); did you mean {section[0]}?"
    near = get_close_matches(name, same_last, n=1, cutoff=0.75) or same_last
    near = near or get_close_matches(name, known, n=1) or _nearest_last(name, known)
    if near:
        return f"There is no key {name} ({origin}); did you mean {' or '.join(near)}?"
    sections = ", ".join(kind.model_fields)
    return f"There is no key {name} ({origin}); the sections are {sections}, and docs/configuration.md lists all keys."


def _nearest_last(name: str, known: Sequence[str]) -> list[str]:
    last = {key.rpartition(".")[2]: key for key in known}
    return [last[match] for match in get_close_matches(name.rpartition(".")[2], last, n=1, cutoff=0.7)]
