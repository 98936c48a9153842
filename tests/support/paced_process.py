"""A function in a process of its own that does one step each time it is told to.

    with Arm("trl", trl.step_by_step, setting) as arm:
        step = arm.step()

The function gets its arguments and a `Pace`. It calls `ready` when it is set up. Then, as long as `next` returns True,
it does a step and reports it with `done`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from tests.support.step_tables import MeasuredStep

_PATIENCE = 60.0
"""Seconds that the process may take to end."""


class Pace:
    """The process's side."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel

    def ready(self) -> None:
        self._channel.send(None)

    def next(self) -> bool:
        """Wait for the command, and return whether there is another step."""
        another: bool = self._channel.recv()
        return another

    def done(self, step: MeasuredStep) -> None:
        self._channel.send(step)


class PacedProcess:
    """The measuring side. Raises `RuntimeError` if the process dies; its message is on standard error."""

    def __init__(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._channel, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(work, arguments, theirs))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        try:
            self._receive()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.is_alive():
            self._channel.send(False)
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._channel.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def step(self) -> MeasuredStep:
        self._channel.send(True)
        step: MeasuredStep = self._receive()
        return step

    def _receive(self) -> Any:
        try:
            return self._channel.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(
                f"The arm {self.name} died with exit code {self._process.exitcode}; its message is above."
            ) from None


def _serve(work: Callable[..., None], arguments: tuple[Any, ...], channel: Connection) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # progress of trainers; the table alone goes to standard output
    work(*arguments, Pace(channel))
