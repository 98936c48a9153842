"""A kind of part, a part on trial, and the checks of every kind.

A new kind is a subclass of `Contract`, named in `KINDS`. A new check is a function of a `Trial` that raises `Breach`,
with one sentence (`need`), in `CHECKS` or in its kind's `own`.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin, parse_parameters
from raypoly.integrations.by_value import pickler
from raypoly.integrations.contract_checks.comparing import alike, plain_of, same, short
from raypoly.integrations.contract_checks.other_process import call_elsewhere

_HERE = "raypoly.integrations.contract_checks"
KINDS: Mapping[str, str] = {
    "objective": f"{_HERE}.estimator_contracts:ObjectiveContract",
    "reward": f"{_HERE}.estimator_contracts:RewardContract",
    "loss": f"{_HERE}.estimator_contracts:LossContract",
    "stage": f"{_HERE}.group_contracts:StageContract",
    "judge": f"{_HERE}.group_contracts:JudgeContract",
    "scaffold": f"{_HERE}.group_contracts:ScaffoldContract",
}


class Breach(Exception):
    """A contract is broken; the text is one sentence."""


class Untried(Exception):
    """A check can't be made; the text is the reason."""


class Check(NamedTuple):
    name: str
    run: Callable[[Trial], None]


class Input(NamedTuple):
    shown: str
    """The input, for people."""
    args: tuple[Any, ...]
    """Of `Contract.answer`, after the part."""


class TrialAnswer(NamedTuple):
    sample: Input
    value: Any
    plain: Any
    """`plain_of` the value as it was given."""
    error: BaseException | None
    seconds: float
    spoilt: Sequence[str]
    """What the part changed: its input, or state of the process."""


class Fault:
    """Raises at every use, and notes it in `used`."""

    def __init__(self, error: Exception, used: list[str]) -> None:
        self.__dict__.update(error=error, used=used)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        self.__dict__["used"].append(name)
        raise self.__dict__["error"]

    def _use(self, *_: Any) -> Any:
        return Fault.__getattribute__(self, "use")

    __len__ = __iter__ = __getitem__ = __contains__ = __bool__ = __float__ = _use


class Contract(Protocol):
    """A kind of part. `build` makes one, which is asked for an `answer` to each of `samples`, the smallest first;
    `right` raises `Breach` for a wrong one. `faulty` gives arguments of which one is a fault, and it in words.
    `reordered` gives arguments with rollouts in another order, and what is then right; None where order may matter."""

    kind: ClassVar[str]
    what: ClassVar[str]
    key: ClassVar[str]
    """The config key that names a part; `known` has short names."""
    known: ClassVar[Mapping[str, str]]
    package: ClassVar[str] = "numpy"
    seconds: ClassVar[float] = 1.0
    """The longest that an answer may take."""
    declines: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors by which a part may leave a sample unanswered."""
    travels: ClassVar[bool] = True
    """Whether instances go to other processes, and not only their class."""
    hint: ClassVar[str]
    """What to do where it raises."""
    own: ClassVar[Sequence[Check]] = ()

    def is_one(self, thing: Any) -> bool: ...
    def samples(self, part: Any) -> Iterator[Input]: ...
    def answer(self, part: Any, *args: Any) -> Any: ...
    def right(self, value: Any, *args: Any) -> None: ...
    def faulty(self, fault: Fault, *args: Any) -> Iterator[tuple[str, tuple[Any, ...]]]: ...

    def build(self, thing: Any, params: Mapping[str, Any]) -> Any:
        """Raises `UsageError` for wrong parameters."""
        return thing(parse_parameters(thing.Config, params, self.kind, thing.__name__))

    def reordered(self, part: Any, value: Any, *args: Any) -> tuple[tuple[Any, ...], Any] | None:
        return None

    def essence(self, value: Any) -> Any:
        """What must be equal after `reordered`."""
        return value


class Trial:
    """A part and its answers."""

    def __init__(self, contract: Contract, thing: Any, params: Mapping[str, Any]) -> None:
        self.contract, self.thing, self.params = contract, thing, params

    def make(self, **more: Any) -> Any:
        return self.contract.build(self.thing, {**self.params, **more})

    def ask(self, part: Any, sample: Input, seed: int = 0) -> TrialAnswer:
        """The answer to a copy of the sample, with global random numbers from `seed`."""
        given, value, error = copy.deepcopy(sample.args), None, None
        random.seed(seed)
        np.random.seed(seed)
        before, start = _process_state(), time.perf_counter()
        try:
            value = self.contract.answer(part, *given)
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the report says what a part raised
            error = raised
        seconds, after = time.perf_counter() - start, _process_state()
        spoilt = [what for what, was in before.items() if was is not None and was != after[what]]
        spoilt += [] if same(sample.args, given) else ["its input, where it may only change a copy"]
        return TrialAnswer(sample, value, plain_of(value), error, seconds, spoilt)

    @cached_property
    def asked(self) -> Sequence[TrialAnswer]:
        """Answers of one instance, up to the first that takes too long twice."""
        part, found, most = self.make(), list[TrialAnswer](), self.contract.seconds
        for sample in self.contract.samples(part):
            found.append(self.ask(part, sample))
            if found[-1].seconds > most and self.ask(self.make(), sample).seconds > most:
                return found
            found[-1] = found[-1]._replace(seconds=0.0)  # the first call may load things
        return found

    @cached_property
    def answers(self) -> Sequence[TrialAnswer]:
        """Those that are right. Raises `Untried` if none is, or they take too long to ask again."""
        need(not any(it.seconds for it in self.asked), "it is too slow to be asked again", error=Untried)
        good = []
        for it in self.asked:
            with suppress(Breach):
                if it.error is None:
                    self.contract.right(it.value, *it.sample.args)
                    good.append(it)
        declined = (str(it.error) for it in self.asked if isinstance(it.error, self.contract.declines))
        need(good, next(declined, "no answer is right"), error=Untried)
        return good

    def compare(self, said: str, change: Callable[..., Any], by: Callable[[Any], Any] = lambda value: value) -> None:
        """Ask new instances with changed arguments. `change` takes an answer and its arguments, and gives others and
        what is then right, or None. Raises `Breach`, which begins with `said`."""
        pairs = [(it, change(it.value, *copy.deepcopy(it.sample.args))) for it in self.answers]
        need(any(changed for _, changed in pairs), "no answered sample is of this kind", error=Untried)
        for it, changed in pairs:
            if changed is not None:
                again = self.ask(self.make(), Input("", changed[0]))
                got, right = again.error or by(again.value), by(changed[1])
                need(same(right, got, 1e-5), f"{said}: {it.sample.shown}", got, right)


def need(holds: Any, said: str, *values: Any, error: type[Exception] = Breach) -> None:
    """Raise with the sentence unless it holds; `values`: what was given, and what in place of."""
    if not holds:
        raise error(said.rstrip(".") + (f"; it gave {', and not '.join(map(short, values))}." if values else "."))


def need_array(found: Any, dtype: type, size: int, of: str) -> None:
    """An array of this dtype, [size], of finite numbers."""
    said = f"{of} has to be a numpy array, {np.dtype(dtype)} [{size}]"
    need(isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == (size,), said, found)
    need(np.all(np.isfinite(found)), f"{of} has to be finite", found)


def need_json(value: Any, of: str) -> Any:
    """The value as it comes back from JSON, which has to be the same."""
    said, kept = f"{of} has to be JSON values, with texts as keys and finite numbers", None
    try:
        kept = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        need(False, f"{said}: {error}")
    need(same(value, kept), said, value)
    return kept


def _answers(trial: Trial) -> None:
    for it in trial.asked:
        if it.error is not None and not isinstance(it.error, trial.contract.declines):
            told = Breach(f"It raises {short(it.error)} for {it.sample.shown}; {trial.contract.hint}.")
            raise it.error if isinstance(it.error, Breach) else told
    _ = all(it.error for it in trial.asked) and trial.answers  # which says why there are none


def _is_right(trial: Trial) -> None:
    for it in trial.asked:
        try:
            if it.error is None:
                trial.contract.right(it.value, *it.sample.args)
        except Breach as breach:
            raise Breach(f"{str(breach).rstrip('.')}, for {it.sample.shown}.") from None


def _is_fast(trial: Trial) -> None:
    for it in trial.asked:
        need(not it.seconds, f"It takes {it.seconds:.1f} s, above {trial.contract.seconds:g} s, for {it.sample.shown}")


def _spoils_nothing(trial: Trial) -> None:
    for it in trial.asked:
        need(it.error or not it.spoilt, f"It changes {' and '.join(it.spoilt)}, for {it.sample.shown}")


def _repeats(trial: Trial) -> None:
    part = trial.make()
    memory = hasattr(part, "state_dict") and part.state_dict()
    for it in reversed(trial.answers):
        need(same(it.plain, it.value), f"A later call changes its answer to {it.sample.shown}", it.value, it.plain)
        seeds = ((0, "what it was asked before: keep nothing"), (2, "global random numbers, or how often it is asked"))
        for seed, why in seeds[: 1 if memory else 2]:
            again = trial.ask(part, it.sample, seed)
            got = again.error or again.value
            need(same(it.plain, got), f"Its answer depends on {why}: {it.sample.shown}", got, it.value)


def _takes_any_order(trial: Trial) -> None:
    by, part = trial.contract.essence, trial.make()
    said = "Its answer depends on the order of rollouts, which means nothing"
    trial.compare(said, lambda *it: trial.contract.reordered(part, *it), by)


def _lets_errors_through(trial: Trial) -> None:
    for error in (RuntimeError("planted"), OSError("planted")):
        used: list[str] = []
        for what, args in trial.contract.faulty(Fault(error, used), *trial.answers[-1].sample.args):
            used.clear()
            try:
                value = trial.contract.answer(trial.make(), *args)
            except Exception:  # noqa: BLE001 - any error is right
                continue
            need(not used, f"Reading {what} raises {error!r}, and it answers: what is unknown is never a number", value)


def _refuses_parameters(trial: Trial) -> None:
    kind: Any = getattr(trial.thing, "Keys", getattr(trial.thing, "Config", None))
    part = trial.make()
    need(kind is not None, "it has no parameters of its own", error=Untried)
    kept = isinstance(getattr(part, "keys", getattr(part, "config", None)), kind)
    need(kept, "It does not keep its parameters: call super().__init__(...)")
    for name, value in (("no_such_parameter", 1), *((name, {"no": ["such value"]}) for name in kind.model_fields)):
        try:
            trial.make(**{name: value})
            need(name != "no_such_parameter", "It takes a parameter that it does not have: Config needs extra='forbid'")
        except UsageError as error:
            need("\n" not in str(error), f"Of a wrong {name} it says several lines: {error}")
        except (TypeError, KeyError, AttributeError, AssertionError) as error:
            raise Breach(f"A wrong {name} raises {error!r}: raise ValueError in a validator.") from error


def _travels(trial: Trial) -> None:
    part = trial.make() if trial.contract.travels else None
    made_of = (trial.thing, trial.params) if part is None else (None, {})
    samples = [it.sample.args for it in trial.answers]
    try:
        found = call_elsewhere(pickler(), _answer_all, trial.contract.kind, part, *made_of, samples)
    except Exception as error:
        raise Breach(f"It can't go to another process ({error!r}): keep locks and open things out of it.") from error
    for it, got in zip(trial.answers, found, strict=True):
        said = "In another process, where hash(), sets and module state differ, it answers otherwise"
        need(alike(it.plain, got, 1e-5), f"{said}: {it.sample.shown}", got, it.plain)


CHECKS = (
    Check("each input has an answer", _answers),
    Check("answers have the right type, shape and values", _is_right),
    Check("an answer takes little time", _is_fast),
    Check("inputs and the process stay as they were", _spoils_nothing),
    Check("the same input gives the same answer", _repeats),
    Check("the order of rollouts does not matter", _takes_any_order),
    Check("an error is no answer", _lets_errors_through),
    Check("wrong parameters are refused in a sentence", _refuses_parameters),
    Check("it answers the same in another process", _travels),
)


@cache
def contract_of(kind: str) -> Contract:
    """Raises `UsageError` for an unknown kind."""
    made: Contract = load_plugin(kind, KINDS, "--as")()
    return made


def _answer_all(kind: str, part: Any, thing: Any, params: Mapping[str, Any], samples: Sequence[tuple[Any, ...]]) -> Any:
    """Plain answers; `thing` is built where there is no `part`."""
    part = contract_of(kind).build(thing, params) if part is None else part
    return [plain_of(contract_of(kind).answer(part, *args)) for args in samples]


def _process_state() -> Mapping[str, Any]:
    torch = sys.modules.get("torch")
    return {
        "Python's global random numbers": random.getstate(),
        "numpy's global random numbers": pickle.dumps(np.random.get_state()),
        "PyTorch's global random numbers": torch and torch.get_rng_state().numpy().tobytes(),
        "PyTorch's defaults": torch and (torch.get_default_dtype(), torch.is_grad_enabled()),
        "the environment": (dict(os.environ), os.getcwd(), np.geterr()),
    }
