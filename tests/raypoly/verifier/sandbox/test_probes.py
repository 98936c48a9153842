import os
from pathlib import Path

from raypoly.core.config import ScorerConfig
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.channel import Clock
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.zygote_client import Zygote
from tests.support.small_problems import calls


def breaches(isolation: str, secret: Path) -> list[str]:
    secret.write_text("secret")
    secret.chmod(0o666)
    zygote = Zygote(ScorerConfig(isolation=isolation))
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
