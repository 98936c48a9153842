"""Run a whole program with a text as its standard input; its standard output is the channel's stream.

After the role's message nothing is framed: the parent reads until the process ends, and its exit code says whether it
ended well. A program that raised writes its nonce and why behind its output.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
import threading
from typing import Any, NoReturn

from raypoly.verifier.sandbox.child import candidate, frames, plain_data

_exit, _write = os._exit, os.write
_FAILED = 1


def serve(channel: int, namespace: dict[str, Any], nonce: bytes, standard_input: bytes) -> NoReturn:
    """Run the code that comes next."""
    code = frames.receive(channel)
    _redirect(channel, standard_input)
    out = sys.stdout
    namespace["__name__"] = "__main__"
    try:
        exec(compile(code.decode("utf-8", "surrogatepass"), "<candidate>", "exec", dont_inherit=True), namespace)
        _finish(out)
    except SystemExit as error:
        status = error.code
        _finish(out)
        _exit(0 if status is None else int(status) & 0xFF if isinstance(status, int) else _FAILED)
    except BaseException as error:  # noqa: BLE001 - whatever a candidate raises is its verdict
        if isinstance(error, MemoryError):
            words: tuple[str, ...] = ("memory",)
        elif isinstance(error, SyntaxError) and error.filename == "<candidate>":
            words = ("syntax", type(error).__name__, candidate.text_of(error))
        else:
            words = ("raised", type(error).__name__[:100], candidate.text_of(error))
        with contextlib.suppress(Exception):  # a program may have closed it
            out.flush()
        _write(1, nonce + plain_data.encode(words))
        _exit(_FAILED)
    _exit(0)


def _redirect(channel: int, standard_input: bytes) -> None:
    # standard input is a file without a name: programs may seek in it or map it
    descriptor = os.open("input", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink("input")
    view = memoryview(standard_input)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    os.dup2(channel, 1)
    os.close(channel)
    sys.stdin = sys.__stdin__ = _text_stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _text_stream(1, "w")  # type: ignore[misc]


def _text_stream(descriptor: int, mode: str) -> io.TextIOWrapper:
    """With the attributes that an interpreter sets: templates of contests read `file.mode`."""
    binary: Any = open(descriptor, mode + "b", closefd=False)  # noqa: SIM115
    binary.raw.name = "<stdin>" if mode == "r" else "<stdout>"
    stream = io.TextIOWrapper(binary, "utf-8", errors="surrogateescape")
    stream.mode = mode  # type: ignore[misc]
    return stream


def _finish(out: Any) -> None:
    # an interpreter's end: wait for threads, run exit handlers, flush
    vars(threading)["_shutdown"]()
    atexit._run_exitfuncs()
    for stream in (getattr(sys, "stdout", None), out):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
