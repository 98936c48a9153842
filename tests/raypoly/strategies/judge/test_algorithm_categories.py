"""Agreement on categories of algorithms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.core.errors import UsageError
from raypoly.strategies.judge.algorithm_categories import (
    CATEGORIES,
    CategoryAgreement,
    algorithmic_diversity,
    category_of,
    cohen_kappa,
    macro_f1,
    read_labelled_methods,
)
from tests.support.worked_numbers import worked_cases

HALF = ["dp", "dp", "greedy", "greedy"]


@pytest.mark.parametrize("case", worked_cases("category_gate", "cppo"))
def test_worked_numbers(case: Any) -> None:
    gate, expected = CategoryAgreement.of(**case["input"]), case["expected"]
    assert gate.kappa == pytest.approx(expected["kappa"])
    assert gate.accuracy == pytest.approx(expected["accuracy"])
    assert gate.macro_f1 == pytest.approx(expected["macro_f1"])
    assert gate.reported == expected["reported"]


def test_each_threshold_is_needed() -> None:
    assert CategoryAgreement.of(HALF, HALF, HALF, HALF).reported
    assert not CategoryAgreement.of(HALF, HALF[::-1], HALF, HALF).reported
    assert not CategoryAgreement.of(HALF, HALF, HALF, ["dp"] * 4).reported
    assert CategoryAgreement(0.6, 0.7, 0.7).reported
    assert not CategoryAgreement(0.59, 1.0, 1.0).reported
    assert not CategoryAgreement(1.0, 1.0, 0.69).reported


def test_agreement_by_chance_is_worth_nothing() -> None:
    assert cohen_kappa(HALF, ["dp", "greedy", "dp", "greedy"]) == pytest.approx(0.0)
    assert cohen_kappa(HALF, HALF[::-1]) == pytest.approx(-1.0)


def test_annotators_who_know_one_category_show_no_agreement() -> None:
    gate = CategoryAgreement.of(["dp"] * 4, ["dp"] * 4, ["dp"] * 4, ["dp"] * 4)
    assert gate.kappa is None
    assert not gate.reported
    assert cohen_kappa(["dp"] * 4, ["greedy"] * 4) == pytest.approx(0.0)


def test_a_category_that_the_classifier_alone_names_lowers_the_mean() -> None:
    assert macro_f1(["dp", "dp"], ["dp", "graph"]) == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("names", [HALF[:3], []])
def test_other_methods_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="the same methods"):
        CategoryAgreement.of(names, HALF, HALF, HALF)
    with pytest.raises(ValueError, match="the same methods"):
        CategoryAgreement.of([], [], [], [])


def test_a_category_each_is_the_most_diverse() -> None:
    assert algorithmic_diversity(CATEGORIES) == 1.0
    assert len(CATEGORIES) == 10
    assert algorithmic_diversity(["other"] * 4) == 0.25
    assert algorithmic_diversity([]) is None


@pytest.mark.parametrize("case", worked_cases("plan_diversity", "cppo"))
def test_worked_numbers_of_categories(case: Any) -> None:
    if "categories" not in case["input"]:
        pytest.skip("of texts: tests/raypoly/analysis/metrics/test_plan_diversity.py")
    shares = [algorithmic_diversity(names) for names in case["input"]["categories"]]
    assert shares == pytest.approx(case["expected"]["D_alg"])
    assert np.mean([share for share in shares if share is not None]) == pytest.approx(case["expected"]["mean"])


@pytest.mark.parametrize("case", worked_cases("d_alg"))
def test_worked_coverage(case: Any) -> None:
    assert list(map(algorithmic_diversity, case["input"]["categories"])) == case["expected"]["value"]


def test_a_grade_is_a_categorys_number_or_unknown() -> None:
    assert [category_of(number / 10) for number in range(1, 11)] == list(CATEGORIES)
    assert [category_of(grade) for grade in (0.0, 0.04, 1.5, float("nan"))] == [None] * 4


def test_labelled_methods_are_read_and_a_mistake_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "labelled.jsonl"
    row = {"statement": "Add.", "method": "Use a table.", "annotators": ["dp", "greedy"], "gold": "dp"}
    file.write_text(json.dumps(row) + "\n" + json.dumps(row | {"gold": "DP"}) + "\n")
    with pytest.raises(UsageError, match=r"^evaluate\.categories=.* row 2 is no labelled method: gold: Input"):
        read_labelled_methods(str(file))
    file.write_text(json.dumps(row) + "\n")
    (read,) = read_labelled_methods(str(file))
    assert (read.annotators, read.gold) == (("dp", "greedy"), "dp")
    file.write_text("")
    with pytest.raises(UsageError, match="is empty"):
        read_labelled_methods(str(file))
    with pytest.raises(UsageError, match=r"none\.jsonl"):
        read_labelled_methods(str(tmp_path / "none.jsonl"))
