"""The zygote's work: build the walls once, then fork confined children on request, and say how they ended.

A request on the control socket is a line. `child ID MEMORY CPU` (bytes above the forker's own, whole seconds), with
the child's channel as ancillary descriptor, forks. `reap ID`, once the parent has killed the child or seen it end, is
answered by a line `ID STATUS CPU MEMORY` (its wait status, CPU seconds, and most KiB it held), or `ID failed` where
there was no child; until then its process id is nobody else's. The zygote's first line says in JSON which walls there
are.

`template ID MEMORY CPU` forks a child that runs a prelude, once, and then takes requests itself on its own channel:
the programs of all problems with that prelude are forked from it. It is confined as they are, but for forking.
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
_PRELUDE_BYTES = 256 << 20
"""Memory that a template may use to run its prelude."""


def main(settings: dict[str, Any]) -> None:
    """Serve until the control socket ends.

    `settings`: `isolation`, `folder` (an empty one), `scratch` (another), `user` (a uid that nobody has), `packages`,
    `evidence` (whether programs will be observed).
    """
    control = socket.socket(fileno=_CONTROL)
    walls = confine.Walls(scratch=settings["scratch"])
    library = os.path.dirname(os.path.abspath(os.__file__))
    packages: list[str] = settings["packages"]
    if settings["isolation"] != "none" and confine.enter_namespaces(walls):
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
    if settings["evidence"]:
        roles.warm_observer()  # once here, not in every child
    os.environ["TMPDIR"] = walls.scratch
    os.dup2(1, 2)  # children have no way to our terminal
    control.sendall(json.dumps({"layers": walls.layers, "missing": walls.missing}).encode() + b"\n")
    for name in [name for name in sys.modules if name.startswith("raypoly")] + ["ctypes", "_ctypes"]:
        sys.modules.pop(name, None)
    _serve(control, walls, None)


def _become_first_process(control: socket.socket) -> None:
    """Fork into the new process space; the outer process waits, and goes when the inner one goes."""
    pid = os.fork()
    if pid:
        control.close()
        os.waitpid(pid, 0)
        os._exit(0)
    system.die_with_parent()


def _serve(control: socket.socket, walls: confine.Walls, prelude: roles.Prelude | None) -> NoReturn:
    """Take requests until the control socket ends. `prelude`: what has run here, in a template."""
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
    """The owner is gone, perhaps killed: end what still runs, take the scratch along where it is a folder of ours."""
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
    """Close all that is not its own, shut the walls, and work. Never returns."""
    kept = os.dup2(channel, LAST_CHANNEL, inheritable=False)
    os.closerange(_CONTROL, max(walls.ruleset, _CONTROL))
    os.closerange(max(walls.ruleset + 1, _CONTROL), kept)
    os.closerange(kept + 1, confine.MOST_FILES)
    number = os.dup2(kept, FIRST_CHANNEL + os.urandom(1)[0] % CHANNELS, inheritable=False)
    os.close(kept)
    memory, cpu = limits
    try:
        if prelude is None:
            confine.restrict_child(walls)
        if template:
            _be_template(number, walls, memory)
        confine.restrict_candidate(walls, memory, cpu)
    except OSError as error:
        frames.send(number, plain_data.encode(("infra", str(error))))
        os._exit(1)
    roles.play(number, prelude)
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
    if os.listdir(walls.scratch):
        _empty(walls.scratch)
    return b"%s %d %.6f %d\n" % (number, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def _empty(folder: str) -> None:
    """Remove all that a candidate left, however deeply it nested it, without recursion and without following links."""
    top = os.stat(folder)
    os.chdir(folder)
    while True:
        below = _remove_entries()
        if below is not None:
            os.chdir(below)
        elif os.path.samestat(os.stat("."), top):
            break
        else:
            os.chdir("..")


def _remove_entries() -> str | None:
    """Remove what can be removed from the current folder; the name of a folder in it that is not empty, if any."""
    for name in os.listdir("."):
        if not stat.S_ISDIR(os.lstat(name).st_mode):
            os.unlink(name)
            continue
        try:
            os.rmdir(name)
        except OSError:
            os.chmod(name, 0o700)
            return name
    return None
