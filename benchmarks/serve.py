"""`raypoly serve` under many clients and one kill, and its speed beside `LocalPool`'s.

    python -m benchmarks.serve [--programs 5000] [--clients 64] [--speed 1000]

First every verdict: programs of `benchmarks.scorers`, each unlike all others, every second one with a hostile end: it
exits, kills its group, fills its output, forks or recurses. Many clients ask at once; the server is ended by SIGKILL at
a third and started again. Then programs a second: `LocalPool`, 8 rows a request and 1 row, by turns, in one run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.scorers.programs import TERMINATING, load
from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem
from raypoly.data.formats import row_of
from raypoly.integrations.http_client import VerdictClient
from raypoly.verifier.local_pool import LocalPool
from tests.support.ports import free_port

Program = tuple[Problem, str]
_WORKERS, _REPEATS = 2, 3
_HOSTILE = (
    "import os\nos._exit(0)",
    "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "import sys\nsys.stdout.write('x' * (1 << 22))\nraise SystemExit",
    "import os\nos.fork()\nraise KeyboardInterrupt",
    "import sys\nsys.setrecursionlimit(10**6)\n(f := lambda: f())()",
)


def _programs(count: int, hostile: bool) -> list[Program]:
    items = [item for item in load(None)[1] if item.category in TERMINATING]
    made = []
    for number in range(count):
        item = items[number % len(items)]
        end = f"\n{_HOSTILE[number // 2 % len(_HOSTILE)]}" if hostile and number % 2 else ""
        made.append((item.problem, f"{item.code}\n# {number}{end}\n"))
    return made


class Served:
    """The command, started again at the same port after `kill`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.start()

    def start(self) -> None:
        words = ["serve", "--port", str(self.port), "--workers", str(_WORKERS)]
        self.process = subprocess.Popen([sys.executable, "-m", "raypoly.cli", *words], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def computed(self) -> int:
        """Verdicts that this process of the server has found, by its `/metrics`; 0 before it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5.0) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[-1]) for line in lines if line.startswith("raypoly_verdicts_total"))

    @property
    def client(self) -> VerdictClient:
        return VerdictClient(f"http://127.0.0.1:{self.port}", patience=300.0)

    @property
    def mebibytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _rows(programs: Sequence[Program]) -> list[dict[str, Any]]:
    kept: dict[str, Any] = {}
    for problem, _ in programs:
        kept.setdefault(problem.id, row_of(problem))
    return [{"problem": kept[problem.id], "code": code} for problem, code in programs]


def _ask(served: Served, rows: Sequence[dict[str, Any]], clients: int, at_once: int) -> list[dict[str, Any]]:
    parts = [rows[first : first + at_once] for first in range(0, len(rows), at_once)]
    with ThreadPoolExecutor(clients) as threads:
        return [verdict for found in threads.map(lambda part: served.client.verdicts(part), parts) for verdict in found]


def _right(count: int, clients: int) -> None:
    programs = _programs(count, hostile=True)
    with LocalPool(ScorerConfig(workers=_WORKERS)) as pool:
        expected = [verdict.status for verdict in pool.score(programs)]
    served, rows = Served(), _rows(programs)
    seen: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: seen.extend(_ask(served, rows, clients, 8)))
    asking.start()
    memory = []
    done = before = 0
    while asking.is_alive():
        time.sleep(1.0)
        memory.append(served.mebibytes)
        done += 1
        if done == max(3, count // 300):
            before = served.computed
            served.kill()
            served.start()
            memory.clear()
    asking.join()
    pairs = enumerate(zip(expected, (verdict["status"] for verdict in seen), strict=True))
    wrong = [(number, *pair) for number, pair in pairs if len(set(pair)) > 1]
    print(f"{len(seen):,} verdicts by {clients} clients, one SIGKILL: {len(wrong)} unlike LocalPool's {wrong[:5]}")
    twice = before + served.computed - len(programs)
    print(f"computed twice: {twice}; in flight at the kill were at most {8 * clients}")
    if memory:
        print(f"memory of the server: {memory[len(memory) // 3]:.0f} MiB at a third, {memory[-1]:.0f} MiB at the end")
    served.kill()


def _speed(count: int, clients: int) -> None:
    served = Served()
    served.client.verdicts(_rows(_programs(8, hostile=False)))
    rates: dict[str, list[float]] = {}
    for repeat in range(_REPEATS):
        # no program comes twice: equal ones run once
        all_programs = _programs(3 * count * _REPEATS, hostile=False)[3 * count * repeat :][: 3 * count]
        for place, name in enumerate(("LocalPool", "8 rows a request", "1 row a request")):
            programs = all_programs[place * count : (place + 1) * count]
            if name == "LocalPool":
                with LocalPool(ScorerConfig(workers=_WORKERS)) as pool:
                    begin = time.perf_counter()
                    list(pool.score(programs))
                    seconds = time.perf_counter() - begin
            else:
                rows = _rows(programs)
                begin = time.perf_counter()
                _ask(served, rows, clients, int(name[0]))
                seconds = time.perf_counter() - begin
            rates.setdefault(name, []).append(count / seconds)
            print(f"repeat {repeat + 1} of {_REPEATS}: {name} {count / seconds:.0f} programs/s", flush=True)
    served.kill()
    middle = {name: sorted(found)[len(found) // 2] for name, found in rates.items()}
    for name, rate in middle.items():
        print(f"{name:18} {rate:6.1f} programs/s  {rate / middle['LocalPool']:.2f} of LocalPool")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--speed", type=int, default=1000, help="programs of each measurement of speed")
    options = parser.parse_args()
    _right(options.programs, options.clients)
    _speed(options.speed, options.clients)
