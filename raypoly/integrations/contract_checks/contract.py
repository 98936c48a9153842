"""A kind of part, a part on trial, and the checks of every kind.

A new kind is a subclass of `Contract`, named in `KINDS`. A new check is a method `check_what_holds` that raises
`Breach`, with one sentence (`need`).
"""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, ClassVar, NamedTuple

import numpy as np

from raypoly.core.errors import UsageError
from raypoly.core.plugins import parse_parameters
from raypoly.integrations.by_value import pickler
from raypoly.integrations.contract_checks.comparing import Breach, Untried, need, need_same, plain_of, same, short

Inputs = Iterator[tuple[str, tuple[Any, ...]]]
"""In words, and as arguments of `Contract.answer` after the part."""


class TrialAnswer(NamedTuple):
    shown: str
    args: tuple[Any, ...]
    given: Any
    """The part's own object, which it may change later."""
    value: Any
    """A copy."""
    error: BaseException | None
    wrong: str
    """What `right` said, or empty."""
    seconds: float
    spoilt: Sequence[str]
    """What the part changed: its input, or state of the process."""


class Fault:
    """Raises at every use, and counts it in `uses`."""

    def __init__(self, error: Exception) -> None:
        self.error, self.uses = error, 0

    def use(self, *_: Any) -> Any:
        self.uses += 1
        raise self.error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.use()

    __len__ = __iter__ = __getitem__ = __contains__ = __bool__ = __float__ = use


class Contract(ABC):
    """A kind of part; an instance is a part on trial. `build` makes one, which is asked for an `answer` to each of
    `samples`, the smallest first; `right` raises `Breach` for a wrong one. `faulty` gives arguments of which one is a
    fault. `reordered` gives arguments with rollouts in another order, and what is then right; None where order may
    matter."""

    kind: ClassVar[str]
    what: ClassVar[str]
    base: ClassVar[type]
    known: ClassVar[Mapping[str, str]]
    """Short names."""
    package: ClassVar[str] = "numpy"
    seconds: ClassVar[float] = 1.0
    """The longest that an answer may take."""
    declines: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors by which a part may leave a sample unanswered."""
    travels: ClassVar[bool] = True
    """Whether instances go to other processes, and not only their class."""
    hint: ClassVar[str]
    """What to do where it raises."""
    inputs: ClassVar[Sequence[str]] = ()
    """Arguments of `answer` in words; each in turn is a fault."""

    def __init__(self, thing: Any, params: Mapping[str, Any]) -> None:
        self.thing, self.params = thing, params

    @classmethod
    def is_one(cls, thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, cls.base)

    @abstractmethod
    def samples(self, part: Any) -> Inputs: ...
    @abstractmethod
    def answer(self, part: Any, *args: Any) -> Any: ...
    @abstractmethod
    def right(self, value: Any, *args: Any) -> None: ...

    def build(self, params: Mapping[str, Any]) -> Any:
        """Raises `UsageError` for wrong parameters."""
        return self.thing(parse_parameters(self.thing.Config, params, self.kind, self.thing.__name__))

    def faulty(self, fault: Any, *args: Any) -> Inputs:
        for place, what in enumerate(self.inputs):
            yield what, (*args[:place], fault, *args[place + 1 :])

    def reordered(self, value: Any, *args: Any) -> tuple[tuple[Any, ...], Any] | None:
        return None

    def essence(self, value: Any) -> Any:
        """What must be equal where the input is another."""
        return value

    @property
    def checks(self) -> Sequence[Callable[[], None]]:
        """Those of every kind first."""
        kinds = reversed(type(self).__mro__)
        return [getattr(self, name) for kind in kinds for name in vars(kind) if name.startswith("check_")]

    def make(self, **more: Any) -> Any:
        return self.build({**self.params, **more})

    def ask(self, part: Any, shown: str, args: tuple[Any, ...]) -> TrialAnswer:
        """The answer to a copy of the arguments."""
        copies, given, error, wrong = copy.deepcopy(args), None, None, ""
        random.seed(0)  # so that who draws from global random numbers is told only that
        np.random.seed(0)
        before, start = _process_state(), time.perf_counter()
        try:
            given = self.answer(part, *copies)
        except (Exception, SystemExit, CancelledError) as raised:  # noqa: BLE001 - the report says what a part raised
            error = raised
        seconds, after = time.perf_counter() - start, _process_state()
        spoilt = [what for what, was in before.items() if was is not None and was != after[what]]
        spoilt += [] if same(args, copies) else ["its input, where it may only change a copy"]
        try:
            _ = error or self.right(given, *args)
        except Breach as breach:
            wrong = str(breach).rstrip(".")
        value = given if error or wrong else copy.deepcopy(given)
        return TrialAnswer(shown, args, given, value, error, wrong, seconds, spoilt)

    @cached_property
    def asked(self) -> Sequence[TrialAnswer]:
        """Answers of one instance, up to the first that takes too long twice."""
        part, found = self.make(), list[TrialAnswer]()
        for sample in self.samples(part):
            it = self.ask(part, *sample)
            if it.seconds > self.seconds:  # the first call may load things
                it = it._replace(seconds=self.ask(self.make(), *sample).seconds)
            found.append(it)
            if it.seconds > self.seconds:
                break
        return found

    @cached_property
    def answers(self) -> Sequence[TrialAnswer]:
        """Those that are right. Raises `Untried` if none is, or they take too long to ask again."""
        need(all(it.seconds <= self.seconds for it in self.asked), "it is too slow to be asked again", error=Untried)
        good = [it for it in self.asked if not it.error and not it.wrong]
        declined = (str(it.error) for it in self.asked if isinstance(it.error, self.declines))
        need(good, next(declined, "no answer is right"), error=Untried)
        return good

    def repeat(self, part: Any, it: TrialAnswer, said: str) -> None:
        """Ask a part again. Raises `Breach`, which begins with `said`."""
        again = self.ask(part, it.shown, it.args)
        need_same(again.error or again.given, it.value, f"{said}: {it.shown}")

    def compare(self, said: str, change: Callable[..., Any]) -> None:
        """Ask new instances with arguments by `change`, which is as `reordered`. Raises as `repeat`."""
        changes = [(it, change(it.value, *it.args)) for it in self.answers]
        known = [(it, *changed) for it, changed in changes if changed is not None]
        need(known, "no answered sample is of this kind", error=Untried)
        for it, args, right in known:
            again = self.ask(self.make(), it.shown, args)
            got = again.error or self.essence(again.given)
            need_same(got, self.essence(right), f"{said}: {it.shown}", 1e-5)

    def let_through(self, fault: Fault, args: tuple[Any, ...], right: tuple[type[Exception], ...], said: str) -> None:
        """Raise `Breach` where the part uses the fault, and answers."""
        fault.uses = 0
        try:
            value = self.answer(self.make(), *args)
        except right:
            return
        need(not fault.uses, said, value)

    def ignores(self, said: str, change: Callable[[Any], Mapping[str, Any]]) -> None:
        """`compare` with fields that have to change no answer."""
        self.compare(said, lambda value, whole: ((replace(whole, **change(whole)),), value))

    def check_each_input_has_an_answer(self) -> None:
        for it in self.asked:
            if isinstance(it.error, Breach):
                raise it.error
            answered = it.error is None or isinstance(it.error, self.declines)
            need(answered, f"It raises {short(it.error)} for {it.shown}; {self.hint}")
        _ = all(it.error for it in self.asked) and self.answers  # which says why there are none

    def check_answers_have_the_right_type__shape_and_values(self) -> None:
        for it in self.asked:
            need(not it.wrong, f"{it.wrong}, for {it.shown}")

    def check_an_answer_takes_little_time(self) -> None:
        for it in self.asked:
            need(it.seconds <= self.seconds, f"It takes {it.seconds:.1f} s, above {self.seconds:g} s, for {it.shown}")

    def check_inputs_and_the_process_stay_as_they_were(self) -> None:
        for it in self.asked:
            need(it.error or not it.spoilt, f"It changes {' and '.join(it.spoilt)}, for {it.shown}")

    def check_the_same_input_gives_the_same_answer(self) -> None:
        part = self.make()
        remembers = hasattr(part, "state_dict") and part.state_dict()
        for it in reversed(self.answers):
            need_same(it.given, it.value, f"A later call changes its answer to {it.shown}")
            for _ in range(1 if remembers else 2):
                self.repeat(part, it, "Its answer depends on what it was asked before: keep nothing")

    def check_the_order_of_rollouts_does_not_matter(self) -> None:
        self.compare("Its answer depends on the order of rollouts, which means nothing", self.reordered)

    def check_an_error_is_no_answer(self) -> None:
        for error in (RuntimeError("planted"), OSError("planted")):
            fault = Fault(error)
            for what, args in self.faulty(fault, *self.answers[-1].args):
                said = f"Reading {what} raises {error!r}, and it answers: what is unknown is never a number"
                self.let_through(fault, args, (Exception,), said)

    def check_wrong_parameters_are_refused_in_a_sentence(self) -> None:
        part = self.make()
        kind: Any = getattr(self.thing, "Keys", getattr(self.thing, "Config", None))
        need(kind is not None, "it has no parameters of its own", error=Untried)
        kept = isinstance(getattr(part, "keys", getattr(part, "config", None)), kind)
        need(kept, "It does not keep its parameters: call super().__init__(...)")
        wrong = {"no_such_parameter": 1, **{name: {"no": ["such value"]} for name in kind.model_fields}}
        for name, value in wrong.items():
            try:
                self.make(**{name: value})
                said = "It takes a parameter that it does not have: Config needs extra='forbid'"
                need(name != "no_such_parameter", said)
            except UsageError as error:
                need("\n" not in str(error), f"Of a wrong {name} it says several lines: {error}")
            except (TypeError, KeyError, AttributeError, AssertionError) as error:
                raise Breach(f"A wrong {name} raises {error!r}: raise ValueError in a validator.") from error

    def check_it_answers_the_same_in_another_process(self) -> None:
        part = self.make() if self.travels else None
        samples = [it.args for it in self.answers]
        try:
            found = _answers_elsewhere(type(self)(self.thing, self.params), part, samples)
        except Exception as error:
            said = f"It can't go to another process ({error!r}): keep locks and open things out of it."
            raise Breach(said) from error
        for it, got in zip(self.answers, found, strict=True):
            said = "In another process, where hash(), sets and module state differ, it answers otherwise"
            need_same(got, plain_of(it.value), f"{said}: {it.shown}", 1e-5)


def _process_state() -> Mapping[str, Any]:
    torch = sys.modules.get("torch")
    return {
        "Python's global random numbers": random.getstate(),
        "numpy's global random numbers": pickle.dumps(np.random.get_state()),
        "PyTorch's global random numbers": torch and torch.get_rng_state().numpy().tobytes(),
        "PyTorch's defaults": torch and (torch.get_default_dtype(), torch.is_grad_enabled()),
        "the environment": (dict(os.environ), os.getcwd(), np.geterr()),
    }


def _answers_elsewhere(contract: Contract, part: Any, samples: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
    """Plain answers of another process, where hashes have another seed and sets another order. Raises what pickling
    raises, and `RuntimeError` with what it raised there."""
    content, (_, connection) = pickler().dumps((contract, part, samples)), _other_process()
    try:
        connection.send((sys.path, content))
        found, why = connection.recv()
    except (EOFError, OSError):
        _other_process.cache_clear()
        raise
    if why:
        raise RuntimeError(why)
    return list(found)


@cache
def _other_process() -> tuple[subprocess.Popen[bytes], Connection]:
    """It ends as the connection does."""
    ours, theirs = Pipe()
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": path}
    command = [sys.executable, "-c", f"from {__name__} import serve; serve({theirs.fileno()})"]
    with theirs:  # what is printed there goes to standard error
        process = subprocess.Popen(command, stdout=2, env=environment, pass_fds=[theirs.fileno()])
    return process, ours


def serve(descriptor: int) -> None:
    """Answer until the connection ends."""
    with Connection(descriptor) as connection, suppress(EOFError):
        while True:
            sys.path[:], content = connection.recv()
            try:
                contract, part, samples = pickle.loads(content)
                part = contract.make() if part is None else part
                found = [plain_of(contract.answer(part, *args)) for args in samples], ""
            except Exception as error:  # noqa: BLE001 - the other side says what it was
                found = [], repr(error)
            connection.send(found)
