"""Sandboxes in this process, each owned by a thread.

    with LocalPool(ScorerConfig(workers=2)) as pool:
        for verdict in pool.score((problem, code) for code in codes):
            ...

Verdicts come in the programs' order; up to `_WINDOW` programs after a slow one run in the meantime. Programs are read
on demand, so a file of any length can be streamed.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, Self, TypeVar

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import IsolationMissing, SandboxError, UsageError
from raypoly.core.values import Problem, Verdict
from raypoly.verifier.program_queue import RETRIES, Chunk, ProgramQueue, QueuedProgram
from raypoly.verifier.sandbox import EvidenceReader, Sandbox

T = TypeVar("T")

BROKEN = "the tests can't be run: "
"""Start of a verdict's detail if the problem is at fault."""
# most programs from the oldest without a verdict to the newest
_WINDOW = 4096
WINDOW_CHARACTERS = 64 << 20
"""Most characters of their code and tests."""
# after this time a worker that does not stop is told again
_STOP_SECONDS = 1.0


def unknown_verdict(error: BaseException | None) -> Verdict:
    """`infra`: of a sandbox that failed, which may be asked again, or of tests that can't be run, which may not."""
    failed = isinstance(error, SandboxError)
    return Verdict("infra", 0, 0, 0.0, f"{'' if failed else BROKEN}{error}", repeatable=not failed)


class VerdictPool(Protocol):
    """Scorers of this process (`LocalPool`), or of a cluster."""

    @property
    def done(self) -> int: ...
    @property
    def passed(self) -> int: ...
    @property
    def cpu_seconds(self) -> float: ...
    def score(self, programs: Iterable[tuple[Problem, str | None]]) -> Iterator[Verdict]: ...
    def close(self) -> None: ...


def in_order(
    programs: Iterable[tuple[Problem, str | None]],
    begin: Callable[[Problem, str | None], T],
    is_done: Callable[[T], bool],
    verdict_of: Callable[[T], Verdict],
) -> Iterator[Verdict]:
    """A verdict for each program, in order. While one is slow, those of a window run."""
    window: deque[tuple[T, int]] = deque()
    held, last = 0, None
    for problem, code in programs:
        size = len(code or "") + (0 if problem is last else len(problem.tests.source))
        last = problem
        window.append((begin(problem, code), size))
        held += size
        # take what is done in order; if the window is full, wait for its oldest
        while window and (is_done(window[0][0]) or len(window) >= _WINDOW or held >= WINDOW_CHARACTERS):
            program, size = window.popleft()
            held -= size
            yield verdict_of(program)
    for program, _ in window:
        yield verdict_of(program)


class PoolClosed(BaseException):
    """Raised in a worker by `close`, since its program may never end by itself."""


class LocalPool:
    """`config.workers` threads with a sandbox each; used by one thread.

    With `calibrate`, a problem with a solution and without `reference_seconds` is calibrated before its first program.
    Raises `IsolationMissing` at the start if programs can't be confined.
    """

    def __init__(self, config: ScorerConfig, evidence: EvidenceReader | None = None, calibrate: bool = True) -> None:
        self._config, self._evidence = config, evidence
        lock = threading.Lock()
        self._lock, self._work, self._start = lock, threading.Condition(lock), threading.Condition(lock)
        self._waits: dict[QueuedProgram, list[threading.Condition]] = {}  # one each: a server's threads are many
        self._queue = ProgramQueue(config.workers, calibrate, self._wake)
        self._serving = 0
        self._error: BaseException | None = None
        self._closed = False
        self._working: set[threading.Thread] = set()
        self._threads = [
            threading.Thread(target=self._serve, args=(worker,), name=f"sandbox-{worker}", daemon=True)
            for worker in range(config.workers)
        ]
        try:
            for thread in self._threads:
                thread.start()
            with self._start:
                self._wait_until(self._start, lambda: self._serving > 0)
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
        return self._queue.outcomes

    @property
    def passed(self) -> int:
        return self._queue.passed

    @property
    def cpu_seconds(self) -> float:
        """Of all programs that ran; repeated ones run once."""
        return self._queue.cpu_seconds

    def score(self, programs: Iterable[tuple[Problem, str | None]]) -> Iterator[Verdict]:
        """A verdict for each program, in order. `infra`: the sandbox failed on all tries, or the tests can't be run.

        Raises `SandboxError` if a worker can't be started any more.
        """
        return in_order(programs, self._begin, lambda program: program.done, self._verdict)

    def reference_seconds(self, problem: Problem) -> float | None:
        """The problem's calibration; None if its solution did not pass."""
        with self._work:
            return self._queue.reference_seconds(problem)

    def close(self) -> None:
        """End all workers and their children, even in the middle of a program."""
        with self._work:
            self._closed = True
            self._work.notify_all()
            self._wake_all()
        while alive := [thread for thread in self._threads if thread.is_alive()]:
            for thread in alive:
                if thread in self._working:
                    _raise_in(thread)
            for thread in alive:
                thread.join(_STOP_SECONDS)

    def _begin(self, problem: Problem, code: str | None) -> QueuedProgram:
        with self._work:
            program = self._queue.put(problem, code)
            self._work.notify()
        return program

    def _wake(self, program: QueuedProgram) -> None:
        for news in self._waits.pop(program, ()):
            news.notify()

    def _wake_all(self) -> None:
        self._start.notify_all()
        for program in list(self._waits):
            self._wake(program)

    def _wait_until(self, news: threading.Condition, holds: Callable[[], bool]) -> None:
        """With the lock held. Raises a worker's fatal error, `SandboxError` if the pool was closed."""
        while not holds():
            if self._error is not None:
                raise self._error
            if self._closed:
                raise SandboxError("The pool was closed before it had all verdicts.")
            news.wait()

    def _verdict(self, program: QueuedProgram) -> Verdict:
        with self._lock:
            if not program.done:
                news = threading.Condition(self._lock)
                self._waits.setdefault(program, []).append(news)
                self._wait_until(news, lambda: program.done)
        if program.verdict is not None:
            return program.verdict
        return unknown_verdict(program.error)

    def _serve(self, worker: int) -> None:
        try:
            while not self._closed:
                with self._sandbox() as sandbox:
                    with self._start:
                        self._serving += 1
                        self._start.notify_all()
                    self._work_with(worker, sandbox)
        except PoolClosed:
            return
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: who waits for it gets it
            with self._lock:
                self._error = self._error or error
                self._wake_all()

    def _sandbox(self) -> Sandbox:
        # A failed start, as on a machine without free memory, is tried again
        failures = 0
        while True:
            try:
                return Sandbox(self._config, self._evidence)
            except SandboxError as error:
                failures += 1
                if isinstance(error, IsolationMissing) or failures > RETRIES or self._closed:
                    raise

    def _take(self, worker: int) -> Chunk | None:
        with self._work:
            while not self._closed:
                chunk = self._queue.take(worker)
                if chunk is not None:
                    return chunk
                self._work.wait()
        return None

    def _work_with(self, worker: int, sandbox: Sandbox) -> None:
        # run programs until the pool is closed, or the sandbox must be replaced
        usable = True
        while usable and (chunk := self._take(worker)) is not None:
            self._working.add(threading.current_thread())
            try:
                usable = self._run(worker, sandbox, chunk)
            finally:
                self._working.discard(threading.current_thread())

    def _run(self, worker: int, sandbox: Sandbox, chunk: Chunk) -> bool:
        """Run one program, or calibrate its problem. Returns whether the sandbox can go on."""
        problem = chunk.state.limited()
        try:
            if chunk.calibrates:
                seconds = sandbox.reference_seconds(problem)
                self._tell(lambda queue: queue.settle(chunk.state, seconds))
                return True
            (program,) = chunk.programs
            verdict = sandbox.score(problem, program.code)
        except (SandboxError, OSError) as error:
            reason = str(error)
            self._tell(lambda queue: queue.again(chunk, worker, reason))
            return False
        except UsageError as error:
            broken = error
            self._tell(lambda queue: queue.reject(chunk, broken))
            return True
        if verdict.status == "infra":
            self._tell(lambda queue: queue.again(chunk, worker, verdict.detail))
        else:
            self._tell(lambda queue: queue.finish(program, verdict))
        return True

    def _tell(self, what: Callable[[ProgramQueue], object]) -> None:
        # other workers may find something to do now
        with self._work:
            what(self._queue)
            self._work.notify_all()


def _raise_in(thread: threading.Thread) -> None:
    # only the sandbox's own thread can end its program in order. While it waits it takes a step in Python ten times a
    # second, at which this is raised.
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(PoolClosed))
