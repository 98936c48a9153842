"""`Sandbox`: score programs in confined processes, one at a time."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Self, TypeVar

from raypoly.core.caches import LRUCache
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests, IsolationMissing, SandboxError, UsageError
from raypoly.core.values import WITHOUT_TESTS, Evidence, Problem, Verdict
from raypoly.verifier import math_answers
from raypoly.verifier.answers import answer_verdict
from raypoly.verifier.sandbox.candidate_process import NONCE, OBSERVING_SECONDS
from raypoly.verifier.sandbox.case_run import CaseRun, Question
from raypoly.verifier.sandbox.channel import Clock
from raypoly.verifier.sandbox.check_run import CheckRun
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.outcome import ELSEWHERE, TestsOutcome, one_line
from raypoly.verifier.sandbox.prepared_suite import Case, Cases, Suite, read_suite, unsendable
from raypoly.verifier.sandbox.script_run import ScriptRun
from raypoly.verifier.sandbox.source_reader import SourceReader
from raypoly.verifier.sandbox.zygote_client import PACKAGES, EvidenceReader, Forker, PreludeTemplate, Zygote

# CPU seconds for a child to read the cases of a `check`
_READING_SECONDS = 20.0
_SUITES_KEPT = 256
SUITE_CHARACTERS = 32 << 20
"""Of all cached tests; parsed, they take several times the memory."""
_TEMPLATES_KEPT = 6
LEAST_LIMIT, REFERENCE_FACTOR = 1.0, 10
"""A test may take `max(1 s, 10 x reference)` if a reference is known, and never more than the cap."""
READ_AHEAD_WINDOW = 16
"""After so many programs in a row that compile, the compile check is skipped. It costs a twentieth of a run, and saves
nearly all of one if the program does not compile."""
T = TypeVar("T")


class Sandbox:
    """Owns one zygote; for one thread. Raises `IsolationMissing` at start if a probe breaks out."""

    def __init__(
        self, limits: ScorerConfig, evidence: EvidenceReader | None = None, packages: tuple[str, ...] = PACKAGES
    ) -> None:
        """Without `evidence` no verdict has any. `packages`: those that programs may import, where installed."""
        self._limits, self._evidence, self._packages = limits, evidence, packages
        self._mathematics: Sandbox | None = None  # of its own: no candidate imports its packages
        self._suites = LRUCache[str, Suite](_SUITES_KEPT, SUITE_CHARACTERS)
        self._templates: OrderedDict[str, PreludeTemplate] = OrderedDict()
        self._zygote: Zygote | None = Zygote(limits, evidence, packages)
        self._reader = SourceReader(self._running_zygote)
        self._compiled: deque[bool] = deque(maxlen=READ_AHEAD_WINDOW)
        try:
            self.protection = self._probe()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def zygote_pid(self) -> int:
        return self._running_zygote().pid

    def score(self, problem: Problem, code: str | None) -> Verdict:
        """Verdict of one program, or of an answer, which is compared here; `infra` if the sandbox failed twice.

        Raises `BrokenTests` if the tests or prelude can't be run with any program.
        """
        if problem.tests.kind == "none":
            return WITHOUT_TESTS
        if code is None:
            what = "code" if problem.tests.runs else "answer"
            return Verdict("no_code", 0, 0, 0.0, f"no {what} in the response")
        code = code.removeprefix("\ufeff")  # a byte order mark, with which a Python file may begin
        try:
            if problem.tests.kind == "answer":
                return self._score_answer(problem, code)
            return self._with_one_retry(lambda: self._score(problem, code))
        except SandboxError as error:
            return Verdict("infra", 0, 0, 0.0, one_line(str(error)))

    def reference_seconds(self, problem: Problem) -> float | None:
        """CPU seconds of the slowest test of the problem's own solution; None without one that passes.

        Raises `BrokenTests`, and `SandboxError` if the sandbox failed twice.
        """
        if not problem.solution or not problem.tests.runs:
            return None
        outcome = self._with_one_retry(lambda: self._run(problem, problem.solution))
        if outcome.status == "passed" and isinstance(self._suite(problem), Cases):
            outcome = self._with_one_retry(lambda: self._case_run(problem, problem.solution).measure(counted=False))
        return max(outcome.seconds, default=0.0) if outcome.status == "passed" else None

    def measure(self, problem: Problem, code: str) -> list[dict[str, int]]:
        """`DEFAULT_COUNTERS` of each test of kind `calls`, without budgets and comparison.

        Raises `UsageError` if the program does not finish its tests.
        """
        outcome = self._case_run(problem, code).measure(counted=True)
        if outcome.status != "passed":
            raise UsageError(f"The program for {problem.id} can't be measured: {outcome.detail}")
        return outcome.counts

    def close(self) -> None:
        if self._mathematics is not None:
            self._mathematics.close()
            self._mathematics = None
        for close in (*(template.close for template in self._templates.values()), self._reader.close):
            with contextlib.suppress(SandboxError):  # the zygote may be gone, and they with it
                close()
        self._templates.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _with_one_retry(self, work: Callable[[], T]) -> T:
        # the second try has a new zygote
        try:
            return work()
        except (SandboxError, OSError):
            self.close()
        try:
            return work()
        except OSError as error:
            self.close()
            raise SandboxError(f"The machine refuses what the sandbox needs: {error}.") from error
        except SandboxError:
            self.close()
            raise

    def _score_answer(self, problem: Problem, answer: str) -> Verdict:
        tests = problem.tests
        if tests.comparison != "math":
            return answer_verdict(tests, answer)
        if (found := math_answers.plain_verdict(tests, answer)) is not None:
            return found
        if not math_answers.knows_math():
            raise SandboxError(f"The answer to problem {problem.id} is not judged: {math_answers.MISSING}")
        if self._mathematics is None:
            own = self._limits.model_copy(update={"python": None})
            self._mathematics = Sandbox(own, packages=math_answers.PACKAGES)
        asked, plain = (math_answers.math_question(tests, text) for text in (answer, "0"))
        run = self._mathematics.score(asked, math_answers.MATH_PROGRAM)
        known = ("passed", "infra")
        if run.status not in known and self._mathematics.score(plain, math_answers.MATH_PROGRAM).status not in known:
            raise BrokenTests(f"The answer of problem {problem.id} can't be compared even with 0: {run.detail}")
        return math_answers.math_verdict(tests, answer, run)

    def _score(self, problem: Problem, code: str) -> Verdict:
        outcome = self._run(problem, code, lambda passed: self._question(problem, code, passed))
        return Verdict(
            status=outcome.status,
            tests_passed=outcome.passed,
            tests_total=outcome.total,
            cpu_seconds=outcome.cpu_seconds,
            detail=outcome.detail,
            evidence=self._observe(problem, code, outcome),
            failure=outcome.failure,
            repeatable=outcome.repeatable,
        )

    def _run(self, problem: Problem, code: str, observe: Question | None = None) -> TestsOutcome:
        run = self._new_run(problem, code, observe)
        refusal = None if all(self._compiled) else self._reader.refusal(code)
        outcome = run.judge(self._limits.all_tests) if refusal is None else run.refused(refusal)
        self._compiled.append(outcome.parses)
        return outcome

    def _new_run(self, problem: Problem, code: str, observe: Question | None) -> CaseRun | CheckRun | ScriptRun:
        suite = self._suite(problem)
        if isinstance(suite, Cases):
            return self._case_run(problem, code, observe)
        forker, clock = self._template_of(problem), self._clock(problem)
        if suite is None:
            return CheckRun(forker, clock, problem, code)
        return ScriptRun(forker, clock, problem, code, suite)

    def _case_run(self, problem: Problem, code: str, observe: Question | None = None) -> CaseRun:
        suite = self._suite(problem)
        if not isinstance(suite, Cases):
            raise UsageError(f"The tests of problem {problem.id} are no cases that could be measured one by one.")
        return CaseRun(self._template_of(problem), self._clock(problem), problem, code, suite, observe)

    def _clock(self, problem: Problem) -> Clock:
        cap, reference = self._limits.cpu_seconds_per_test, problem.reference_seconds
        per_test = cap if reference is None else min(cap, max(LEAST_LIMIT, REFERENCE_FACTOR * reference))
        return Clock(per_test, self._limits.cpu_seconds_per_program)

    def _suite(self, problem: Problem) -> Suite:
        key = f"{problem.tests.hash}:{hash((problem.prelude, problem.entry_point))}"
        if key in self._suites:
            return self._suites[key]
        suite: Suite = None  # a `check` that needs a checker
        question = ("cases", problem.tests.source, problem.entry_point)
        if problem.tests.kind != "check":
            suite = read_suite(problem)
        elif (rows := self._ask(self._template_of(problem), question, _READING_SECONDS)) is not None:
            suite = self._cases_of(problem, rows)
        return self._suites.put(key, suite, len(problem.tests.source))

    def _cases_of(self, problem: Problem, rows: list[Any]) -> Cases | None:
        """Cases of a simple check; None if some expected value can be compared in the checker alone."""
        if (what := plain_data.first_opaque([row[:2] for row in rows])) is not None:
            raise unsendable(problem, what)
        if plain_data.first_opaque([row[2] for row in rows]) is not None:
            return None
        return Cases(tuple(Case(tuple(args), dict(kwargs), expected) for args, kwargs, expected in rows))

    def _template_of(self, problem: Problem) -> PreludeTemplate:
        try:
            return self._template(problem.prelude)
        except BrokenTests as error:
            raise BrokenTests(f"The prelude of problem {problem.id} can't be run: {error}.") from error

    def _template(self, prelude: str) -> PreludeTemplate:
        """The process in which the prelude has run. Raises `BrokenTests` if it fails."""
        if prelude not in self._templates:
            while len(self._templates) >= _TEMPLATES_KEPT:
                self._templates.popitem(last=False)[1].close()
            self._templates[prelude] = self._running_zygote().template(prelude)
        self._templates.move_to_end(prelude)
        return self._templates[prelude]

    def _observe(self, problem: Problem, code: str, outcome: TestsOutcome) -> Evidence | None:
        evidence = self._evidence
        if not outcome.parses or evidence is None or problem.tests.kind == "run":
            return None
        question = self._question(problem, code, outcome.status == "passed")
        run = None if question is None else outcome.observed
        if question is not None and run == ELSEWHERE:
            nonce = os.urandom(NONCE)
            run = self._ask(self._template_of(problem), ("observe", nonce, *question), OBSERVING_SECONDS, nonce)
        source = self._reader.evidence(code, evidence.source_question(problem, code, run))
        return evidence.read(source, run, ran=question is not None)

    def _question(self, problem: Problem, code: str, passed: bool) -> tuple[Any, ...] | None:
        suite = self._suite(problem)
        known = suite if isinstance(suite, Cases) else None
        return None if self._evidence is None else self._evidence.run_question(problem, code, known, passed)

    def _ask(self, forker: Forker, question: tuple[Any, ...], cpu_seconds: float, nonce: bytes = b"") -> Any:
        """A new child's answer to one question; None if none comes in time and behind the nonce."""
        child = forker.fork(cpu_seconds, Clock(cpu_seconds, cpu_seconds))
        child.send(plain_data.pack(question))
        try:
            return child.answer(nonce)
        finally:
            forker.reap(child)

    def _running_zygote(self) -> Zygote:
        if self._zygote is None:
            self._zygote = Zygote(self._limits, self._evidence, self._packages)
        return self._zygote

    def _probe(self) -> str:
        zygote = self._running_zygote()
        if self._limits.isolation == "none":
            return "none: programs run unprotected, as scorer.isolation=none asks"
        with tempfile.TemporaryDirectory(prefix="raypoly-probe-") as folder:
            os.chmod(folder, 0o777)
            secret = os.path.join(folder, "secret")
            with open(secret, "w") as file:
                file.write("secret")
            os.chmod(secret, 0o666)
            through = self._ask(self._template(""), ("probe", os.getpid(), secret), 10)
        missing = "; ".join(f"{layer}: {reason}" for layer, reason in zygote.missing.items())
        if through is None:
            raise IsolationMissing(f"The sandbox's probes did not end; missing: {missing or 'no layer'}.")
        if through:
            raise IsolationMissing(
                f"Programs can't be confined on this machine: a probe could {', '.join(through)}; "
                f"missing: {missing or 'no layer'}. "
                "Provide a missing layer, or run unprotected with scorer.isolation=none."
            )
        return ", ".join(zygote.layers) + (f" (missing: {missing})" if missing else "")
