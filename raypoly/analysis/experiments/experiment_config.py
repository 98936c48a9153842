"""An experiment's file: arms by name, each a set of keys of the config, and the seeds that every arm is run with.

    arms:
      grpo: {objective.name: grpo}
      poly_epo_floor: {objective.name: poly_epo, objective.floor: 0.1, steps: 20, seeds: [0]}
      longer: {after: grpo, steps: 40}                    # begins with the weights of grpo, of the same seed

Every mistake is a `UsageError` of one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator

from raypoly.core import settings
from raypoly.core.config import Section
from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gates.validation import RECALL

OWN = ("run.dir", "run.fresh")
"""Keys that the experiment gives to each run."""


def _once_each(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError("give one seed or more, each once")
    return seeds


def _folders_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name):
        raise ValueError(f"{name!r} names folders: use letters, digits and _ . + - alone")
    return name


_Name = Annotated[str, AfterValidator(_folders_name)]
Seeds = Annotated[tuple[StrictInt, ...], AfterValidator(_once_each)]
Kind = Literal["train", "evaluate", "audit", "gate"]


class ArmConfig(Section):
    """One arm. Beside these, keys of the config such as objective.name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    steps: StrictInt | None = Field(None, ge=0, description="Short for train.steps.")
    seeds: Seeds | None = Field(None, description="This arm's own seeds. Default: the experiment's.")
    after: str | None = Field(None, description="The arm whose weights, of the same seed, this one begins with.")
    gate: str | None = Field(None, description="The arm of kind: gate that accepts this one's plans, of the same seed.")
    kind: Kind = Field(
        "train",
        description="`evaluate` measures once, `audit` looks at plans, both without an update; `gate` trains a gate "
        "(docs/cppo.md).",
    )
    recall: float = Field(RECALL, gt=0, le=1, description="A gate accepts at least this share of valid plans.")
    tau: float | None = Field(None, ge=0, le=1, description="A gate's threshold. Default: by `recall`.")
    plans_of: tuple[str, ...] = Field(
        (), description="Arms whose planners' plans, of the same seed, a gate is trained on too (puzzles)."
    )
    held_out: str | None = Field(
        None, description="Rows that a gate is measured on, of other problems than those of scaffold.rows."
    )
    least_pass: float = Field(0.0, ge=0, lt=1, description="An audit needs a larger share of tuples that passed.")
    least_density: float = Field(
        0.0, ge=0, lt=1, description="An audit needs a larger share of tuples that passed and were accepted."
    )

    @model_validator(mode="after")
    def _has_keys_of_the_config(self) -> ArmConfig:
        for key, value in self.sets.items():
            if "." not in key or isinstance(value, Mapping):
                raise ValueError(f"write section.key: value, such as objective.name: grpo, and not {key}: {value}")
        if self.steps is not None and "train.steps" in self.sets:
            raise ValueError("give steps or train.steps, not both")
        if self.kind in ("evaluate", "audit") and (self.steps is not None or "train.steps" in self.sets):
            raise ValueError(f"kind: {self.kind} has no steps, since it updates nothing")
        if self.kind != "audit" and (self.least_pass or self.least_density):
            raise ValueError("least_pass and least_density are of kind: audit")
        own = (self.recall, self.tau, self.held_out, self.plans_of)
        if self.kind != "gate" and own != (RECALL, None, None, ()):
            raise ValueError("recall, tau, held_out and plans_of are of kind: gate")
        if self.gate is not None and (taken := sorted(key for key in self.sets if key.startswith("gate."))):
            raise ValueError(f"give gate or {taken[0]}, not both: each says which gate accepts plans")
        return self._begins_once()

    def _begins_once(self) -> ArmConfig:
        if self.after is not None and "model.path" in self.sets:
            raise ValueError("give after or model.path, not both: each says what it begins with")
        if self.after is None and self.kind == "audit":
            raise ValueError("kind: audit looks at another arm's weights: say after")
        return self

    @property
    def needs(self) -> Sequence[tuple[str, str]]:
        """The arms that it needs, each behind its key."""
        named = [("after", self.after), ("gate", self.gate), *(("plans_of", other) for other in self.plans_of)]
        return [(how, other) for how, other in named if other is not None]

    @property
    def sets(self) -> Mapping[str, Any]:
        """The keys of the config that it sets."""
        return self.model_extra or {}

    @property
    def overrides(self) -> Iterator[str]:
        """The same as words of a command line."""
        for key, value in self.sets.items():
            yield f"{key}={_text(key, value)}"
        if self.steps is not None:
            yield f"train.steps={self.steps}"


class ExperimentConfig(Section):
    """One experiment."""

    name: _Name = Field(description="What it is called in folders, tables and markers. Default: the file's name.")
    config: str | None = Field(
        None, description="The config file that all runs begin with. Default: the embedded configs/tiny.yaml."
    )
    seeds: Seeds = Field((0,), description="Each arm is run once with each seed.")
    seed_keys: tuple[str, ...] = Field(("train.seed",), min_length=1, description="The keys that get the seed.")
    arms: dict[str, ArmConfig] = Field(min_length=1, description="Arms by name; the first is what others differ from.")

    @model_validator(mode="after")
    def _every_key_has_one_owner(self) -> ExperimentConfig:
        for name, arm in self.arms.items():
            if taken := sorted({*OWN, *self.seed_keys} & set(arm.sets)):
                raise ValueError(f"arm {name} sets {taken[0]}, which the experiment gives to each run")
        for name in self.arms:
            _folders_name(name)
        return self

    @model_validator(mode="after")
    def _every_arm_begins_with_another(self) -> ExperimentConfig:
        for name, arm in self.arms.items():
            for how, other in arm.needs:
                if other not in self.arms:
                    says = f"is after {other}" if how == "after" else f"has {how}: {other}"
                    raise ValueError(f"arm {name} {says}, which is none of {', '.join(self.arms)}")
                if how == "gate" and self.arms[other].kind != "gate":
                    raise ValueError(f"arm {name} has gate: {other}, which is no arm of kind: gate")
                if how == "plans_of" and self.arms[other].kind != "train":
                    raise ValueError(f"arm {name} has plans_of: {other}, which is no arm of kind: train")
                if missing := [seed for seed in self.seeds_of(name) if seed not in self.seeds_of(other)]:
                    whose = {"after": "weights it begins with", "gate": "gate accepts its plans"}
                    says = whose.get(how, "plans it is trained on")
                    raise ValueError(f"arm {name} has seed {missing[0]}, and {other}, whose {says}, has not")
        try:
            _ = self.in_order
        except CycleError as error:
            raise ValueError(f"the arms {', '.join(error.args[1][:-1])} are after each other") from error
        return self

    @property
    def in_order(self) -> Sequence[str]:
        """The arms, each behind those that it needs."""
        before = {name: [other for _, other in arm.needs] for name, arm in self.arms.items()}
        return list(TopologicalSorter(before).static_order())

    def seeds_of(self, arm: str) -> Sequence[int]:
        return self.arms[arm].seeds or self.seeds


def load_experiment(path: str | Path) -> ExperimentConfig:
    """The experiment of a YAML file. Raises `UsageError`."""
    file = Path(path)
    values = settings.read_yaml(file)
    if not isinstance(values, dict):
        raise UsageError(f"The experiment {file} must hold keys such as `arms:` and `seeds:`.")
    if not values.get("arms"):
        raise UsageError(
            f"The experiment {file} has no arms: write arms, such as `arms: {{grpo: {{objective.name: grpo}}}}`."
        )
    try:
        return ExperimentConfig.model_validate({"name": file.stem, **values})
    except ValidationError as error:
        raise UsageError("\n".join(_sentence(dict(item), file) for item in error.errors())) from error


def _sentence(error: Mapping[str, Any], file: Path) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"There is no key {where} in {file}; an experiment has {', '.join(ExperimentConfig.model_fields)}."
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{where or 'The experiment'} (in {file}): {message[:1].lower()}{message[1:]}."


def _text(key: str, value: Any) -> str:
    """A value as an override has it: one that the command line reads back as the same."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        plain = settings.parse_value(key, value, None) == value
    except UsageError:
        plain = False
    return value if plain else json.dumps(value)
