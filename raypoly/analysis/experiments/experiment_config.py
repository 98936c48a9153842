"""The file of an experiment: arms by name, each a set of keys of the config, and the seeds of every arm.

    arms:
      grpo: {objective.name: grpo}
      poly_epo_floor: {objective.name: poly_epo, objective.floor: 0.1, steps: 20, seeds: [0]}
      longer: {after: grpo, steps: 40}                    # begins with the weights of grpo, of the same seed
      short: {sweep: {reward.terms.length.weight: [0, 0.1]}}       # two arms, short-0 and short-0.1

Every mistake is a `UsageError` of one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator

from raypoly.core import settings
from raypoly.core.config import Section
from raypoly.core.errors import UsageError

OWN = ("run.dir", "run.fresh")
"""Keys that the experiment gives to each run."""
TRAINING = ("train", "evaluate")
"""The commands whose runs are compared; others leave a `CommandResult`."""
_FOLDER = re.compile(r"\$([^/]+)")  # `$ARM` at the beginning of a value: the folder of that arm's run


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
_Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class ArmConfig(Section):
    """One arm. Beside these, keys of the config such as objective.name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    command: str = Field(
        "train",
        pattern=r"^[a-z][a-z-]*$",
        description="The raypoly command of its runs. `evaluate` measures once, without an update; other than that "
        "and `train` it leaves a result.json.",
    )
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Options of such a command: `{recall: 0.9}` is --recall=0.9."
    )
    after: _Names = Field(
        (),
        description="The arms that come first, of the same seed. It begins with the weights of the first one, if it "
        "sets no model.path.",
    )
    steps: StrictInt | None = Field(None, ge=0, description="Short for train.steps.")
    seeds: Seeds | None = Field(None, description="This arm's own seeds. Default: the experiment's.")

    @model_validator(mode="after")
    def _has_keys_of_the_config(self) -> ArmConfig:
        for key, value in self.sets.items():
            if "." not in key or isinstance(value, Mapping):
                raise ValueError(f"write section.key: value, such as objective.name: grpo, and not {key}: {value}")
        if self.steps is not None and "train.steps" in self.sets:
            raise ValueError("give steps or train.steps, not both")
        if self.command == "evaluate" and (self.steps is not None or "train.steps" in self.sets):
            raise ValueError("command: evaluate has no steps, since it updates nothing")
        if self.is_training and self.options:
            raise ValueError(f"options are of other commands than {self.command}, which takes keys of the config")
        for key, others in self.folders.items():
            if strange := next((other for other in others if other not in self.after), None):
                raise ValueError(f"{key} names the folder of {strange}: name that arm in after, too")
        return self

    @property
    def is_training(self) -> bool:
        """Whether its runs are trained, or measured: an arm of the tables."""
        return self.command in TRAINING

    @property
    def words(self) -> Sequence[str]:
        """Its command with the options."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self.options.items()]
        return ["train" if self.is_training else self.command, *options]

    @property
    def begins_with(self) -> str | None:
        return None if "model.path" in self.sets else next(iter(self.after), None)

    @property
    def sets(self) -> Mapping[str, Any]:
        return self.model_extra or {}

    @property
    def folders(self) -> Mapping[str, Sequence[str]]:
        """By key, the arms whose folders its value names (`$ARM/...`)."""
        named = {key: [_FOLDER.match(each) for each in _texts(value)] for key, value in self.sets.items()}
        found = {key: [match[1] for match in matches if match] for key, matches in named.items()}
        return {key: others for key, others in found.items() if others}

    def overrides(self, folders: Mapping[str, Path]) -> Iterator[str]:
        """Its keys as words of a command line; `$ARM` is replaced where `folders` has the arm."""

        def placed(value: str) -> str:
            return _FOLDER.sub(lambda match: str(folders.get(match[1], match[0])), value, 1)

        for key, value in self.sets.items():
            if key in self.folders:
                value = placed(value) if isinstance(value, str) else [placed(each) for each in value]
            yield f"{key}={_text(key, value)}"
        if self.steps is not None:
            yield f"train.steps={self.steps}"

    @property
    def follows(self) -> Sequence[str]:
        """Words that follow from its command, which nothing given beside may change."""
        still = ("train.steps=0", "train.schedule=constant")
        if self.is_training:
            return (*still, "evaluate.every=1") if self.command == "evaluate" else ()
        return (*(still if self.steps == 0 else ()), "evaluate.every=0")


def _swept(name: str, arm: Any) -> Iterator[tuple[str, Any]]:
    """The arms of one with `sweep: {KEY: [VALUE, ...]}`; the arm itself where it has none."""
    if not isinstance(arm, Mapping) or "sweep" not in arm:
        yield name, arm
        return
    rest, sweep = {key: value for key, value in arm.items() if key != "sweep"}, arm["sweep"]
    pairs = list(sweep.items()) if isinstance(sweep, Mapping) else []
    if len(pairs) != 1 or not isinstance(pairs[0][1], list) or not pairs[0][1] or pairs[0][0] in rest:
        raise ValueError(f"arm {name}: sweep is one key that the arm does not set, with values: {{train.lr: [1, 2]}}")
    ((key, values),) = pairs
    yield from ((f"{name}-{value}", {**rest, key: value}) for value in values)


class PrimaryConfig(Section):
    """The one claim that an experiment is made for, declared before it runs."""

    measure: str = Field(pattern=r"^(pass@[1-9]\d*|strategies)$", description="Such as pass@64, or `strategies`.")
    against: str = Field(description="The arm that others are compared with: the first one.")

    @property
    def key(self) -> str:
        """The measure as results name it."""
        return self.measure.removeprefix("pass@")


class ExperimentConfig(Section):
    """One experiment."""

    name: _Name = Field(description="What it is called in folders, tables and markers. Default: the file's name.")
    config: str | None = Field(
        None, description="The config file that all runs begin with. Default: the embedded configs/tiny.yaml."
    )
    seeds: Seeds = Field((0,), description="Each arm is run once with each seed.")
    seed_keys: tuple[str, ...] = Field(("train.seed",), min_length=1, description="The keys that get the seed.")
    arms: dict[str, ArmConfig] = Field(min_length=1, description="Arms by name; the first is what others differ from.")
    primary: PrimaryConfig | None = Field(
        None, description="What is claimed, before all else and apart from it: `{measure: pass@64, against: grpo}`."
    )

    @model_validator(mode="before")
    @classmethod
    def _a_sweep_is_an_arm_for_each_value(cls, given: Any) -> Any:
        arms = given.get("arms") if isinstance(given, Mapping) else None
        if not isinstance(arms, Mapping):
            return given
        pairs = [pair for name, arm in arms.items() for pair in _swept(str(name), arm)]
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"there are two arms {twice[0]}: one of them comes from a sweep")
        return {**given, "arms": dict(pairs)}

    @model_validator(mode="after")
    def _every_key_has_one_owner(self) -> ExperimentConfig:
        for name, arm in self.arms.items():
            if taken := sorted({*OWN, *self.seed_keys} & set(arm.sets)):
                raise ValueError(f"arm {name} sets {taken[0]}, which the experiment gives to each run")
            _folders_name(name)
        return self

    @model_validator(mode="after")
    def _the_primary_claim_can_be_tested(self) -> ExperimentConfig:
        first = next(iter(self.arms))
        if self.primary is not None and self.primary.against != first:
            raise ValueError(f"primary.against is {self.primary.against}, and all arms are compared with {first}")
        return self

    @model_validator(mode="after")
    def _every_arm_has_those_before_it(self) -> ExperimentConfig:
        for name, arm in self.arms.items():
            for other in arm.after:
                if other not in self.arms:
                    raise ValueError(f"arm {name} is after {other}, which is none of {', '.join(self.arms)}")
                if missing := [seed for seed in self.seeds_of(name) if seed not in self.seeds_of(other)]:
                    raise ValueError(f"arm {name} has seed {missing[0]}, and {other}, which it is after, has not")
        try:
            _ = self.in_order
        except CycleError as error:
            raise ValueError(f"the arms {', '.join(error.args[1][:-1])} are after each other") from error
        return self

    @property
    def in_order(self) -> Sequence[str]:
        """The arms, each behind those that it is after."""
        return list(TopologicalSorter({name: arm.after for name, arm in self.arms.items()}).static_order())

    def seeds_of(self, arm: str) -> Sequence[int]:
        return self.arms[arm].seeds or self.seeds


def load_experiment(path: str | Path) -> ExperimentConfig:
    """Raises `UsageError`."""
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


def _texts(value: Any) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


def _text(key: str, value: Any) -> str:
    # The command line reads it back as the same.
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        plain = settings.parse_value(key, value, None) == value
    except UsageError:
        plain = False
    return value if plain else json.dumps(value)
