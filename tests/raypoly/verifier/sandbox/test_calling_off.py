"""No program calls its verifier off: what it does is its own verdict, and what others do to it is none.

RAYPOLY_KILLS=20 python -m pytest tests/raypoly/verifier/sandbox/test_calling_off.py     # 2 of each kind where not set
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests
from raypoly.core.values import Problem, TestSuite
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier import LocalPool
from raypoly.verifier.sandbox import Sandbox
from tests.support.program_files import descendants
from tests.support.small_problems import calls, check

MANY = int(os.environ.get("RAYPOLY_SOAK", "3000"))
KILLS = int(os.environ.get("RAYPOLY_KILLS", "2"))
CHECK = check("def check(candidate):\n for i in range(3):\n  assert abs(candidate(i) - i - 1) < 1")
RIGHT = "def f(x): return x + 1"

RENAMES = """
import os, threading
for n in range(900): os.close(os.open(f'f{n}', os.O_CREAT | os.O_WRONLY))
def turn():
    while True:
        for a, b in ('fg', 'gf'):
            for n in range(900):
                try: os.rename(f'{a}{n}', f'{b}{n}')
                except OSError: pass
threading.Thread(target=turn, daemon=True).start()
"""
BECOMES_ANOTHER = """
import os, threading
def turn(k):
    while True:
        for make, drop in ((lambda n: os.makedirs(n + '/e/e'), lambda n: os.removedirs(n + '/e/e')),
                           (lambda n: os.close(os.open(n, os.O_CREAT)), os.unlink), (os.mkfifo, os.unlink),
                           (lambda n: os.symlink('/', n), os.unlink)):
            for step in (make, drop):
                try: step(f'n{k}')
                except Exception: pass
for k in range(6): threading.Thread(target=turn, args=(k,), daemon=True).start()
"""
DOES = {
    "renames files": RENAMES,
    "turns files into folders": BECOMES_ANOTHER,
    "leaves folders that nobody may enter": "import os\nos.umask(0o777)\nos.mkdir('a', 0o700)\nos.mkdir('a/b', 0)\n",
    "has many threads": "import threading, time\nfor _ in range(60):\n try: threading.Thread(target=time.sleep, "
    "args=(99,), daemon=True).start()\n except RuntimeError: break\n",
    "asks for a signal": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nwhile True: pass\n",
    "closes all it has": "import os\nos.closerange(0, 99)\n",
    "ends with a strange code": "import os\nos._exit(137)\n",
    "fills what leads back": "import os\nfor n in range(3, 64):\n try:\n  os.set_blocking(n, False)\n"
    "  while True: os.write(n, bytes(9))\n except OSError: pass\n",
    "fills the scratch": "for n in range(2000):\n try: open(f'x{n}', 'wb').write(bytes(1 << 16))\n"
    " except OSError: break\n",
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    limits = ScorerConfig(cpu_seconds_per_test=1.0, cpu_seconds_per_program=2.0, memory_mib=128)
    with Sandbox(limits) as sandbox:
        yield sandbox


@pytest.mark.parametrize("does", DOES.values(), ids=DOES)
@pytest.mark.parametrize("problem", [CHECK, calls(([1], 2))], ids=["check", "calls"])
def test_whatever_a_program_does_is_its_own_verdict(sandbox: Sandbox, problem: Problem, does: str) -> None:
    zygote = sandbox.zygote_pid
    for _ in range(3):
        assert sandbox.score(problem, does + "def f(x): return -5").status in ("wrong", "error", "timeout", "memory")
    assert sandbox.score(problem, RIGHT).passed
    assert sandbox.zygote_pid == zygote


CHECKS_END = {
    "by a signal": "import ctypes\ndef check(candidate):\n assert ctypes.string_at(candidate(0)) == 0",
    "by an exit": "import os\ndef check(candidate):\n os._exit(candidate(0))",
    "of memory": "def check(candidate):\n assert len([0] * candidate(0)) == 3",
    "in one long step": "def check(candidate):\n assert 7 ** 10 ** candidate(0)",
    "at its beginning": "assert f(0) == 3\ndef check(candidate): pass",
    "by closing all": "import os, time\ndef check(candidate):\n os.closerange(3, 90 + candidate(0))\n time.sleep(9)",
}  # fmt: skip


@pytest.mark.parametrize("source", CHECKS_END.values(), ids=CHECKS_END)
def test_a_check_that_ends_on_a_result_is_the_programs_verdict(sandbox: Sandbox, source: str) -> None:
    for code in ("def f(x): return 8", "def f(x): raise ValueError"):
        verdict = sandbox.score(check(source), code)
        assert verdict.status in ("wrong", "error", "timeout", "memory"), verdict


def test_a_check_that_ends_before_it_calls_is_the_problems_fault(sandbox: Sandbox) -> None:
    for source in ("import os\ndef check(candidate): os._exit(3)", "import os\nos.abort()\ndef check(candidate): pass"):
        with pytest.raises(BrokenTests, match="check of problem p"):
            sandbox.score(check(source), RIGHT)


def test_a_scratch_that_is_filled_while_the_check_runs_is_the_programs_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is a folder of the machine, all who wait for a process look at it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    slow = check("import time\ndef check(candidate):\n assert candidate(0)\n time.sleep(1)\n assert candidate(0) == 3")
    code = "def f(x):\n for n in range(1500): open(f'x{n}', 'w').close()\n return 8"
    with Sandbox(ScorerConfig(isolation="none")) as sandbox:
        assert sandbox.score(slow, code).status == "error"


@contextlib.contextmanager
def killer(sandbox: Sandbox, depth: int, last: bool) -> Iterator[None]:
    """Kill the oldest, or the `last`, process of each generation at `depth` below the zygote; at 0 the zygote."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.01):
            if (zygote := sandbox._zygote) is None:
                continue
            pid = zygote.pid
            found = sorted(set(descendants(pid, depth)) - set(descendants(pid, depth - 1))) if depth else [pid]
            for victim in found[-1:] if last else found[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("depth", "last"), [(0, True), (2, True), (3, False), (3, True)])
@pytest.mark.parametrize("kind", ["check", "calls", "stdin"])
def test_what_others_kill_is_no_verdict(kind: str, depth: int, last: bool) -> None:
    """The zygote, a template, a checker, a program: as the kernel kills where the machine has no memory."""
    tests = TestSuite("stdin", json.dumps([{"input": "", "output": "1"}]))
    right = "print(1)" if kind == "stdin" else RIGHT
    problem = {"check": CHECK, "calls": calls(([1], 2)), "stdin": Problem("p", "", "", tests)}[kind]
    with Sandbox(ScorerConfig()) as sandbox:
        if "namespaces" not in sandbox.protection:
            pytest.skip("other generations")
        with killer(sandbox, depth, last):
            found = [sandbox.score(problem, f"import time\ntime.sleep(3)\n{right}").status for _ in range(KILLS)]
        assert found == ["infra"] * KILLS
        assert sandbox.score(problem, right).passed


def test_a_full_disk_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be made here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    problem = Problem("p", "", "", TestSuite("stdin", json.dumps([{"input": "7\n", "output": "7"}])))
    try:
        with Sandbox(ScorerConfig(isolation="none")) as sandbox:
            assert sandbox.score(problem, "print(input())").passed
            (tmp_path / "others").write_bytes(bytes(23 << 20))
            found = [sandbox.score(problem, "print(input())").status for _ in range(KILLS)]
            assert found == ["infra"] * KILLS
            (tmp_path / "others").unlink()
            assert sandbox.score(problem, "print(input())").passed
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


FORGES = "__import__('os')._exit(0)"
RUNS_A_RESULT = [
    "def check(candidate):\n assert eval(candidate(1)) == 1",
    "def check(given):\n r = given(1)\n x = str(r)\n exec('y = ' + x)",
    "def check(candidate):\n assert sum(map(eval, [candidate(1)])) == 1",
    "def check(candidate):\n for r in [candidate(1)]:\n  assert (lambda e: eval(e))(r) == 1",
    "def value(text): return eval(text)\ndef check(candidate):\n assert value(candidate(1)) == 1",
    "def check(candidate):\n kept = []\n kept.append(candidate(1))\n exec(kept[0])",
    "import pickle as p\ndef check(candidate):\n assert p.loads(candidate(1)) == 1",
    "from builtins import eval as e\ndef check(candidate):\n assert e(candidate(1)) == 1",
    "def check(candidate):\n x = ['1']\n candidate(x)\n assert eval(x[0]) == 1",
    "def check(candidate):\n run = eval\n assert run(candidate(1)) == 1",
    "import importlib\ndef check(candidate):\n importlib.import_module(candidate(1))",
    "assert eval(f(1)) == 1\ndef check(candidate): pass",
    # what no reading of names finds
    "def check(candidate):\n run = vars(__builtins__)['ev' + 'al']\n assert run(candidate(1)) == 1",
    "import doctest\ndef check(candidate):\n doctest.script_from_examples(candidate(1))\n"
    " getattr(doctest, 'debug_script')(candidate(1), False, {})",
    "import code\ndef check(candidate):\n code.InteractiveInterpreter().runsource(candidate(1))",
    "def check(candidate):\n assert helper(candidate(1)) == 1",
]


@pytest.mark.parametrize("source", RUNS_A_RESULT)
def test_a_check_that_would_run_a_result_as_code_is_the_problems_fault(sandbox: Sandbox, source: str) -> None:
    problem = check(source, prelude="def helper(text): return eval(text)")
    code = f"def f(x):\n if type(x) is list: x[0] = {FORGES!r}\n return {FORGES!r}"
    with pytest.raises(BrokenTests, match=r"line \d of its check (would|hands)"):
        sandbox.score(problem, code)


@pytest.mark.parametrize(
    "body",
    [
        "for text in ('1 + 1', '7 * 3'):\n  assert abs(candidate(eval(text)) - eval(text)) == 0",
        "import re\n assert re.compile('[0-9]+').fullmatch(str(candidate(4)))",
        "import ast\n assert ast.literal_eval(str(candidate(4))) == 4",
        "from collections import namedtuple\n assert namedtuple('P', 'x y')(candidate(4), 0).x == 4",
        "import dataclasses\n P = dataclasses.make_dataclass('P', ['x'])\n assert P(candidate(4)) == P(4)",
        "import copy, decimal, statistics, unittest\n assert copy.deepcopy([candidate(4)]) == [4]",
        "import numpy as np\n np.testing.assert_allclose([candidate(4)], [4])",
        "exec('expected = 4')\n assert abs(candidate(4)) == 4",
        "from typing import NamedTuple\n class P(NamedTuple):\n  x: 'int'\n assert P(candidate(4)).x == 4",
    ],
)
def test_a_check_may_run_code_of_its_own(sandbox: Sandbox, body: str) -> None:
    problem = check(f"def check(candidate):\n {body}")
    verdict = sandbox.score(problem, "def f(x): return x")
    assert verdict.passed, verdict
    assert sandbox.score(problem, "def f(x): return 'x'").status == "wrong"


def test_a_checker_of_outputs_runs_none_as_code(sandbox: Sandbox) -> None:
    source = "import sys\nprint(int(eval(open(sys.argv[3]).read()) == 3))"
    tests = TestSuite("stdin", json.dumps([{"input": "", "output": "3"}]), checker=source)
    with pytest.raises(BrokenTests, match="does not take the expected output"):
        sandbox.score(Problem("p", "", "", tests), "print('print(1) or exit()')")


@dataclass(frozen=True)
class Held:
    processes: int
    descriptors: int
    memory_mib: float
    files: int


def held(folder: Path) -> Held:
    """By this process and those below it."""
    processes = [Path("/proc", str(pid)) for pid in (os.getpid(), *descendants(os.getpid()))]
    pages = sum(int((process / "statm").read_text().split()[1]) for process in processes)
    descriptors = sum(len(os.listdir(process / "fd")) for process in processes)
    files = sum(1 for _ in folder.rglob("*"))
    return Held(len(processes), descriptors, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, files)


@pytest.mark.slow
def test_nothing_grows_over_many_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them hostile, all with evidence: `RAYPOLY_SOAK` programs, or 3000."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tests = TestSuite("stdin", json.dumps([{"input": "1\n", "output": "2"}]))
    problems = [(CHECK, RIGHT), (calls(([1], 2), ([2], 3)), RIGHT), (Problem("p", "", "", tests), "print(2)")]
    endings = {"check": "\ndef f(x): return -5", "calls": "\ndef f(x): return -5", "stdin": "\nimport os\nos._exit(3)"}

    def programs(count: int) -> Iterator[tuple[Problem, str]]:
        for n, does in zip(range(count), itertools.cycle(DOES.values())):
            problem, right = problems[n // 2 % 3]
            yield problem, f"{does + endings[problem.tests.kind] if n % 2 else right}  # {count} {n}"

    limits = ScorerConfig(workers=2, cpu_seconds_per_test=0.3, cpu_seconds_per_program=1.0, memory_mib=128)
    with LocalPool(limits, StrategyEvidence()) as pool:
        found = [verdict.status for verdict in pool.score(programs(MANY // 10))]
        before = held(tmp_path)
        found += [verdict.status for verdict in pool.score(programs(MANY))]
        after = held(tmp_path)
    assert set(found[::2]) == {"passed"}
    assert set(found[1::2]) <= {"wrong", "error", "timeout", "memory"}
    assert (after.processes, after.files) == (before.processes, before.files)
    assert after.descriptors <= before.descriptors
    assert after.memory_mib < before.memory_mib + 16, (before, after)
