"""Run a `check(candidate)` in a process of its own, whose calls go to the candidate's process."""

from __future__ import annotations

from typing import Any

from raypoly.core.errors import BrokenTests, SandboxError
from raypoly.core.values import Problem
from raypoly.verifier.sandbox.candidate_process import CandidateProcess
from raypoly.verifier.sandbox.channel import Child, ChildGone, Clock, Garbled, OutOfTime
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.outcome import Refusal, TestsOutcome, TestStopped, call_text, short_repr
from raypoly.verifier.sandbox.prepared_suite import unsendable
from raypoly.verifier.sandbox.zygote_client import Forker

# most bytes of answers that are read, beside the arguments that they repeat: reading takes many times the memory
_READ_BYTES = 4 << 20

_CALLABLE = frozenset(("function", "builtin_function_or_method", "method_descriptor", "partial", "type"))


class CheckRun:
    """One program, one check; used once. Raises `SandboxError` if the sandbox failed, or `BrokenTests`."""

    def __init__(self, forker: Forker, clock: Clock, problem: Problem, code: str) -> None:
        self._forker, self._clock, self._problem, self._code = forker, clock, problem, code
        self._outcome = TestsOutcome(total=max(1, problem.tests.source.count("assert ")))
        self._program: CandidateProcess | None = None
        self._calls = self._read = 0
        self._call = self._got = ""
        self._raised: dict[str, tuple[TestStopped, int, str]] = {}
        """By builtin exception: the call that raised it, which is a failure unless the check expects it."""

    def refused(self, refusal: Refusal) -> TestsOutcome:
        return self._outcome.refuse(refusal)

    def judge(self, all_tests: bool) -> TestsOutcome:
        """Run up to the first failed assertion, or the whole check with `all_tests`."""
        outcome = self._outcome
        checker = self._forker.fork(self._clock.in_all, Clock(self._clock.in_all, self._clock.in_all))
        try:
            self._program = self._start_program()
            checker.send(plain_data.pack(("checker", self._problem.tests.source, all_tests, self._problem.entry_point)))
            while (message := _message_of(checker))[0] == "call":
                _, outcome.passed, args, kwargs = message
                answer = self._answer(args, kwargs, all_tests)
                if answer is None and not all_tests:
                    break
                checker.send(plain_data.pack(answer))
            else:
                self._finish(message)
        except TestStopped as stop:
            outcome.stop(stop, 0, "")
        except OutOfTime as error:
            if not self._calls or checker.spent() < self._clock.in_all:
                raise SandboxError("The checker of this problem used up its time.") from error
            why = f"the check did not end on its results within {self._clock.in_all:g} s of CPU"
            outcome.stop(TestStopped("timeout", why, by_clock=True), self._calls, self._call)
        finally:
            self._forker.reap(checker)
            self._end_program()
        return outcome

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

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any], all_tests: bool) -> tuple[Any, ...] | None:
        """The candidate's result and its arguments after the call, or what it raised, for the check to judge; None
        after another failure, which is recorded.
        """
        what = plain_data.first_opaque((args, kwargs))
        if what is not None and (not self._calls or what.what in _CALLABLE):  # else a result may have made it
            raise unsendable(self._problem, what)
        self._calls += 1
        self._call = call_text(self._problem.entry_point.rpartition(".")[2], args, kwargs)
        self._got = ""
        try:
            program = self._program = self._program or self._start_program()
            before = program.spent()
            sent = plain_data.pack((args, kwargs, None, True))
            program.send(sent)
            message = program.message()
            self._read += len(message) - len(sent)
            if self._read > _READ_BYTES:
                raise TestStopped("error", f"its results have more than {_READ_BYTES >> 20} MiB")
            result, after, _ = program.answer(message)
            if not _repeats(after, args, kwargs):  # in the check it would raise what the check may expect
                raise TestStopped("error", "its result or an argument has become too large or too deep", alive=True)
            self._outcome.seconds.append(program.spent() - before)
        except TestStopped as stop:
            if (kind := stop.raised[0]) and not (all_tests and kind in self._raised):
                self._raised[kind] = (stop, self._calls, self._call)
            if kind:
                self._got = stop.why
                return ("raised", *stop.raised)
            self._outcome.stop(stop, self._calls, self._call)
            if not stop.alive:
                self._end_program()
            return None
        self._got = short_repr(result)
        return result, after

    def _finish(self, message: tuple[Any, ...]) -> None:
        outcome = self._outcome
        if message[0] != "done" or len(message) != 3:
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


def _repeats(after: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if type(after) is not tuple or len(after) != 2 or type(after[0]) is not tuple or type(after[1]) is not dict:
        return False
    return len(after[0]) == len(args) and after[1].keys() == kwargs.keys()


def _message_of(checker: Child) -> tuple[Any, ...]:
    try:
        message = plain_data.decode(checker.receive())
    except ChildGone as error:
        raise SandboxError("The checker of this problem died.") from error
    except (Garbled, plain_data.Malformed) as error:
        raise SandboxError("The checker of this problem sent no message that is known.") from error
    if type(message) is not tuple or not message:
        raise SandboxError("The checker of this problem sent no message that is known.")
    return message
