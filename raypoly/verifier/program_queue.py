"""Which worker runs which program next: one queue for Ray's scorers and the threads of `raypoly score`.

    queue = ProgramQueue(workers=2)
    program = queue.put(problem, code)             # perhaps its verdict is known already
    chunk = queue.take(worker=0, most=8)           # None: nothing for this worker
    queue.settle(chunk.state, seconds)             # if the chunk calibrates
    queue.finish(program, verdict)                 # for each of its programs, or
    queue.again(chunk, 0, "its sandbox failed")    # for another worker

Equal programs of a problem run once, unless the verdict is not repeatable. One worker calibrates a problem while others
work on others. A failure of the sandbox never becomes a verdict. The queue neither waits nor locks: its callers do.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from raypoly.core.caches import LRUCache
from raypoly.core.errors import SandboxError, UsageError
from raypoly.core.values import Problem, Verdict

RETRIES = 3
"""Further tries of a program, or a calibration, after the sandbox failed."""
REJECTIONS = 3
"""After so many, a problem's tests are not tried any more."""
# verdicts kept for repeated programs
_REMEMBERED = 100_000
# of their programs in all
_REMEMBERED_CHARACTERS = 256 << 20

_ProblemKey = tuple[str, str, str, str, str, float | None]
_Key = tuple[_ProblemKey, bytes | None]


@dataclass(eq=False)
class ProblemState:
    """What is known of a problem; problems with the same `key` share it, as their verdicts are the same."""

    key: _ProblemKey
    problem: Problem | None
    """None while none of its programs waits or runs: its tests may be large."""
    reference_seconds: float | None
    """The problem's own, or what calibration gave."""
    settled: bool
    """Whether nothing is left to calibrate."""
    busy: bool = False
    """Whether a worker calibrates it right now."""
    failures: int = 0
    """Of the sandbox, while it was calibrated."""
    avoid: int | None = None
    """The worker that failed to calibrate it last."""
    broken: UsageError | None = None
    """Why its tests can't be run."""
    rejections: int = 0
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
    """A program that waits, runs, or has its outcome: a verdict or an error."""

    state: ProblemState
    code: str | None
    key: _Key
    turn: tuple[int, int]
    """The lowest goes first."""
    verdict: Verdict | None = None
    error: Exception | None = None
    """`SandboxError`: it failed on all tries. `BrokenTests`: the problem is at fault."""
    failures: int = 0
    avoid: int | None = None
    """The worker that failed at it last."""
    asked: int = 1
    """How many callers wait for it."""

    @property
    def done(self) -> bool:
        return self.verdict is not None or self.error is not None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Programs of one problem for one worker; none if the problem is to be calibrated."""

    state: ProblemState
    programs: tuple[QueuedProgram, ...] = ()

    @property
    def calibrates(self) -> bool:
        return not self.programs


class ProgramQueue:
    """`on_outcome` is called with each program that has got its outcome."""

    def __init__(
        self,
        workers: int,
        calibrate: bool = True,
        on_outcome: Callable[[QueuedProgram], None] = lambda program: None,
        remembered: int = _REMEMBERED,
    ) -> None:
        self.workers = workers
        """A worker that is alone gets again what it failed at."""
        self._calibrate, self._on_outcome = calibrate, on_outcome
        # by their turns, ascending
        self._waiting: list[QueuedProgram] = []
        self._first: dict[_Key, QueuedProgram] = {}
        self._remembered = LRUCache[_Key, Verdict](remembered, _REMEMBERED_CHARACTERS)
        self._states: dict[_ProblemKey, ProblemState] = {}
        self._numbers = itertools.count()
        self.outcomes = self.passed = 0
        """Programs asked for that have an outcome, and those that passed."""
        self.cpu_seconds = 0.0
        """Of the programs that ran; equal ones run once."""

    @property
    def waiting(self) -> int:
        """Programs that no worker has taken."""
        return len(self._waiting)

    def put(self, problem: Problem, code: str | None, order: int = 0) -> QueuedProgram:
        """Ask for a program's verdict. Those of the lowest `order` run first, else the oldest."""
        digest = None if code is None else hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
        state = self._of(problem)
        key = (state.key, digest)
        if key in self._first:
            self._first[key].asked += 1
            return self._first[key]
        program = QueuedProgram(state, code, key, (order, next(self._numbers)))
        state.problem, state.programs = state.problem or problem, state.programs + 1
        if key in self._remembered:
            self._end(program, self._remembered[key])
        elif state.broken is not None and state.rejections >= REJECTIONS:
            self.fail(program, state.broken)
        else:
            self._first[key] = program
            self._enqueue(program)
        return program

    def take(self, worker: int, most: int = 1) -> Chunk | None:
        """At most `most` programs of one problem that this worker may run; or a calibration."""
        for place, first in enumerate(self._waiting):
            state = first.state
            if first.code is not None and not state.settled:
                # its problem is to be calibrated first, by somebody else
                if state.busy or self._avoids(state, worker):
                    continue
                state.busy = True
                return Chunk(state)
            if self._avoids(first, worker):
                continue
            end = place + 1
            while end < len(self._waiting) and end - place < most and self._goes_along(self._waiting[end], first):
                end += 1
            programs = tuple(self._waiting[place:end])
            del self._waiting[place:end]
            return Chunk(state, programs)
        return None

    def settle(self, state: ProblemState, reference_seconds: float | None = None) -> None:
        """Record a calibration: the slowest test's CPU seconds, None if the solution does not pass."""
        state.reference_seconds, state.settled, state.busy = reference_seconds, True, False

    def reject(self, chunk: Chunk, error: UsageError) -> None:
        """Record that a problem's tests could not be run: its programs end with the error.

        The next ones try again, up to `REJECTIONS`: a full machine may have been the cause.
        """
        state = chunk.state
        state.busy, state.broken, state.rejections = False, error, state.rejections + 1
        for program in chunk.programs:
            self.fail(program, error)
        self._fail_waiting(state, error)

    def finish(self, program: QueuedProgram, verdict: Verdict) -> bool:
        """Set a program's verdict. Returns whether it had none."""
        if program.done:
            return False
        self.cpu_seconds += verdict.cpu_seconds
        if verdict.repeatable:  # a timeout by the clock may be due to a busy machine: it is measured again next time
            self._remembered.put(program.key, verdict, len(program.code or ""))
        self._end(program, verdict)
        return True

    def fail(self, program: QueuedProgram, error: Exception) -> None:
        """End a program with an error, unless it has its outcome."""
        if not program.done:
            program.error = error
            self._close(program)

    def again(self, chunk: Chunk, worker: int, reason: str, counts: bool = True) -> None:
        """Give a chunk's programs without an outcome, each alone, or its calibration to another worker.

        After `RETRIES` that count they end with `SandboxError`.
        """
        if chunk.calibrates:
            state = chunk.state
            state.busy, state.avoid, state.failures = False, worker, state.failures + counts
            if state.failures > RETRIES:
                self._fail_waiting(state, _given_up(state, state.failures, reason))
                state.failures = 0
        for program in chunk.programs:
            # another worker has given it back, or finished it, already
            if program.done or program in self._waiting:
                continue
            program.failures, program.avoid = program.failures + counts, worker
            if program.failures > RETRIES:
                self.fail(program, _given_up(program.state, program.failures, reason))
            else:
                self._enqueue(program)

    def abandon(self, chunk: Chunk, error: Exception) -> None:
        """End a chunk's programs with an error; of a calibration, all programs that wait for it."""
        for program in chunk.programs:
            self.fail(program, error)
        if chunk.calibrates:
            chunk.state.busy = False
            self._fail_waiting(chunk.state, error)

    def abandon_waiting(self, error: Exception) -> None:
        for program in list(self._waiting):
            self.fail(program, error)
        self._waiting.clear()

    def reference_seconds(self, problem: Problem) -> float | None:
        """The problem's own, or what calibration gave."""
        return self._of(problem).reference_seconds

    def _of(self, problem: Problem) -> ProblemState:
        key = (
            problem.tests.hash,
            problem.prelude,
            problem.entry_point,
            problem.answer,
            problem.solution,
            problem.reference_seconds,
        )
        if key not in self._states:
            unknown = self._calibrate and bool(problem.solution) and problem.reference_seconds is None
            self._states[key] = ProblemState(key, None, problem.reference_seconds, settled=not unknown)
        return self._states[key]

    def _avoids(self, what: QueuedProgram | ProblemState, worker: int) -> bool:
        return what.avoid == worker and self.workers > 1

    def _goes_along(self, program: QueuedProgram, first: QueuedProgram) -> bool:
        # what was tried before travels alone
        if program.state is not first.state or program.avoid is not None or first.avoid is not None:
            return False
        return first.state.settled or program.code is None

    def _enqueue(self, program: QueuedProgram) -> None:
        bisect.insort(self._waiting, program, key=lambda waiting: waiting.turn)

    def _fail_waiting(self, state: ProblemState, error: Exception) -> None:
        for program in [program for program in self._waiting if program.state is state]:
            self._waiting.remove(program)
            self.fail(program, error)

    def _end(self, program: QueuedProgram, verdict: Verdict) -> None:
        program.verdict = verdict
        self.passed += program.asked * verdict.passed
        self._close(program)

    def _close(self, program: QueuedProgram) -> None:
        # forget what a program with its outcome no longer needs
        if self._first.get(program.key) is program:
            del self._first[program.key]
        if program.avoid is not None and program in self._waiting:  # to be tried again; another try ended first
            self._waiting.remove(program)
        program.code = None
        program.state.programs -= 1
        if not program.state.programs:
            program.state.problem = None
        self.outcomes += program.asked
        self._on_outcome(program)


def _given_up(state: ProblemState, failures: int, reason: str) -> SandboxError:
    name = state.problem.id if state.problem is not None else "?"
    return SandboxError(f"The sandbox failed {failures} times on a program of problem {name}: {reason.rstrip('.')}.")
