"""An error that nobody expected is told by its cause and the user's own line."""

import importlib.util
import re
import sysconfig
from pathlib import Path

import pytest

from raypoly.run import crash

REWARD = """
def reward(problem, rollout, verdict):
    return verdict["passed"] + None
"""


@pytest.fixture
def error(tmp_path: Path) -> BaseException:
    """What a user's reward raises, wrapped as a group of tasks does it."""
    file = tmp_path / "mine.py"
    file.write_text(REWARD)
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.reward(None, None, {"passed": 1})
    except TypeError as inner:
        try:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [inner])
        except ExceptionGroup as outer:
            return outer
    raise AssertionError("it must raise")


def test_the_cause_comes_first_with_file_and_line(error: BaseException, tmp_path: Path) -> None:
    told = crash.describe_error(error)
    assert told.startswith("TypeError: unsupported operand")
    assert told.endswith(f"({tmp_path / 'mine.py'}, line 3, in reward)")
    assert "TaskGroup" not in told


def test_the_traceback_is_kept_in_a_run_that_exists(
    error: BaseException, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    monkeypatch.setattr(crash.Crash, "run_dir", run)
    crash.Crash.hook(type(error), error, error.__traceback__)
    (kept,) = run.glob("raypoly-error-*.txt")
    assert "Traceback" in kept.read_text()
    assert str(kept) in capsys.readouterr().err


def test_what_was_taken_out_of_its_group_is_told_as_itself(error: BaseException) -> None:
    assert isinstance(error, ExceptionGroup)
    with pytest.raises(TypeError) as taken:
        raise error.exceptions[0] from error
    assert crash.describe_error(taken.value).startswith("TypeError: unsupported operand")


def test_the_script_that_starts_the_command_is_not_blamed_for_it() -> None:
    text = "from raypoly.core.text import visible\nvisible(None)"
    script = compile(text, f"{sysconfig.get_path('scripts')}/raypoly", "exec")
    with pytest.raises(AttributeError) as raised:
        exec(script, {})
    told = crash.describe_error(raised.value.with_traceback(raised.tb.tb_next))  # without this test's own line
    assert re.search(r"\(.*/raypoly/core/text\.py, line \d+, in visible\)$", told)
