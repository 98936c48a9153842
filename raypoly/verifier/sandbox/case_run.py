"""Run a program against cases: calls of a function, or operations on an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raypoly.core.values import Problem
from raypoly.verifier.sandbox.candidate_process import CandidateProcess
from raypoly.verifier.sandbox.channel import Clock
from raypoly.verifier.sandbox.child.candidate import OPERATIONS
from raypoly.verifier.sandbox.comparisons import same_value
from raypoly.verifier.sandbox.outcome import ELSEWHERE, Refusal, TestsOutcome, TestStopped, call_text, short_repr
from raypoly.verifier.sandbox.prepared_suite import Case, Cases
from raypoly.verifier.sandbox.zygote_client import Forker

Question = Callable[[bool], tuple[Any, ...] | None]
"""Asked of evidence's module about a program; given whether it passed."""


class CaseRun:
    """One program, one suite; used once. Raises `SandboxError` if the sandbox failed."""

    def __init__(
        self, forker: Forker, clock: Clock, problem: Problem, code: str, suite: Cases, observe: Question | None = None
    ) -> None:
        """`observe`: asked in the program's own process after tests with budgets, which keep it from what it is."""
        self._observe, self._waits = observe if suite.counted else None, True
        self._forker, self._clock, self._code, self._suite = forker, clock, code, suite
        self._entry_point = OPERATIONS if problem.tests.kind == "operations" else problem.entry_point
        self._outcome = TestsOutcome(total=len(suite.cases))

    def refused(self, refusal: Refusal) -> TestsOutcome:
        return self._outcome.refuse(refusal)

    def judge(self, all_tests: bool) -> TestsOutcome:
        """Run up to the first failed test, or `all_tests`, in a new process after a test that killed it."""
        following = 0
        while following < len(self._suite.cases) and self._outcome.cpu_seconds < self._clock.in_all:
            following = self._judge_from(following, all_tests)
        return self._outcome

    def measure(self, counted: bool) -> TestsOutcome:
        """Counts and CPU seconds of each test, without budgets and comparison."""
        outcome = self._outcome
        program = CandidateProcess(self._forker, self._clock, self._entry_point, self._code, counted)
        try:
            program.load()
            for case in self._suite.cases:
                before = program.spent()
                program.send(case.unlimited)
                outcome.counts.append(program.answer(program.message())[2])
                outcome.seconds.append(program.spent() - before)
        except TestStopped as stop:
            outcome.stop(stop, len(outcome.counts) + 1, "")
        finally:
            outcome.cpu_seconds = program.end().cpu_seconds
        return outcome

    def _judge_from(self, start: int, all_tests: bool) -> int:
        """Judge the tests from `start` on in one process. Returns the test to go on with in another."""
        outcome, suite = self._outcome, self._suite
        clock = Clock(self._clock.per_message, self._clock.in_all - outcome.cpu_seconds)
        program = CandidateProcess(self._forker, clock, self._entry_point, self._code, suite.counted)
        observing = 0.0
        try:
            program.load()
            for index, case in enumerate(suite.cases[start:], start):
                alive = self._judge(program, index, case)
                if outcome.status != "passed" and not all_tests:
                    break
                if not alive:
                    return index + 1
            question = self._observe(outcome.status == "passed") if self._observe and self._waits else None
            if question is not None:
                before = program.spent()
                outcome.observed = program.observed(question) or (None if alive else ELSEWHERE)
                observing = program.spent() - before
        except TestStopped as stop:
            outcome.stop(stop, 0, "")
            outcome.parses = program.parses
        finally:
            outcome.cpu_seconds += max(0.0, program.end().cpu_seconds - observing)
        return len(suite.cases)

    def _judge(self, program: CandidateProcess, index: int, case: Case) -> bool:
        try:
            program.send(case.message)
            message = program.message()
            if message != case.expected_message:  # most answers equal the expected bytes
                if len(message) > case.most_bytes:
                    self._outcome.wrong(
                        index + 1, self._call(case), f"an answer of {len(message)} bytes", short_repr(case.expected)
                    )
                    return True
                result = program.answer(message)[0]
                if not same_value(result, case.expected, self._suite.comparison):
                    self._outcome.wrong(index + 1, self._call(case), short_repr(result), short_repr(case.expected))
                    return True
        except TestStopped as stop:
            self._outcome.stop(stop, index + 1, self._call(case), short_repr(case.expected))
            self._waits = stop.may_wait or (stop.alive and stop.status != "memory")
            return stop.alive
        self._outcome.passed += 1
        return True

    def _call(self, case: Case) -> str:
        name = "" if self._entry_point == OPERATIONS else self._entry_point.rpartition(".")[2]
        return call_text(name, case.args, case.kwargs)
