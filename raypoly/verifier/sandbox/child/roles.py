"""Roles of a fresh child; its first message names one.

`candidate`, `script`, `checker`, `cases` and `observe` need a prelude: they are played in a child of a template. `read`
runs nothing: `("compile", code)` is answered by the refusal that the program's own process would give, or None;
`("source", ...)` by the evidence's module. A program that can't be read ends the child.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from raypoly.verifier.sandbox.child import (
    budget,
    candidate,
    checker,
    frames,
    holdings,
    object_values,
    plain_data,
    probes,
    script,
    stand_ins,
)


class Prelude:
    """A prelude that has run, once for all children of its template."""

    def __init__(self, source: str) -> None:
        module = ModuleType(object_values.CANDIDATE)
        sys.modules[object_values.CANDIDATE] = sys.modules["__main__"] = module
        self.namespace = vars(module)
        self.namespace["__builtins__"] = sys.modules["builtins"]
        self.namespace["__file__"] = f"{os.environ.get('TMPDIR', '')}/{_FILE}"
        self.error = ""
        random.seed(0)
        try:
            exec(compile(source, "<prelude>", "exec", dont_inherit=True), self.namespace)
        except BaseException as error:  # noqa: BLE001 - whatever a prelude raises is told to the parent
            self.error = f"{type(error).__name__}: {error}"[:200]
        holdings.library()  # once here, not in every child


def _read_cases(channel: int, namespace: dict[str, Any], source: str, name: str) -> None:
    frames.send(channel, plain_data.encode(checker.read_cases(namespace, source, name)))


_WITH_PRELUDE: dict[str, Callable[..., None]] = {
    "candidate": candidate.serve,
    "script": script.serve,
    "checker": checker.serve,
    "cases": _read_cases,
}
_DIGITS = 50_000
"""Of a number that programs and checks may print or read: judges allow more than Python."""
# a program's name; there is no such file
_FILE = "main.py"
# the evidence module's, where there is one
_SOURCE_READERS: list[Callable[..., Any]] = []


def load_evidence(name: str) -> Callable[[], None]:
    """Load the module that plays the roles of evidence. Returns its `warm`, to be called before children are forked."""
    module = importlib.import_module(name)
    _WITH_PRELUDE["observe"] = module.observe
    candidate.OBSERVERS.append(module.observe_scored)
    _SOURCE_READERS.append(module.read_source)
    warm: Callable[[], None] = module.warm
    return warm


def play(channel: int, prelude: Prelude | None) -> None:
    """Greet, so that the kernel tells the parent this process's id, then play the role that it asks for."""
    frames.send(channel, b"")
    role, *arguments = plain_data.unpack(frames.receive(channel))
    if role == "read":
        _read(channel)
    elif role == "probe":
        frames.send(channel, plain_data.encode(probes.breaches(*arguments)))
    elif prelude is not None and role in _WITH_PRELUDE:
        _play_with(channel, prelude.namespace, role, arguments)


def _play_with(channel: int, namespace: dict[str, Any], role: str, arguments: list[Any]) -> None:
    random.seed(0)
    sys.set_int_max_str_digits(_DIGITS)
    sys.argv[:] = [_FILE]  # `fileinput` reads the files that others name
    stand_ins.install()
    _WITH_PRELUDE[role](channel, namespace, *arguments)


def _read(channel: int) -> NoReturn:
    sys.set_int_max_str_digits(0)  # how long a number may be depends on the program's kind
    while True:
        kind, *arguments = plain_data.unpack(frames.receive(channel))
        answer = _refusal(*arguments) if kind == "compile" else _SOURCE_READERS[0](*arguments)
        frames.send(channel, plain_data.encode(answer))


def _refusal(code: str) -> tuple[Any, ...] | None:
    try:
        compile(code, budget.FILE, "exec", dont_inherit=True)
    except Exception as error:  # noqa: BLE001 - too deep, too large, or no text: the program's own process decides
        if isinstance(error, SyntaxError) and error.filename == budget.FILE:
            return "syntax", type(error).__name__, candidate.text_of(error)
    return None
