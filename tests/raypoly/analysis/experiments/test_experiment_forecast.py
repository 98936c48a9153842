"""`raypoly experiment --dry-run`: what an experiment costs and what it can show, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.analysis.experiments.experiment_command import show_forecast
from raypoly.analysis.experiments.experiment_forecast import planned_power, planned_problems, planned_size, power_lines
from raypoly.analysis.experiments.planned_runs import plan_runs
from raypoly.core.errors import UsageError
from tests.raypoly.analysis.experiments.made_experiments import experiment
from tests.support.verl_files import gsm8k_row, write_parquet

ROOT = Path(__file__).resolve().parents[4]
STUDY = str(ROOT / "configs" / "experiments" / "leetcode_h200.yaml")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The config file is named as from the repository; runs would go aside."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path))


def test_the_study_s_cost_and_power_are_known_before_its_data_are_there(tmp_path: Path) -> None:
    said: list[str] = []
    show_forecast(STUDY, [], "h200", None, say=said.append)
    text = "\n".join(said)
    assert "problems.path='prepared/leetcode_h200' holds no preparation that is done" in text
    assert "250 steps; tested before and after on 100 problems x 256 samples." in text
    rows = {words[0]: words for words in map(str.split, text.splitlines()) if words}
    one, both = (float(rows[name][3 if name == "grpo" else 4].strip("$")) for name in ("grpo", "in"))
    assert both == pytest.approx(2 * one, abs=0.11)
    assert "Hours come from a pilot" in text
    assert "100 problems and 1 seed, 256 samples a problem" in text
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_the_study_is_planned_for_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    here: list[str] = []
    show_forecast(STUDY, [], None, None, say=here.append)
    named: list[str] = []
    show_forecast(STUDY, [], "h200", None, say=named.append)
    assert here == [
        "Note: no GPU is here, and the config needs one: this is planned for an NVIDIA H200; --gpu names another.",
        *named,
    ]


def test_what_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "aside" / "mine.yaml"
    file.parent.mkdir()
    experiment(file.parent)
    show_forecast(str(file), [], None, None, say=said.append)
    text = "\n".join(said)
    assert "12 steps; tested before and after on 64 problems x 128 samples." in text
    assert "unknown" in text
    assert "without cost" in text
    show_forecast(str(file), ["evaluate.every=0"], None, None, say=said.append)
    assert "12 steps; not tested." in "\n".join(said)
    with pytest.raises(UsageError, match="h2000"):
        show_forecast(str(file), [], "h2000", None, say=said.append)


def test_a_pilot_says_how_differences_spread_here_too(tmp_path: Path) -> None:
    said: list[str] = []
    pilot = ROOT / "docs" / "results-collapse.json"
    show_forecast(STUDY, [], "h200", None, pilot, said.append)
    assert "strategies in 8" in "\n".join(said)
    assert "unknown" not in next(line for line in said if "hours a run" in line), "by the pilot's seconds"
    assert "Assumed: " not in "\n".join(said)
    with pytest.raises(UsageError, match=r"nowhere\.json"):
        show_forecast(STUDY, [], "h200", None, tmp_path / "nowhere.json", said.append)


def test_test_problems_without_tests_are_none_to_measure(tmp_path: Path) -> None:
    rows = write_parquet(tmp_path / "rows.parquet", [gsm8k_row(number) for number in range(16)])
    words = ["problems.source=verl", f"problems.path={rows}", "problems.test=4", "problems.validation=4"]
    words += ["problems.chat_template=plain", "model.path=Qwen/Qwen3-4B-Base"]
    arms = "arms: {a: {objective.name: grpo}, b: {objective.name: pkpo}}\n"
    runs = plan_runs(experiment(tmp_path, arms), tmp_path / "out", words)
    assert planned_problems(runs[0].config) == ({"train": 0, "validation": 0, "test": 0}, [])
    assert planned_power(runs).startswith("These runs have no test problems (problems.test)")


def test_without_test_problems_there_is_no_power_and_no_traceback(tmp_path: Path) -> None:
    arms = "arms: {a: {objective.name: grpo}, b: {objective.name: pkpo}}\n"
    runs = plan_runs(experiment(tmp_path, arms), tmp_path / "out", ["problems.test=0"])
    assert planned_power(runs).startswith("These runs have no test problems (problems.test)")
    with pytest.raises(UsageError, match="no test problems"):
        list(power_lines(runs, None))
    assert planned_size(plan_runs(experiment(tmp_path, arms), tmp_path / "out", [])).problems == 64
