"""The contract of a plan: what is read, and the names of its breaches."""

from typing import Any

import pytest

from raypoly.recipes.cppo.plan_contract import BREACHES, read_plan, wording
from tests.support.worked_numbers import worked_cases

METHODS = (
    "Sort the intervals by end and take greedily.",
    "Dynamic programming over sorted ends, in O(n log n).",
    "Sweep over coordinates with a counter, e.g. Fenwick's tree.",
    "Build the conflict graph and search it.",
)


def _plan(*methods: str) -> str:
    return "".join(f"{label}: {method}\n" for label, method in zip("ABCDEFGHIJ", methods, strict=False))


def _with(place: int, method: str) -> str:
    return _plan(*METHODS[:place], method, *METHODS[place + 1 :])


@pytest.mark.parametrize("case", worked_cases("tuple_contract", "cppo"))
def test_worked_cases(case: Any) -> None:
    given, expected = case["input"], case["expected"]
    plan = read_plan(given["text"], given["K"], given["max_words"])
    assert list(plan.methods) == expected["methods"]
    assert list(plan.breaches) == expected["breaches"]
    assert plan.keeps == expected["keeps"]


def test_white_space_around_lines_and_blank_lines_are_no_breach() -> None:
    plan = read_plan("\n  A:  Sort the ends.  \r\n\n\tB:Sweep over coordinates.\n\n", methods=2)
    assert plan.keeps
    assert plan.branches == plan.methods == ("Sort the ends.", "Sweep over coordinates.")


def test_a_branch_keeps_its_place_where_another_has_no_method() -> None:
    plan = read_plan("A: Sort the ends.\nC:\nD: ...\n")
    assert plan.branches == ("Sort the ends.", None, None, None)
    assert plan.methods == ("Sort the ends.", "", "...")
    assert plan.breaches == ("missing", "empty")


@pytest.mark.parametrize("text", ["", "\n", "def f(n):\n    return n", "a: sort\n**B:** sweep", "A sort\nB sweep"])
def test_a_text_without_labels_has_no_method(text: str) -> None:
    plan = read_plan(text)
    assert plan.branches == (None,) * 4
    assert plan.methods == ()
    assert "missing" in plan.breaches


@pytest.mark.parametrize(
    "text",
    [
        "Here are four methods:\n" + _plan(*METHODS),
        _plan(*METHODS, "Guess."),
        _plan(*METHODS) + "A: Sort once more.\n",
        _plan(*METHODS) + "```\n```\n",
        _with(1, "Sort the ends. Then take them greedily."),
        _with(3, "Build the graph. These four cover the cases."),
        _with(2, "1. Sort 2. Sweep"),
        _with(2, "(1) sort the ends, (2) sweep over them"),
        _with(2, "Step 1: sort, step 2: sweep."),
        _with(2, "Sweep over coordinates\nwith a counter."),
    ],
)
def test_whatever_is_beyond_a_sentence_a_label_is_extra(text: str) -> None:
    plan = read_plan(text)
    assert "extra" in plan.breaches
    assert None not in plan.branches


def test_what_follows_a_label_that_the_plan_can_not_have_is_no_method() -> None:
    plan = read_plan("A: Sort.\nB: Sweep.\nE: Guess.\nD: Search.\n")
    assert (plan.methods, plan.branches) == (("Sort.", "Sweep."), ("Sort.", "Sweep.", None, None))
    assert plan.breaches == ("missing", "extra")
    assert read_plan("B: Sweep.\nNow one more:\nA: Sort.\n", methods=2).methods == ("Sort.", "Sweep.")


def test_the_first_of_two_lines_with_one_label_is_the_method() -> None:
    assert read_plan("A: Sort.\nA: Sweep.\n", methods=1).branches == ("Sort.",)


@pytest.mark.parametrize(
    ("method", "breaches"), [("word " * 45, ()), ("word " * 46, ("long",)), ("one two three.", ())]
)
def test_a_sentence_has_at_most_so_many_words(method: str, breaches: tuple[str, ...]) -> None:
    assert read_plan(_with(0, method)).breaches == breaches


def test_the_number_of_words_is_the_callers() -> None:
    assert read_plan("A: one two three", methods=1, max_words=2).breaches == ("long",)


@pytest.mark.parametrize("again", ["SORT the intervals,  by end; and take greedily", f"“{METHODS[0]}”"])
def test_case_punctuation_and_white_space_make_no_other_method(again: str) -> None:
    assert read_plan(_with(3, again)).breaches == ("duplicate",)
    assert wording("two-pointer") == wording("Two pointer ")


def test_methods_of_other_scripts_are_told_apart() -> None:
    assert read_plan("A: की\nB: का\n", methods=2).keeps


def test_empty_methods_are_no_duplicates_of_one_another() -> None:
    assert read_plan("A:\nB:\n", methods=2).breaches == ("empty",)


@pytest.mark.parametrize(
    "method",
    [
        "def f(a): return max(a)",
        "return max(a)",
        "dp[i] = max(dp[i - 1], a[i])",
        "x = sorted(a)",
        "total += a[i]",
        "for x in a: s.add(x)",
        "for i, value in enumerate(a): count",
        "a.sort() and take greedily",
        "key=lambda p: p.end",
        "from heapq import heappush",
        "for (int i = 0; i < n; i++) {",
        "```sort(a)```",
    ],
)
def test_code_is_a_breach(method: str) -> None:
    assert "code" in read_plan(_with(2, method)).breaches


@pytest.mark.parametrize(
    "method",
    [
        "Search for cycles in the graph: a depth-first search with colours.",
        "For each equivalence class modulo (k), count and return the largest.",
        "Binary search on the penalty lambda (Aliens' trick): each step is linear.",
        "Keep dp[i] <= i, i.e. BFS over states {0, 1}",
        "While the window is too large, move its left end; return its best length.",
        "Import no order: try all 1.5(n + 1) pairs with a[i] == a[j].",
    ],
)
def test_a_sentence_with_formulas_and_words_of_a_language_is_no_code(method: str) -> None:
    assert read_plan(_with(2, method)).keeps


def test_code_behind_the_last_method_is_named() -> None:
    assert read_plan(_plan(*METHODS) + "def f(n):\n    return n\n").breaches == ("extra", "code")


def test_a_plan_that_was_cut_has_no_last_method() -> None:
    plan = read_plan(_plan(*METHODS), cut=True)
    assert plan.branches == (*METHODS[:3], None)
    assert plan.breaches == ("missing",)
    assert read_plan(_plan(*METHODS) + "These four", cut=True).breaches == ("extra",)
    assert read_plan("", cut=True).breaches == ("missing",)


def test_labels_in_another_order_are_read_by_label() -> None:
    plan = read_plan("B: Sweep over ends.\nA: Sort.\n", methods=2)
    assert plan.branches == ("Sort.", "Sweep over ends.")
    assert plan.keeps


def test_breaches_come_in_one_order() -> None:
    plan = read_plan("Well:\nA: def f(a): return max(a)\nB:\nC: def f(a): return max(a)", max_words=3)
    assert plan.breaches == BREACHES


@pytest.mark.parametrize("methods", [0, 27])
def test_a_label_is_a_letter(methods: int) -> None:
    with pytest.raises(ValueError, match="1 to 26 methods"):
        read_plan("", methods)
