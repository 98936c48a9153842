"""The queue between the one thread that asks for verdicts and the workers that find them.

It decides who runs what when: a problem is calibrated by one worker while the others do something else, what the
sandbox failed at goes to another worker, and the same program of a problem runs once, unless its verdict depends on
the moment.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from dataclasses import dataclass, field, replace

from raypoly.errors import SandboxError
from raypoly.lru_cache import LRUCache
from raypoly.values import Problem, Verdict

RETRIES = 3
"""How often a program is tried again after the sandbox failed."""
_REMEMBERED = 16_384
"""Verdicts kept for programs that come again."""
BROKEN = "the tests can't be run: "
"""How the detail of a verdict begins where it is the problem's fault."""

Key = tuple[str, bytes | None]
"""A program: the problem's id and SHA-256 of the code."""


@dataclass(eq=False)
class ProblemState:
    """What the workers have learned of one problem."""

    problem: Problem | None
    """As it was asked with; None while none of its programs waits or runs, since its tests may be large."""
    reference_seconds: float | None
    """The problem's own, or what calibration gave."""
    settled: bool
    """Whether its limits are: nothing is left to calibrate."""
    busy: bool = False
    """Whether a worker calibrates it right now."""
    broken: str = ""
    """Why its tests can't be run; empty while nothing is known against them."""
    programs: int = 0
    """That wait or run."""

    def limited(self) -> Problem:
        """The problem with its `reference_seconds`, for whoever runs one of its programs."""
        assert self.problem is not None
        if self.problem.reference_seconds == self.reference_seconds:
            return self.problem
        return replace(self.problem, reference_seconds=self.reference_seconds)


@dataclass(eq=False)
class QueuedProgram:
    """One program that waits for its verdict, runs, or has it."""

    known: ProblemState
    code: str | None
    key: Key
    verdict: Verdict | None = None
    failures: int = 0
    avoid: int | None = None
    """The worker that should not have it again."""
    same: list[QueuedProgram] = field(default_factory=list)
    """Later jobs with the same program: they wait for this one's verdict."""

    @property
    def calibrates(self) -> bool:
        """Whether whoever runs it has to calibrate the problem first."""
        return self.code is not None and not self.known.settled


class ProgramQueue:
    """Thread-safe: `put` and `wait` are the asking thread's, all else the workers'. Problems are told apart by id."""

    def __init__(self, workers: int, calibrate: bool) -> None:
        self._workers, self._calibrate = workers, calibrate
        lock = threading.Lock()
        self._work, self._news = threading.Condition(lock), threading.Condition(lock)
        self._waiting: deque[QueuedProgram] = deque()
        self._first: dict[Key, QueuedProgram] = {}
        self._remembered = LRUCache[Key, Verdict](_REMEMBERED)
        self._known: dict[str, ProblemState] = {}
        self._serving = 0
        self._error: BaseException | None = None
        self.closed = False
        self.done = self.passed = 0
        self.cpu_seconds = 0.0

    def put(self, problem: Problem, code: str | None) -> QueuedProgram:
        """Ask for a verdict."""
        digest = None if code is None else hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
        with self._work:
            known = self._of(problem)
            known.problem, known.programs = known.problem or problem, known.programs + 1
            job = QueuedProgram(known, code, (problem.id, digest))
            if job.key in self._remembered:
                self._give(job, self._remembered[job.key])
            elif job.key in self._first:
                self._first[job.key].same.append(job)
            else:
                self._first[job.key] = job
                self._waiting.append(job)
                self._work.notify()
            return job

    def wait(self, job: QueuedProgram) -> Verdict:
        """The verdict. Raises what a worker could not go on from, `SandboxError` where the queue was closed."""
        with self._news:
            while job.verdict is None:
                self._check()
                self._news.wait()
            return job.verdict

    def wait_for_a_worker(self) -> None:
        """Until one worker serves. Raises why none could start."""
        with self._news:
            while not self._serving:
                self._check()
                self._news.wait()

    def reference_seconds(self, problem: Problem) -> float | None:
        """The problem's own, or what calibration gave."""
        with self._work:
            return self._of(problem).reference_seconds

    def serving(self) -> None:
        """A worker's sandbox stands."""
        with self._news:
            self._serving += 1
            self._news.notify_all()

    def take(self, worker: int) -> QueuedProgram | None:
        """The oldest job that this worker may run, when there is one; None once the queue is closed.

        Where it `calibrates`, the worker owes a `settle` or a `release`.
        """
        with self._work:
            while not self.closed:
                for place, job in enumerate(self._waiting):
                    if self._allowed(job, worker):
                        del self._waiting[place]
                        job.known.busy = job.known.busy or job.calibrates
                        return job
                self._work.wait()
            return None

    def settle(self, known: ProblemState, reference_seconds: float | None = None, broken: str = "") -> None:
        """The problem's limits are known, or that its tests can't be run."""
        with self._work:
            known.broken = broken
            if not broken:
                known.reference_seconds = reference_seconds
            known.settled, known.busy = True, False
            self._work.notify_all()

    def release(self, known: ProblemState) -> None:
        """The problem could not be calibrated now: whoever takes its next program tries again."""
        with self._work:
            known.busy = False
            self._work.notify_all()

    def finish(self, job: QueuedProgram, verdict: Verdict) -> None:
        """The job's verdict, and that of the same program asked for since; those run too where it may differ."""
        with self._news:
            if self._first.get(job.key) is job:
                del self._first[job.key]
            self.cpu_seconds += verdict.cpu_seconds
            self._give(job, verdict)
            if verdict.repeatable and (verdict.status != "infra" or job.known.broken):
                self._remembered.put(job.key, verdict)
                for same in job.same:
                    self._give(same, verdict)
            else:
                self._waiting.extendleft(reversed(job.same))
                self._work.notify_all()
            job.same = []

    def again(self, job: QueuedProgram, worker: int, reason: str) -> None:
        """The sandbox failed: the job goes to another worker, or, after `RETRIES`, gets the verdict `infra`."""
        job.failures += 1
        if job.failures > RETRIES:
            reason = f"the sandbox failed {job.failures} times: {reason}"
            self.finish(job, Verdict("infra", 0, 0, 0.0, reason, repeatable=False))
            return
        with self._work:
            job.avoid = worker
            self._waiting.appendleft(job)
            self._work.notify_all()

    def fail(self, error: BaseException) -> None:
        """A worker can't go on: who waits gets the error."""
        with self._news:
            if not self.closed:
                self._error = self._error or error
            self._news.notify_all()

    def close(self) -> None:
        """No job is taken any more."""
        with self._work:
            self.closed = True
            self._work.notify_all()
            self._news.notify_all()

    def _of(self, problem: Problem) -> ProblemState:
        known = self._known.get(problem.id)
        if known is None:
            unknown = self._calibrate and bool(problem.solution) and problem.reference_seconds is None
            known = self._known[problem.id] = ProblemState(None, problem.reference_seconds, settled=not unknown)
        return known

    def _allowed(self, job: QueuedProgram, worker: int) -> bool:
        elsewhere = job.avoid == worker and self._workers > 1
        return not elsewhere and not (job.calibrates and job.known.busy)

    def _give(self, job: QueuedProgram, verdict: Verdict) -> None:
        job.verdict, job.code = verdict, None
        job.known.programs -= 1
        if not job.known.programs:
            job.known.problem = None
        self.done += 1
        self.passed += verdict.passed
        self._news.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self.closed:
            raise SandboxError("The pool was closed before it had all verdicts.")
