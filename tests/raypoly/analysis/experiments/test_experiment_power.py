"""What an experiment can show is said before it starts and under its table, and what is not known as such."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from raypoly.analysis.experiments.arm_comparison import compare_arms
from raypoly.analysis.experiments.experiment_command import show_power
from raypoly.analysis.experiments.experiment_forecast import power_sentence
from raypoly.analysis.experiments.measured_differences import measure_differences
from raypoly.analysis.experiments.other_results import read_results
from raypoly.analysis.experiments.run_result import STRATEGIES, RunResult
from raypoly.analysis.statistics.power import DifferenceSpread, ExperimentSize, smallest_difference
from raypoly.core.errors import UsageError
from tests.raypoly.analysis.experiments.made_experiments import made_result
from tests.raypoly.analysis.experiments.test_measured_differences import SAMPLES, counts, drawn, means, numbers, result


def test_power_is_said_before_an_experiment_and_by_a_pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path / "runs"))
    file = tmp_path / "mine.yaml"
    file.write_text("seeds: [0, 1, 2]\narms: {grpo: {objective.name: grpo}, poly_epo: {objective.name: poly_epo}}\n")
    assumed: list[str] = []
    piloted: list[str] = []
    show_power(str(file), [], None, assumed.append)
    said = "\n".join(assumed)
    assert said.startswith("64 problems and 3 seeds, 128 samples a problem; 95 % intervals, found in 80 % of cases.")
    assert "Assumed: differences spread by 0.3 over problems" in said
    assert max(map(len, said.splitlines())) <= 88
    pilot = tmp_path / "results.json"
    arms = (("grpo", 0.3), ("poly_epo", 0.4))
    write(pilot, [result(arm, seed, drawn(seed, share)) for arm, share in arms for seed in (0, 1)])
    show_power(str(file), [], pilot, piloted.append)
    said = "\n".join(piloted)
    assert "pass@16" in said
    assert "strategies in 8" in said
    assert "Assumed" not in said
    assert not (tmp_path / "runs").exists(), "nothing was started"


def test_a_pilot_without_pairs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file, pilot = tmp_path / "mine.yaml", tmp_path / "pilot.json"
    file.write_text("arms: {grpo: {objective.name: grpo}}\n")
    write(pilot, [made_result("grpo", 0), made_result("poly_epo", 0)])
    with pytest.raises(UsageError, match=r"^--pilot .*pilot.json has no two arms with numbers by problem"):
        show_power(str(file), [], pilot)
    with pytest.raises(UsageError, match=r"^--pilot .*none.json can't be read"):
        show_power(str(file), [], tmp_path / "none.json")


def test_a_file_whose_means_are_not_those_of_its_problems_is_refused(tmp_path: Path) -> None:
    made = result("grpo", 0, drawn(0, 0.3))
    halved = replace(made, before={key: None if it is None else it / 2 for key, it in made.before.items()})
    with pytest.raises(UsageError, match=r"it has pass@1 0.1250, and by its numbers by problem it is 0.2500"):
        write(tmp_path / "results.json", [halved])
    with pytest.raises(UsageError, match=r"grpo-s0 is not as it was written: it has pass@1 nan, which is no number"):
        write(tmp_path / "results.json", [replace(made_result("grpo", 0), after={"1": math.nan})])
    more = replace(made, problems_after=numbers([], 80, problems=counts([65])))
    with pytest.raises(UsageError, match=r"grpo-s0 is not as it was written: "):
        write(tmp_path / "results.json", [more])


def test_more_samples_are_said_to_help_where_few_samples_spread_the_differences() -> None:
    """Every problem passes with the chance .5 in both arms, so samples are all that spreads."""
    rng = np.random.default_rng(0)
    arms = [
        result(arm, seed, [int(c) for c in rng.binomial(SAMPLES, 0.5, 300)])
        for arm in ("grpo", "poly_epo")
        for seed in range(4)
    ]
    (compared,) = compare_arms(arms)
    each = next(it for it in measure_differences(compared) if (it.reference, it.measure) == ("grpo", "1"))
    assert each.sampling == pytest.approx(2 * 0.25 / SAMPLES, rel=0.05)
    spread = DifferenceSpread.of(each.paired, each.samples, each.sampling)
    assert spread.samples == pytest.approx(math.sqrt(2 * 0.25), rel=0.1)
    assert spread.rest < 0.03
    size = ExperimentSize(300, 4, SAMPLES)
    assert smallest_difference(replace(size, samples=4 * SAMPLES), spread) < 0.8 * smallest_difference(size, spread)
    distinct = next(it for it in measure_differences(compared) if it.measure == STRATEGIES)
    assert distinct.sampling is None, "how far other samples would move it is not known"


def test_a_pilot_of_one_seed_or_without_spread_is_no_certainty(tmp_path: Path) -> None:
    file, pilot = tmp_path / "mine.yaml", tmp_path / "pilot.json"
    file.write_text("seeds: [0, 1]\narms: {grpo: {objective.name: grpo}, poly_epo: {objective.name: poly_epo}}\n")
    write(pilot, [result(arm, 0, [c] * 60) for arm, c in (("grpo", 10), ("poly_epo", 20))])
    said: list[str] = []
    show_power(str(file), [], pilot, said.append)
    assert "Assumed: differences spread by 0.02 over seeds" in said[-1]
    assert " 0.000 " not in "\n".join(said)


def test_a_pilot_s_spread_is_the_one_with_which_the_plan_finds_least(tmp_path: Path) -> None:
    """One arm's problems differ, another's seeds: of three seeds with 64 problems the second one is hard to find."""
    file, arms = tmp_path / "mine.yaml", "arms: {grpo: {objective.name: grpo}, poly_epo: {objective.name: poly_epo}}"
    file.write_text(f"seeds: [0, 1, 2]\n{arms}\n")
    first = [result("a", seed, [30] * 60) for seed in range(3)]
    problems_differ = [result("b", seed, [20, 40] * 30) for seed in range(3)]
    seeds_differ = [result("c", seed, [22 + 8 * seed] * 60) for seed in range(3)]
    said = []
    for runs in ([*first, *seeds_differ], [*first, *problems_differ, *seeds_differ]):
        write(tmp_path / "pilot.json", runs)
        lines: list[str] = []
        show_power(str(file), [], tmp_path / "pilot.json", lines.append)
        said.append(next(line for line in "\n".join(lines).splitlines() if line.startswith("pass@1 ")))
    assert said[0] == said[1]


def test_what_samples_add_is_a_dash_where_it_is_not_known(tmp_path: Path) -> None:
    file, pilot = tmp_path / "mine.yaml", tmp_path / "pilot.json"
    file.write_text("seeds: [0, 1]\narms: {grpo: {objective.name: grpo}, poly_epo: {objective.name: poly_epo}}\n")
    write(pilot, [result(arm, seed, [c] * 60) for arm, c in (("grpo", 10), ("poly_epo", 20)) for seed in (0, 1)])
    said: list[str] = []
    show_power(str(file), [], pilot, said.append)
    lines = "\n".join(said).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("strategies in 8"))
    assert [line.split()[-1] for line in lines[place + 1 : place + 4]] == ["-"] * 3
    assert "What few samples add is not known of strategies and of attempts drawn jointly." in lines
    assumed: list[str] = []
    show_power(str(file), [], None, assumed.append)
    assert "is not known" not in "\n".join(assumed)


def test_a_pilot_that_holds_a_run_twice_is_refused(tmp_path: Path) -> None:
    """Two copies of a seed would say that seeds hardly differ."""
    runs = [result(arm, 0, drawn(0, 0.3)) for arm in ("grpo", "poly_epo")]
    said = (
        r"^--pilot .*pilot\.json holds the run grpo-s0 of 80 steps 2 times: take the file as the experiment left it\.$"
    )
    with pytest.raises(UsageError, match=said):
        write(tmp_path / "pilot.json", [*runs, *runs])


def test_power_knows_seeds_with_problems_of_their_own_and_seeds_in_common(tmp_path: Path) -> None:
    file, arms = tmp_path / "mine.yaml", "arms: {a: {objective.name: grpo}, b: {objective.name: poly_epo"
    file.write_text(f"seeds: [0, 1, 2]\nseed_keys: [train.seed, problems.seed]\n{arms}}}}}\n")
    said: list[str] = []
    show_power(str(file), [], None, said.append)
    assert said[0].startswith("3 seeds with 64 problems of their own each, 128 samples")
    file.write_text(f"seeds: [0, 1]\n{arms}, seeds: [2]}}}}\n")
    with pytest.raises(UsageError, match=r"^No difference can be measured: a and b have no seed in common\.$"):
        show_power(str(file), [], None)


def write(file: Path, results: Sequence[RunResult]) -> None:
    runs = [
        {key: value for key, value in asdict(each).items() if key != "start"} | {"overrides": []} for each in results
    ]
    file.write_text(json.dumps({"config": None, "at_once": 1, "runs": runs}))
    assert [each.arm for each in read_results(file, "--pilot")] == [each.arm for each in results]


def test_the_sentence_of_a_table_is_of_its_widest_arm() -> None:
    first = [result("grpo", seed, drawn(seed, 0.3)) for seed in range(3)]
    near = [result("near", seed, [c // 2 for c in drawn(seed, 0.3)]) for seed in range(3)]
    far = [result("far", seed, drawn(seed + 50, 0.5)) for seed in range(3)]
    (two,), (three,) = compare_arms([*first, *near]), compare_arms([*first, *near, *far])
    assert power_sentence(measure_differences(two)) != power_sentence(measure_differences(three))


def test_the_sentence_of_a_table_is_of_the_seeds_spread_where_each_has_problems_of_its_own() -> None:
    """Seeds that differ by tenths find no difference of a hundredth, however many problems they have."""

    def own(arm: str, seed: int, shift: int) -> RunResult:
        after = numbers(
            [], 80, problems=counts([20 + shift + i % 3 for i in range(60)], [f"{seed}-{i}" for i in range(60)])
        )
        return replace(result(arm, seed, [1]), after=means(after), problems_after=after)

    apart = [own("b", seed, shift) for seed, shift in enumerate((20, 4, 12))]
    (compared,) = compare_arms([*(own("a", seed, 0) for seed in range(3)), *apart])
    measured = [each for each in measure_differences(compared) if (each.reference, each.measure) == ("a", "1")]
    said = power_sentence(measured)
    assert "3 seeds with 60 problems of their own each" in said
    least = float(said.split("finds one of ")[1].split()[0])
    reach = measured[0].tested.interval.high - measured[0].paired.mean
    assert reach < least < 2 * reach, "what is found in most cases is more than half an interval"
