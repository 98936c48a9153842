"""Run a program on standard input, a process a test, and compare its output or run the problem's checker."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from raypoly.core.errors import BrokenTests
from raypoly.core.text import shortened
from raypoly.core.values import Failure, Problem
from raypoly.verifier.sandbox.candidate_process import LAST_WORDS, NONCE, scratch_full_stop, stop_of_reply
from raypoly.verifier.sandbox.channel import Clock, Garbled, OutOfTime, ScratchFull
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.child.confine import SCRATCH_BYTES
from raypoly.verifier.sandbox.comparisons import same_output
from raypoly.verifier.sandbox.outcome import Refusal, TestsOutcome, TestStopped
from raypoly.verifier.sandbox.prepared_suite import Script
from raypoly.verifier.sandbox.zygote_client import Forker, stop_of_exit

CHECKER_SECONDS = 20.0
"""CPU seconds for a checker on one output."""
MOST_SHOWN = 8_000
"""Characters of what a run printed that are kept (tests of kind `run`)."""
# most characters of an output for a checker
_LARGEST_CHECKED = 2 << 20
# An output that ran as code could print what it likes: nothing begins to run here but the checker and modules.
_CHECKER = """
import json, os, sys
def hook(event, args, exit=os._exit, frame_of=sys._getframe):
    if event in ("exec", "function.__new__", "pickle.find_class") and args[0] is not code:
        frame = frame_of(1)
        while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        frame or exit(1)
source, texts = json.loads(sys.stdin.read())
for name, text in texts.items():
    with open(name, "w", newline="") as file:
        file.write(text)
sys.argv = ["checker.py", *texts]
code = compile(source, "checker.py", "exec")
sys.addaudithook(hook)
exec(code, {"__name__": "__main__", "exit": sys.exit, "quit": sys.exit})
"""


class ScriptRun:
    """One program; used once. Raises `SandboxError`, or `BrokenTests` for a huge input."""

    def __init__(self, forker: Forker, clock: Clock, problem: Problem, code: str, tests: tuple[Script, ...]) -> None:
        self._forker, self._clock, self._problem, self._tests = forker, clock, problem, tests
        self._code = code.encode("utf-8", "surrogatepass")
        self._outcome = TestsOutcome(total=len(tests))
        self._printed = b""
        if any(len(test.input) >= SCRATCH_BYTES for test in tests):
            raise BrokenTests(f"An input of problem {problem.id} has more than {SCRATCH_BYTES >> 20} MiB.")

    def refused(self, refusal: Refusal) -> TestsOutcome:
        if self._problem.tests.kind != "run":
            return self._outcome.refuse(refusal, 1, *_shown_test(self._tests[0]))
        outcome = self._outcome.refuse(refusal)
        outcome.detail, outcome.failure = refusal.stop.why, Failure(1, "", "", "")
        return outcome

    def judge(self, all_tests: bool) -> TestsOutcome:
        """Run up to the first failed test, or `all_tests`."""
        if self._problem.tests.kind == "run":
            return self._shown()
        outcome, comparison = self._outcome, self._problem.tests.comparison
        for number, test in enumerate(self._tests, 1):
            given, expected = _shown_test(test)
            try:
                printed = self._run(test)
            except TestStopped as stop:
                outcome.stop(stop, number, given, expected)
            else:
                if same_output(printed, test.output, comparison) or self._accepted(test, printed, number):
                    outcome.passed += 1
                    continue
                outcome.wrong(number, given, repr(printed[:200]), expected)
            if not all_tests or not outcome.parses:
                break
        return outcome

    def _shown(self) -> TestsOutcome:
        """Run it once, and keep what it printed, whatever that is."""
        outcome = self._outcome
        try:
            self._run(self._tests[0])
            outcome.passed = 1
        except TestStopped as stop:
            outcome.stop(stop, 0, "")
            outcome.detail = stop.why
        outcome.failure = Failure(1, "", shortened(self._printed.decode("utf-8", "replace"), MOST_SHOWN), "")
        return outcome

    def _accepted(self, test: Script, printed: str, number: int) -> bool:
        """Whether a checker takes the output. Raises `BrokenTests` if it takes not even the expected one."""
        if not self._problem.tests.checker or len(printed) > _LARGEST_CHECKED:
            return False
        if self._checked(test, printed):
            return True
        if not self._checked(test, test.output):
            raise BrokenTests(
                f"The checker of problem {self._problem.id} does not take the expected output of test {number}."
            )
        return False

    def _checked(self, test: Script, printed: str) -> bool:
        names = ("input.txt", "correct_output.txt", "solution_output.txt")
        texts = dict(zip(names, (test.input.decode(), test.output, printed), strict=True))
        asked = json.dumps([self._problem.tests.checker, texts], ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(asked) >= SCRATCH_BYTES and printed != test.output:
            return False  # it is the output that is too large
        question = Script(asked, "1")
        clock = Clock(CHECKER_SECONDS, CHECKER_SECONDS)
        unchecked = replace(self._problem, tests=replace(self._problem.tests, checker=""))
        run = ScriptRun(self._forker, clock, unchecked, _CHECKER, (question,))
        return run.judge(all_tests=False).status == "passed"

    def _run(self, test: Script) -> str:
        left = self._clock.in_all - self._outcome.cpu_seconds
        clock = Clock(min(self._clock.per_message, left), min(self._clock.per_message, left))
        if left <= 0:
            raise TestStopped("timeout", f"more than {self._clock.in_all:g} s of CPU in all", by_clock=True)
        nonce = os.urandom(NONCE)
        child = self._forker.fork(clock.in_all, clock)
        printed, ended_well = b"", False
        try:
            child.send(plain_data.pack(("script", nonce, test.input)), self._code)
            printed = child.stream(plain_data.MAX_BYTES)
            ended_well = child.ends_by_itself()
        except OutOfTime:
            raise TestStopped("timeout", f"more than {clock.per_message:g} s of CPU", by_clock=True) from None
        except ScratchFull:
            raise scratch_full_stop() from None
        except Garbled:
            raise TestStopped("error", f"it printed more than {plain_data.MAX_BYTES >> 20} MiB") from None
        finally:
            ended = self._forker.reap(child)
            self._outcome.cpu_seconds += ended.cpu_seconds
            self._outcome.seconds.append(ended.cpu_seconds)
        if not ended_well:
            raise TestStopped("error", "it closed its standard output and went on")
        self._printed = printed
        if ended.status:
            self._raise_why(printed.rpartition(nonce), stop_of_exit(ended, clock))
        try:
            return printed.decode()
        except UnicodeDecodeError:
            raise TestStopped("wrong", "what it printed is no UTF-8 text") from None

    def _raise_why(self, parts: tuple[bytes, bytes, bytes], exit: TestStopped) -> None:
        # a program that raised has written why behind its output
        before, nonce, words = parts
        self._printed = before if nonce else words
        try:
            reply = plain_data.decode(words) if nonce and len(words) <= LAST_WORDS else None
        except plain_data.Malformed:
            reply = None
        if type(reply) is not tuple or not reply:
            raise exit
        self._outcome.parses = reply[0] != "syntax"
        raise stop_of_reply(reply)


def _shown_test(test: Script) -> tuple[str, str]:
    return repr(test.input.decode("utf-8", "replace")[:200]), repr(test.output[:200])
