"""The walls around a candidate: those the zygote builds once, and those each child shuts behind itself.

A layer that this machine refuses is named with the reason; the others are used. The probes decide whether they suffice.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import stat
import sys
from dataclasses import dataclass, field

from raypoly.verifier.sandbox.child import seccomp, system

SCRATCH_BYTES = 16 << 20
SCRATCH_FILES = 1024
_OPEN_FILES = 64
MOST_FILES = 4096
"""Descriptors that a forker may have had open."""
# threads and processes of a sandbox's user at once, its templates among them
_THREADS = 100
# room for recursion through C; below the gap that the kernel leaves under the stack
_STACK_BYTES = 100 << 20

_WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 1, 1 << 2, 1 << 3
_ALL_ACCESS_V1 = (1 << 13) - 1
_EXECUTE = 1
_MAKE_DEVICES = (1 << 6) | (1 << 9) | (1 << 10) | (1 << 11)
_CONNECT_AND_BIND = 3
_SIGNALS_AND_ABSTRACT_SOCKETS = 3
_KEPT_FLAGS = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC | 1024 | 2048
_RELATIME = {4096: 1 << 21}
PACKAGES = "/packages"
_SHARED_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_TIME_ZONES = "/usr/share/zoneinfo"


@dataclass
class Walls:
    """What is in force."""

    layers: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    scratch: str = ""
    """The only folder a candidate may write to."""
    user: int | None = None
    """The uid that children change to; None: they stay who they are."""
    filter: bytes = b""
    forking_filter: bytes = b""
    """For a template."""
    ruleset: int = -1
    """Landlock ruleset descriptor; -1 where the kernel has none."""
    own_capabilities: bool = False
    """Whether children have capabilities (of a user namespace) to give up."""


def enter_namespaces(walls: Walls) -> bool:
    """Leave the machine's mounts, network, IPC and processes; the next fork is process 1 of the new space."""
    flags = system.NEWNS | system.NEWIPC | system.NEWNET | system.NEWPID | system.NEWUTS
    uid, gid = os.geteuid(), os.getegid()
    try:
        if uid == 0:
            system.unshare(flags)
        else:
            system.unshare(flags | system.NEWUSER)
            for path, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{path}", "w") as file:
                    file.write(text)
            walls.own_capabilities = True
    except OSError as error:
        walls.missing["namespaces"] = str(error)
        return False
    return True


def enter_file_tree(walls: Walls, folder: str, library: str, packages: list[str]) -> None:
    """Own tree: standard library and `packages` read-only, a scratch of capped size, nothing else.

    `folder` is empty. Packages get new places; shared libraries are there for their sake.
    """
    # else what is mounted here would show on the machine
    system.mount("none", "/", "none", system.MS_REC | system.MS_PRIVATE)
    system.mount("tmpfs", folder, "tmpfs", system.MS_NOSUID | system.MS_NODEV, "size=1m,mode=755")
    target = folder + library
    os.mkdir(folder + "/tmp")
    _bind(library, target)
    for package in packages:
        _bind(package, f"{folder}{PACKAGES}/{os.path.basename(package)}")
    for shared in (*(_SHARED_LIBRARIES if packages else ()), _TIME_ZONES):
        if os.path.isdir(shared):
            _bind(shared, folder + shared)
    _add_devices(folder)
    # an empty folder hides the packages that happen to be installed beside the standard library
    if os.path.isdir(target + "/site-packages"):
        system.mount("tmpfs", target + "/site-packages", "tmpfs", system.MS_RDONLY, "size=4k")
    options = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=777"
    system.mount("tmpfs", folder + "/tmp", "tmpfs", system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC, options)
    os.chdir(folder)
    # The new root is stacked on the old one in the same place, which is then unmounted: no folder is needed to put it
    # in.
    system.pivot_root(".", ".")
    system.unmount(".")
    os.chdir("/")
    flags = system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | system.MS_NOSUID | system.MS_NODEV
    system.mount("none", "/", "none", flags)
    walls.scratch = "/tmp"


def _add_devices(folder: str) -> None:
    os.mkdir(folder + "/dev")
    for name in ("null", "stdin", "stdout", "stderr"):  # the streams' are opened by `stand_ins.py`
        os.close(os.open(f"{folder}/dev/{name}", os.O_CREAT))
    with contextlib.suppress(OSError):  # a program that needs it fails where it can't be had
        system.mount(os.devnull, folder + os.devnull, "none", system.MS_BIND)


def _bind(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    system.mount(source, target, "none", system.MS_BIND)
    flags = os.statvfs(target).f_flag
    # a remount may not drop flags that the machine has set, as nosuid on a home folder: it would be refused
    kept = flags & _KEPT_FLAGS | _RELATIME.get(flags & 4096, 0)
    system.mount("none", target, "none", system.MS_BIND | system.MS_REMOUNT | system.MS_RDONLY | kept)


def build_walls(walls: Walls, library: str, packages: list[str], user: int) -> None:
    """Build once what every child uses: filter, Landlock ruleset, uid to change to."""
    system.no_new_privileges()
    try:
        walls.filter = seccomp.program(system.MACHINE)
        walls.forking_filter = seccomp.program(system.MACHINE, forking=True)
        walls.layers.append("seccomp")
    except KeyError:
        walls.missing["seccomp"] = f"no list of system calls for {system.MACHINE}"
    version = system.landlock_version()
    if version:
        walls.ruleset = _ruleset(version, [library, *packages], walls)
        walls.layers.append(f"landlock v{version}")
    else:
        walls.missing["landlock"] = "the kernel has none (5.13 or later, with landlock in its list of security modules)"
    # without a tree of its own another uid must be able to read the interpreter where it lies
    hidden = None if "namespaces" in walls.layers else _hidden([library, *packages])
    # another uid is worth more than none where Landlock is missing, even if programs may then not start: the probes
    # decide
    if os.geteuid() == 0:
        why = f"another user can't read {hidden}, below which the interpreter lies"
        if hidden is None or walls.ruleset < 0:
            why = _give(walls.scratch, user)
        if why:
            walls.own_capabilities = True
            walls.layers.append("no capabilities")
            walls.missing["own uid"] = why
        else:
            walls.user = user
            walls.layers.append("own uid")
    elif "namespaces" in walls.missing:
        walls.missing["own uid"] = "only root can change it"


def _give(folder: str, user: int) -> str:
    """Why the folder can't become the user's: a container may have root alone. Empty if it has."""
    try:
        os.chown(folder, user, user)
    except OSError as error:
        return f"this root can't give a folder to another user ({error.strerror})"
    return ""


def _hidden(folders: list[str]) -> str | None:
    # others must be able to go through each folder on the way to these
    for folder in folders:
        while folder != "/":
            if not os.stat(folder).st_mode & stat.S_IXOTH:
                return folder
            folder = os.path.dirname(folder)
    return None


def restrict_child(walls: Walls) -> None:
    """Before a child reads anything from outside: own session, no privileges, no files. There is no way back."""
    # no controlling terminal, and no signal to our process group
    os.setsid()
    os.chdir(walls.scratch)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, SCRATCH_BYTES)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_STACK, _STACK_BYTES)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    if walls.user is not None:
        _limit(resource.RLIMIT_NPROC, _THREADS)
        # groups first: once the uid is another, it may not change them any more
        os.setgroups([])
        os.setresgid(walls.user, walls.user, walls.user)
        os.setresuid(walls.user, walls.user, walls.user)
    elif walls.own_capabilities:
        _limit(resource.RLIMIT_NPROC, _THREADS)
        system.drop_capabilities()
    # after the uid: changing it makes the process dumpable or not anew
    system.not_dumpable()
    if walls.ruleset >= 0:
        system.landlock_restrict(walls.ruleset)
        os.close(walls.ruleset)
        walls.ruleset = -1


def restrict_template(walls: Walls, memory_bytes: int) -> None:
    """After `restrict_child`: only system calls that forking children takes."""
    _limit(resource.RLIMIT_AS, memory_bytes)
    if walls.forking_filter:
        system.load_filter(walls.forking_filter)


def restrict_candidate(walls: Walls, memory_bytes: int, cpu_seconds: int) -> None:
    """After `restrict_child`, its own or its template's: limit memory, time and system calls."""
    system.die_with_parent()
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_CPU, cpu_seconds)
    if walls.filter:
        system.load_filter(walls.filter)


def address_space() -> int:
    """Bytes of address space in use, to a MiB; by bisecting the limit, as /proc is out of sight."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, hard if hard != resource.RLIM_INFINITY else 1 << 40
    while high - low > 1 << 20:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
        except (OSError, MemoryError):
            low = middle
        else:
            high = middle
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return high


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY and os.geteuid() != 0:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _ruleset(version: int, readable: list[str], walls: Walls) -> int:
    # read `readable`, use the scratch, nothing else: no other file, no TCP, no signal outside
    files = _ALL_ACCESS_V1
    for since, bit in ((2, 13), (3, 14), (5, 15)):  # refer, truncate, device ioctl
        files |= (1 << bit) if version >= since else 0
    network = _CONNECT_AND_BIND if version >= 4 else 0
    scope = _SIGNALS_AND_ABSTRACT_SOCKETS if version >= 6 else 0
    ruleset = system.landlock_create(files, network, scope, version)
    for folder in [*readable, *_SHARED_LIBRARIES, _TIME_ZONES]:
        if os.path.isdir(folder):
            system.landlock_allow(ruleset, folder, _READ_FILE | _READ_FOLDER)
    system.landlock_allow(ruleset, os.devnull, _READ_FILE | _WRITE_FILE)
    for folder in sys.path:  # importing looks for names in it
        if os.path.isdir(folder):
            system.landlock_allow(ruleset, folder, _READ_FOLDER)
    system.landlock_allow(ruleset, walls.scratch, files & ~_EXECUTE & ~_MAKE_DEVICES & ~(1 << 15))
    return ruleset
