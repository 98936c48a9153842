"""The sandbox's walls, tried from inside and from outside, with the attacks of a battery where it is at hand."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.child import system
from tests.support.small_problems import SHARED, calls

BATTERY = SHARED / "sandbox" / "battery.jsonl.gz"
CANARY = Path("/var/tmp/scorer_canary")
SLOW_ONES = {"P11-heavy-cpu"}


def battery() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(BATTERY, "rt")] if BATTERY.exists() else []


def row_problem(row: dict[str, Any]) -> Problem:
    problem = row["problem"]
    tests = TestSuite("check", problem["check"])
    return Problem(row["id"], "", problem["entry_point"], tests, prelude=problem["prelude"])


@pytest.fixture(scope="module")
def canary() -> Iterator[None]:
    """What the battery's attacks look for: a key, a secret file, listeners."""
    os.environ["OPENAI_API_KEY"] = "sk-canary-0001"
    CANARY.mkdir(exist_ok=True)
    CANARY.chmod(0o777)
    (CANARY / "secret.txt").write_text("CANARY-7f3a")
    (CANARY / "sock").unlink(missing_ok=True)
    with ExitStack() as stack:
        for family, address in ((socket.AF_INET, ("127.0.0.1", 47811)), (socket.AF_UNIX, str(CANARY / "sock")),
                                (socket.AF_UNIX, "\0battery-canary")):  # fmt: skip
            listener = stack.enter_context(socket.socket(family))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        yield
    del os.environ["OPENAI_API_KEY"]
    (CANARY / "sock").unlink()
    (CANARY / "secret.txt").unlink()


@pytest.mark.skipif(not BATTERY.exists(), reason=f"{BATTERY} is not here")
def test_honest_programs_pass_and_no_attack_does(canary: None) -> None:
    known = set(CANARY.iterdir())
    with Sandbox(ScorerConfig(cpu_seconds_per_test=2.0), evidence=False) as sandbox:
        rows = [row for row in battery() if row["id"] not in SLOW_ONES]
        verdicts = {row["id"]: sandbox.score(row_problem(row), row["code"]) for row in rows}
    wrong = {row["id"]: verdicts[row["id"]] for row in rows if verdicts[row["id"]].passed != (row["must"] == "pass")}
    assert not wrong
    assert "infra" not in {verdict.status for verdict in verdicts.values()}
    assert set(CANARY.iterdir()) == known
    assert not processes("bat-leftover")


def processes(name: str) -> list[str]:
    """Ids of the processes of that name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            found += [path.parent.name] if path.read_text().strip() == name else []
        except OSError:
            continue  # it ended meanwhile
    return found


def test_the_layers_in_force_are_named(sandbox: Sandbox) -> None:
    assert "seccomp" in sandbox.protection
    assert "landlock" in sandbox.protection or "namespaces" in sandbox.protection


def test_going_without_walls_has_to_be_asked_for_and_is_said() -> None:
    with Sandbox(ScorerConfig(isolation="none")) as sandbox:
        assert sandbox.protection.startswith("none")
        assert sandbox.score(calls(([2], 4)), "def f(n): return n * 2").passed


def test_a_killed_zygote_is_replaced_and_no_verdict_changes(sandbox: Sandbox) -> None:
    problem = calls(([2], 4))
    os.kill(sandbox.zygote_pid, signal.SIGKILL)
    assert sandbox.score(problem, "def f(n): return n * 2").passed
    thread = threading.Timer(0.3, lambda pid: os.kill(pid, signal.SIGKILL), (sandbox.zygote_pid,))
    thread.start()
    code = "def f(n):\n for i in range(10**7): pass\n return n * 2"
    assert sandbox.score(problem, code).status in ("passed", "timeout")
    thread.join()


def test_nothing_is_left_when_a_sandbox_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, open_before = children(), len(os.listdir("/proc/self/fd"))
    sandbox = Sandbox(ScorerConfig())
    code = "import os\nfor i in range(9): os.makedirs(f'd{i}/' * 20); open(f'x{i}', 'w').write('x')\ndef f(n): return n"
    for _ in range(5):
        assert sandbox.score(calls(([2], 2)), code).passed
    sandbox.close()
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert not list(tmp_path.iterdir())


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@pytest.mark.parametrize("isolation", ["required", "none"])
def test_a_killed_owner_leaves_no_zygote_and_no_folder(isolation: str, tmp_path: Path) -> None:
    code = (
        "import os, signal; from raypoly.core.config import ScorerConfig\n"
        "from raypoly.verifier.sandbox import Sandbox\n"
        f"s = Sandbox(ScorerConfig(isolation='{isolation}')); print(s.zygote_pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    zygote = Path("/proc") / result.stdout.strip()
    deadline = time.monotonic() + 300
    while zygote.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert result.stdout.strip()
    assert not zygote.exists()
    assert not list(tmp_path.iterdir())


def test_a_program_starts_with_an_empty_scratch_and_empty_environment(sandbox: Sandbox) -> None:
    code = "import os\ndef f():\n open('left', 'w').write('x')\n return [os.listdir('.'), sorted(os.environ)]"
    problem = calls(([], [["left"], []]))
    for _ in range(2):
        verdict = sandbox.score(problem, code)
        assert "['left']" in verdict.detail
        assert "KEY" not in verdict.detail
        assert "PATH" not in verdict.detail


def test_the_scratch_is_bounded(sandbox: Sandbox) -> None:
    code = "def f():\n for i in range(100): open(f'x{i}', 'wb').write(bytes(2 ** 20))\n return 0"
    assert sandbox.score(calls(([], 0)), code).status == "error"


FILLS = {
    "large files": "def f():\n for i in range(10**6): open(f'x{i}', 'wb').write(bytes(2 ** 23))\n return 0",
    "many files": "def f():\n for i in range(10**6): open(f'x{i}', 'w').close()\n return 0",
    "deep folders": "import os\ndef f():\n while True:\n  os.mkdir('d')\n  os.chdir('d')",
}


@pytest.mark.parametrize("code", FILLS.values(), ids=FILLS)
def test_the_scratch_is_bounded_where_it_is_a_folder_of_the_machine(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Sandbox(ScorerConfig(isolation="none"), evidence=False) as sandbox:
        verdict = sandbox.score(calls(([], 0)), code)
        assert verdict.status == "error", verdict
        assert verdict.cpu_seconds < 3
        assert sandbox.score(calls(([], 1)), "import os\ndef f(): return 1 + len(os.listdir('.'))").passed


def test_verdicts_do_not_change_under_load() -> None:
    """Four sandboxes at once: a program that needs most of its CPU time passes, a loop does not."""
    problem = calls(([2], 2))
    honest = "import time\ndef f(n):\n while time.process_time() < 0.5: pass\n return n"
    found: list[str] = []

    def score() -> None:
        with Sandbox(ScorerConfig(cpu_seconds_per_test=1.0), evidence=False) as sandbox:
            found.append(sandbox.score(problem, honest).status)
            found.append(sandbox.score(problem, "def f(n):\n while True: pass").status)

    threads = [threading.Thread(target=score) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["passed"] * 4 + ["timeout"] * 4


def test_a_program_that_somebody_else_kills_is_run_again(sandbox: Sandbox) -> None:
    code = "import time\ndef f(n):\n while time.process_time() < 0.5: pass\n return n * 2"
    sandbox.score(calls(([2], 4)), "def f(n): return n * 2")
    known = descendants(sandbox.zygote_pid)

    def kill_the_program() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            for pid in descendants(sandbox.zygote_pid) - known:
                os.kill(pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=kill_the_program)
    thread.start()
    verdict = sandbox.score(calls(([2], 4)), code)
    thread.join()
    assert verdict.passed, verdict


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found |= {int(child)} | descendants(int(child))
    return found


def test_what_a_killed_owner_left_is_removed_by_the_next_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, fresh = tmp_path / "raypoly-sandbox-left", tmp_path / "raypoly-sandbox-fresh"
    for folder in (left, fresh):
        (folder / "root").mkdir(parents=True)
    with Sandbox(ScorerConfig(isolation="none")):  # its scratch is a folder of the machine for as long as it lives
        (in_use,) = set(tmp_path.iterdir()) - {left, fresh}
        for folder in (left, in_use):
            os.utime(folder, (0, 0))
        with Sandbox(ScorerConfig()):
            assert set(tmp_path.iterdir()) == {fresh, in_use}


WITHOUT_NAMESPACES = """
from struct import pack
from raypoly.core.config import ScorerConfig
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.child import system
from raypoly.verifier.sandbox.child import system
from tests.support.small_problems import calls
system.no_new_privileges()
number = {"x86_64": 272, "aarch64": 97}[system.MACHINE]  # unshare
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
system.load_filter(b"".join(pack("=HBBI", *rule) for rule in rules))
code = "import concurrent.futures, pickle\\ndef f(n):\\n open('x', 'w').write('x')\\n return n"
steal = "import os\\ndef f(n): return len(os.listdir('/'))"
with Sandbox(ScorerConfig()) as sandbox:
    print(sandbox.protection)
    print(sandbox.score(calls(([2], 2)), code).status, sandbox.score(calls(([2], 2)), steal).status)
"""


def test_without_namespaces_programs_run_behind_the_walls_that_are_left() -> None:
    """As in a container without the right to make any; whoever runs this test."""
    if not system.landlock_version():
        pytest.skip("this kernel has no Landlock, and namespaces are taken away here")
    run = [sys.executable, "-c", WITHOUT_NAMESPACES]
    result = subprocess.run(run, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    protection, verdicts = result.stdout.strip().split("\n")
    assert "missing: namespaces" in protection
    assert "landlock" in protection
    assert verdicts == "passed error"
