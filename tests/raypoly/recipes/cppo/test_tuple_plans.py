"""What the scaffold `tuple` asks for, round by round."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem
from raypoly.planning.preflight import check_config
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.run_scaffolds import of_evaluations
from tests.raypoly.rollouts.scaffolds.test_scaffolds import PLAN, PROBLEM, PUZZLE, asked, draft


@pytest.mark.parametrize("problem", [PROBLEM, PUZZLE], ids=["fenced", "completion"])
def test_it_ends_with_n_attempts_whatever_was_sampled(problem: Problem) -> None:
    for text in (PLAN, "", "x" * 50, "A: a <|im_end|>\nB:"):
        rounds, drafts = asked(scaffolds.build("tuple"), problem, [text])
        assert [sum(ask.count for ask in each) for each in rounds] == [2, 8]
        assert len(drafts) == scaffolds.build("tuple").planned_drafts(8)
        assert all("<|im_end|>" not in ask.prompt for each in rounds for ask in each)


def test_a_solver_sees_its_own_method_alone() -> None:
    rounds, _ = asked(scaffolds.build("tuple"), PROBLEM, [PLAN, PLAN.replace("loop", "while loop")])
    assert [(ask.role, ask.count, ask.max_tokens) for ask in rounds[0]] == [("plan", 2, 256)]
    assert "labelled A:, B:, C:, D:" in rounds[0][0].prompt
    for place, ask in enumerate(rounds[1]):
        methods = ["loop.", "sum.", "tail.", "reduce."]
        assert [method in ask.prompt for method in methods] == [place % 4 == i for i in range(4)]
        assert ask.parent == place // 4
    assert "while loop" in rounds[1][4].prompt


@pytest.mark.parametrize("missing", ["direct", "empty"])
def test_a_branch_without_a_method_is_solved_as_told(missing: str) -> None:
    scaffold = scaffolds.build("tuple", missing=missing)
    rounds, _ = asked(scaffold, PROBLEM, ["A: Add in a loop.\nC:\nnothing else"], 4)
    first, *others = rounds[1]
    assert "Add in a loop." in first.prompt
    for ask in others:
        assert (ask.prompt, ask.text) == (PROBLEM.prompt, None if missing == "direct" else "")


def test_the_last_line_of_a_plan_that_was_cut_is_no_method() -> None:
    scaffold = scaffolds.build("tuple", methods=2)
    (first, second) = scaffold.ask(PROBLEM, [draft("A: Add in a loop.\nB: Use the", finish_reason="length")], 2)
    assert "Add in a loop." in first.prompt
    assert second.prompt == PROBLEM.prompt


def test_plans_drawn_alone_give_their_first_method_and_are_for_evaluation() -> None:
    scaffold = scaffolds.build("tuple", history="iid")
    rounds, _ = asked(scaffold, PROBLEM, [PLAN], 4)
    assert rounds[0][0].count == 4
    assert all("loop." in ask.prompt and ask.parent == i for i, ask in enumerate(rounds[1]))
    assert (scaffold.block(8), scaffolds.build("tuple").block(8)) == (1, 4)
    with pytest.raises(UsageError, match="history=iid is for evaluation"):
        check_config(load(None, ["scaffold.name=tuple", "scaffold.history=iid"], str), Path())


def test_a_scaffold_that_solves_nothing_asks_for_plans_alone() -> None:
    scaffold = scaffolds.build("tuple", solve=False)
    rounds, drafts = asked(scaffold, PROBLEM, [PLAN])
    assert rounds[-1] == []
    assert (len(drafts), scaffold.planned_attempts(8)) == (2, 0)


def test_attempts_that_methods_do_not_divide_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match=r"scaffold\.methods=4 does not divide 6 attempts"):
        check_config(load(None, ["scaffold.name=tuple", "train.rollouts=6"], str), Path())


def test_plans_alone_are_measured_with_attempts() -> None:
    own = ["scaffold.name=tuple", "scaffold.solve=false", "scaffold.methods=2", "problems.chat_template=plain"]
    (scaffold,) = of_evaluations(load(None, own, str)).values()
    assert (scaffold.planned_attempts(8), scaffold.block(8), scaffold.chat and scaffold.chat.name) == (8, 2, "plain")


def test_a_wrong_name_or_parameter_is_one_sentence() -> None:
    for own, said in (
        (["scaffold.name=tupel"], r"scaffold\.name='tupel' is unknown; did you mean 'tuple'\?"),
        (["scaffold.name=tuple", "scaffold.method=3"], r"scaffold\.method=3 does not fit tuple"),
    ):
        with pytest.raises(UsageError, match=said):
            check_config(load(None, own, str), Path())
