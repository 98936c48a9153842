"""What an experiment costs (`--dry-run`) and can show (`--power`), before it starts and under its table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from raypoly.analysis.experiments.arm_comparison import compare_arms, measure_differences
from raypoly.analysis.experiments.experiment_config import load_experiment
from raypoly.analysis.experiments.experiment_forecast import (
    forecast_lines,
    planned_power,
    planned_problems,
    planned_size,
    power_lines,
    power_sentence,
)
from raypoly.analysis.experiments.planned_runs import plan_runs
from raypoly.analysis.experiments.run_queue import folder_of
from raypoly.analysis.experiments.run_result import STRATEGIES, ResultsFile, RunResult
from raypoly.analysis.statistics.power import DifferenceSpread, ExperimentSize, smallest_difference
from raypoly.core.errors import UsageError
from raypoly.planning.device_memory import engine_room
from raypoly.planning.devices import BOARDS
from raypoly.planning.model_shape import PUBLISHED, shape_of
from tests.raypoly.analysis.experiments.made_experiments import (
    SAMPLES,
    by_problem,
    counts,
    drawn,
    experiment,
    made_result,
    numbers,
    own_problems,
)
from tests.support.verl_files import gsm8k_row, write_parquet

ROOT = Path(__file__).resolve().parents[4]
STUDY = str(ROOT / "configs" / "experiments" / "leetcode_h200.yaml")
NIGHT = str(ROOT / "configs" / "experiments" / "code_night.yaml")
TWO = "arms: {grpo: {objective.name: grpo}, poly_epo: {objective.name: poly_epo}}\n"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The config file is named as from the repository; runs would go aside."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path))


def forecast(config: str, gpu: str | None = None, pilot: Path | None = None) -> list[str]:
    planned = load_experiment(config)
    return list(forecast_lines(plan_runs(planned, folder_of(None, planned.name), []), gpu, pilot))


def test_the_study_s_cost_and_power_are_known_before_its_data_are_there(tmp_path: Path) -> None:
    text = "\n".join(forecast(STUDY, "h200"))
    assert "problems.path='prepared/leetcode_h200' holds no preparation that is done" in text
    rows = {words[0]: words for words in map(str.split, text.splitlines()) if words}
    assert rows["grpo"][1:4] == ["1", "250", "unknown"]
    one, both = (float(rows[name][4].strip("$")) for name in ("grpo", "in"))
    assert both == pytest.approx(2 * one, abs=0.11)
    assert "Hours come from a pilot" in text
    assert "100 problems and 1 seed, 256 samples a problem" in text
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_the_study_is_planned_for_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    named = forecast(STUDY, "h200")
    assert forecast(STUDY) == [
        "Note: no GPU is here, and the config needs one: this is planned for an NVIDIA H200; --gpu names another.",
        *named,
    ]


def test_the_night_ends_within_ten_hours_by_the_page_s_arithmetic() -> None:
    """Every prompt and response at its limit. Measured (docs/results/h200.md): 41,260 tokens learned from in 3.63 s by
    Qwen3-4B, uncompiled, and seconds of starts. By the data sheet: .6 of 4.8 TB/s, 4 ms a decoding step beside it."""
    runs = plan_runs(load_experiment(NIGHT), ROOT / "nowhere", [])
    config = runs[0].config
    train, generator, shape = config.train, config.generator, shape_of(str(config.model.path))
    assert shape is not None
    room = engine_room(config, shape, BOARDS["h200"])
    assert room is not None
    rollouts, length = train.prompts_per_step * train.rollouts, generator.max_tokens

    def sampling(sequences: float) -> float:
        cached = sequences * (generator.max_prompt_tokens + length / 2) * shape.cache_bytes(2)
        return length * ((2 * shape.parameters + cached) / (0.6 * 4.8e12) + 0.004)

    speed = 41_260 / 3.63 * PUBLISHED["Qwen/Qwen3-4B"].parameters / shape.parameters
    learning = (rollouts * length + train.prompts_per_step * generator.max_prompt_tokens) / speed
    at_once = min(generator.max_sequences, room.tokens / room.longest)
    evaluation = config.problems.test * config.evaluate.samples / at_once * sampling(at_once)
    seconds = train.steps * (sampling(rollouts) + learning + 2) + 2 * evaluation + 360
    hours = len(runs) * seconds / 3600
    assert hours < 10
    for page in (Path(NIGHT), ROOT / "docs" / "reproduce.md"):
        assert f"at most {hours:.1f} GPU-hours" in page.read_text()
    assert {(run.steps, run.config.evaluate.samples, run.config.judge.name) for run in runs} == {
        (162, 64, "structural")
    }
    assert forecast(NIGHT, "h200")[1].count("without cost") == 3


def test_what_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "aside" / "mine.yaml"
    file.parent.mkdir()
    experiment(file.parent)
    text = "\n".join(forecast(str(file)))
    assert "unknown" in text
    assert "without cost" in text
    with pytest.raises(UsageError, match="h2000"):
        forecast(str(file), "h2000")


def test_a_pilot_says_how_differences_spread_here_too(tmp_path: Path) -> None:
    pilot = ROOT / "docs" / "results" / "collapse.json"
    said = forecast(STUDY, "h200", pilot)
    assert "strategies in 8" in "\n".join(said)
    assert "unknown" not in next(line for line in said if "hours a run" in line), "by the pilot's seconds"
    assert "Assumed: " not in "\n".join(said)
    with pytest.raises(UsageError, match=r"nowhere\.json"):
        forecast(STUDY, "h200", tmp_path / "nowhere.json")


def test_without_test_problems_there_is_no_power_and_no_traceback(tmp_path: Path) -> None:
    rows = write_parquet(tmp_path / "rows.parquet", [gsm8k_row(number) for number in range(16)])
    untested = ["problems.source=verl", f"problems.path={rows}", "problems.test=4", "problems.validation=4"]
    untested += ["problems.chat_template=plain", "model.path=Qwen/Qwen3-4B-Base"]
    for given in (untested, ["problems.test=0"]):
        runs = plan_runs(experiment(tmp_path, TWO), tmp_path / "out", given)
        counts, notes = planned_problems(runs[0].config)
        assert (counts["test"], notes) == (0, [])
        assert given != untested or counts == {"train": 0, "validation": 0, "test": 0}
        assert planned_power(runs).startswith("These runs have no test problems (problems.test)")
        with pytest.raises(UsageError, match="no test problems"):
            list(power_lines(runs, None))
    assert planned_size(plan_runs(experiment(tmp_path, TWO), tmp_path / "out", [])).problems == 64


def power_of(folder: Path, text: str, pilot: Sequence[RunResult] | None = None) -> list[str]:
    """What is said of the experiment in `text`, by a pilot of these results."""
    file = None if pilot is None else write(folder / "pilot.json", pilot)
    experiment(folder, text)
    runs = plan_runs(load_experiment(folder / "mine.yaml"), folder / "out", [])
    return "\n".join(power_lines(runs, file)).splitlines()


def write(file: Path, results: Sequence[RunResult]) -> Path:
    runs = [{key: value for key, value in asdict(each).items() if key != "start"} for each in results]
    file.write_text(json.dumps({"config": None, "at_once": 1, "runs": runs}))
    return file


def test_power_is_said_before_an_experiment_and_by_a_pilot(tmp_path: Path) -> None:
    assumed = power_of(tmp_path, f"seeds: [0, 1, 2]\n{TWO}")
    assert assumed[0] == "64 problems and 3 seeds, 128 samples a problem; 95 % intervals, found in 80 % of cases."
    assert "Assumed: differences spread by 0.3 over problems, 0.02 over seeds, 0.07 over both," in assumed
    assert [line.split()[0] for line in assumed[3:6]] == ["0.02", "0.05", "0.1"]
    assert max(map(len, assumed)) <= 88
    arms = (("grpo", 0.3), ("poly_epo", 0.4))
    pilot = [by_problem(arm, seed, drawn(seed, share)) for arm, share in arms for seed in (0, 1)]
    piloted = "\n".join(power_of(tmp_path, f"seeds: [0, 1, 2]\n{TWO}", pilot))
    assert "pass@16" in piloted
    assert "strategies in 8" in piloted
    assert "Assumed" not in piloted
    assert not (tmp_path / "out").exists(), "nothing was started"


def test_a_pilot_without_pairs_or_with_a_run_twice_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--pilot .*pilot.json has no two arms with numbers by problem"):
        power_of(tmp_path, TWO, [made_result("grpo", 0), made_result("poly_epo", 0)])
    twice = [by_problem(arm, 0, drawn(0, 0.3)) for arm in ("grpo", "poly_epo")] * 2
    said = (
        r"^--pilot .*pilot\.json holds the run grpo-s0 of 80 steps 2 times: take the file as the experiment left it\.$"
    )
    with pytest.raises(UsageError, match=said):  # two copies of a seed would say that seeds hardly differ
        power_of(tmp_path, TWO, twice)
    with pytest.raises(UsageError, match=r"^--pilot .*none.json can't be read"):
        ResultsFile.read(tmp_path / "none.json", "--pilot")


def test_a_file_whose_means_are_not_those_of_its_problems_is_refused(tmp_path: Path) -> None:
    made = by_problem("grpo", 0, drawn(0, 0.3))
    halved = replace(made, before={key: None if it is None else it / 2 for key, it in made.before.items()})
    no_number = replace(made_result("grpo", 0), after={"1": math.nan})
    more = replace(made, problems_after=numbers([], 80, problems=counts([65])))
    for run, said in (
        (halved, "it has pass@1 0.1250, and by its numbers by problem it is 0.2500"),
        (no_number, "it has pass@1 nan, which is no number"),
        (more, ""),
    ):
        with pytest.raises(UsageError, match=f"^--also .*results.json: grpo-s0 is not as it was written: {said}"):
            ResultsFile.read(write(tmp_path / "results.json", [run]), "--also")


def test_more_samples_are_said_to_help_where_few_samples_spread_the_differences() -> None:
    """Every problem passes with the chance .5 in both arms, so samples are all that spreads."""
    rng = np.random.default_rng(0)
    arms = [
        by_problem(arm, seed, [int(c) for c in rng.binomial(SAMPLES, 0.5, 300)])
        for arm in ("grpo", "poly_epo")
        for seed in range(4)
    ]
    (compared,) = compare_arms(arms)
    found = {it.measure: it for it in measure_differences(compared) if it.reference == "grpo"}
    each = found["1"]
    assert each.sampling == pytest.approx(2 * 0.25 / SAMPLES, rel=0.05)
    spread = DifferenceSpread.of(each.paired, each.samples, each.sampling)
    assert spread.samples == pytest.approx(math.sqrt(2 * 0.25), rel=0.1)
    assert spread.rest < 0.03
    size = ExperimentSize(300, 4, SAMPLES)
    assert smallest_difference(replace(size, samples=4 * SAMPLES), spread) < 0.8 * smallest_difference(size, spread)
    assert found[STRATEGIES].sampling is None, "how far other samples would move it is not known"


def test_a_pilot_of_one_seed_or_without_spread_is_no_certainty(tmp_path: Path) -> None:
    pilot = [by_problem(arm, 0, [c] * 60) for arm, c in (("grpo", 10), ("poly_epo", 20))]
    said = power_of(tmp_path, f"seeds: [0, 1]\n{TWO}", pilot)
    assert "Assumed: differences spread by 0.02 over seeds" in said[-1]
    assert " 0.000 " not in "\n".join(said)


def test_a_pilot_s_spread_is_the_one_with_which_the_plan_finds_least(tmp_path: Path) -> None:
    """One arm's problems differ, another's seeds: of three seeds with 64 problems the second one is hard to find."""
    first = [by_problem("a", seed, [30] * 60) for seed in range(3)]
    problems_differ = [by_problem("b", seed, [20, 40] * 30) for seed in range(3)]
    seeds_differ = [by_problem("c", seed, [22 + 8 * seed] * 60) for seed in range(3)]
    said = [
        next(line for line in power_of(tmp_path, f"seeds: [0, 1, 2]\n{TWO}", runs) if line.startswith("pass@1 "))
        for runs in ([*first, *seeds_differ], [*first, *problems_differ, *seeds_differ])
    ]
    assert said[0] == said[1]


def test_what_samples_add_is_a_dash_where_it_is_not_known(tmp_path: Path) -> None:
    arms = (("grpo", 10), ("poly_epo", 20))
    pilot = [by_problem(arm, seed, [c] * 60) for arm, c in arms for seed in (0, 1)]
    lines = power_of(tmp_path, f"seeds: [0, 1]\n{TWO}", pilot)
    place = next(i for i, line in enumerate(lines) if line.startswith("strategies in 8"))
    assert [line.split()[-1] for line in lines[place + 1 : place + 4]] == ["-"] * 3
    assert "What few samples add is not known of strategies and of attempts drawn jointly." in lines
    assert "is not known" not in "\n".join(power_of(tmp_path, TWO))


def test_power_knows_seeds_with_problems_of_their_own_and_seeds_in_common(tmp_path: Path) -> None:
    said = power_of(tmp_path, f"seeds: [0, 1, 2]\nseed_keys: [train.seed, problems.seed]\n{TWO}")
    assert said[0].startswith("3 seeds with 64 problems of their own each, 128 samples")
    with pytest.raises(UsageError, match=r"^No difference can be measured: a and b have no seed in common\.$"):
        power_of(tmp_path, "seeds: [0, 1]\narms: {a: {}, b: {objective.name: pkpo, seeds: [2]}}")


def test_the_sentence_of_a_table_is_of_its_widest_arm() -> None:
    first = [by_problem("grpo", seed, drawn(seed, 0.3)) for seed in range(3)]
    near = [by_problem("near", seed, [c // 2 for c in drawn(seed, 0.3)]) for seed in range(3)]
    far = [by_problem("far", seed, drawn(seed + 50, 0.5)) for seed in range(3)]
    (two,), (three,) = compare_arms([*first, *near]), compare_arms([*first, *near, *far])
    assert power_sentence(measure_differences(two)) != power_sentence(measure_differences(three))


def test_the_sentence_of_a_table_is_of_the_seeds_spread_where_each_has_problems_of_its_own() -> None:
    """Seeds that differ by tenths find no difference of a hundredth, however many problems they have."""

    def own(arm: str, seed: int, shift: int) -> RunResult:
        return own_problems(arm, seed, [20 + shift + i % 3 for i in range(60)], 60 * seed)

    apart = [own("b", seed, shift) for seed, shift in enumerate((20, 4, 12))]
    (compared,) = compare_arms([*(own("a", seed, 0) for seed in range(3)), *apart])
    measured = [each for each in measure_differences(compared) if (each.reference, each.measure) == ("a", "1")]
    said = power_sentence(measured)
    assert "3 seeds with 60 problems of their own each" in said
    least = float(said.split("finds one of ")[1].split()[0])
    reach = measured[0].tested.interval.high - measured[0].paired.mean
    assert reach < least < 2 * reach, "what is found in most cases is more than half an interval"
