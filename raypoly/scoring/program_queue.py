"""The queue between the thread that asks for verdicts and the workers.

It decides which worker runs which program: one worker calibrates a problem while others work on others, a program on
which the sandbox failed goes to another worker, and the same program of a problem runs once, unless its verdict is not
repeatable.
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
"""Retries of a program after the sandbox failed."""
_REMEMBERED = 16_384
"""Cached verdicts, for repeated programs."""
BROKEN = "the tests can't be run: "
"""The start of a verdict's detail if the problem is at fault."""

Key = tuple[str, bytes | None]
"""A program: the problem's id and SHA-256 of the code."""


@dataclass(eq=False)
class ProblemState:
    """The workers' state of one problem."""

    problem: Problem | None
    """The problem; None while none of its programs waits or runs, since its tests may be large."""
    reference_seconds: float | None
    """The problem's own, or what calibration gave."""
    settled: bool
    """Whether nothing is left to calibrate."""
    busy: bool = False
    """Whether a worker calibrates it right now."""
    broken: str = ""
    """Why its tests can't be run; empty if nothing is known against them."""
    programs: int = 0
    """Programs that wait or run."""

    def limited(self) -> Problem:
        """The problem with its `reference_seconds`."""
        assert self.problem is not None
        if self.problem.reference_seconds == self.reference_seconds:
            return self.problem
        return replace(self.problem, reference_seconds=self.reference_seconds)


@dataclass(eq=False)
class QueuedProgram:
    """One program that waits, runs, or has its verdict."""

    known: ProblemState
    code: str | None
    key: Key
    verdict: Verdict | None = None
    failures: int = 0
    avoid: int | None = None
    """The worker that must not get it again."""
    same: list[QueuedProgram] = field(default_factory=list)
    """Later jobs with the same program: they wait for this one's verdict."""

    @property
    def calibrates(self) -> bool:
        """Whether its worker must calibrate the problem first."""
        return self.code is not None and not self.known.settled


class ProgramQueue:
    """Thread-safe. The asking thread calls `put` and `wait`, workers call the rest. Problems are identified by id."""

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
        """Wait for the verdict. Raises a worker's fatal error, `SandboxError` if the queue was closed."""
        with self._news:
            while job.verdict is None:
                self._check()
                self._news.wait()
            return job.verdict

    def wait_for_a_worker(self) -> None:
        """Wait until one worker is ready. Raises the error if none can start."""
        with self._news:
            while not self._serving:
                self._check()
                self._news.wait()

    def reference_seconds(self, problem: Problem) -> float | None:
        """The problem's own, or what calibration gave."""
        with self._work:
            return self._of(problem).reference_seconds

    def serving(self) -> None:
        """Record that a worker's sandbox is ready."""
        with self._news:
            self._serving += 1
            self._news.notify_all()

    def take(self, worker: int) -> QueuedProgram | None:
        """Wait for the oldest job that this worker may run; None after the queue is closed.

        If it `calibrates`, the worker must call `settle` or `release`.
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
        """Record the problem's limits, or that its tests can't be run."""
        with self._work:
            known.broken = broken
            if not broken:
                known.reference_seconds = reference_seconds
            known.settled, known.busy = True, False
            self._work.notify_all()

    def release(self, known: ProblemState) -> None:
        """Record that calibration failed for now: the worker of the next program tries again."""
        with self._work:
            known.busy = False
            self._work.notify_all()

    def finish(self, job: QueuedProgram, verdict: Verdict) -> None:
        """Set the verdict of the job and of later equal programs, which run again if it is not repeatable."""
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
        """Give the job to another worker after the sandbox failed, or after `RETRIES` the verdict `infra`."""
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
        """Record a worker's fatal error, which `wait` raises."""
        with self._news:
            if not self.closed:
                self._error = self._error or error
            self._news.notify_all()

    def close(self) -> None:
        """Give out no more jobs."""
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
