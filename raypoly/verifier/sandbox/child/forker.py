"""The zygote's work: build the walls once, fork confined children on request, say how they ended.

A request on the control socket is a line:

- `child ID MEMORY CPU` (bytes above the forker's own, whole seconds), with the child's channel as ancillary descriptor.
- `reap ID`, once the parent has killed the child or seen it end; answered by `ID STATUS CPU MEMORY` (wait status, CPU
  seconds, most KiB held), or `ID failed` without a child. Until then its process id is nobody else's.
- `template ID MEMORY CPU` forks a child that runs a prelude once, then takes requests on its own channel: programs with
  that prelude are forked from it. It is confined as they are, but for forking.

The zygote's first line says in JSON which walls there are.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import stat
import sys
from typing import Any, NoReturn

from raypoly.verifier.sandbox.child import confine, frames, plain_data, roles, system

_CONTROL = 3
FIRST_CHANNEL, CHANNELS, LAST_CHANNEL = 16, 40, 60
# memory that a template may use to run its prelude
_PRELUDE_BYTES = 256 << 20


def main(settings: dict[str, Any]) -> None:
    """Serve until the control socket ends.

    `settings`: `isolation`, `folder` (an empty one), `scratch`, `user` (a uid that nobody has), `packages`, `evidence`
    (the module that plays its roles, or None).
    """
    control = socket.socket(fileno=_CONTROL)
    walls = confine.Walls(scratch=settings["scratch"])
    library = os.path.dirname(os.path.abspath(os.__file__))
    packages: list[str] = settings["packages"]
    # here, while raypoly's files are in sight: `Loader` gives the module builtins of its own, as it does all of ours
    warm = roles.load_evidence(settings["evidence"]["module"]) if settings["evidence"] else None
    if settings["isolation"] != "none" and confine.enter_namespaces(walls):
        # only a child of this process is in the new process space; as its process 1, its end ends all others
        _become_first_process(control)
        try:
            confine.enter_file_tree(walls, settings["folder"], library, packages)
            walls.layers.append("namespaces")
            packages = [f"{confine.PACKAGES}/{os.path.basename(package)}" for package in packages]
        except OSError as error:
            walls.missing["own file tree"] = str(error)
    sys.path.extend(sorted({os.path.dirname(package) for package in packages}))
    if settings["isolation"] != "none":
        confine.build_walls(walls, library, packages, settings["user"])
    if warm is not None:
        warm()  # once here, not in every child
    os.environ["TMPDIR"] = walls.scratch
    os.dup2(1, 2)  # children have no way to our terminal
    control.sendall(json.dumps({"layers": walls.layers, "missing": walls.missing}).encode() + b"\n")
    # a program that imports these gets none of ours; we keep our references
    for name in [name for name in sys.modules if name.startswith("raypoly")] + ["ctypes", "_ctypes"]:
        sys.modules.pop(name, None)
    _serve(control, walls, None)


def _become_first_process(control: socket.socket) -> None:
    # fork into the new process space; the outer process waits, and goes when the inner one goes
    pid = os.fork()
    if pid:
        control.close()
        os.waitpid(pid, 0)
        os._exit(0)
    system.die_with_parent()


def _serve(control: socket.socket, walls: confine.Walls, prelude: roles.Prelude | None) -> NoReturn:
    """Take requests until the control socket ends. `prelude`: what has run here, in a template."""
    # nothing that exists now is collected in a child: a collection would write to, and so copy, every page that is
    # shared
    gc.collect()
    gc.freeze()
    base = confine.address_space()
    children: dict[bytes, int] = {}
    channels: list[int] = []
    text = b""
    while True:
        part, more, _, _ = socket.recv_fds(control, 4096, 8)
        if not part:
            _leave(walls, list(children.values()))
        # descriptors and lines arrive in the same order, but not always together
        channels += more
        *lines, text = (text + part).split(b"\n")
        for line in lines:
            kind, number, *limits = line.split()
            if kind == b"reap":
                control.sendall(_reap(number, children.pop(number, 0), walls))
                continue
            with contextlib.suppress(OSError):  # no process to be had: `reap` says so
                pid = os.fork()
                if pid == 0:
                    memory, cpu = map(int, limits)
                    _child(kind == b"template", channels[0], walls, (base + memory, cpu), prelude)
                children[number] = pid
            os.close(channels.pop(0))


def _leave(walls: confine.Walls, children: list[int]) -> NoReturn:
    # the owner is gone, perhaps killed: end what runs, remove the scratch if it is a folder of ours
    for pid in children:
        with contextlib.suppress(OSError):
            os.kill(pid, 9)
    if "namespaces" not in walls.layers:
        with contextlib.suppress(OSError):
            _empty(os.path.dirname(walls.scratch))
            os.rmdir(os.path.dirname(walls.scratch))
    os._exit(0)


def _child(
    template: bool, channel: int, walls: confine.Walls, limits: tuple[int, int], prelude: roles.Prelude | None
) -> NoReturn:
    # The channel is put aside above all others, everything between is closed but the Landlock ruleset, which is still
    # to be applied.
    kept = os.dup2(channel, LAST_CHANNEL, inheritable=False)
    os.closerange(_CONTROL, max(walls.ruleset, _CONTROL))
    os.closerange(max(walls.ruleset + 1, _CONTROL), kept)
    os.closerange(kept + 1, confine.MOST_FILES)
    # at a number that a program can not know beforehand
    number = os.dup2(kept, FIRST_CHANNEL + os.urandom(1)[0] % CHANNELS, inheritable=False)
    os.close(kept)
    memory, cpu = limits
    try:
        # a template has shut these behind itself already, and its children inherit that
        if prelude is None:
            confine.restrict_child(walls)
        if template:
            _be_template(number, walls, memory)
        confine.restrict_candidate(walls, memory, cpu)
    except OSError as error:
        frames.send(number, plain_data.encode(("infra", str(error))))
        os._exit(1)
    try:
        roles.play(number, prelude)
    except BaseException:  # noqa: BLE001 - it would go on as a forker
        os._exit(1)
    os._exit(0)


def _be_template(channel: int, walls: confine.Walls, memory: int) -> NoReturn:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, channel)
    confine.restrict_template(walls, memory + _PRELUDE_BYTES)
    frames.send(channel, b"")
    prelude = roles.Prelude(plain_data.unpack(frames.receive(channel)))
    frames.send(channel, plain_data.encode(prelude.error))
    _serve(control, walls, prelude)


def _reap(number: bytes, pid: int, walls: confine.Walls) -> bytes:
    if not pid:
        return b"%s failed\n" % number
    _, status, usage = os.wait4(pid, 0)
    _empty(walls.scratch)
    return b"%s %d %.6f %d\n" % (number, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def _empty(folder: str) -> None:
    # Without recursion, since it may be nested deeply, and without following links. A name may vanish, or become
    # another thing, while we look.
    top = os.stat(folder)
    os.chdir(folder)
    while True:
        below = _remove_entries()
        try:
            if below is not None:
                os.chdir(below)
            elif os.path.samestat(os.stat("."), top):
                break
            else:
                os.chdir("..")
        except OSError:
            os.chdir(folder)


def _remove_entries() -> str | None:
    for name in os.listdir("."):
        try:
            if stat.S_ISDIR(os.lstat(name).st_mode):
                os.rmdir(name)
            else:
                os.unlink(name)
        except FileNotFoundError:
            continue
        except OSError:
            with contextlib.suppress(OSError):
                os.chmod(name, 0o700)
            return name
    return None
