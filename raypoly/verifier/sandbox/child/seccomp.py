"""System calls a candidate may make, as a BPF program built once by the zygote and loaded by each child.

An allowlist: anything else fails with EPERM. Left out with intent: sockets, exec, fork (threads are allowed), signals
to others, ptrace, mounts, namespaces, bpf, io_uring, keys, raising one's own limits. A template may also fork, confine
and reap children.
"""

from __future__ import annotations

import errno
from struct import pack

# name=number on x86-64/number on aarch64; `-` where the architecture lacks the call
_TABLE = """
    read=0/63 write=1/64 readv=19/65 writev=20/66 pread64=17/67 pwrite64=18/68 open=2/- openat=257/56 close=3/57
    close_range=436/436 stat=4/- fstat=5/80 lstat=6/- newfstatat=262/79 statx=332/291 lseek=8/62 mmap=9/222
    mprotect=10/226 munmap=11/215 mremap=25/216 madvise=28/233 brk=12/214 rt_sigaction=13/134
    rt_sigprocmask=14/135 rt_sigreturn=15/139 sigaltstack=131/132 rt_sigtimedwait=128/137 rt_sigsuspend=130/133
    rt_sigpending=127/136 pipe=22/- pipe2=293/59 select=23/- poll=7/- ppoll=271/73 pselect6=270/72
    epoll_create1=291/20 epoll_ctl=233/21 epoll_wait=232/- epoll_pwait=281/22 dup=32/23 dup2=33/- dup3=292/24
    flock=73/32 nanosleep=35/101 clock_nanosleep=230/115 clock_gettime=228/113 clock_getres=229/114
    gettimeofday=96/169 time=201/- getpid=39/172 gettid=186/178 getppid=110/173 getuid=102/174 geteuid=107/175
    getgid=104/176 getegid=108/177 getresuid=118/148 getresgid=120/150 getgroups=115/158 getpgrp=111/-
    getpgid=121/155 getsid=124/156 getcwd=79/17 chdir=80/49 fchdir=81/50 rename=82/- renameat=264/38
    renameat2=316/276 mkdir=83/- mkdirat=258/34 rmdir=84/- unlink=87/- unlinkat=263/35 readlink=89/-
    readlinkat=267/78 access=21/- faccessat=269/48 faccessat2=439/439 getdents64=217/61 ftruncate=77/46
    truncate=76/45 fsync=74/82 fdatasync=75/83 umask=95/166 fadvise64=221/223 sched_yield=24/124
    sched_getaffinity=204/123 getrandom=318/278 futex=202/98 set_robust_list=273/99 get_robust_list=274/100
    rseq=334/293 exit=60/93 exit_group=231/94 restart_syscall=219/128 uname=63/160 sysinfo=99/179
    getrusage=98/165 times=100/153 getrlimit=97/163 membarrier=324/283 getcpu=309/168 alarm=37/-
    setitimer=38/103 getitimer=36/102 pause=34/- eventfd2=290/19 timerfd_create=283/85 timerfd_settime=286/86
    timerfd_gettime=287/87
"""

# A template's additions; it can't open a socket, only use those that it has
_FORKING = """
    wait4=61/260 waitid=247/95 pidfd_open=434/434 recvmsg=47/212 recvfrom=45/207 sendto=44/206 setrlimit=160/164
    prctl=157/167 seccomp=317/277 setsid=112/157 chmod=90/- fchmodat=268/53
"""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_SPECIAL = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "prlimit64": (302, 261),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
}

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_KILL_PROCESS, _ALLOW, _FAIL = 0x80000000, 0x7FFF0000, 0x00050000
_NUMBER, _ARCH = 0, 4
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020080
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15

Instruction = tuple[int, int, int, int]
"""(code, jump if true, jump if false, constant): one `struct sock_filter`."""


def program(machine: str, forking: bool = False) -> bytes:
    """The filter for `machine` (`x86_64` or `aarch64`) as `struct sock_filter`s. Raises `KeyError` for others."""
    column = _COLUMN[machine]
    table = _TABLE + _FORKING if forking else _TABLE
    blocks: dict[int, list[Instruction]] = {number: [_stop(_ALLOW)] for number in _allowed(table, column)}
    for name, numbers in _SPECIAL.items():
        blocks[numbers[column]] = _special_block(name, forking)
    starts: list[tuple[int, list[Instruction]]] = [(0, _denied())]
    for number in sorted(blocks):
        if starts[-1][0] == number:
            starts.pop()
        if not starts or starts[-1][1] != blocks[number]:
            starts.append((number, blocks[number]))
        starts.append((number + 1, _denied()))
    code = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        _stop(_KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        *_search(_merged(starts)),
    ]
    return b"".join(pack("=HBBI", *instruction) for instruction in code)


def _allowed(table: str, column: int) -> list[int]:
    numbers = [entry.split("=")[1].split("/")[column] for entry in table.split()]
    return [int(number) for number in numbers if number != "-"]


def _merged(starts: list[tuple[int, list[Instruction]]]) -> list[tuple[int, list[Instruction]]]:
    merged: list[tuple[int, list[Instruction]]] = []
    for start, block in starts:
        if not merged or merged[-1][1] != block:
            merged.append((start, block))
    return merged


def _search(starts: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Binary search for the range that holds the call's number."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    left, right = _search(starts[:middle]), _search(starts[middle:])
    return [(_IF_AT_LEAST, len(left), 0, starts[middle][0]), *left, *right]


def _stop(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _denied(number: int = errno.EPERM) -> list[Instruction]:
    return [_stop(_FAIL | number)]


def _argument(index: int, high: bool = False) -> Instruction:
    # both architectures are little-endian
    return (_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))


def _special_block(name: str, forking: bool) -> list[Instruction]:
    if name == "clone":  # threads only; a template may fork, but into no namespace of its own
        return [
            _argument(0),
            (_IF_ANY_BIT, 2, 0, _CLONE_NAMESPACES),
            (_IF_ANY_BIT, 0, 0 if forking else 1, _CLONE_THREAD),
            _stop(_ALLOW),
            *_denied(),
        ]
    if name == "clone3":  # its flags lie in memory, where no filter can look: libc then falls back to clone
        return _denied(errno.ENOSYS)
    if name == "prlimit64":  # reading limits, not setting them
        if forking:
            return [_stop(_ALLOW)]
        return [
            _argument(2),
            (_IF_EQUAL, 0, 3, 0),
            _argument(2, high=True),
            (_IF_EQUAL, 0, 1, 0),
            _stop(_ALLOW),
            *_denied(),
        ]
    if name == "fcntl":  # not the owner of a descriptor's signals: that would be a kill in disguise
        return [
            _argument(1),
            (_IF_EQUAL, 3, 0, _F_SETOWN),
            (_IF_EQUAL, 2, 0, _F_SETSIG),
            (_IF_EQUAL, 1, 0, _F_SETOWN_EX),
            _stop(_ALLOW),
            *_denied(),
        ]
    return _denied(errno.ENOTTY)  # ioctl: nothing a candidate has is a terminal
