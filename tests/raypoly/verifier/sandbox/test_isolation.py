"""The sandbox's walls, tried from inside and from outside."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.channel import Clock
from raypoly.verifier.sandbox.child import plain_data, system
from raypoly.verifier.sandbox.zygote_client import Zygote
from tests.support.program_files import descendants
from tests.support.small_problems import calls


def test_the_layers_in_force_are_named(sandbox: Sandbox) -> None:
    assert "seccomp" in sandbox.protection
    assert "landlock" in sandbox.protection or "namespaces" in sandbox.protection


def test_going_without_walls_has_to_be_asked_for_and_is_said() -> None:
    with Sandbox(ScorerConfig(isolation="none"), StrategyEvidence()) as sandbox:
        assert sandbox.protection.startswith("none")
        assert sandbox.score(calls(([2], 4)), "def f(n): return n * 2").passed


def test_programs_run_in_the_interpreter_that_is_named(tmp_path: Path) -> None:
    home = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    with Sandbox(ScorerConfig(python=str(home / "bin" / "python"))) as sandbox:
        assert sandbox.score(calls(([2], 4)), "def f(n): return n * 2").passed
        assert "numpy" in sandbox.score(calls(([2], 4)), "import numpy\ndef f(n): return n * 2").detail


@pytest.mark.parametrize(
    ("says", "told"), [("[[3, 9], 0, []]", "is Python 3.9, and programs need"), ("", "is no Python that starts")]
)
def test_an_interpreter_that_will_not_do_is_refused_first(says: str, told: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="plans need extras")
    from raypoly.planning.preflight import check_config

    (other := tmp_path / "python").write_text(f"#!/bin/sh\necho '{says}'\n")
    other.chmod(0o755)
    with pytest.raises(UsageError, match=rf"^scorer\.python={other} {told}"):
        check_config(load(None, [f"scorer.python={other}"]), tmp_path)


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
    before, open_before = set(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))
    sandbox = Sandbox(ScorerConfig(), StrategyEvidence())
    code = "import os\nfor i in range(9): os.makedirs(f'd{i}/' * 20); open(f'x{i}', 'w').write('x')\ndef f(n): return n"
    for _ in range(5):
        assert sandbox.score(calls(([2], 2)), code).passed
    sandbox.close()
    # others may end meanwhile, as those of an earlier test that nothing refers to any more
    assert set(descendants(os.getpid())) <= before
    assert len(os.listdir("/proc/self/fd")) <= open_before
    assert not list(tmp_path.iterdir())


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
    with Sandbox(ScorerConfig(isolation="none")) as sandbox:
        verdict = sandbox.score(calls(([], 0)), code)
        assert verdict.status == "error", verdict
        assert verdict.cpu_seconds < 3
        assert sandbox.score(calls(([], 1)), "import os\ndef f(): return 1 + len(os.listdir('.'))").passed


def test_a_program_that_somebody_else_kills_is_run_again(sandbox: Sandbox) -> None:
    code = "import time\ndef f(n):\n while time.process_time() < 0.5: pass\n return n * 2"
    sandbox.score(calls(([2], 4)), "def f(n): return n * 2")
    known = set(descendants(sandbox.zygote_pid))

    def kill_the_program() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            for pid in set(descendants(sandbox.zygote_pid)) - known:
                os.kill(pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=kill_the_program)
    thread.start()
    verdict = sandbox.score(calls(([2], 4)), code)
    thread.join()
    assert verdict.passed, verdict


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
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.planning.preflight import check_config
from raypoly.verifier.sandbox import Sandbox
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox.child import system
from tests.support.small_problems import calls
system.no_new_privileges()
number = {"x86_64": 272, "aarch64": 97}[system.MACHINE]  # unshare
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
system.load_filter(b"".join(pack("=HBBI", *rule) for rule in rules))
code = "import concurrent.futures, pickle\\ndef f(n):\\n open('x', 'w').write('x')\\n return n"
steal = "import os\\ndef f(n): return len(os.listdir('/'))"
with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
    print(sandbox.protection)
    print(sandbox.score(calls(([2], 2)), code).status, sandbox.score(calls(([2], 2)), steal).status)
"""


def test_without_namespaces_programs_run_behind_the_walls_that_are_left() -> None:
    """As in a container without the right to make any; whoever runs this test."""
    pytest.importorskip("pyarrow", reason="plans need extras")
    if not system.landlock_version():
        pytest.skip("this kernel has no Landlock, and namespaces are taken away here")
    run = [sys.executable, "-c", WITHOUT_NAMESPACES]
    result = subprocess.run(run, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    protection, verdicts = result.stdout.strip().split("\n")
    assert "missing: namespaces" in protection
    assert "landlock" in protection
    assert verdicts == "passed error"


def breaches(isolation: str, secret: Path) -> list[str]:
    secret.write_text("secret")
    secret.chmod(0o666)
    zygote = Zygote(ScorerConfig(isolation=isolation), StrategyEvidence())
    found: set[str] = set()
    for forker in (zygote, zygote.template("")):
        child = forker.fork(10, Clock(10, 10))
        child.send(plain_data.pack(("probe", os.getpid(), str(secret))))
        found |= set(plain_data.decode(child.receive()))
        forker.reap(child)
    zygote.close()
    return sorted(found)


def test_no_probe_gets_through_the_walls(tmp_path: Path) -> None:
    assert breaches("required", tmp_path / "secret") == []


def test_without_walls_the_probes_get_through_and_say_what_they_could(tmp_path: Path) -> None:
    found = breaches("none", tmp_path / "secret")
    assert {"read a file outside", "open a socket", "start a program", "fork"} <= set(found)


PROBING = """
import os, socket
through = []
for name, probe in {
    "socket": socket.socket, "secret": lambda: open(%r), "exec": lambda: os.execv("/nowhere", ["x"]),
    "signal": lambda: os.kill(os.getppid(), 0), "mount": lambda: os.listdir("/proc/1"),
    "root": lambda: os.setuid(0 if os.getuid() else 1), "write": lambda: open(%r, "w"),
}.items():
    try:
        probe()
    except FileNotFoundError as error:
        if name == "exec":
            through.append(name)
    except OSError:
        pass
    else:
        through.append(name)
"""


def test_a_prelude_gets_through_no_more_than_a_program(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o666)
    problem = calls(([], []), prelude=PROBING % (str(secret), str(tmp_path / "breach")))
    with Sandbox(ScorerConfig()) as sandbox:
        verdict = sandbox.score(problem, "def f(): return through")
    assert verdict.passed, verdict.detail
    assert not (tmp_path / "breach").exists()
