"""System calls that Python has no name for, through ctypes. For the zygote; never at a candidate's reach."""

from __future__ import annotations

import ctypes
import os
import platform

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

MACHINE = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE, MNT_DETACH = 16384, 1 << 18, 2


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _call(number: int, *arguments: object) -> int:
    return int(_libc.syscall(ctypes.c_long(number), *arguments))


def _prctl(option: int, value: object, what: str) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(ctypes.c_int(option), value, zero, zero, zero), what)


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), "no_new_privs")


def die_with_parent() -> None:
    """SIGKILL to this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(9), "PR_SET_PDEATHSIG")


def not_dumpable() -> None:
    """No core, and no look at this process's memory for others of the same user."""
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), "PR_SET_DUMPABLE")


def load_filter(code: bytes) -> None:
    """Filter this process's system calls from now on: `code` is an array of `struct sock_filter`."""
    program = _Filter(len(code) // 8, code)
    zero = ctypes.c_ulong(0)
    result = _libc.prctl(ctypes.c_int(_PR_SET_SECCOMP), ctypes.c_ulong(2), ctypes.byref(program), zero, zero)
    _check(result, "seccomp")


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    texts = [text.encode() for text in (source, target, kind, options)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check(result, f"mount {target}")


def unmount(target: str) -> None:
    _check(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    _check(_call(_PIVOT_ROOT[MACHINE], new.encode(), old.encode()), "pivot_root")


def drop_capabilities() -> None:
    """Give up every capability (in a user namespace the own uid keeps them otherwise)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_call(_CAPSET[MACHINE], header, data), "capset")


def landlock_version() -> int:
    """The kernel's Landlock ABI; 0 where it has none."""
    version = _call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(version, 0)


def landlock_create(files: int, network: int, scope: int, version: int) -> int:
    """A ruleset's descriptor; the attribute's size follows the kernel's version."""
    attribute = (ctypes.c_uint64 * 3)(files, network, scope)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return _check(_call(_LANDLOCK_CREATE, attribute, ctypes.c_size_t(size), ctypes.c_uint32(0)), "landlock")


def landlock_allow(ruleset: int, folder: str, access: int) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    rule = access.to_bytes(8, "little") + descriptor.to_bytes(4, "little", signed=True)
    result = _call(_LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    os.close(descriptor)
    _check(result, f"landlock {folder}")


def landlock_restrict(ruleset: int) -> None:
    _check(_call(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock")
