"""Problems that are the same are found whatever their text went through, and no two that a reader would tell apart."""

from __future__ import annotations

import gzip
import json
import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.core.values import Problem
from raypoly.data.formats import problem_of
from raypoly.data.formats.row_fields import prompt_of
from raypoly.data.similar import find_duplicates, find_overlaps
from raypoly.data.similar.ngrams import GramHasher, jaccard, similar_pairs
from raypoly.data.similar.statement_words import strip_markup, words_of_prompt
from tests.raypoly.data.statements import PROBLEMS, problem, prompt
from tests.support.planted_copies import KINDS
from tests.support.small_problems import SHARED

LEETCODE = SHARED / "data" / "leetcode"
TRAIN = "LeetCodeDataset-v0.2.0-train.jsonl.gz"
TEST = "LeetCodeDataset-v0.3.1-test-part.jsonl.gz"
TWINS = {"number-complement", "complement-of-base-10-integer"}
"""One problem that LeetCode has twice, with the same statement."""


def rows(name: str) -> list[dict[str, Any]]:
    if not (LEETCODE / name).exists():
        pytest.skip(f"needs shared/data/leetcode/{name}")
    with gzip.open(LEETCODE / name) as file:
        return [json.loads(line) for line in file]


def copies(texts: dict[str, str], kind: str) -> list[Problem]:
    rng = random.Random(0)
    return [problem(str(n), KINDS[kind](text, rng), was=name) for n, (name, text) in enumerate(texts.items())]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_each_kind_is_found_and_taken_for_no_other(kind: str) -> None:
    planted = copies({it.id: it.prompt for it in PROBLEMS}, kind)
    assert all(copy.prompt != it.prompt for copy, it in zip(planted, PROBLEMS, strict=True))
    pairs = find_overlaps(planted, PROBLEMS)
    assert {pair.dropped.metadata["was"]: pair.kept.id for pair in pairs} == {it.id: it.id for it in PROBLEMS}


@pytest.mark.parametrize("kind", KINDS)
def test_at_least_95_of_100_planted_copies_of_real_problems_are_found(kind: str) -> None:
    some = rows(TRAIN)[::6]
    planted = copies(
        {row["task_id"]: prompt_of(row["meta"]["question_title"], row["meta"]["lang_code"]) for row in some}, kind
    )
    pairs = find_overlaps(planted, [problem_of(row) for row in some])
    right = [pair for pair in pairs if pair.dropped.metadata["was"] == pair.kept.id]
    assert len(right) >= 0.95 * len(some)
    assert all({pair.dropped.metadata["was"], pair.kept.id} == TWINS for pair in pairs if pair not in right)


def test_among_all_real_problems_only_the_twins_are_one() -> None:
    train, test = ([problem_of(row) for row in rows(name)] for name in (TRAIN, TEST))
    assert [{pair.dropped.id, pair.kept.id} for pair in find_duplicates([*train, *test])] == [TWINS]
    assert find_overlaps(train, test) == []


def test_without_their_names_real_problems_are_told_apart_as_well() -> None:
    train = [replace(problem_of(row), id=str(n), metadata={"was": row["task_id"]}) for n, row in enumerate(rows(TRAIN))]
    assert [{pair.dropped.metadata["was"], pair.kept.metadata["was"]} for pair in find_duplicates(train)] == [TWINS]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("the largest amount", "the smallest amount"),
        ("at least rest flowers", "at most rest flowers"),
        ("It need not begin with the first flower.", "It need not begin with the last flower."),
        ("A bee visits some flowers", "A bee visits three flowers"),
        ("has to pass by", "has not to pass by"),
    ],
)
def test_one_word_can_make_another_problem(before: str, after: str) -> None:
    text = prompt("bee-garden")
    assert before in text
    changed = problem("1", text.replace(before, after))
    assert find_duplicates([problem("2", text), changed]) == []


def test_a_comment_in_html_says_nothing() -> None:
    assert strip_markup("Add <!-- not -->two numbers.<!--\n by hand -->")[0] == "Add two numbers."


def test_sequels_are_different_problems_even_with_one_text() -> None:
    text = prompt("tide-table")
    for one, another in (
        ({"id": "tide-table"}, {"id": "tide-table-ii"}),
        ({"id": "tide-table-ii-by-night"}, {"id": "tide-table-iii"}),
        ({"id": "3487", "title": "Tide Table I"}, {"id": "tide-table-ii"}),
        ({"id": "1216_E1. Tides (easy version)"}, {"id": "1216_E2. Tides (hard version)"}),
    ):
        assert find_duplicates([problem(text=text, **one), problem(text=text, **another)]) == []
    assert len(find_duplicates([problem("tide-table-ii", text), problem("3", text, title="Tide Table II")])) == 1
    for id in ("tide-table-iii", "tide-table-iv"):
        two_names = problem("tide-table", text, title="Tide Table II")
        assert find_duplicates([problem(id, text), two_names]) == find_duplicates([two_names, problem(id, text)]) == []


def test_one_name_is_believed_unless_the_texts_have_little_in_common() -> None:
    text = prompt("word-mill")
    shorter = (
        "A mill grinds a word: it takes away every letter that stands beside an equal letter, all of them at once."
    )
    (pair,) = find_overlaps([problem("7", shorter, title="Word Mill")], [problem("word-mill", text)])
    assert pair.reason == "same name"
    assert pair.similarity is not None
    assert 0.3 <= pair.similarity < 0.82
    assert find_overlaps([problem("word-mill", prompt("bee-garden"))], [problem("word-mill", text)]) == []
    (pair,) = find_overlaps([problem("word-mill", "")], [problem("word-mill", text)])
    assert (pair.reason, pair.similarity) == ("same name", None)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ({"id": "1268_B. Domino for Young"}, {"id": "17", "url": "https://codeforces.com/problemset/problem/1268/B"}),
        ({"id": "https://codeforces.com/contest/1268/problem/B"}, {"id": "1268_B"}),
        ({"id": "abc301_a"}, {"id": "9", "url": "https://atcoder.jp/contests/abc301/tasks/abc301_a"}),
        ({"id": "two-sum"}, {"id": "9", "url": "https://leetcode.com/problems/two-sum/"}),
        ({"id": "two-sum"}, {"id": "9", "title": "Two Sum"}),
    ],
)
def test_the_ways_in_which_sources_name_one_problem(one: dict[str, str], another: dict[str, str]) -> None:
    (pair,) = find_duplicates([problem(text="", **one), problem(text="", **another)])
    assert pair.reason == "same name"


def test_numbers_and_hashes_are_no_names() -> None:
    for name in ("11", "0a1b2c3d4e5f6071", ""):
        assert find_overlaps([problem(name, "")], [problem(name, "")]) == []


def test_the_kept_one_has_a_solution_then_more_tests_then_the_longer_text_then_the_smaller_id() -> None:
    text = prompt("choir-rows")
    better = [
        problem("z", text, solution="def f(): pass"),
        problem("y", text, tests="[1, 2, 3]"),
        problem("x", f"{text}\n\n", tests="[]"),
        problem("w1", text),
        problem("w2", text),
    ]
    for place, kept in enumerate(better):
        assert {pair.kept.id for pair in find_duplicates(better[place:])} <= {kept.id}
    assert {pair.dropped.id for pair in find_duplicates(better)} == {"y", "x", "w1", "w2"}


def test_the_order_of_problems_plays_no_part() -> None:
    problems = [*PROBLEMS, *(copy for kind in KINDS for copy in copies({it.id: it.prompt for it in PROBLEMS}, kind))]
    problems = [replace(it, id=f"{n}" if it.metadata else it.id) for n, it in enumerate(problems)]
    expected, against = find_duplicates(problems), find_overlaps(problems[12:], problems[:12])
    assert len(expected) == len(against) == len(problems) - 12
    for seed in range(3):
        random.Random(seed).shuffle(problems)
        assert find_duplicates(problems) == expected
        ours = [it for it in problems if it.metadata]
        assert find_overlaps(ours, [it for it in problems if not it.metadata]) == against


def test_what_remains_has_no_duplicates_and_all_that_is_dropped_has_its_like_in_it() -> None:
    problems = [*PROBLEMS, *copies({it.id: it.prompt for it in PROBLEMS}, "all of it")]
    pairs = find_duplicates(problems)
    dropped = {pair.dropped.id for pair in pairs}
    remaining = [it for it in problems if it.id not in dropped]
    assert find_duplicates(remaining) == []
    assert {pair.kept.id for pair in pairs} <= {it.id for it in remaining}


def test_a_missing_or_tiny_statement_says_nothing() -> None:
    for text in ("", "Add.", "English description is not available for the problem. Please switch to Chinese."):
        assert find_duplicates([problem("1", text), problem("2", text)]) == []


def test_docstrings_are_statements() -> None:
    row = {"task_id": "HumanEval/0", "entry_point": "f", "test": "def check(candidate):\n    pass\n"}
    start = 'def f(xs: list, t: float) -> bool:\n    """ Check whether any two numbers of a list are closer to each '
    one = problem_of(row | {"prompt": f'{start}other than t.\n    >>> f([1.0, 2.0], 0.5)\n    False\n    """\n'})
    other = start.replace("xs", "values").replace(" t:", " threshold:")
    other += 'other than threshold.\n    >>> f([], 3)\n    True\n    """\n'
    two = problem_of(row | {"task_id": "2", "prompt": other})
    assert [pair.reason for pair in find_duplicates([one, two])] == ["same statement"]


@settings(max_examples=60)
@given(st.lists(st.text() | st.text("<>/&;`$\\^*\"'#[](){}:=\n def_a1例"), min_size=2, max_size=4))
def test_no_text_is_too_strange(texts: list[str]) -> None:
    problems = [problem(str(n), text) for n, text in enumerate(texts)]
    pairs = find_duplicates(problems)
    assert pairs == find_duplicates(problems[::-1])
    assert len(pairs) < len(problems)
    for it in problems:
        assert len(words_of_prompt(it.prompt).words) <= len(words_of_prompt(it.prompt).all_words)


@pytest.mark.parametrize(
    "piece",
    [
        "$",
        "`",
        "```\n",
        "<!--",
        "<p ",
        "<p a=",
        "[1",
        "[a,",
        "def f(",
        '"""',
        "x^",
        ">>> ",
        "for example ",
        " ",
        "\n",
        "e.g.(",
    ],
)
def test_long_texts_of_one_piece_are_read_in_time_that_grows_with_them(piece: str) -> None:
    start = time.process_time()
    assert len(words_of_prompt(piece * 30_000).words) <= 90_000
    assert time.process_time() - start < 20, "quadratic time would be minutes"


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 12), max_size=12), max_size=8),
    st.lists(st.lists(st.integers(0, 12), max_size=12), max_size=8),
    st.sampled_from([0.3, 0.5, 0.82, 1.0]),
)
def test_the_join_finds_exactly_what_comparing_all_pairs_finds(
    left: list[list[int]], right: list[list[int]], threshold: float
) -> None:
    hasher = GramHasher()
    ours, theirs = ([hasher.grams([str(word) for word in words]) for words in side] for side in (left, right))
    expected = [
        (i, j)
        for i, a in enumerate(ours)
        for j, b in enumerate(theirs)
        if a.size and b.size and jaccard(a, b) >= threshold
    ]
    assert similar_pairs(ours, theirs, threshold) == expected
