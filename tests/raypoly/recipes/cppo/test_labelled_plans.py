"""Labelled plans of puzzles: as many valid ones as others, with the very prompt that a gate is asked by."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.data.puzzles import load_puzzles, puzzle_of
from raypoly.learner.supervised_examples import tokenizer_texts
from raypoly.learner.tiny_model import build_tokenizer
from raypoly.recipes.cppo.gate_question import COMPLETION_TEMPLATE, WORDS, GateQuestion
from raypoly.recipes.cppo.given_plans import LabelledPlans, gold_tuple, is_gold, wrong_tuple
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.rollouts.scaffolds import build
from tests.raypoly.recipes.cppo.gate_folders import PROBLEM
from tests.raypoly.recipes.cppo.planner_run import write_planner_run

TRAIN = load_puzzles(ProblemsConfig()).splits["train"]
PROGRAM = build("labelled_plans")


def test_every_second_plan_is_gold_and_all_keep_the_contract() -> None:
    assert isinstance(PROGRAM, LabelledPlans)
    for problem in TRAIN[:40]:
        for plan in PROGRAM.labelled(problem, 8):
            read = read_plan(plan.plan, 4)
            assert read.keeps
            assert is_gold(puzzle_of(problem), read.branches) == plan.valid
    assert Counter(it.valid for it in PROGRAM.labelled(TRAIN[0], 8)) == {True: 4, False: 4}


def test_a_row_is_what_a_gate_is_asked_and_the_word_that_it_should_say() -> None:
    assert isinstance(PROGRAM, LabelledPlans)
    tokenizer = build_tokenizer(tokenizer_texts([puzzle_of(it) for it in TRAIN], planned=True))
    question = GateQuestion.of(tokenizer, WORDS, COMPLETION_TEMPLATE)
    asked = PROGRAM.ask(TRAIN[3], (), 8)
    assert [ask.prompt for ask in asked] == [
        question.prompt(it.problem, it.plan) for it in PROGRAM.labelled(TRAIN[3], 8)
    ]
    assert [ask.text for ask in asked] == ["pass", "fail"] * 4
    assert PROGRAM.ask(TRAIN[3], (), 8) == asked, "the same each time"
    longest = max(len(question.tokens(it.problem, it.plan)) for p in TRAIN for it in PROGRAM.labelled(p, 8))
    assert longest <= 196, "the prompts of docs/cppo.md fit"


def test_what_cant_be_labelled_is_refused() -> None:
    with pytest.raises(UsageError, match=r"train\.rollouts=7 is odd"):
        PROGRAM.check(7)
    with pytest.raises(UsageError, match=r"squares is no puzzle"):
        PROGRAM.ask(PROBLEM, (), 8)


def test_plans_of_runs_are_labelled_and_take_half_of_the_places_at_most(tmp_path: Path) -> None:
    rng, first, second, third = random.Random(1), *TRAIN[:3]
    gold = [gold_tuple(puzzle_of(first), 4, rng) for _ in range(3)]
    wrong = wrong_tuple(puzzle_of(first), "reworded", rng)
    others = gold_tuple(puzzle_of(second), 4, rng)
    run = write_planner_run(tmp_path / "run", {first.id: [*gold, wrong], third.id: [others, "A: no plan"]})
    scaffold = build("labelled_plans", plans_of=[run])
    assert isinstance(scaffold, LabelledPlans)
    assert isinstance(PROGRAM, LabelledPlans)
    found, before = scaffold.labelled(first, 8), PROGRAM.labelled(first, 8)
    written = {it.plan: it.valid for it in found if it.kind == "written"}
    assert written == {gold[2]: True, gold[1]: True, wrong: False}, "the newest, two of four places of a kind"
    assert [it for it in found if it.kind != "written"] == [before[i] for i in (3, 4, 5, 6, 7)], "and the old rows"
    assert Counter(it.valid for it in found) == {True: 4, False: 4}
    assert [it.plan for it in scaffold.labelled(third, 8) if it.kind == "written"] == [others]
    assert [it.valid for it in scaffold.labelled(third, 8) if it.kind == "written"] == [False], "of another puzzle"
    assert scaffold.labelled(second, 8) == PROGRAM.labelled(second, 8), "no plans of it were written"
    assert scaffold.ask(first, (), 8)[0].text == "pass"
