"""Differences with intervals: of the same problems and the same start, from numbers by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.analysis.experiments.arm_comparison import ArmComparison, compare_arms
from raypoly.analysis.experiments.measured_differences import (
    BEFORE,
    interval_after,
    measure_differences,
    problem_values,
)
from raypoly.analysis.experiments.other_results import read_results
from raypoly.analysis.experiments.run_result import STRATEGIES, EvaluationNumbers, RunResult
from raypoly.analysis.metrics.pass_at_k import ProblemOutcome, summarise
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.comparison_tables import comparison_tables, comparison_text
from tests.raypoly.analysis.experiments.made_experiments import MEASURES, made_result, runs_of

SAMPLES = 64


def counts(correct: Sequence[int], names: Sequence[str] | None = None) -> ProblemCounts:
    zeros = (0,) * len(correct)
    halves = tuple((c - c // 2, c // 2) if c > 1 else (c,) * (c > 0) for c in correct)
    ids = tuple(names or (f"p{i}" for i in range(len(correct))))
    return ProblemCounts(ids, (SAMPLES,) * len(correct), tuple(correct), halves, zeros, zeros, zeros, halves)


def numbers(correct: Sequence[int], step: int, **changes: Any) -> EvaluationNumbers:
    given = {"problem_set": "f00d", "weights": "cafe", "raypoly": "0.9", "problems": counts(correct)}
    return EvaluationNumbers(step, "test", **(given | changes))


def result(arm: str, seed: int, correct: Sequence[int], **changes: Any) -> RunResult:
    before, after = numbers([SAMPLES // 4] * len(correct), 0), numbers(correct, 80)
    made = made_result(arm, seed)
    made = replace(made, before=means(before), after=means(after), problems_before=before, problems_after=after)
    return replace(made, **changes)


def means(found: EvaluationNumbers) -> dict[str, float | None]:
    known = {measure: problem_values(found, measure) for measure in MEASURES}
    return {measure: float(np.mean(list(values.values()))) for measure, values in known.items() if values}


def drawn(seed: int, share: float, problems: int = 60) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(c) for c in rng.binomial(SAMPLES, rng.beta(2 * share, 2 * (1 - share), problems))]


def test_values_by_problem_have_the_run_s_measures_as_their_mean() -> None:
    found = numbers([0, 5, 64, 1], 80)
    assert found.problems is not None
    outcomes = [
        ProblemOutcome(SAMPLES, tuple(str(i) for i, size in enumerate(sizes or ()) for _ in range(size)))
        for sizes in found.problems.strategies
    ]
    summary: Any = summarise(outcomes)
    for measure in MEASURES:
        values = problem_values(found, measure)
        assert values is not None
        said = summary["pass_at_k"].get(measure, summary["strategies_correct"])
        assert np.mean(list(values.values())) == pytest.approx(said)


def test_what_is_unknown_of_one_problem_is_unknown() -> None:
    whole = counts([1, 2])
    assert problem_values(numbers([1, 2], 80, problems=replace(whole, strategies=((1,), None))), STRATEGIES) is None
    assert problem_values(numbers([1, 2], 80, problems=replace(whole, samples=(64, 4))), "8") is None
    assert problem_values(numbers([1, 2], 80, problems=None), "1") is None
    assert problem_values(None, "1") is None


def without_tests(run: RunResult, *lacking: int) -> RunResult:
    """The same run, where the tests of these problems could not be run after training."""
    assert run.problems_after is not None
    known: Any = run.problems_after.problems
    columns = {
        name: tuple(None if place in lacking else value for place, value in enumerate(getattr(known, name)))
        for name in ("correct", "strategies", "no_code", "behaviours")
    }
    after = replace(run.problems_after, problems=replace(known, **columns))
    return replace(run, after=means(after), problems_after=after)


def test_a_problem_whose_tests_could_not_be_run_is_left_out_and_takes_nothing_else_away() -> None:
    runs = [result(arm, seed, drawn(seed + 9 * place, 0.4)) for place, arm in enumerate("ab") for seed in (0, 1)]
    (whole,), (less,) = compare_arms(runs), compare_arms([*runs[:3], without_tests(runs[3], 5, 7)])
    assert interval_after(less.arms[1].runs, "1") is not None
    for one, other in zip(measure_differences(whole), measure_differences(less), strict=True):
        assert (one.sampling is None) == (other.sampling is None)
        left_out = {"p5", "p7"} if other.arm == "b" else set()
        kept = [place for place, name in enumerate(sorted(f"p{i}" for i in range(60))) if name not in left_out]
        assert other.left_out == left_out
        assert [list(row) for row in other.paired.by_seed] == [list(row[kept]) for row in one.paired.by_seed]
    said = "Left out of a difference: problems whose tests could not be run in one of its runs (2 here)."
    assert said in comparison_text(less)
    assert "Left out" not in comparison_text(whole)


@pytest.mark.parametrize("name", ["before", "start"])
def test_an_arm_may_be_called_as_where_runs_begin(name: str) -> None:
    def compared(first: str) -> ArmComparison:
        runs = [result(arm, seed, drawn(seed, share)) for arm, share in ((first, 0.3), ("b", 0.4)) for seed in (0, 1)]
        return compare_arms(runs)[0]

    found, known = measure_differences(compared(name)), measure_differences(compared("a"))
    assert [each.holm for each in found] == [each.holm for each in known]
    tables = comparison_tables(compared(name))
    assert len(tables[f"difference_from_{name}"].rows) == len(MEASURES)
    assert len(tables["difference_since_start"].rows) == 2 * len(MEASURES)


def test_an_arm_is_compared_with_the_first_and_with_its_start() -> None:
    first = [result("grpo", seed, drawn(seed, 0.3)) for seed in range(3)]
    better = [result("poly_epo", seed, [min(64, c + 12) for c in drawn(seed, 0.3)]) for seed in range(3)]
    (compared,) = compare_arms([*first, *better])
    found = {(each.arm, each.reference, each.measure): each for each in measure_differences(compared)}
    assert len(found) == 3 * len(MEASURES)
    gain = found["poly_epo", "grpo", "1"]
    assert 0 < gain.paired.mean < 12 / 64
    assert gain.tested.interval.low > 0
    assert (gain.these_seeds.interval.count, len(gain.paired.by_seed), gain.paired.crossed) == (60, 3, True)
    assert gain.tested.p_value < gain.holm < 0.01
    assert found["grpo", BEFORE, "64"].paired.mean < 0
    assert interval_after(compared.arms[0].runs, "1") is not None


def test_one_seed_is_tested_over_problems_alone_and_the_table_says_so() -> None:
    (compared,) = compare_arms([result("grpo", 0, drawn(0, 0.3)), result("poly_epo", 0, drawn(1, 0.4))])
    found = measure_differences(compared)
    assert all(each.all_seeds is None and each.tested is each.these_seeds for each in found)
    text = comparison_text(compared)
    assert "One seed says nothing of others." in text
    assert "An experiment of 60 problems and 1 seed whose differences spread as these finds one of 0." in text


def test_the_sign_of_each_seed_s_difference_stands_in_the_table() -> None:
    made = [result("grpo", seed, [30] * 60) for seed in range(3)]
    other = [result("pkpo", seed, [30 + shift] * 60) for seed, shift in enumerate((5, -5, 0))]
    (compared,) = compare_arms([*made, *other])
    row = next(it for it in comparison_tables(compared)["difference_from_grpo"].rows if it[:2] == ("pkpo", "pass@1"))
    assert row[2] == "+ - 0"


def test_seeds_with_problems_of_their_own_are_paired_within_a_seed() -> None:
    def own(arm: str, seed: int, shift: int) -> RunResult:
        made = result(arm, seed, [c // 2 + shift for c in drawn(seed, 0.3)])
        names = [f"s{seed}-{i}" for i in range(60)]
        correct = made.problems_after.problems.correct if made.problems_after and made.problems_after.problems else ()
        return replace(made, problems_after=numbers(list(map(int, correct)), 80, problems=counts(correct, names)))  # type: ignore[arg-type]

    (compared,) = compare_arms([own(arm, seed, shift) for arm, shift in (("a", 0), ("b", 6)) for seed in (0, 1, 2)])
    difference = next(each for each in measure_differences(compared) if each.reference == "a")
    assert not difference.paired.crossed
    assert difference.these_seeds.interval.count == 180


@pytest.mark.parametrize(
    ("change", "reason"),
    [("weights", "they began with other weights"), ("problem_set", "they were measured on other problems")],
)
def test_runs_that_began_otherwise_have_no_difference_and_are_named(change: str, reason: str) -> None:
    """Two machines make different warm starts from the same keys."""
    first, second = result("grpo", 0, drawn(0, 0.3)), result("poly_epo", 0, drawn(1, 0.4))
    assert second.problems_before is not None
    other = replace(second, problems_before=replace(second.problems_before, **{change: "beef"}))
    (alike,), (apart,) = compare_arms([first, second]), compare_arms([first, other])
    assert not alike.unlike
    assert len(alike.starts) == 1
    assert (apart.pairs(apart.arms[1]), apart.difference(apart.arms[1], "1")) == ([], None)
    assert [start.arms for start in apart.starts] == [["grpo"], ["poly_epo"]]
    assert all(each.reference == BEFORE for each in measure_differences(apart))
    text = comparison_text(apart)
    assert f"Not compared, since {reason}: poly_epo-s0 and grpo-s0." in text


def test_a_file_without_digests_is_known_by_what_was_measured_before() -> None:
    first, second = made_result("grpo", 0), made_result("poly_epo", 0)
    halved = replace(second, before={k: None if v is None else v / 2 for k, v in second.before.items()})
    (alike,), (apart,) = compare_arms([first, second]), compare_arms([first, halved])
    assert len(alike.pairs(alike.arms[1])) == 1
    assert not apart.pairs(apart.arms[1])
    assert "no intervals, since numbers by problem are missing" in comparison_text(alike)
    reason = "they did not measure the same before training, and have no digests"
    assert f"Not compared, since {reason}: poly_epo-s0 and grpo-s0." in comparison_text(apart)


def test_runs_of_which_nothing_says_how_they_began_are_no_pair() -> None:
    """Neither digests nor a measurement: the same keys make other warm starts on other machines."""
    blind = [replace(result(arm, 0, drawn(i, 0.3)), before={}, problems_before=None) for i, arm in enumerate("ab")]
    (compared,) = compare_arms(blind)
    assert not compared.pairs(compared.arms[1])
    assert "Not compared, since nothing says what they began with" in comparison_text(compared)


def test_an_arm_whose_difference_is_not_known_is_named() -> None:
    """One seed without numbers by problem takes the arm's difference away: the table does not pass over it."""
    runs = [result(arm, seed, drawn(seed, 0.3)) for arm in ("a", "b", "c") for seed in (0, 1)]
    lost = [
        replace(run, problems_after=numbers([], 80, problems=None)) if (run.arm, run.seed) == ("b", 1) else run
        for run in runs
    ]
    text = comparison_text(compare_arms(lost)[0])
    assert "No difference of b from a in pass@1, pass@4" in text
    assert "No difference of b from where each run began in pass@1, pass@4" in text
    assert "No difference of c" not in text
    blind = [replace(run, problems_before=numbers([], 0, problems=None)) if run.arm == "c" else run for run in runs]
    text = comparison_text(compare_arms(blind)[0])
    assert "No difference of c from where each run began in pass@1, pass@4" in text
    assert text.count("No difference of") == 1
    assert "No difference of" not in comparison_text(compare_arms(runs)[0])


def test_one_problem_has_no_interval_and_no_power() -> None:
    (compared,) = compare_arms([result(arm, seed, [c]) for arm, c in (("a", 10), ("b", 30)) for seed in (0, 1)])
    text = comparison_text(compared)
    assert "inf" not in text
    assert "| b | pass@1 | + + | +0.312 | - | - | 1.00 | - | 1.00 | 0.000 |" in text
    assert "One problem does not show how differences spread" in text


def test_seeds_that_share_many_of_their_own_problems_are_said_to() -> None:
    def own(arm: str, seed: int) -> RunResult:
        after = numbers([], 80, problems=counts(drawn(seed, 0.3), [f"p{i + 20 * seed}" for i in range(60)]))
        return replace(result(arm, seed, [1]), after=means(after), problems_after=after)

    (compared,) = compare_arms([own(arm, seed) for arm in ("a", "b") for seed in (0, 1)])
    assert "67% of the problems are those of several seeds, which makes the first interval too narrow." in (
        comparison_text(compared)
    )


def test_arms_that_were_measured_under_other_limits_are_not_compared(tmp_path: Path) -> None:
    arms = "arms: {a: {objective.name: grpo}, b: {scorer.memory_mib: 256, generator.max_tokens: 40}}\n"
    plain, limited = runs_of(tmp_path, arms)
    found = [replace(result(run.arm, 0, drawn(0, 0.3)), start=run.start) for run in (plain, limited)]
    text = comparison_text(compare_arms(found)[0])
    assert "Not compared, since generator.max_tokens, scorer.memory_mib differ: b-s0 and a-s0." in text


def test_k_follows_the_samples() -> None:
    """The code study's Table 2 has 256 samples a problem."""
    few, many = ({k: 0.5 for k in ks} for ks in (("1", "4", "8"), ("1", "2", "4", "8", "16", "64", "128", "256")))
    first, second = (replace(made_result(arm, 0), before=few, after=many) for arm in ("grpo", "poly_epo"))
    text = comparison_text(compare_arms([first, second])[0])
    head = next(line for line in text.splitlines() if line.startswith("|"))
    assert [name for name in head.split(" | ") if "pass@" in name] == [f"pass@{k}" for k in (1, 4, 8, 16, 64, 128, 256)]


def test_results_without_numbers_by_problem_are_read() -> None:
    found = read_results(Path(__file__).resolve().parents[4] / "docs" / "results-objectives.json", "--also")
    assert found[0].problems_after is None


def test_problems_of_exact_shares_are_drawn_within_them() -> None:
    """Half of the problems are nearly always solved, half hardly ever: drawn within halves, the mean varies little."""
    correct = [count for place in range(30) for count in (SAMPLES - 6 - place % 7, 6 + place % 7)]
    parts = tuple("ab"[place % 2] for place in range(60))

    def stratified(run: RunResult) -> RunResult:
        assert run.problems_after is not None
        assert run.problems_after.problems is not None
        after = replace(run.problems_after, problems=replace(run.problems_after.problems, stratum=parts))
        return replace(run, problems_after=after)

    plain = [result("grpo", 0, [SAMPLES // 2] * 60), result("poly_epo", 0, correct)]
    wide, narrow = (interval_after([run], "1") for run in (plain[1], stratified(plain[1])))
    assert wide is not None
    assert narrow is not None
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2
    (drawn_within,) = compare_arms([stratified(run) for run in plain])
    (drawn_freely,) = compare_arms(plain)
    within, freely = (
        next(each.these_seeds for each in measure_differences(it) if each.measure == "1")
        for it in (drawn_within, drawn_freely)
    )
    assert within.interval.high < freely.interval.high / 2
    assert "Problems are drawn within parts of fixed shares (budgets, data sets)." in comparison_text(drawn_within)
    assert "exact shares" not in comparison_text(drawn_freely)
