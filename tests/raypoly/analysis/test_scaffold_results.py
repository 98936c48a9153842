"""An evaluation's numbers of its scaffolds, on groups that are made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from raypoly.analysis.evaluation.evaluation_results import (
    category_results,
    compared_texts,
    majority_results,
    scaffold_results,
)
from raypoly.analysis.evaluation.evaluation_tables import scaffold_tables
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.core.values import Draft, Evidence, Float64, Group, Rollout, Verdict
from raypoly.rollouts import scaffolds
from raypoly.strategies.judge.algorithm_categories import CategoryAgreement
from tests.support.two_methods import TwoMethods

PLAN = "A: Add in a loop.\nB: Recurse on the tail.\n"
SAME = "A: Add in a loop.\nB: add in a loop\n"


def rollout(text: str, tokens: int, seed: int) -> Rollout:
    ids = np.zeros(tokens, np.int32)
    return Rollout(ids[:1], ids, np.zeros(tokens, np.float32), text, "stop", seed, 0)


def group(name: str, passed: Sequence[int], done: Sequence[str], plans: Sequence[str]) -> Group:
    attempts = tuple(rollout(f"def f(): return {i}", 10, i) for i in range(len(passed)))
    verdicts = tuple(
        Verdict("passed" if right else "wrong", right, 1, 0.0, evidence=Evidence("", (), {}, strategy))
        for right, strategy in zip(passed, done, strict=True)
    )
    drafts = tuple(Draft(rollout(text, 5, 100 + i), "plan") for i, text in enumerate(plans))
    parents = np.repeat(np.arange(len(plans), dtype=np.int32), 2)
    return Group(0, 0, name, attempts, {"score": verdicts}, drafts, parents)


TUPLES = [
    group("one", [0, 1, 0, 0], ["for", "recursion", "for", "for"], [PLAN, SAME]),
    group("two", [0, 0, 0, 0], ["for", "for", "", "recursion"], [PLAN, PLAN]),
]


def test_pass_at_k_counts_whole_blocks_and_tokens_count_by_role() -> None:
    found = scaffold_results(TUPLES, "tuple", TwoMethods(), 4)
    assert found["block"] == 2
    assert found["pass_at_k"] == {"1": 0.0, "2": 0.25, "4": 0.5}
    assert found["decoded_tokens"] == {"plan": 10.0, "solve": 40.0}
    assert found["pass_per_10k"]["4"] == pytest.approx(10_000 * 0.5 / 50)
    last = scaffold_results(TUPLES, "tuple", TwoMethods(), 4, "last")
    assert (last["pass_at_k"]["1"], last["select"]) == (0.25, "last")


def test_diversity_is_of_methods_and_followed_compares_what_was_planned_and_done() -> None:
    found = scaffold_results(TUPLES, "tuple", TwoMethods(), 4)
    assert found["diversity_of"] == "methods"
    assert found["duplicates"] == 0.25
    assert found["followed"] == pytest.approx(6 / 7), "seven attempts are known, one did what it was not told"
    assert found["semantic_diversity"] is None


def test_a_method_that_a_plan_lacks_has_its_place_in_the_block() -> None:
    """Else every later block of the problem would have methods of two plans: here A and A of the last two."""
    lacks = [group("one", [0] * 6, ["for"] * 6, ["A: Add in a loop.\n", PLAN, PLAN])]
    assert scaffold_results(lacks, "tuple", TwoMethods(), 6)["duplicates"] == 0.0
    empty = [group("one", [0] * 4, ["for"] * 4, ["I can't.", SAME])]
    assert scaffold_results(empty, "tuple", TwoMethods(), 4)["duplicates"] == 1.0


def test_meaning_is_measured_where_something_encodes_it() -> None:
    def encode(texts: Sequence[str]) -> Float64:
        return np.eye(2)[[int("loop" in text.lower()) for text in texts]]

    found = scaffold_results(TUPLES, "tuple", TwoMethods(), 4, encode=encode)
    assert found["semantic_diversity"] == pytest.approx(3 / 4)


def test_independent_attempts_are_one_block_of_programs() -> None:
    plain = [group("one", [1, 0, 0, 0], ["for"] * 4, ())]
    found = scaffold_results(plain, "direct", scaffolds.build("direct"), 4)
    assert (found["block"], found["diversity_of"], found["duplicates"], found["followed"]) == (1, "programs", 0.0, None)
    assert "pass_at_k" not in found
    assert found["decoded_tokens"] == {"solve": 40.0}


def test_a_vote_sees_signatures_and_its_choice_is_judged() -> None:
    found = majority_results(TUPLES, [["x", "y", "y", None], None])
    assert found["majority_problems"] == 1
    assert found["majority_at_k"]["4"] == 1.0


def test_scaffolds_stand_side_by_side_with_their_differences() -> None:
    direct = [group("one", [1, 0, 0, 0], ["for"] * 4, ()), group("two", [1, 1, 0, 0], ["for"] * 4, ())]
    first = scaffold_results(direct, "direct", scaffolds.build("direct"), 4)
    second = scaffold_results(TUPLES, "tuple", TwoMethods(), 4)
    payload = {**first, "pass_at_k": {"1": 0.375, "4": 1.0}, "scaffolds": [second]}
    rows = [
        {"scaffold": name, "problem_id": each.problem_id, "status": verdict.status}
        for name, groups in (("direct", direct), ("tuple", TUPLES))
        for each in groups
        for verdict in each.verdicts or ()
    ]
    table = pa.Table.from_pylist(rows)
    assert ProblemCounts.of(table) == ProblemCounts.of(table.filter(pc.equal(table["scaffold"], "direct")))
    side_by_side, differences = scaffold_tables(payload, table)
    assert [row[:3] for row in side_by_side.rows] == [("direct", "1", "40"), ("tuple", "2", "50")]
    assert differences.rows[0][0] == "tuple less direct"
    assert str(differences.rows[0][1]).startswith("-0.375")
    assert scaffold_tables({"pass_at_k": {}}, table) == []
    assert "algorithmic diversity" not in side_by_side.head
    for each in (payload, *payload["scaffolds"]):
        each["algorithmic_diversity"] = None
    shown = scaffold_tables(payload, table)[0]
    assert [row[shown.head.index("algorithmic diversity")] for row in shown.rows] == ["-", "-"]


def test_tables_count_the_attempts_of_a_block_that_the_evaluation_selects() -> None:
    table = pa.Table.from_pylist(
        [
            {"problem_id": each.problem_id, "status": verdict.status}
            for each in TUPLES
            for verdict in each.verdicts or ()
        ]
    )
    for select in ("first", "last", "random"):
        found = scaffold_results(TUPLES, "tuple", TwoMethods(), 4, select)
        counts = ProblemCounts.of(table, 2)
        assert counts is not None
        by_problem = counts.pass_at_k(1, select)
        assert by_problem is not None
        assert sum(by_problem.values()) / len(by_problem) == found["pass_at_k"]["1"], select
        shown = scaffold_tables(found, table)[0].rows[0][3]
        assert str(shown).startswith(f"{found['pass_at_k']['1']:.3f}"), select
    firsts = {
        scaffold_results(TUPLES, "tuple", TwoMethods(), 4, it)["pass_at_k"]["1"] for it in ("first", "last", "random")
    }
    assert len(firsts) == 3, "the three would count differently"


def test_categories_count_where_all_of_a_block_have_one_and_people_confirm_them() -> None:
    blocks = [["dp", "greedy"], ["dp", "dp"], ["dp", None], []]
    confirmed, not_confirmed = CategoryAgreement(0.72, 0.81, 0.78), CategoryAgreement(0.5, 0.81, 0.78)
    found = category_results(blocks, confirmed)
    assert found["algorithmic_diversity"] == pytest.approx((1.0 + 0.5) / 2)
    assert found["unclassified"] == pytest.approx(1 / 6)
    assert found["category_agreement"]["kappa"] == 0.72
    for agreement in (not_confirmed, None):
        assert category_results(blocks, agreement)["algorithmic_diversity"] is None
    assert compared_texts(TUPLES, TwoMethods(), 4, 2)[0] == [
        ["Add in a loop.", "Recurse on the tail."],
        ["Add in a loop.", "add in a loop"],
    ]
