"""Writes docs/configuration.md from the config's models.

python -m docs.tools.configuration_page docs/configuration.md      (make docs)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from raypoly.algorithms import losses, objectives
from raypoly.analysis.evaluation.evaluation_config import ModelEvaluationConfig
from raypoly.core.config import Config
from raypoly.core.config_keys import Key, config_keys, describe_expected
from raypoly.core.plugins import load_plugin
from raypoly.core.tables import ReportTable
from raypoly.data.preparing.prepare_config import PrepareConfig
from raypoly.rollouts import environments, scaffolds

HEAD = """# Which keys are there, and what do they do?

*`make docs` writes this page from `raypoly/core/config.py`; a test compares them.*

A config is a YAML file of sections. Set any key on the command line as `section.key=value`; that wins over the file.
Without `--config` a run uses [configs/tiny.yaml](../configs/tiny.yaml). A key that the file leaves out has the default
below. To print the config that a command comes to, without starting anything: `raypoly train --dry-run --verbose ...`.

The keys that affect results name the run folder, so the same command finds its run again and goes on with it. Keys
marked **r** affect no result: they may change when a run goes on. raypoly refuses any other difference.

A part named in the config (`objective.name`, `loss.name`, `scaffold.name`, `judge.name`, `reward.name`,
`generator.engine`, `problems.source`) is one of the known ones, or your own as `package.module:Name`, with its folder
on `PYTHONPATH`. `stages.own` names stages of your own in the same way.
"""

_PREPARATION = """## raypoly prepare

A file for `raypoly prepare` ([data.md](data.md)) has the sections below, and `run`, `model`, `warm_start`, `generator`,
`scorer` and `ray` from above. NAME is your name for a file of problems. `against` lists evaluation sets, with the same
keys as `sources`; problems that are in one of them are left out.
"""


_EVALUATION = """## raypoly evaluate

`raypoly evaluate --model` and `--endpoint` ([evaluate.md](evaluate.md)) have the sections below, and `run`, `model`,
`generator`, `scorer` and `ray` from above, where two defaults differ. `problems` has the keys of one of a preparation's
`sources`, without `template`.
"""


def configuration_page() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            *_sections(),
            *_parameters("objective", objectives.KNOWN),
            *_parameters("loss", losses.KNOWN),
            *_parameters("scaffold", scaffolds.KNOWN),
            *_parameters("environment", environments.KNOWN),
            *_preparation(),
            *_evaluation(),
        ]
    )


def _sections() -> Iterator[str]:
    for section, found in groupby(config_keys(), key=lambda key: key.name.partition(".")[0]):
        model = Config.model_fields[section].annotation
        yield f"## {section}\n\n{(model.__doc__ or '').strip()}\n"
        yield _table(("key", "default", "takes", "", "what it does"), map(_key_row, found))


def _key_row(key: Key) -> tuple[str, ...]:
    name, default, takes, does = _field_row(key.name, key.field, describe_expected(key.field))
    return name, default, takes, "**r**" if key.on_resume else "", does


def _field_row(name: str, field: FieldInfo, takes: str) -> tuple[str, str, str, str]:
    return f"`{name}`", _default(field), takes, field.description or ""


def _parameters(section: str, known: Mapping[str, str]) -> Iterator[str]:
    """The parameters that stand beside the name of an objective, a loss or a scaffold."""
    yield f"## Parameters beside {section}.name\n"
    for name in sorted(known):
        fields: Mapping[str, FieldInfo] = load_plugin(name, known, f"{section}.name").Config.model_fields
        yield f"### {section}.name={name}\n"
        if fields:
            rows = (_field_row(f"{section}.{key}", field, describe_expected(field)) for key, field in fields.items())
            yield _table(("key", "default", "takes", "what it does"), rows)
        else:
            yield "It takes no parameters.\n"


def _preparation() -> Iterator[str]:
    """Keys that only `raypoly prepare` has."""
    yield _PREPARATION
    rows = (
        _field_row(key.name, key.field, describe_expected(key.field))
        for key in config_keys(PrepareConfig)
        if key.name.partition(".")[0] not in ("against", *Config.model_fields)
    )
    yield _table(("key", "default", "takes", "what it does"), rows)


def _evaluation() -> Iterator[str]:
    """Keys that only `raypoly evaluate` has, and those with another default than training's."""
    yield _EVALUATION
    trainings = {key.name: key.field for key in config_keys()}
    rows = (
        _field_row(key.name, key.field, describe_expected(key.field))
        for key in config_keys(ModelEvaluationConfig)
        if not key.name.startswith("problems.")
        and (key.name not in trainings or key.field.default != trainings[key.name].default)
    )
    yield _table(("key", "default", "takes", "what it does"), rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default: Any = field.get_default(call_default_factory=True)
    return "" if default is None else f"`{_text(default)}`"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return ReportTable(head, [[cell.replace("<", "&lt;") for cell in row] for row in rows]).markdown()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(configuration_page())
