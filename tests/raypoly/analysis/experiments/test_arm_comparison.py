"""Means, ranges and differences are of what was measured, of runs that can be compared, with intervals by problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.analysis.experiments.arm_comparison import (
    BEFORE,
    ArmComparison,
    SeedSpread,
    compare_arms,
    interval_after,
    measure_differences,
)
from raypoly.analysis.experiments.run_result import STRATEGIES, ResultsFile, RunResult, ScaffoldCosts, problem_values
from raypoly.analysis.metrics.pass_at_k import ProblemOutcome, summarise
from raypoly.analysis.metrics.problem_counts import ProblemCounts, stratum_of
from raypoly.analysis.reports.comparison_tables import comparison_tables, comparison_text, cost_table, part_table
from raypoly.analysis.statistics.paired_differences import holm
from tests.raypoly.analysis.experiments.made_experiments import (
    MEASURES,
    SAMPLES,
    by_problem,
    counts,
    drawn,
    made_result,
    means,
    numbers,
    own_problems,
    runs_of,
)


def test_a_mean_is_of_the_finished_runs_and_a_range_is_of_the_same() -> None:
    (compared,) = compare_arms(
        [
            made_result("a", 0, 0.5),
            made_result("a", 1, 0.8),
            made_result("a", 2, 0.9, finished=False),
            made_result("b", 0, None),
        ]
    )
    a, b = compared.arms
    assert a.after("8") == SeedSpread(0.65, 0.5, 0.8, 2, pytest.approx(0.3 / 2**0.5))
    assert (a.planned, len(a.runs)) == (3, 2)
    assert b.after("8") is None, "what was not measured is no number"


def test_differences_pair_runs_of_one_seed() -> None:
    """b is better by .1 with every seed, though its mean without pairs would say .25."""
    (compared,) = compare_arms(
        [made_result("a", 0, 0.4), made_result("a", 1, 0.7), made_result("b", 1, 0.8), made_result("b", 2, 0.9)]
    )
    difference = compared.difference(compared.arms[1], "strategies")
    assert len(compared.pairs(compared.arms[1])) == 1
    assert difference is not None
    assert (round(difference.mean, 9), difference.count) == (0.1, 1)


def test_runs_on_other_problems_or_from_another_policy_are_no_pair() -> None:
    (compared,) = compare_arms(
        [made_result("a", 0, 0.4), made_result("control", 0, 0.9, before=0.6, start='{"problems.budgets": false}')]
    )
    control = compared.arms[1]
    assert not compared.pairs(control)
    assert compared.difference(control, "1") is None
    assert [(start.arms, start.before("1")) for start in compared.starts] == [
        (["a"], SeedSpread(0.2, 0.2, 0.2, 1)),
        (["control"], SeedSpread(0.6, 0.6, 0.6, 1)),
    ]


def test_how_rollouts_changed_is_of_steps_that_do_not_overlap_and_names_how_many_runs_have_it() -> None:
    def with_curve(arm: str, seed: int, steps: int) -> RunResult:
        return replace(
            made_result(arm, seed), curves={"response_length": [(step, float(step)) for step in range(steps)]}
        )

    runs = [with_curve("long", 0, 30), with_curve("short", 0, 12), with_curve("one", 0, 1), with_curve("some", 0, 40)]
    (compared,) = compare_arms([*runs, made_result("some", 1)])
    rows = comparison_tables(compared)["training_rollouts"].rows
    assert rows == [
        ("long", "4.5 -> 24.5"),
        ("short", "2.5 -> 8.5"),
        ("one", "0 -> 0"),
        ("some", "4.5 -> 34.5 (1 of 2 runs)"),
    ]


def test_where_arms_began_counts_each_seed_once() -> None:
    (compared,) = compare_arms([made_result(arm, seed, 0.5, before=0.2 + seed) for arm in "abc" for seed in (0, 1)])
    (start,) = compared.starts
    assert start.arms == ["a", "b", "c"]
    assert start.before("16") == SeedSpread(0.7, 0.2, 1.2, 2, pytest.approx(0.5**0.5))


def test_arms_of_other_lengths_are_compared_apart() -> None:
    long, short = compare_arms(
        [made_result("a", 0, 0.5), made_result("b", 0, 0.4, steps=20), made_result("c", 0, 0.3, steps=20)]
    )
    assert ([arm.name for arm in long.arms], [arm.name for arm in short.arms]) == (["a"], ["b", "c"])
    difference = short.difference(short.arms[1], "4")
    assert difference is not None
    assert round(difference.mean, 9) == -0.1


def test_a_run_that_ended_at_a_plateau_is_named() -> None:
    whole = [made_result(arm, 0) for arm in ("grpo", "poly_epo")]
    (comparison,) = compare_arms(whole)
    assert "plateau" not in comparison_text(comparison)
    (comparison,) = compare_arms([whole[0], replace(whole[1], done=40)])
    assert "Ended early, at a plateau: poly_epo-s0 after 40 steps." in comparison_text(comparison)


TUPLE = {
    "scaffold": "tuple",
    "decoded_tokens": {"plan": 80.0, "solve": 320.0},
    "pass_per_10k": {"1": 50.0, "4": 25.0},
    "duplicates": 0.25,
    "followed": 0.9,
    "surface_diversity": 0.8,
}


def of_tokens(tokens: tuple[int | None, ...]) -> ProblemCounts:
    size = len(tokens)
    ids, zeros = tuple(f"p{i}" for i in range(size)), (0,) * size
    return ProblemCounts(ids, (8,) * size, (4,) * size, (None,) * size, tokens, zeros, zeros)


def test_a_scaffold_says_itself_what_it_costs() -> None:
    found = ScaffoldCosts.of(TUPLE, None)
    assert found == ScaffoldCosts("tuple", 400.0, {"1": 50.0, "4": 25.0}, 0.25, 0.9, 0.8)


def test_the_cost_of_direct_is_that_of_its_responses() -> None:
    evaluation = {"samples": 8, "pass_at_k": {"1": 0.5, "4": 0.9}}
    found = ScaffoldCosts.of(evaluation, of_tokens((200, 400)))
    assert found is not None
    assert found.tokens == 300
    assert found.pass_per_10k["4"] == pytest.approx(1e4 * 0.9 / 150), "four of eight samples take half of the tokens"
    assert ScaffoldCosts.of(evaluation, of_tokens((200, None))) is None, "unknown is no number"
    assert ScaffoldCosts.of(evaluation, None) is ScaffoldCosts.of(None, None) is None


def test_arms_stand_side_by_side_where_one_has_a_scaffold_of_its_own() -> None:
    direct = ScaffoldCosts("direct", 300.0, {"1": 40.0, "4": 20.0})
    made = [by_problem("grpo", seed, drawn(seed, 0.3)) for seed in (0, 1)]
    other = [by_problem("joint", seed, drawn(seed, 0.3)) for seed in (0, 1)]
    plain = [replace(run, costs=direct) for run in made]
    told = [ScaffoldCosts.of({**TUPLE, "followed": followed}, None) for followed in (0.9, 0.7)]
    (comparison,) = compare_arms([*plain, *(replace(run, costs=its) for run, its in zip(other, told, strict=True))])
    assert [row[1:] for row in cost_table(comparison).rows] == [
        ("direct", "300", "20.0 (20.0 to 20.0)", "-", "-", "-"),
        (
            "tuple",
            "400",
            "25.0 (25.0 to 25.0)",
            "0.250 (0.250 to 0.250)",
            "0.800 (0.700 to 0.900)",
            "0.800 (0.800 to 0.800)",
        ),
    ]
    (comparison,) = compare_arms([*plain, *(replace(run, costs=direct) for run in other)])
    assert not cost_table(comparison).rows, "costs of direct alone are in the other tables"
    classified = [
        replace(its, algorithmic_diversity=share) for its, share in zip(told, (0.5, 0.75), strict=True) if its
    ]
    (comparison,) = compare_arms(
        [*plain, *(replace(run, costs=its) for run, its in zip(other, classified, strict=True))]
    )
    assert cost_table(comparison).head[-1] == "algorithmic diversity"
    assert [row[-1].split()[0] for row in cost_table(comparison).rows] == ["-", "0.625"]


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
    runs = [by_problem(arm, seed, drawn(seed + 9 * place, 0.4)) for place, arm in enumerate("ab") for seed in (0, 1)]
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


def test_an_arm_may_be_called_as_where_runs_begin() -> None:
    def compared(first: str) -> ArmComparison:
        runs = [
            by_problem(arm, seed, drawn(seed, share)) for arm, share in ((first, 0.3), ("b", 0.4)) for seed in (0, 1)
        ]
        return compare_arms(runs)[0]

    found, known = measure_differences(compared("before")), measure_differences(compared("a"))
    assert [each.holm for each in found] == [each.holm for each in known]
    tables = comparison_tables(compared("before"))
    assert len(tables["difference_from_before"].rows) == len(MEASURES)
    assert len(tables["difference_since_start"].rows) == 2 * len(MEASURES)


def test_an_arm_is_compared_with_the_first_and_with_its_start() -> None:
    first = [by_problem("grpo", seed, drawn(seed, 0.3)) for seed in range(3)]
    better = [by_problem("poly_epo", seed, [min(64, c + 12) for c in drawn(seed, 0.3)]) for seed in range(3)]
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


def test_what_was_declared_comes_first_and_is_no_part_of_the_exploration_s_family() -> None:
    runs = [
        by_problem(arm, seed, [min(64, c + more) for c in drawn(seed, 0.3)])
        for arm, more in (("grpo", 0), ("poly_epo", 12), ("pkpo", 3))
        for seed in range(3)
    ]
    (plain,), (declared,) = compare_arms(runs), compare_arms(runs, primary="64")
    before = {(each.arm, each.reference, each.measure): each for each in measure_differences(plain)}
    after = {(each.arm, each.reference, each.measure): each for each in measure_differences(declared)}
    claims = {name: each for name, each in after.items() if each.primary}
    assert claims.keys() == {("poly_epo", "grpo", "64"), ("pkpo", "grpo", "64")}
    alone = holm({name: each.tested.family_p_value for name, each in claims.items()})
    assert {name: each.holm for name, each in claims.items()} == alone
    assert all(each.holm <= before[name].holm for name, each in after.items())
    text = comparison_text(declared)
    first, _, rest = text.partition("**Difference from grpo**")
    assert "**Primary, declared beforehand: pass@64 against grpo.**" in first
    assert "pass@64" not in rest.partition("**Difference from where")[0]
    assert "but the 2 primary, a family apart" in rest


def test_one_seed_is_tested_over_problems_alone_and_the_table_says_so() -> None:
    (compared,) = compare_arms([by_problem("grpo", 0, drawn(0, 0.3)), by_problem("poly_epo", 0, drawn(1, 0.4))])
    found = measure_differences(compared)
    assert all(each.all_seeds is None and each.tested is each.these_seeds for each in found)
    text = comparison_text(compared)
    assert "One seed says nothing of others." in text
    assert "An experiment of 60 problems and 1 seed whose differences spread as these finds one of 0." in text


def test_the_sign_of_each_seed_s_difference_stands_in_the_table() -> None:
    made = [by_problem("grpo", seed, [30] * 60) for seed in range(3)]
    other = [by_problem("pkpo", seed, [30 + shift] * 60) for seed, shift in enumerate((5, -5, 0))]
    (compared,) = compare_arms([*made, *other])
    row = next(it for it in comparison_tables(compared)["difference_from_grpo"].rows if it[:2] == ("pkpo", "pass@1"))
    assert row[2] == "+ - 0"


@pytest.mark.parametrize(("apart", "said"), [(60, None), (20, "67% of the problems are those of several seeds")])
def test_seeds_with_problems_of_their_own_are_paired_within_a_seed(apart: int, said: str | None) -> None:
    (compared,) = compare_arms(
        [
            own_problems(arm, seed, [c // 2 + shift for c in drawn(seed, 0.3)], apart * seed)
            for arm, shift in (("a", 0), ("b", 6))
            for seed in (0, 1)
        ]
    )
    difference = next(each for each in measure_differences(compared) if each.reference == "a")
    assert not difference.paired.crossed
    assert difference.these_seeds.interval.count == 120
    text = comparison_text(compared)
    assert f"{said}, which makes the first interval too narrow." in text if said else "several seeds" not in text


@pytest.mark.parametrize(
    ("change", "reason"),
    [("weights", "they began with other weights"), ("problem_set", "they were measured on other problems")],
)
def test_runs_that_began_otherwise_have_no_difference_and_are_named(change: str, reason: str) -> None:
    """Two machines make different warm starts from the same keys."""
    first, second = by_problem("grpo", 0, drawn(0, 0.3)), by_problem("poly_epo", 0, drawn(1, 0.4))
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


def test_runs_without_digests_are_known_by_what_was_measured_before_or_are_no_pair() -> None:
    """The same keys make other warm starts on other machines."""
    first, second = made_result("grpo", 0), made_result("poly_epo", 0)
    halved = replace(second, before={k: None if v is None else v / 2 for k, v in second.before.items()})
    blind = replace(second, before={})
    (alike,), (apart,), (unknown,) = (compare_arms([first, other]) for other in (second, halved, blind))
    assert len(alike.pairs(alike.arms[1])) == 1
    assert not apart.pairs(apart.arms[1])
    assert not unknown.pairs(unknown.arms[1])
    assert "no intervals, since numbers by problem are missing" in comparison_text(alike)
    reason = "they did not measure the same before training, and have no digests"
    assert f"Not compared, since {reason}: poly_epo-s0 and grpo-s0." in comparison_text(apart)
    assert "Not compared, since nothing says what they began with" in comparison_text(unknown)


def test_an_arm_whose_difference_is_not_known_is_named() -> None:
    """One seed without numbers by problem takes the arm's difference away: the table does not pass over it."""
    runs = [by_problem(arm, seed, drawn(seed, 0.3)) for arm in ("a", "b", "c") for seed in (0, 1)]
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
    (compared,) = compare_arms([by_problem(arm, seed, [c]) for arm, c in (("a", 10), ("b", 30)) for seed in (0, 1)])
    text = comparison_text(compared)
    assert "inf" not in text
    assert "| b | pass@1 | + + | +0.312 | - | - | 1.00 | - | 1.00 | 0.000 |" in text
    assert "One problem does not show how differences spread" in text


def test_arms_that_were_measured_under_other_limits_are_not_compared(tmp_path: Path) -> None:
    arms = "arms: {a: {objective.name: grpo}, b: {scorer.memory_mib: 256, generator.max_tokens: 40}}\n"
    plain, limited = runs_of(tmp_path, arms)
    found = [replace(by_problem(run.arm, 0, drawn(0, 0.3)), start=run.start) for run in (plain, limited)]
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
    found = ResultsFile.read(Path(__file__).resolve().parents[4] / "docs" / "results" / "objectives.json", "--also")
    assert found.runs[0].problems_after is None


def test_problems_of_exact_shares_are_drawn_within_them() -> None:
    """Half of the problems are nearly always solved, half hardly ever: drawn within halves, the mean varies little."""
    correct = [count for place in range(30) for count in (SAMPLES - 6 - place % 7, 6 + place % 7)]
    parts = tuple("ab"[place % 2] for place in range(60))

    plain = [by_problem("grpo", 0, [SAMPLES // 2] * 60), by_problem("poly_epo", 0, correct)]
    wide, narrow = (interval_after([run], "1") for run in (plain[1], of_parts(plain[1], parts)))
    assert wide is not None
    assert narrow is not None
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2
    (drawn_within,) = compare_arms([of_parts(run, parts) for run in plain])
    (drawn_freely,) = compare_arms(plain)
    within, freely = (
        next(each.these_seeds for each in measure_differences(it) if each.measure == "1")
        for it in (drawn_within, drawn_freely)
    )
    assert within.interval.high < freely.interval.high / 2
    assert "Problems are drawn within parts of fixed shares (budgets, data sets)." in comparison_text(drawn_within)
    assert "exact shares" not in comparison_text(drawn_freely)


def of_parts(run: RunResult, parts: tuple[str | None, ...]) -> RunResult:
    assert run.problems_after is not None
    assert run.problems_after.problems is not None
    return replace(
        run,
        problems_after=replace(run.problems_after, problems=replace(run.problems_after.problems, stratum=parts)),
    )


@pytest.mark.parametrize(
    ("metadata", "part"),
    [({"budget": "time"}, "time"), ({"source": "apps", "difficulty": "x"}, "apps"), ({"source": ""}, None), ({}, None)],
)
def test_a_problem_s_part_is_its_budget_or_its_data_set(metadata: dict[str, str], part: str | None) -> None:
    assert stratum_of(metadata) == part


def test_each_part_has_a_column_with_its_own_mean_and_interval() -> None:
    parts = ("apps", "apps", "apps", "livecodebench", "livecodebench")
    runs = [of_parts(by_problem("grpo", seed, [64, 64, 0, 0, 0]), parts) for seed in (0, 1)]
    (comparison,) = compare_arms([*runs, by_problem("other", 0, [64, 64, 64, 0, 0])])
    table = part_table(comparison)
    assert table.head[1:] == ("apps (3)", "livecodebench (2)")
    (name, apps, live), other = table.rows
    assert (name, apps[:5], live[:5]) == ("grpo", "0.667", "0.000")
    assert "[" in apps, "an interval over the part's three problems, not over six values"
    assert other == ("other", "-", "-"), "what is unknown is no number"
    assert "By part of the problems" in comparison_text(comparison)


def test_problems_of_one_part_need_no_table() -> None:
    runs = [of_parts(by_problem("grpo", seed, [3, 5, 7]), ("apps",) * 3) for seed in (0, 1)]
    (comparison,) = compare_arms(runs)
    assert not part_table(comparison).rows
    assert "By part" not in comparison_text(comparison)
