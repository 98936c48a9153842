"""What was tried, a line a part: how long it took and how much memory was in use, or why it failed and what to do.

tried = Tried()
await tried.part("weights to the engine, verified", parts.publish_weights())
tried.seconds["weights to the engine, verified"]
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TypeVar

from raypoly.crash import describe_error, root_cause
from raypoly.errors import RaypolyError
from raypoly.planning.memory_in_use import Peak
from raypoly.planning.memory_parts import size

T = TypeVar("T")

_WIDTH = 36
_MEMORY = (
    "lower train.token_budget or generator.gpu_memory_fraction, or set train.activation_checkpointing=layers; "
    "`raypoly train --dry-run` shows memory by part"
)
_ADVICE = {
    "engine": "its last words above say more; generator.engine=transformers shows whether it is vLLM",
    "learner": "`raypoly train --dry-run` shows what it needs by part",
    "sandbox": "docs/verifier.md says what it needs of a machine",
    "judge": "docs/judge.md says how a judge is reached",
    "checkpoint": "see that the disk under run.dir has room (`raypoly train --dry-run` says how much)",
}
"""By the first word of a part's name, where the error itself is no sentence for a user."""


class RehearsalFailed(RaypolyError):
    """A part of the run does not work here."""


class RehearsalProbe:
    """Lines to standard output."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """By part."""

    async def part(self, name: str, work: Awaitable[T]) -> T:
        """What `work` gives. Raises `RehearsalFailed`."""
        started = time.monotonic()
        with Peak() as peak:
            try:
                done = await work
            except Exception as error:
                self._line(name, "FAILED", time.monotonic() - started, "")
                raise RehearsalFailed(f"The rehearsal failed at `{name}`: {_why(name, error)}") from error
        self.seconds[name] = time.monotonic() - started
        gpu = "" if peak.gpu is None else f"GPU {size(peak.gpu)}, "
        self._line(name, "ok", self.seconds[name], f"in use: {gpu}machine {size(peak.host)}")
        return done

    def remark(self, text: str) -> None:
        print(f"Note: {text}", flush=True)

    def _line(self, name: str, state: str, seconds: float, memory: str) -> None:
        print(f"{name:{_WIDTH}} {state:6} {seconds:8.1f} s   {memory}".rstrip(), flush=True)


def _why(name: str, error: BaseException) -> str:
    """One sentence, with what to do."""
    first = root_cause(error)
    if isinstance(first, RaypolyError):
        return str(first)
    said = describe_error(error).rstrip(".")
    if "out of memory" in said.lower():
        return f"{said}: {_MEMORY}."
    advice = _ADVICE.get(name.replace(",", " ").split()[0])
    return f"{said}: {advice}." if advice else f"{said}."
