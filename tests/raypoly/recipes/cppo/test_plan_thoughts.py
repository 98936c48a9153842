"""What a model thinks before its plan is no part of the plan, and no part of what the gate reads."""

from __future__ import annotations

from raypoly.core.config import ProblemsConfig
from raypoly.data import build_problem_set
from raypoly.data.templates import ChatTemplate, load_tokenizer
from raypoly.recipes.cppo.gate_question import TEMPLATE, GateQuestion, question_prompt
from raypoly.recipes.cppo.plan_contract import read_plan
from tests.raypoly.rollouts.scaffolds.test_scaffolds import PLAN
from tests.raypoly.rollouts.scaffolds.test_thinking import ENDS, OFF, THOUGHT, folders

__all__ = ["folders"]


def test_thoughts_are_neither_methods_nor_breaches() -> None:
    plan = read_plan(THOUGHT + PLAN)
    assert (plan.keeps, plan.methods) == (True, read_plan(PLAN).methods)
    assert read_plan(THOUGHT.partition("</think>")[0], cut=True).methods == ()


def test_a_gate_is_asked_as_its_rows_were_rendered(folders: dict[str, str]) -> None:
    render = ChatTemplate(folders["switch"], OFF).renderer()
    question = GateQuestion.of(load_tokenizer(folders["switch"], "a"), kwargs=OFF)
    problem = build_problem_set(ProblemsConfig()).splits["train"][0]
    asked = question.prompt(problem, PLAN)
    assert asked == question_prompt(problem, PLAN, TEMPLATE, render) == question.prompt(problem, THOUGHT + PLAN)
    assert asked.endswith(ENDS["switch", "off"])
