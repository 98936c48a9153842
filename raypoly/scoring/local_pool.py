"""Sandboxes in this process, each owned by a thread.

    with LocalPool(ScorerConfig(workers=2)) as pool:
        for verdict in pool.score((problem, code) for code in codes):
            ...

Verdicts are in the order of the programs. A slow program delays no other: up to `_WINDOW` programs after it run in the
meantime. Programs are read on demand, so a file of any length can be streamed.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Self

from raypoly.config import ScorerConfig
from raypoly.errors import IsolationMissing, SandboxError, UsageError
from raypoly.sandbox import Sandbox
from raypoly.scoring.program_queue import BROKEN, RETRIES, ProblemState, ProgramQueue, QueuedProgram
from raypoly.values import Problem, Verdict

_WINDOW = 4096
"""The most programs from the oldest without a verdict to the newest."""
WINDOW_CHARACTERS = 64 << 20
"""The most characters of their code and tests."""
_STOP_SECONDS = 1.0
"""After this time a worker that does not stop is told again."""


class PoolClosed(BaseException):
    """Raised in a worker by `close`, since its program may never end by itself."""


class LocalPool:
    """`config.workers` threads with a sandbox each; used by one thread.

    With `calibrate`, a problem with a solution and without `reference_seconds` is calibrated once, before its first
    program. Raises `IsolationMissing` at the start if programs can't be confined.
    """

    def __init__(self, config: ScorerConfig, evidence: bool = False, calibrate: bool = True) -> None:
        self._config, self._evidence = config, evidence
        self._jobs = ProgramQueue(config.workers, calibrate)
        self._working: set[threading.Thread] = set()
        self._threads = [
            threading.Thread(target=self._serve, args=(worker,), name=f"sandbox-{worker}", daemon=True)
            for worker in range(config.workers)
        ]
        try:
            for thread in self._threads:
                thread.start()
            self._jobs.wait_for_a_worker()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def done(self) -> int:
        """Programs with a verdict."""
        return self._jobs.done

    @property
    def passed(self) -> int:
        """Programs that passed."""
        return self._jobs.passed

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all programs that ran; repeated programs run once."""
        return self._jobs.cpu_seconds

    def score(self, programs: Iterable[tuple[Problem, str | None]]) -> Iterator[Verdict]:
        """A verdict for each program, in order. `infra`: the sandbox failed on all tries, or the tests can't be run.

        Raises `SandboxError` if a worker can't be started any more.
        """
        window: deque[tuple[QueuedProgram, int]] = deque()
        held, last = 0, None
        for problem, code in programs:
            size = len(code or "") + (0 if problem is last else len(problem.tests.source))
            last = problem
            window.append((self._jobs.put(problem, code), size))
            held += size
            while window and (window[0][0].verdict or len(window) >= _WINDOW or held >= WINDOW_CHARACTERS):
                job, size = window.popleft()
                held -= size
                yield self._jobs.wait(job)
        for job, _ in window:
            yield self._jobs.wait(job)

    def reference_seconds(self, problem: Problem) -> float | None:
        """The result of the problem's calibration; None if its solution did not pass."""
        return self._jobs.reference_seconds(problem)

    def close(self) -> None:
        """End all workers and their children, even in the middle of a program."""
        self._jobs.close()
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            for thread in alive:
                if thread in self._working:
                    _raise_in(thread)
            for thread in alive:
                thread.join(_STOP_SECONDS)

    def _serve(self, worker: int) -> None:
        """A worker's loop: one sandbox after the other, while there is work."""
        try:
            while not self._jobs.closed:
                with self._sandbox() as sandbox:
                    self._jobs.serving()
                    self._work(worker, sandbox)
        except PoolClosed:
            return
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: who waits for it gets it
            self._jobs.fail(error)

    def _sandbox(self) -> Sandbox:
        """A new sandbox. A failed start, as on a machine without free memory, is tried again."""
        failures = 0
        while True:
            try:
                return Sandbox(self._config, self._evidence)
            except SandboxError as error:
                failures += 1
                if isinstance(error, IsolationMissing) or failures > RETRIES or self._jobs.closed:
                    raise

    def _work(self, worker: int, sandbox: Sandbox) -> None:
        """Run programs until the queue is closed, or the sandbox must be replaced."""
        usable = True
        while usable and (job := self._jobs.take(worker)) is not None:
            self._working.add(threading.current_thread())
            try:
                usable = self._run(worker, sandbox, job)
            finally:
                self._working.discard(threading.current_thread())

    def _run(self, worker: int, sandbox: Sandbox, job: QueuedProgram) -> bool:
        """Run one program. Returns whether the sandbox can go on."""
        known = job.known
        try:
            if job.calibrates:
                self._calibrate(sandbox, known)
            if not known.broken:
                verdict = sandbox.score(known.limited(), job.code)
        except (SandboxError, OSError) as error:
            self._jobs.again(job, worker, str(error))
            return False
        except UsageError as error:
            self._jobs.settle(known, broken=str(error))
        if known.broken:
            self._jobs.finish(job, Verdict("infra", 0, 0, 0.0, BROKEN + known.broken))
        elif verdict.status == "infra":
            self._jobs.again(job, worker, verdict.detail)
        else:
            self._jobs.finish(job, verdict)
        return True

    def _calibrate(self, sandbox: Sandbox, known: ProblemState) -> None:
        try:
            seconds = sandbox.reference_seconds(known.limited())
        except BaseException:
            self._jobs.release(known)
            raise
        self._jobs.settle(known, seconds)


def _raise_in(thread: threading.Thread) -> None:
    """Raise `PoolClosed` in another thread, at its next step in Python.

    Only the sandbox's own thread can end its program in order. While it waits for one it takes such a step ten times a
    second.
    """
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(PoolClosed))
