"""Very many programs in a row through one pool.

    RAYPOLY_SOAK=100000 python -m pytest tests/actors/test_soak.py

The first half runs undisturbed, and nothing grows from its first tenth to its end. In the second half a zygote, a
template, a program or a whole actor is killed every now and then, and no verdict changes. 480 programs where
`RAYPOLY_SOAK` is not set.
"""

import asyncio
import json
import os
import random
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import ray

from actors.scorer_pool import ScorerPool
from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from tests.actors.conftest import ACTOR_OPTIONS
from tests.actors.test_scorer import is_ours

PROGRAMS = int(os.environ.get("RAYPOLY_SOAK", "480"))
BATCH = 40
KILL_EVERY = max(200, PROGRAMS // 200)
PRELUDES = ("", "from typing import *\nfrom collections import *\nfrom math import *\n")
KINDS = {
    "passed": "def f(n):\n x = Counter([1])\n return sum(i * i for i in range(n))",
    "wrong": "def f(n): return n + 1",
    "error": "import os\nos.mkdir('d')\nopen('d/x', 'w').write('x' * 9999)\ndef f(n): return 1 / 0",
    "syntax": "def f(n) return n",
    "memory": "def f(n): return [0] * 10 ** 9",
    "killed": "import ctypes\nimport os\nos._exit(0)",
    "threads": "import threading\n[threading.Thread(target=threading.Event().wait).start() for _ in range(3)]\n1 / 0",
}
STATUS = dict.fromkeys(KINDS, "error") | {"passed": "passed", "wrong": "wrong", "memory": "memory"}


@dataclass(frozen=True)
class Size:
    """What the scorers hold."""

    processes: int
    descriptors: int
    """Without connections by TCP: these are Ray's, which opens one late now and then; a scorer has none."""
    memory_mib: float


def scorers() -> list[Path]:
    """The processes of the pool's actors and of their sandboxes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes()
            if (b"ray::Scorer" in words or b"zygote.py" in words) and is_ours(int(entry.parent.name)):
                found.append(entry.parent)
    return found


def tcp_connections() -> set[str]:
    """This machine's connections by TCP, as a link in /proc/PID/fd names them."""
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    return {f"socket:[{row.split()[9]}]" for rows in tables for row in rows}


def size() -> Size:
    processes = scorers()
    pages = sum(int((process / "statm").read_text().split()[1]) for process in processes)
    connections, descriptors = tcp_connections(), 0
    for entry in (entry for process in processes for entry in (process / "fd").iterdir()):
        with suppress(FileNotFoundError):  # closed since it was listed
            descriptors += os.readlink(entry) not in connections
    return Size(len(processes), descriptors, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def problem(prelude: str) -> Problem:
    rows = [{"args": [n], "expected": sum(i * i for i in range(n))} for n in (0, 3, 40)]
    needed = prelude or "from collections import Counter"
    return Problem("soak", "", "f", TestSuite("calls", json.dumps(rows)), prelude=needed)


async def run(pool: ScorerPool, start: int, end: int) -> None:
    """Programs from `start` to `end`, no two alike; each has its known verdict."""
    names = list(KINDS)
    for batch in range(start, end, 2 * BATCH):
        asked = []
        for half, prelude in enumerate(PRELUDES):
            chosen = [names[(batch + half * BATCH + i) % len(names)] for i in range(BATCH)]
            codes = [f"{KINDS[name]}  # {batch} {half} {i}" for i, name in enumerate(chosen)]
            asked.append((chosen, pool.score(problem(prelude), codes)))
        for (chosen, _), verdicts in zip(asked, await asyncio.gather(*(score for _, score in asked)), strict=True):
            assert [verdict.status for verdict in verdicts] == [STATUS[name] for name in chosen]


async def kill_now_and_then(rng: random.Random, pool: ScorerPool) -> None:
    """A zygote, a template or a program, now and then an actor, each time so many programs have run."""
    while True:
        goal = pool.programs_run + rng.randrange(KILL_EVERY // 2, KILL_EVERY)
        while pool.programs_run < goal:
            await asyncio.sleep(0.01)
        if rng.random() < 0.1:
            ray.kill(list(pool.actors.values())[rng.randrange(2)])
            continue
        sandboxes = [process for process in scorers() if b"zygote.py" in (process / "cmdline").read_bytes()]
        if sandboxes:
            with suppress(ProcessLookupError):
                os.kill(int(rng.choice(sandboxes).name), signal.SIGKILL)


async def test_nothing_grows_and_no_kill_changes_a_verdict() -> None:
    pool = ScorerPool(ScorerConfig(workers=2, memory_mib=128), ACTOR_OPTIONS, cache_size=1000)
    try:
        await pool.start()
        await run(pool, 0, PROGRAMS // 10)
        before = size()
        await run(pool, PROGRAMS // 10, PROGRAMS // 2)
        after = size()
        assert (after.processes, after.descriptors) == (before.processes, before.descriptors)
        assert after.memory_mib < before.memory_mib + 16, (before, after)
        killer = asyncio.create_task(kill_now_and_then(random.Random(0), pool))
        await run(pool, PROGRAMS // 2, PROGRAMS)
        killer.cancel()
        print(f"{pool.programs_run} programs: {before} {after} {size()}")
    finally:
        pool.stop()
