"""What a fresh child does: its first message names one of the roles.

A role that needs a prelude (`candidate`, `observe`, `script`, `checker`, `cases`) is played in a child of a template.
"""

from __future__ import annotations

import random
import sys
from types import ModuleType
from typing import Any

from raypoly.strategies.traced_runs import observe
from raypoly.verifier.sandbox.child import (
    candidate,
    checker,
    frames,
    holdings,
    observer,
    plain_data,
    probes,
    reader,
    script,
    self_pipe,
)


class Prelude:
    """A prelude that has run, once for all the children of its template."""

    def __init__(self, source: str) -> None:
        module = ModuleType("__candidate__")
        sys.modules["__candidate__"] = sys.modules["__main__"] = module
        self.namespace = vars(module)
        self.namespace["__builtins__"] = sys.modules["builtins"]
        self.error = ""
        """Why it could not run."""
        random.seed(0)
        try:
            exec(compile(source, "<prelude>", "exec", dont_inherit=True), self.namespace)
        except BaseException as error:  # noqa: BLE001 - whatever a prelude raises is told to the parent
            self.error = f"{type(error).__name__}: {error}"[:200]
        holdings.library()  # once here, not in every child


def warm_observer() -> None:
    """Run the analysis of programs a few times, so that children forked afterwards find its caches filled."""
    observe.warm()


def play(channel: int, prelude: Prelude | None) -> None:
    """Greet (so that the parent learns this process's id from the kernel), then play the role that it asks for."""
    frames.send(channel, b"")
    role, *arguments = plain_data.unpack(frames.receive(channel))
    if role == "read":
        reader.serve(channel)
    elif role == "probe":
        frames.send(channel, plain_data.encode(probes.breaches(*arguments)))
    elif prelude is not None:
        _play_with(channel, prelude.namespace, role, arguments)


def _play_with(channel: int, namespace: dict[str, Any], role: str, arguments: list[Any]) -> None:
    random.seed(0)
    sys.argv[1:] = []  # `fileinput` reads the files that they name
    self_pipe.install()
    if role == "observe":
        observer.serve(channel, namespace, *arguments)
    elif role == "candidate":
        candidate.serve(channel, namespace, *arguments)
    elif role == "script":
        script.serve(channel, namespace, *arguments)
    elif role == "checker":
        checker.serve(channel, namespace, *arguments)
    elif role == "cases":
        frames.send(channel, plain_data.encode(checker.read_cases(namespace, *arguments)))
