"""Report of an unexpected error: one line with its cause and source line, and a file with the traceback."""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType

# it stands here since every command imports this file, and of a run nothing else
CONFIG_KEY = "config.json"
"""In the folder of a run that has begun."""
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_OURS = Path(__file__).parents[2]
_OUR_PACKAGES = ("raypoly", "actors", "workflows")


def describe_error(error: BaseException) -> str:
    """One line: kind, message, and the innermost line of the user's own code, else of raypoly's."""
    cause = root_cause(error)
    message = " ".join(str(cause).split()) or "no message"
    where = _blamed(list(_frames(error)))
    return f"{type(cause).__name__}: {message}" + (f" ({where})" if where else "")


def root_cause(error: BaseException) -> BaseException:
    """The first error of the chain of causes, through Ray's wrapping and groups of tasks."""
    seen = {id(error)}
    while True:
        first = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        cause = first or getattr(error, "cause", None) or error.__cause__
        if not isinstance(cause, BaseException):
            return error
        if id(cause) in seen:  # raised "from" the group that contained it
            return first or error
        seen.add(id(cause))
        error = cause


class Crash:
    """`sys.excepthook` while a command runs."""

    run_dir: Path | None = None

    @classmethod
    def hook(cls, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        print(describe_error(error), file=sys.stderr)
        # A folder without a run must stay empty, or the next start refuses it.
        ready = cls.run_dir is not None and (cls.run_dir / CONFIG_KEY).is_file()
        folder = cls.run_dir if ready and cls.run_dir is not None else Path(tempfile.gettempdir())
        path = folder / f"raypoly-error-{datetime.now():%Y%m%d-%H%M%S}.txt"
        text = "".join(traceback.format_exception(kind, error, trace))
        try:
            path.write_text(text)
        except OSError as unwritable:
            print(f"{text}\n({path} can't be written: {unwritable})", file=sys.stderr)
        else:
            print(f"The traceback is in {path}; everything committed is kept.", file=sys.stderr)


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """(file, line, function) of all errors of the chain, innermost last."""
    # From the text, since an actor's frames are known as text alone.
    for line in traceback.format_exception(type(error), error, error.__traceback__):
        for match in _FRAME.finditer(line):
            yield match["file"], int(match["line"]), match["name"]


def _blamed(frames: list[tuple[str, int, str]]) -> str:
    """The innermost line of the user's code, else of raypoly's; empty if there is neither."""
    installed = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")  # a script only starts the command
    libraries = {sysconfig.get_paths()[name] for name in installed}
    known = [f for f in frames if f[0][:1] != "<" and not any(f[0].startswith(folder) for folder in libraries)]
    users = [frame for frame in known if not _is_ours(Path(frame[0]))]
    for file, line, name in reversed(users or known):
        return f"{file}, line {line}, in {name}"
    return ""


def _is_ours(file: Path) -> bool:
    return any(file.is_relative_to(_OURS / package) for package in _OUR_PACKAGES)
