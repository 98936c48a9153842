"""Parts of a notebook as modules: same code, same name; other code, another one."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="parts are pickled by Ray's cloudpickle (raypoly[train])")

from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin
from raypoly.integrations.by_value import fingerprint, module_of
from raypoly.verifier.rewards import passed

CELL = """
from pydantic import BaseModel
SHARE, WORDS = 0.5, {{"for", "while", "if", "in", "or"}}
def has_loop(text): return any(word in text for word in WORDS)
class Base:
    class Config(BaseModel):
        weight: float = {weight}
    def value(self): return self.Config().weight
class Part(Base):
    def __call__(self, text): return SHARE * has_loop(text) + {constant}   # {comment}
def reward(problem, rollout, verdict): return Part()(rollout.text) + super_share(1)
super_share = lambda n: n * {inner}
"""


def of_cell(**changes: Any) -> dict[str, Any]:
    values = {"weight": 1.0, "constant": 1, "comment": "", "inner": 2} | changes
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("\n" * len(str(changes)) + CELL.format(**values), f"/tmp/cell{len(values)}", "exec"), names)
    return names


@pytest.mark.parametrize("name", ["Part", "reward"])
def test_the_same_code_is_the_same_part_and_other_code_is_not(name: str) -> None:
    first = fingerprint(of_cell()[name])
    assert fingerprint(of_cell(comment="moved and commented upon")[name]) == first
    changes: list[dict[str, Any]] = [{"weight": 2.0}, {"constant": 3}]
    others = {fingerprint(of_cell(**change)[name]) for change in changes}
    assert len(others | {first}) == 3
    assert (fingerprint(of_cell(inner=5)[name]) != first) == (name == "reward")


def test_each_process_finds_the_same_part(tmp_path: Path) -> None:
    """Whose sets have another order in each."""
    script = f"{of_cell.__name__} = None\n{CELL.format(weight=1.0, constant=1, comment='', inner=2)}"
    script += "\nfrom raypoly.integrations.by_value import fingerprint\nprint(fingerprint(reward))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_part_is_found_by_its_name_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path))
    names = of_cell()
    named = module_of(names["reward"], "reward")
    assert module_of(of_cell()["reward"], "reward") == named
    assert len(list((tmp_path / "made").iterdir())) == 1
    importlib.invalidate_caches()
    reward: Callable[..., float] = load_plugin(named, {}, "reward.name")
    kind = type("Rollout", (), {"text": "for"})
    assert reward(None, kind, None) == names["reward"](None, kind, None) == 3.5


def test_two_names_of_the_same_code_are_two_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def first(*given): return 1.0\ndef second(*given): return 1.0", names)
    named = [module_of(names[name], "reward") for name in ("first", "second")]
    importlib.invalidate_caches()
    assert [load_plugin(name, {}, "reward.name")() for name in named] == [1.0, 1.0]


def test_what_can_be_imported_goes_by_its_own_name() -> None:
    assert module_of(passed, "reward") == "raypoly.verifier.rewards.reward_function:passed"


def test_what_cannot_be_sent_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path))
    with (tmp_path / "open").open("w") as file, pytest.raises(UsageError, match=r"^reward uses something that can't"):
        module_of(lambda *given: file.write(""), "reward")
