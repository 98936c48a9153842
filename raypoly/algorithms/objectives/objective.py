"""The contract of an objective: from one scored group to the credit of its rollouts.

An attempt's credit is its advantage: a number for all of its tokens, or float32 [T], one for each.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from raypoly.core.errors import UsageError
from raypoly.core.values import Bool, Draft, Float32, Float64, Int32

STAGE_OF = {"labels": "judge", "outcomes": "score", "statements": "score", "cross_logprobs": "prompt_logprobs"}
"""The stage that each of these fields of `ScoredGroup` comes from."""

_MEASURE_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_ROUNDING = 1e-9
"""Advantages below this share of an objective's `scale` are rounding errors and count as zero."""


@dataclass(frozen=True)
class ScoredGroup:
    """One problem's N rollouts as an objective sees them."""

    rewards: Float64
    """float64 [N]."""
    labels: Int32 | None = None
    """int32 [N]: strategy ids >= 1, arbitrary for degenerate rollouts. None if no judge was asked."""
    degenerate: Bool | None = None
    """bool [N]: rollouts that are no attempt."""
    lengths: Int32 | None = None
    """int32 [N]: response tokens."""
    outcomes: tuple[str, ...] | None = None
    """[N]: a text equal for programs that no test told apart (`behaviour.outcome_of`)."""
    statements: tuple[frozenset[str], ...] | None = None
    """[N]: each program's normalised statements, empty if it does not parse (`behaviour.statements_of`)."""
    cross_logprobs: tuple[Float64, ...] | None = None
    """[N], each float64 [P, T]: log-probabilities of a rollout's T tokens behind each of the group's P distinct prompts
    (one with the scaffold `direct`), under the sampler's weights, after temperature."""
    own_prompt: Int32 | None = None
    """int32 [N]: the index of each rollout's prompt among the P; given with `cross_logprobs`."""
    problem: str | None = None
    """The problem's id, for objectives that remember problems."""
    step: int | None = None
    """The training step, from 0."""
    findings: Mapping[str, Any] = field(default_factory=dict)
    """The findings of the group's stages by stage name (`raypoly.algorithms.group_stage`)."""
    drafts: tuple[Draft, ...] = ()
    """[D]: what the scaffold had written before the attempts."""
    draft_of: Int32 | None = None
    """int32 [N]: the index of the draft that each attempt was made from; -1 for none."""
    outcome: Float64 | None = None
    """float64 [N]: how right each rollout is, where `rewards` have terms in them; None: the rewards."""
    terms: Mapping[str, Float64] = field(default_factory=dict)
    """float64 [N] by name: the known terms of `reward.terms`, before their weights."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """By term: what one unit of it is worth, in rewards."""

    @property
    def size(self) -> int:
        """N."""
        return len(self.rewards)

    @property
    def beside(self) -> Float64:
        """float64 [N]: the sum of w (t - mean t) over the terms, of which there is one at least."""
        return weighted({name: values - values.mean() for name, values in self.terms.items()}, self.weights)


Advantages = Float64 | Sequence[float | Float32]
"""Of N rollouts: float64 [N], or N entries of which each is a number or float32 [T], one for each of its tokens."""


@dataclass(frozen=True)
class Credit:
    """What an objective makes of one group."""

    attempts: Advantages
    """[N]."""
    drafts: Float64 | None = None
    """float64 [D]; None: drafts are not trained at all (zero has a gradient where the loss has a KL term)."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Finite numbers by names like `mi`; unknown ones are left out. A step's metrics have their means over its groups,
    as `objective/mi`."""

    @property
    def numbers(self) -> Float64:
        """float64 [N]: the advantages, the mean over its tokens where an attempt has one a token."""
        return numbers_of(self.attempts)

    @property
    def tokens(self) -> Mapping[int, Float32]:
        """float32 [T] by place in the group: the attempts that have one a token."""
        return {place: entry for place, entry in enumerate(self.attempts) if isinstance(entry, np.ndarray)}


def numbers_of(advantages: Advantages) -> Float64:
    if isinstance(advantages, np.ndarray):
        return advantages
    return np.array([float(np.mean(entry)) if np.size(entry) else 0.0 for entry in advantages], np.float64)


class ObjectiveConfig(BaseModel):
    """The base of an objective's parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    degenerate_ids: tuple[int, ...] = Field(
        (0, 100), description="Raw ids that mean no attempt, where labels come without a degenerate mask."
    )


class Batch(tuple[Any, ...]):
    """A whole step's `Advantages` by group, as `compute` gave them, with their response lengths."""

    lengths: tuple[Int32, ...]
    """int32 [N] for each group: response tokens."""

    @property
    def numbers(self) -> Float64:
        """All of them in a row. Raises `UsageError` where an attempt has one a token."""
        if not all(isinstance(group, np.ndarray) for group in self):
            raise UsageError(
                "The objective normalises one advantage a response over the batch, and compute() gave one a token: "
                "write a finish() that does that, too."
            )
        return np.concatenate([np.zeros(0), *self])

    @classmethod
    def of(cls, advantages: Iterable[Advantages], lengths: Iterable[ArrayLike]) -> Self:
        batch = cls(advantages)
        batch.lengths = tuple(np.asarray(tokens, dtype=np.int32) for tokens in lengths)
        return batch


class Objective(ABC):
    """One way to turn rewards (and labels) into credit. Subclasses write `compute`.

    Groups that the judge could not label never reach an objective that needs labels: they have no gradient.
    """

    Config: ClassVar[type[ObjectiveConfig]] = ObjectiveConfig
    needs: ClassVar[frozenset[str]] = frozenset()
    """Required fields of `ScoredGroup` (labels, lengths, outcomes, statements, cross_logprobs, problem, step), and
    names of stages whose `findings` are required. A group with an unknown one has no gradient."""
    loss: ClassVar[str | None] = None
    """The only loss that fits these advantages; None if any does."""
    scaffold: ClassVar[str | None] = None
    """The scaffold (`raypoly.rollouts.scaffolds`) that it trains with; None for any. If it samples nothing, the config
    may name another one that samples nothing. Evaluations use `direct` unless the config names a scaffold."""
    stages: ClassVar[tuple[str, ...]] = ()
    """Stages that come with it, as `stages.own` names them, where that has none of the same name."""
    terms: ClassVar[Literal["in_rewards", "beside", "own"]] = "in_rewards"
    """What `reward.terms` are to it. `in_rewards`: its rewards are outcome + sum of w t; right where advantages are
    linear in rewards, or go by their order. `beside`: its rewards are the outcome alone, and sum of w (t - mean t) is
    added to its advantages; right where rewards are multiplied, as by diversity. `own`: it reads `group.terms`."""
    reads_rewards: ClassVar[bool] = True
    """Whether advantages depend on rewards. If not, none are asked for: they are unknown in the rows of metrics."""
    runs_programs: ClassVar[bool] = True
    """Whether training runs its programs at all. If not, their verdicts are null in files, and evaluations alone say
    what is right."""
    loss_defaults: ClassVar[Mapping[str, Any]] = {}
    """Parameters of the loss where the config does not set them."""
    trains_drafts: ClassVar[bool] = False
    """Whether its credit may have advantages of drafts, so that they are counted among the planned rows."""
    leaves_out: ClassVar[bool] = False
    """Whether an advantage of zero means that the rollout is left out."""

    def __init__(self, config: ObjectiveConfig) -> None:
        self.config = config

    @abstractmethod
    def compute(self, group: ScoredGroup) -> Credit | Float64:
        """One group's credit. Advantages alone, float64 [N], stand for `Credit(advantages)`."""

    @property
    def trains_attempts(self) -> bool:
        """Whether attempts have rows of training: an advantage of zero has a gradient where the loss has a KL term."""
        return True

    def scaffold_parameters(self) -> Mapping[str, Any]:
        """The parameters of `scaffold` that this objective owns, by key."""
        return {}

    def finish(self, batch: Batch) -> Sequence[Advantages]:
        """Advantages of a whole step's groups, for objectives that normalise over the batch. Default: unchanged.

        The batch lacks groups without known advantages (skipped, or `unjudged` if labels are needed).
        """
        return list(batch)

    def check(self, rollouts: int) -> None:  # noqa: B027  (most objectives work with any N)
        """Raise `UsageError` if this objective can't work with groups of `rollouts` (N)."""

    def scale(self, rollouts: int) -> float:
        """The order of magnitude of advantages in groups of `rollouts` (N) whose rewards differ by one."""
        return 1.0

    def silent(self, rewards: Float64, advantages: Float64) -> bool:
        """Whether a group's final advantages are all zero up to rounding.

        Rounding errors are up to some 1e-15 of reward times scale, 1e-10 after dividing by a tiny deviation. Exact
        advantages of that size teach nothing either.
        """
        if not advantages.any():
            return True
        largest = max(1.0, float(np.abs(rewards).max()))
        return bool(np.abs(advantages).max() <= _ROUNDING * largest * self.scale(len(rewards)))

    def state_dict(self) -> dict[str, Any]:
        """The state that must survive a restart, as JSON values. Default: none.

        Groups of one step arrive in any order, each problem once: keep state by problem, so that order does not matter.
        An objective with state never returns an empty dict, not even before its first group.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of `state_dict`."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, but was given {sorted(state)}")

    def advantages(self, rewards: ArrayLike, labels: ArrayLike | None = None, **values: Any) -> Float64:
        """Advantages, float64 [N], from plain arrays, for notebooks and other trainers; where an attempt has one a
        token their mean (`credit` has them)."""
        return self.credit(rewards, labels, **values).numbers

    def credit(self, rewards: ArrayLike, labels: ArrayLike | None = None, **values: Any) -> Credit:
        """`valued(scored(...))`."""
        return self.valued(self.scored(rewards=rewards, labels=labels, **values))

    def scored(
        self,
        *,
        rewards: ArrayLike,
        labels: ArrayLike | None = None,
        degenerate: ArrayLike | None = None,
        degenerate_ids: Collection[int] | None = None,
        lengths: ArrayLike | None = None,
        outcomes: Sequence[str] | None = None,
        statements: Sequence[Collection[str]] | None = None,
        cross_logprobs: Sequence[ArrayLike] | None = None,
        own_prompt: ArrayLike | None = None,
        problem: str | None = None,
        step: int | None = None,
        findings: Mapping[str, Any] | None = None,
        drafts: Sequence[Draft] = (),
        draft_of: ArrayLike | None = None,
        terms: Mapping[str, ArrayLike] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> ScoredGroup:
        """The group that `compute` sees, from plain arrays. `rewards` are the outcomes, to which `terms` are added as
        `Objective.terms` says.

        `degenerate` (bool [N]) marks rollouts that are no attempt; by default those whose label is in `degenerate_ids`
        (raw ids of a judge's answer; by default those of the config). `cross_logprobs` need `own_prompt`.
        Raises `ValueError` if lengths differ, a reward is not finite, or a needed value is missing or unknown.
        """
        r = finite(rewards, axes=1)
        raw_ids = self.config.degenerate_ids if degenerate_ids is None else degenerate_ids
        ids, mask = (None, None) if labels is None else labelled(labels, degenerate, raw_ids, r.shape)
        tokens = None if lengths is None else np.asarray(lengths, dtype=np.int32)
        crossed, own = (None, None) if cross_logprobs is None else crossing(cross_logprobs, own_prompt)
        group = ScoredGroup(
            r,
            ids,
            mask,
            tokens,
            outcomes=None if outcomes is None else tuple(outcomes),
            statements=None if statements is None else tuple(map(frozenset, statements)),
            cross_logprobs=crossed,
            own_prompt=own,
            problem=problem,
            step=step,
            findings=findings or {},
            drafts=tuple(drafts),
            draft_of=None if draft_of is None else np.asarray(draft_of, dtype=np.int32),
            terms={name: finite(values, axes=1) for name, values in (terms or {}).items()},
            weights=weights or {},
        )
        missing = [need for need in sorted(self.needs) if getattr(group, need, group.findings.get(need)) is None]
        if missing:
            raise ValueError(f"{type(self).__name__} needs {', '.join(missing)}, and got none")
        given_N = {"lengths": tokens, "outcomes": outcomes, "statements": statements, "cross_logprobs": crossed}
        for name, given in (*given_N.items(), *group.terms.items()):
            if given is not None and len(given) != len(r):
                raise ValueError(f"{len(r)} rewards need {len(r)} {name}, got {len(given)}")
        if self.terms != "in_rewards" or not group.terms:
            return group
        return replace(group, rewards=r + weighted(group.terms, group.weights), outcome=r)

    def valued(self, group: ScoredGroup) -> Credit:
        """`compute`, checked, with the terms that stand beside it. Raises `ValueError` where an advantage is no finite
        number, or they are not as many as rollouts, drafts or tokens; `UsageError` for a measure."""
        if not group.size and not (group.drafts and self.trains_drafts):  # a scaffold that solves nothing
            return Credit(np.zeros(0))
        found = self.compute(group)
        credit = found if isinstance(found, Credit) else Credit(found)
        attempts = self.checked(credit.attempts, [None] * group.size if group.lengths is None else group.lengths)
        if self.terms == "beside" and group.terms:
            beside = group.beside
            if isinstance(attempts, np.ndarray):
                attempts = attempts + beside
            else:
                attempts = [_plus(entry, own) for entry, own in zip(attempts, beside.tolist(), strict=True)]
        drafts = None if not group.drafts or credit.drafts is None else np.asarray(credit.drafts, np.float64)
        if drafts is not None and not self.trains_drafts:
            raise ValueError(f"{type(self).__name__} gives drafts advantages: set trains_drafts = True")
        if drafts is not None:
            self._demand(drafts.shape == (len(group.drafts),) and _finite(drafts), "drafts", len(group.drafts), drafts)
        return Credit(attempts, drafts, self._checked_measures(credit.measures))

    def checked(self, given: Advantages, lengths: Sequence[int | None] | Int32) -> Advantages:
        """Advantages of attempts of these lengths, [N], None where one is not known. Raises as `valued`."""
        size = len(lengths)
        self._demand(isinstance(given, Iterable), "attempts", size, given)
        if isinstance(given, np.ndarray) and given.dtype != object:
            self._demand(given.shape == (size,) and _finite(given), "attempts", size, given)
            return given
        entries: list[float | Float32] = [
            np.asarray(entry, np.float32) if np.ndim(entry) else float(entry) for entry in given
        ]
        self._demand(len(entries) == size and all(map(_finite, entries)), "attempts", size, given)
        for place, (entry, tokens) in enumerate(zip(entries, lengths, strict=True)):
            if isinstance(entry, np.ndarray) and (entry.ndim != 1 or tokens not in (None, len(entry))):
                raise ValueError(
                    f"{type(self).__name__} must give attempt {place} a number or {tokens} of them, one for each of "
                    f"its tokens; it gave an array of shape {entry.shape}"
                )
        return entries if any(isinstance(entry, np.ndarray) for entry in entries) else np.array(entries, np.float64)

    def _demand(self, holds: bool, what: str, size: int, given: Any) -> None:
        if not holds:
            raise ValueError(f"{type(self).__name__} must give {size} finite advantages of {what}, gave {given!r}")

    def _checked_measures(self, found: Mapping[str, float]) -> Mapping[str, float]:
        for name, value in found.items():
            if not isinstance(name, str) or not _MEASURE_NAME.fullmatch(name):
                raise UsageError(
                    f"The objective {type(self).__name__} measures {name!r}: a name is a letter and then letters, "
                    "digits or _, all lower case, at most 60."
                )
            if isinstance(value, bool) or not _is_finite(value):
                raise UsageError(
                    f"The objective {type(self).__name__} measures {name}={value!r}: give a finite number, and leave "
                    "out what is not known."
                )
        return {name: float(value) for name, value in found.items()}


def _finite(values: ArrayLike) -> bool:
    return bool(np.all(np.isfinite(values)))


def _plus(entry: float | Float32, number: float) -> float | Float32:
    return (entry + number).astype(np.float32) if isinstance(entry, np.ndarray) else entry + number


def weighted(terms: Mapping[str, Float64], weights: Mapping[str, float]) -> Float64:
    """The sum of w t over at least one term, float64 [N]. Raises `KeyError` for a term without a weight."""
    found: Float64 = np.sum([weights[name] * values for name, values in terms.items()], axis=0)
    return found


def finite(rewards: ArrayLike, axes: Literal[1, 2]) -> Float64:
    """Rewards as float64 [N], or [B, N] of two axes. Raises `ValueError` where they are not, or not finite."""
    r = np.asarray(rewards, dtype=np.float64)
    if r.ndim != axes or not np.all(np.isfinite(r)):
        raise ValueError(f"rewards must be {'N' if axes == 1 else 'B x N'} finite numbers, got {r!r}")
    return r


def labelled(
    labels: ArrayLike, degenerate: ArrayLike | None, degenerate_ids: Collection[int], shape: tuple[int, ...]
) -> tuple[Int32, Bool]:
    """Strategy ids and the mask of degenerates, of that shape. Raises as `Objective.advantages`."""
    ids = np.asarray(labels, dtype=np.int32)
    if degenerate is None:
        mask = np.isin(ids, list(degenerate_ids))
    else:
        mask = np.asarray(degenerate, dtype=np.bool_)
        if np.any((ids < 1) & ~mask):
            raise ValueError("a rollout's strategy is unknown: an unjudged group has no advantages")
    if ids.shape != shape or mask.shape != shape:
        size = " x ".join(map(str, shape))
        raise ValueError(f"{size} rewards need {size} labels, got {ids.shape} labels and {mask.shape} degenerate marks")
    return ids, mask


def crossing(logprobs: Sequence[ArrayLike], own_prompt: ArrayLike | None) -> tuple[tuple[Float64, ...], Int32]:
    """Log-probabilities as float64 [P, T] for each rollout, and its own prompt as int32 [N]. Raises `ValueError`."""
    found = tuple(np.asarray(each, dtype=np.float64) for each in logprobs)
    own = np.asarray([] if own_prompt is None else own_prompt, dtype=np.int32)
    if own.shape != (len(found),):
        raise ValueError(f"{len(found)} cross_logprobs need {len(found)} own_prompt, got {own.shape}")
    prompts = {each.shape[0] if each.ndim == 2 else -1 for each in found}
    if len(prompts) > 1 or -1 in prompts or not all(np.all(np.isfinite(each)) for each in found):
        raise ValueError("cross_logprobs must be finite [P, T] for each rollout, of the same P prompts")
    if np.any((own < 0) | (own >= max(prompts, default=0))):
        raise ValueError(f"own_prompt must be from 0 to P - 1, got {own.tolist()} with P = {max(prompts, default=0)}")
    return found, own


def needed_stages(objective: Objective) -> frozenset[str]:
    """The stages of a group whose findings the objective needs: where one is unknown, the group has no gradient."""
    fields = {spec.name for spec in fields_of(ScoredGroup)}
    return frozenset(STAGE_OF.get(need, need) for need in objective.needs if need in STAGE_OF or need not in fields)


def _is_finite(value: object) -> bool:
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False
