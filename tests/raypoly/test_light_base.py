"""What needs no extra works without one; what needs one says so in a sentence; what starts nothing loads little."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from raypoly.core import errors

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = set(errors.OF_EXTRAS.split())
_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
COMMAND = "from raypoly.cli import main\nmain({words!r})"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    return run(_WITHOUT.format(names=EXTRAS) + code)


def test_readme_s_example_prints_what_it_says_on_the_base() -> None:
    blocks = re.findall(r"```python\n(.*?)\n```\n", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "Verifier" in block]
    ended = without_extras(f"{example}\nprint(*labels)\nimport raypoly.analysis.metrics.pass_at_k\n")
    assert ended.stdout == "[1.0, 0.0]\n[-0.33333333  0.66666667 -0.33333333]\n1 2 1\n", ended.stderr


def test_programs_are_scored_on_the_base(tmp_path: Path) -> None:
    problems, programs = tmp_path / "problems.jsonl", tmp_path / "programs.jsonl"
    tests = {"kind": "calls", "cases": [{"args": [2], "expected": 4}]}
    row = {"id": "p", "entry_point": "f", "prompt": "Double.", "tests": tests}
    problems.write_text(json.dumps(row))
    programs.write_text(json.dumps({"id": "a", "problem_id": "p", "code": "def f(n): return n * 2"}))
    words = ["score", "--problems", str(problems), "--programs", str(programs), "--out", "-", "--workers", "1"]
    ended = without_extras(COMMAND.format(words=words))
    assert [json.loads(line)["status"] for line in ended.stdout.splitlines()] == ["passed"], ended.stderr


@pytest.mark.parametrize("words", [["train"], ["report", "x"], ["doctor"]])
def test_a_command_that_needs_an_extra_says_so_in_a_sentence(words: list[str]) -> None:
    ended = without_extras(COMMAND.format(words=words))
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "which is not installed: pip install 'raypoly[train,cpu]', or [train,cuda] for GPUs." in ended.stderr


def test_parquet_names_its_own_extra(tmp_path: Path) -> None:
    file = tmp_path / "problems.parquet"
    file.write_bytes(b"PAR1 and more")
    ended = without_extras(COMMAND.format(words=["score", "--problems", str(file), "--validate"]))
    assert ended.returncode == 2
    assert ended.stderr == "This needs pyarrow, which is not installed: pip install 'raypoly[parquet]'.\n"


def test_a_notebook_is_told_too() -> None:
    ended = without_extras("import raypoly\nraypoly.Run")
    assert ended.stderr.splitlines()[-1].startswith("raypoly.core.errors.MissingPackage: This needs pyarrow")


def test_a_module_that_is_of_no_extra_is_its_owners() -> None:
    assert errors.MissingPackage.of(ModuleNotFoundError("No module named 'mine'", name="mine")) is None


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "objectve.name=grpo"]])
def test_what_starts_nothing_loads_little(words: list[str]) -> None:
    """Half a second of CPU would be gone with any of these, and a quarter of it with the config's models."""
    little = EXTRAS if "train" in words else EXTRAS | {"raypoly.core.config"}
    told = f"print('loaded', *({little!r} & set(sys.modules)), file=sys.stderr)"
    ended = run(f"import atexit, sys\natexit.register(lambda: {told})\n{COMMAND.format(words=words)}")
    assert ended.stderr.splitlines()[-1].split() == ["loaded"]
