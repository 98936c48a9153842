"""Labelled plans of puzzles: as many valid ones as others, with the very prompt that a gate is asked by."""

from __future__ import annotations

from collections import Counter

import pytest

from raypoly.config import ProblemsConfig
from raypoly.errors import UsageError
from raypoly.gates.gate_question import COMPLETION_TEMPLATE, WORDS, GateQuestion
from raypoly.policy.supervised_examples import tokenizer_texts
from raypoly.policy.tiny_model import build_tokenizer
from raypoly.problems.puzzles import load_puzzles, puzzle_of
from raypoly.problems.puzzles.puzzle_plans import is_gold
from raypoly.programs import build
from raypoly.programs.labelled_plans import LabelledPlans
from raypoly.programs.plan_contract import read_plan
from tests.support.gate_folders import PROBLEM

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
