"""What each scaffold asks for, round by round, of problems whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Draft, Failure, Problem, Rollout, TestSuite, Verdict
from raypoly.data.puzzles import load_puzzles
from raypoly.planning.preflight import check_config
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds import Ask, Scaffold
from raypoly.rollouts.scaffolds.plan_search import observed, subsets
from raypoly.rollouts.scaffolds.run_scaffolds import of_evaluations
from raypoly.rollouts.scaffolds.scaffold import checked_asks, is_final

PROBLEM = Problem(
    "sum",
    "Add all numbers of the list xs.\n\nComplete this code:\n```python\ndef f(xs):\n```\nAnswer with one Python code "
    "block.\n",
    "f",
    TestSuite("calls", json.dumps([{"args": [[1, 2]], "expected": 3}, {"args": [[]], "expected": 0}])),
)
PUZZLE = load_puzzles(ProblemsConfig()).splits["train"][0]
PLAN = "A: Add in a loop.\nB: Use the built-in sum.\nC: Recurse on the tail.\nD: Fold with reduce.\n"


def draft(text: str, role: str = "plan", parent: int | None = None, **facts: Any) -> Draft:
    tokens = np.arange(len(text.split()), dtype=np.int32)
    seed = facts.pop("seed", hash((text, role, parent)) & 0xFFFF)
    values = {"finish_reason": "stop", **facts}
    return Draft(
        Rollout(tokens, tokens, np.zeros(len(tokens), np.float32), text, seed=seed, weight_version=0, **values),
        role,
        parent,
    )


def asked(
    scaffold: Scaffold, problem: Problem, texts: Sequence[str], attempts: int = 8
) -> tuple[list[list[Ask]], list[Draft]]:
    """The asks of every round, and the drafts, whose texts are taken in turn."""
    drafts: list[Draft] = []
    rounds = []
    while True:
        asks = list(checked_asks(scaffold, problem, drafts, attempts))
        rounds.append(asks)
        if is_final(asks):
            return rounds, drafts
        for ask in asks:
            for _ in range(ask.count):
                drafts.append(draft(texts[len(drafts) % len(texts)], ask.role, ask.parent, seed=len(drafts)))


@pytest.mark.parametrize("problem", [PROBLEM, PUZZLE], ids=["fenced", "completion"])
@pytest.mark.parametrize("name", sorted(scaffolds.KNOWN.keys() - {"given"}))
def test_every_scaffold_ends_with_n_attempts_whatever_was_sampled(name: str, problem: Problem) -> None:
    for texts in ([PLAN], [""], ["x" * 50, "- one\n- two"], ["A: a <|im_end|>\nB:"]):
        rounds, drafts = asked(scaffolds.build(name), problem, texts)
        assert sum(ask.count for ask in rounds[-1]) == 8
        assert len(drafts) <= scaffolds.build(name).planned_drafts(8)
        assert all("<|im_end|>" not in ask.prompt for each in rounds for ask in each)
        assert [a.prompt for a in asked(scaffolds.build(name), problem, texts)[0][-1]] == [a.prompt for a in rounds[-1]]


@pytest.mark.parametrize(
    ("name", "count"),
    [("direct", 1), ("chain_of_thought", 1), ("sketch_then_solve", 2), ("plan_search", 4)],
)
def test_rounds_are_as_many_as_the_scaffold_has(name: str, count: int) -> None:
    rounds, _ = asked(scaffolds.build(name), PROBLEM, ["- one\n- two\n- three\n- four\n" + PLAN])
    assert len(rounds) == count


def test_an_instruction_stands_behind_the_statement_and_before_how_to_answer() -> None:
    (ask,) = scaffolds.build("chain_of_thought").ask(PROBLEM, (), 8)
    head, _, tail = ask.prompt.partition("Think step by step")
    assert head == "Add all numbers of the list xs.\n\n"
    assert tail.endswith("```python\ndef f(xs):\n```\nAnswer with one Python code block.\n")


def test_a_chat_is_rendered_and_the_instruction_stays_within_the_users_message() -> None:
    text = f"<|user|>{PROBLEM.prompt}<|end|><|assistant|>"
    chat = replace(PROBLEM, prompt=text, metadata={"statement": "Add all numbers of the list xs."})
    (ask,) = scaffolds.build("plan_and_solve").ask(chat, (), 8)
    assert ask.prompt.startswith("<|user|>Add all numbers of the list xs.\n\nFirst write a short plan")
    assert ask.prompt.endswith("block.\n<|end|><|assistant|>")


def test_ones_own_template_is_used(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("<<user>>\nQ: {statement}\n{signature}\n")
    (ask,) = scaffolds.build("direct", template=str(tmp_path / "mine.txt")).ask(PROBLEM, (), 8)
    assert ask.prompt == "Q: Add all numbers of the list xs.\ndef f(xs):"
    with pytest.raises(UsageError, match=r"scaffold\.template=none\.txt can't be read"):
        checked_asks(scaffolds.build("direct", template="none.txt"), PROBLEM, (), 8)


def test_fixed_sentences_take_turns_and_are_one_block() -> None:
    scaffold = scaffolds.build("fixed_strategy", sentences=("One.", "Two."))
    asks = scaffold.ask(PROBLEM, (), 5)
    assert [("One." in a.prompt, "Two." in a.prompt) for a in asks] == [(True, False), (False, True)] * 2 + [
        (True, False)
    ]
    assert (scaffold.block(4), scaffold.block(5)) == (2, 5)


class PlansAlone(Scaffold):
    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        return [] if drafts else [Ask(problem.prompt, "plan")]

    def planned_attempts(self, attempts: int) -> int:
        return 0


def test_a_scaffold_that_solves_nothing_is_not_measured() -> None:
    alone = load(None, [f"scaffold.name={__name__}:PlansAlone"], str)
    with pytest.raises(UsageError, match=r"PlansAlone has no attempts that could be measured: set evaluate\.every=0"):
        check_config(alone, Path())


def test_subsets_come_by_size_then_by_place() -> None:
    assert subsets(4, 2, 8) == [(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (1, 2)]
    assert subsets(2, 5, 99) == [(0,), (1,), (0, 1)]
    assert subsets(0, 2, 8) == []


def test_observations_are_list_items_or_lines() -> None:
    assert observed("Here:\n- one\n* two\n3. three\nO4: four\n") == ["one", "two", "three", "four"]
    assert observed("one\n\n two ") == ["one", "two"]
    assert observed(" \n") == []


def test_plan_search_shows_each_plan_its_own_observations_and_attempts_take_plans_in_turn() -> None:
    scaffold = scaffolds.build("plan_search", observations=2, order=2, plans=3)
    texts = ["- first\n- second\n- third", "more", "more", "more", "P1", "P2", "P3"]
    rounds, drafts = asked(scaffold, PROBLEM, texts, 7)
    assert [len(each) for each in rounds] == [1, 3, 3, 7]
    shown = [("first" in a.prompt, "second" in a.prompt) for a in rounds[1]]
    assert shown == [(True, False), (False, True), (True, True)]
    assert "third" not in "".join(ask.prompt for ask in rounds[1])
    assert [ask.parent for ask in rounds[2]] == [1, 2, 3]
    assert all("more" in ask.prompt for ask in rounds[2])
    assert [("P1" in a.prompt, "P2" in a.prompt, "P3" in a.prompt).index(True) for a in rounds[3]] == [
        0,
        1,
        2,
        0,
        1,
        2,
        0,
    ]
    assert scaffold.planned_drafts(7) == len(drafts)
    assert scaffold.block(7) == 7


FAILED = Verdict("wrong", 0, 1, 0.1, "test 1", failure=Failure(1, "[1, 2]", "0", "3"))
PASSED = Verdict("passed", 1, 1, 0.1)


def test_upskill_names_its_scaffold_and_owns_its_number_of_skills() -> None:
    config = load(None, ["objective.name=upskill", "objective.skills=3"], str)
    assert len({ask.prompt for ask in scaffolds.of_run(config).ask(PROBLEM, (), 8)}) == 3
    assert len(of_evaluations(config)["direct"].ask(PROBLEM, (), 8)) == 1, "evaluations are direct unless told"
    with pytest.raises(UsageError, match=r"upskill trains with scaffold\.name=skills, not with scaffold\.name=direct"):
        scaffolds.of_run(load(None, ["objective.name=upskill", "scaffold.name=direct"], str))


def test_evaluated_scaffolds_may_have_parameters() -> None:
    words = ["scaffold.name=tuple", "scaffold.plan_tokens=55", "evaluate.ks=[20]"]
    words.append("evaluate.scaffolds=[tuple, {name: tuple, history: iid}, {name: plan_search, plans: 3}, direct]")
    found = of_evaluations(load(None, words, str))
    assert list(found) == ["tuple", "tuple history=iid", "plan_search", "direct"]
    asked = [(it.config.history, it.config.plan_tokens) for name, it in found.items() if name.startswith("tuple")]  # type: ignore[attr-defined]
    assert asked == [("joint", 55), ("iid", 55)]
    assert found["plan_search"].planned_drafts(4) == 7
    with pytest.raises(UsageError, match="plan_tokns=5 does not fit tuple"):
        of_evaluations(load(None, ["evaluate.scaffolds=[{name: tuple, plan_tokns: 5}]"], str))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["scaffold.name=skils"], r"scaffold\.name='skils' is unknown; did you mean 'skills'\?"),
        (["scaffold.name=plan_search", "scaffold.plan=3"], r"scaffold\.plan=3 does not fit plan_search"),
        (["scaffold.methods=3"], r"scaffold\.methods=3 does not fit direct.*takes: template"),
    ],
)
def test_a_scaffold_that_is_not_there_or_takes_no_such_parameter_is_one_sentence(
    overrides: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        check_config(load(None, overrides, str), Path())
