import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from raypoly.cli import main
from raypoly.core.config import ScorerConfig
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox
from tests.support.chromium import Chromium
from tests.support.program_files import Command


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(cpu_seconds_per_test=1.0, memory_mib=128), StrategyEvidence()) as sandbox:
        yield sandbox


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`raypoly` in the test's folder and in this process, which has imported what another would begin with."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # the command has one of its own
    monkeypatch.chdir(tmp_path)

    def ended(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main(list(map(str, arguments)))
        said = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, int(str(left.value.code or 0)), said.out, said.err)

    return ended


@pytest.fixture(scope="module")
def opened() -> Iterator[Chromium]:
    """One browser for the tests of a file."""
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def browser(opened: Chromium) -> Chromium:
    """The same, for files without a page that all of their tests begin with."""
    return opened


# on the base alone (`make test-python`) their imports fail
_NEED = {"strategies/judge/test_openai*.py": "openai", "strategies/judge/openai/*": "openai"}
_NEED |= {"strategies/judge/test_program_transforms.py": "scipy", "verifier/test_rewards.py": "pyarrow"}
collect_ignore_glob = [files for files, package in _NEED.items() if find_spec(package) is None]
