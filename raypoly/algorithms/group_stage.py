"""The contract of a group stage: it adds one finding to a group, between its rollouts and its advantages.

    class Brevity(GroupStage):
        name = "brevity"

        async def run(self, group, problem, services):
            return [1.0 / (1 + len(rollout.text)) for rollout in group.rollouts]

raypoly's stages, such as `score` and `judge`, lie in `workflows/step/stages`; `stages.own` adds yours.
A stage's finding is committed to the journal before anything uses it, and a committed finding is never computed again.
It reaches an objective as `group.findings[name]`, a reward function with a parameter `findings` as `findings[name]`,
the rows of `metrics.jsonl` as `name/column`, and the rollout files as the columns `name/column`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from raypoly.algorithms.objectives import Objective
from raypoly.algorithms.objectives.objective import STAGE_OF
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin, parse_parameters
from raypoly.core.token_arrays import TokenArrays
from raypoly.core.values import Float64, Group, Problem, Rollout
from raypoly.run.store.rollout_columns import TOKENS, arrays_of, lists_of


class StageKeys(BaseModel):
    """The base of a stage's keys, `stages.NAME.KEY`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class StageModel:
    """A model in float32 that a stage asks. An actor holds it, on the device of the learner's first rank."""

    folder: Path
    """A Hugging Face folder."""
    load: Callable[[Path, Callable[[], None]], Any]
    """Called in the actor with the folder there, and with what to call after each answer. Returns an object whose `ask`
    answers `services.models[NAME].ask(...)`. A function of a module, so that it travels."""
    threads: int = 1
    """Compute threads on a CPU."""
    hub: str | None = None
    """Its name on the hub, if the folder came from there."""


class GroupStage(ABC):
    """One stage of a run's groups. Subclasses write `name` and `run`."""

    name: ClassVar[str]
    """The key of its finding everywhere: a lower-case letter, then lower-case letters, digits and _, at most 60."""
    after: ClassVar[tuple[str, ...]] = ("score",)
    """The stages that run before it where the run has them, such as those whose findings it reads."""
    axis: ClassVar[Literal["rollout", "token", "draft", "group"]] = "rollout"
    """Whether a finding has a value for each of the group's N rollouts or D drafts, or one for the group. `token`: for
    each rollout float32 [T], a number for each of the policy's own tokens; such columns are `TOKENS` (the default's
    too), and `findings` have them as `TokenArrays`, a sequence of N arrays."""
    device: ClassVar[Literal["free", "between", "learner"]] = "free"
    """`free`: groups run at the same time. `between`: so they do once engines that share the learner's device sleep.
    `learner`: it needs that device too, under the sampler's weights: one group runs at a time, and before the step's
    first update. With `train.ahead` a `free` stage may run while the step before is learned, so what it asks of
    learner or generator depends on the moment; any other one waits for its own step, whose weights are then an update
    newer than the sampler's."""
    columns: ClassVar[Mapping[str, pa.DataType]] = {"value": pa.float64()}
    """The finding's Arrow columns. `run` returns the values of a single column, or a mapping of several."""
    optional: ClassVar[frozenset[str]] = frozenset()
    """Columns of numbers of which some rows may have none: NaN there, null in files, left out of means."""

    Keys: ClassVar[type[StageKeys]] = StageKeys
    """The stage's own keys, which are read into `keys`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.axis == "token" and cls.columns is GroupStage.columns:
            cls.columns = {"value": TOKENS}

    def __init__(self, config: Config, objective: Objective) -> None:
        self.config, self.objective = config, objective
        section = f"stages.{self.name}"
        given = config.stages.parameters.get(self.name, {})
        self.keys: Any = parse_parameters(self.Keys, given, section, f"stage {self.name}")

    @classmethod
    def identify(cls, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        """The stage's keys as they identify a run: with hashes of files that they name, so that other files are another
        run. Default: as they are."""
        return keys

    @property
    def asked_model(self) -> StageModel | None:
        """A model that the stage asks by `services.models`. Default: none. Raises `UsageError` if it is not there."""
        return None

    @property
    def timed_as(self) -> str:
        """Its name in a step's `seconds` and in progress."""
        return self.name

    @property
    def used(self) -> bool:
        """Whether training runs this stage at all."""
        return True

    def wanted(self, group: Group) -> bool:
        """Whether it runs for this training group. Groups without a gradient are never asked about."""
        return True

    @abstractmethod
    async def run(self, group: Group, problem: Problem, services: Any) -> Any:
        """The finding: N values (`axis` rollout), D values (`axis` draft) or one (`axis` group) for each column.

        `services` has the run's actors (`workflows.step.services.Services`): `scorers`, `judge`, `learner`,
        `generator`. Groups come in any order, several at a time, in one event loop: slow code belongs in a thread.
        Raise `Away` if a server is away: the run pauses and asks again. Raise `Unknown` if there is no result: it is
        journalled, and the group has no gradient if the finding is needed. Raise `Infra` if the group must be left out.
        Any other error ends the run.
        """

    async def probe(self, group: Group, problem: Problem, services: Any) -> None:
        """Return when the server is back; raise `Away` until then. Default: call `run` and drop its finding."""
        await self.run(group, problem, services)

    def seen(self, group: Group, services: Any) -> None:  # noqa: B027  (most stages count nothing)
        """Count a group with its new finding, also after a restart, before the finding is committed."""

    def token_credit(self, finding: Any, rollouts: Sequence[Rollout]) -> Sequence[Float64] | None:
        """What is added to each token's final advantage, float64 [T] for each rollout; a group of which it is unknown
        has no gradient. Default: None, nothing."""
        return None

    @property
    def gives_credit(self) -> bool:
        return self.used and type(self).token_credit is not GroupStage.token_credit

    def close(self) -> None:  # noqa: B027  (most stages hold nothing)
        """Let go of what it holds, at the end of a run or a stop."""

    def measures(self, finding: Any, group: Group) -> Mapping[str, float]:
        """Numbers of one group's finding. A step's metrics have their means over its groups as `name/...`. Default: the
        mean of each numeric column."""
        rows = self.encode(finding, self.rows(group))
        numeric = [name for name, kind in self.columns.items() if not pa.types.is_string(kind)]
        known = {name: _flat(rows.column(name)).to_numpy(zero_copy_only=False) for name in numeric}
        return {name: float(np.mean(values)) for name, values in known.items() if values.size}

    def rows(self, group: Group) -> int:
        """Rows of the stage's finding of a group: N, or D for `axis` draft and for a group without attempts."""
        return len(group.drafts) if on_drafts(self, group) else group.size

    def encode(self, finding: Any, size: int) -> Any:
        """The finding of a group as a `pyarrow.RecordBatch` of `size` rows (`rows`).

        Raises `UsageError` if it does not have so many values, or a number is not finite.
        """
        found = dict(finding) if isinstance(finding, Mapping) else {next(iter(self.columns)): finding}
        values = {name: [value] * size if self.axis == "group" else list(value) for name, value in found.items()}
        if values.keys() != self.columns.keys() or {len(column) for column in values.values()} != {size}:
            shape = {name: len(column) for name, column in values.items()}
            raise UsageError(f"The stage {self.name} must give {size} values of {[*self.columns]}, gave {shape}.")
        try:
            arrays = [_column(values[n], kind, n in self.optional) for n, kind in self.columns.items()]
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UsageError(f"The stage {self.name} gave a finding that does not fit its columns: {error}.") from error
        for name, array in zip(self.columns, arrays, strict=True):
            missing, known = array.null_count and name not in self.optional, _flat(array)
            if missing or (pa.types.is_floating(known.type) and not np.all(np.isfinite(known.to_numpy()))):
                raise UsageError(f"The stage {self.name} gave a value that is no number: raise Unknown instead.")
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def decode(self, rows: Any) -> Any:
        """The inverse of `encode`: an array [N], `TokenArrays` (`axis` token), or a single value (`axis` group); by
        column if there are several."""
        found: dict[str, Any] = {}
        for name in self.columns:
            column = rows.column(name)
            if column.type == TOKENS:
                found[name] = TokenArrays(arrays_of(pa.chunked_array([column])))
                continue
            values = column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy(zero_copy_only=False)
            found[name] = values[0] if self.axis == "group" else values
        return found if len(self.columns) > 1 else next(iter(found.values()))


def own_stages(config: Config, objective: Objective) -> list[GroupStage]:
    """The stages of `stages.own`, and those that the objective brings but for names that are there already.

    Raises `UsageError` for one that can't be loaded or whose keys don't fit, and for keys of one that is not there.
    """
    kinds = {place: load_plugin(place, {}, "stages.own") for place in (*config.stages.own, *objective.stages)}
    given = [kinds[place](config, objective) for place in config.stages.own]
    names = {stage.name for stage in given}
    brought = [kinds[place] for place in objective.stages if kinds[place].name not in names]
    known = names.union(STAGE_OF.values(), (kind.name for kind in brought))
    if missing := sorted(config.stages.parameters.keys() - known):
        raise UsageError(f"stages.{missing[0]} has keys of a stage that is not there: add the stage to stages.own.")
    return [*given, *(kind(config, objective) for kind in brought)]


def on_drafts(stage: GroupStage, group: Group) -> bool:
    """Whether the rows of a stage's finding are those of the group's drafts."""
    return stage.axis == "draft" or (stage.axis == "group" and not group.size)


def _column(values: Sequence[Any], kind: pa.DataType, optional: bool) -> pa.Array:
    if kind == TOKENS:
        try:
            return lists_of([np.asarray(each).reshape(-1) for each in values], np.dtype(np.float32))
        except (TypeError, ValueError) as error:
            raise pa.ArrowInvalid(f"each row is float32 [T] ({error})") from error
    return pa.array(values, kind, from_pandas=optional)


def _flat(column: pa.Array) -> pa.Array:
    """Its values that are known, of all tokens where it has some a row."""
    known = column.drop_null()
    return known.flatten() if pa.types.is_list(column.type) else known
