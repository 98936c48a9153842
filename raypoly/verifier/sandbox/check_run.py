"""Run a `check(candidate)` in a process of its own, whose calls go to the candidate's process."""

from __future__ import annotations

from typing import Any

from raypoly.core.errors import BrokenTests, SandboxError
from raypoly.core.values import Problem
from raypoly.verifier.sandbox.candidate_process import CandidateProcess, scratch_full_stop
from raypoly.verifier.sandbox.channel import Child, ChildGone, Clock, Garbled, OutOfTime, ScratchFull
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.outcome import Refusal, TestsOutcome, TestStopped, call_text, short_repr
from raypoly.verifier.sandbox.prepared_suite import unsendable
from raypoly.verifier.sandbox.zygote_client import ChildExit, Forker, stop_of_exit

# most bytes of answers that are read, beside the arguments that they repeat: reading takes many times the memory
_READ_BYTES = 4 << 20
_SHAPES: dict[Any, tuple[type, ...]] = {"call": (int, int, tuple, dict), "done": (int, list), "broken": (str,)}

_CALLABLE = frozenset(("function", "builtin_function_or_method", "method_descriptor", "partial", "type"))


class CheckRun:
    """One program, one check; used once. Raises `SandboxError` if the sandbox failed, or `BrokenTests`."""

    def __init__(self, forker: Forker, clock: Clock, problem: Problem, code: str) -> None:
        self._forker, self._clock, self._problem, self._code = forker, clock, problem, code
        self._outcome = TestsOutcome(total=max(1, problem.tests.source.count("assert ")))
        self._program: CandidateProcess | None = None
        self._ended: ChildExit | None = None
        self._calls = self._read = 0
        self._call = self._got = ""
        self._raised: dict[str, tuple[TestStopped, int, str]] = {}
        """By builtin exception: the call that raised it, which is a failure unless the check expects it."""

    def refused(self, refusal: Refusal) -> TestsOutcome:
        return self._outcome.refuse(refusal)

    def judge(self, all_tests: bool) -> TestsOutcome:
        """Run up to the first failed assertion, or the whole check with `all_tests`."""
        checker = self._forker.fork(self._clock.in_all, Clock(self._clock.in_all, self._clock.in_all))
        try:
            self._program = self._start_program()
            self._run(checker, all_tests)
        except TestStopped as stop:
            self._outcome.stop(stop, self._calls, self._call)
        finally:
            self._end(checker)
        return self._outcome

    def _run(self, checker: Child, all_tests: bool) -> None:
        outcome = self._outcome
        checker.send(plain_data.pack(("checker", self._problem.tests.source, all_tests, self._problem.entry_point)))
        try:
            while (message := _message_of(checker))[0] == "call":
                _, outcome.passed, number, args, kwargs = message
                answer = self._answer(number, args, kwargs, all_tests)
                if answer is None and not all_tests:
                    return
                checker.send(answer or plain_data.pack(None))
            self._finish(message)
        except OutOfTime as error:
            if not self._calls or checker.spent() < self._clock.in_all:
                raise SandboxError("The checker of this problem used up its time.") from error
            why = f"the check did not end on its results within {self._clock.in_all:g} s of CPU"
            raise TestStopped("timeout", why, by_clock=True) from error
        except ScratchFull:
            raise scratch_full_stop() from None
        except (ChildGone, Garbled, plain_data.Malformed) as error:
            stop = TestStopped("error", "sent no message that is known")
            if isinstance(error, ChildGone) and checker.ends_by_itself():
                stop = stop_of_exit(self._end(checker), self._clock)
            if not self._calls:
                raise BrokenTests(f"The check of problem {self._problem.id} {stop.why}.") from error
            raise TestStopped(stop.status, f"on its results the check {stop.why}", by_clock=stop.by_clock) from error

    def _start_program(self) -> CandidateProcess:
        left = self._clock.in_all - self._outcome.cpu_seconds
        if left <= 0:
            raise TestStopped("timeout", f"more than {self._clock.in_all:g} s of CPU in all", by_clock=True)
        clock = Clock(self._clock.per_message, left)
        program = CandidateProcess(self._forker, clock, self._problem.entry_point, self._code, counted=False)
        try:
            program.load()
        except BaseException:
            self._outcome.parses = program.parses
            self._outcome.cpu_seconds += program.end().cpu_seconds
            raise
        return program

    def _answer(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any], all_tests: bool) -> bytes | None:
        """The candidate's result and its arguments after the call, or what it raised, packed for the check to judge;
        None after another failure, which is recorded. `number`: of a function that it returned, else below 0.
        """
        what = plain_data.first_opaque((args, kwargs))
        if what is not None and (not self._calls or what.what in _CALLABLE):  # else a result may have made it
            raise unsendable(self._problem, what)
        self._calls += 1
        name = self._problem.entry_point.rpartition(".")[2] if number < 0 else "the function that it returned"
        self._call = call_text(name, args, kwargs)
        self._got = ""
        try:
            program = self._program = self._program or self._start_program()
            before = program.spent()
            sent = plain_data.pack((args, kwargs, None, number))
            program.send(sent)
            message = program.message()
            self._read += len(message) - len(sent)
            if self._read > _READ_BYTES:
                raise TestStopped("error", f"its results have more than {_READ_BYTES >> 20} MiB")
            result, after, _ = program.answer(message, plain_data.described)
            if not _repeats(after, args, kwargs):  # in the check it would raise what the check may expect
                raise TestStopped("error", "its result or an argument has become too large or too deep", alive=True)
            answer = _packed((result, after))
            self._outcome.seconds.append(program.spent() - before)
        except TestStopped as stop:
            if (kind := stop.raised[0]) and not (all_tests and kind in self._raised):
                self._raised[kind] = (stop, self._calls, self._call)
            if kind:
                self._got = stop.why
                return plain_data.pack(("raised", *stop.raised))
            self._outcome.stop(stop, self._calls, self._call)
            if not stop.alive:
                self._end_program()
            return None
        self._got = short_repr(_meant(result, after))
        return answer

    def _finish(self, message: tuple[Any, ...]) -> None:
        outcome = self._outcome
        if message[0] == "broken":
            raise BrokenTests(f"The tests of problem {self._problem.id} can't be run: {message[-1]}")
        _, outcome.passed, failures = message
        outcome.total = max(outcome.total, outcome.passed + len(failures))
        if failures and (raised := self._raised.get(failures[0].partition(":")[0])) is not None:
            outcome.stop(*raised)
        elif failures:
            outcome.wrong(self._calls, self._call, self._got, why=failures[0])
        else:
            outcome.passed = outcome.total

    def _end_program(self) -> None:
        if self._program is not None:
            self._outcome.cpu_seconds += self._program.end().cpu_seconds
            self._program = None

    def _end(self, checker: Child) -> ChildExit:
        """How the checker ended. The program ends first: it may write while the scratch is emptied."""
        try:
            self._end_program()
        finally:
            ended = self._ended = self._ended or self._forker.reap(checker)
        return ended


def _repeats(after: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if type(after) is not tuple or len(after) != 2 or type(after[0]) is not tuple or type(after[1]) is not dict:
        return False
    return len(after[0]) == len(args) and after[1].keys() == kwargs.keys()


def _meant(result: Any, after: Any) -> Any:
    given = (*after[0], *after[1].values())
    if type(result) is plain_data.Typed and result.kind == "argument" and result.content in range(len(given)):
        return given[result.content]
    return result


def _packed(answer: tuple[Any, Any]) -> bytes:
    try:
        return plain_data.pack(answer)
    except plain_data.TooLarge as error:
        raise TestStopped("error", f"its result has {error}", alive=True) from None


def _message_of(checker: Child) -> tuple[Any, ...]:
    message = plain_data.decode(checker.receive(), plain_data.described)
    if type(message) is not tuple or not message or type(message[0]) is not str:
        raise Garbled
    if tuple(map(type, message[1:])) != _SHAPES.get(message[0]):
        raise Garbled
    return message
