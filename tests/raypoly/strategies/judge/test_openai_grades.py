"""Grades by a question: the judge's server, cache and faults, for a number in place of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused
from raypoly.core.values import TestSuite
from raypoly.strategies.judge.algorithm_categories import QUESTION, category_of
from raypoly.strategies.judge.openai import OpenAIJudge
from raypoly.strategies.judge.openai.judge_reply import AssignedCluster, InvalidAnswer, answer_schema, parse_answer
from tests.raypoly.strategies.judge.openai_groups import group
from tests.support.faulty_server import Server, running


def test_an_answer_may_call_them_grades_and_none_is_above_ten() -> None:
    text = '{"programs": [{"index": 1, "reason": "clear", "grade": 10}]}'
    assert parse_answer(text, 1, graded=True) == [AssignedCluster(10, "clear")]
    with pytest.raises(InvalidAnswer, match=r"less than or equal to 10 at programs\.0\.grade"):
        parse_answer(text.replace("10", "11"), 1, graded=True)
    (entry,) = answer_schema(1, "indexed", graded=True)["properties"]["programs"]["prefixItems"]
    assert entry["properties"]["grade"]["enum"] == list(range(11))
    assert set(entry["required"]) == {"index", "reason", "grade"}


def test_grades_go_to_their_rollouts_are_kept_and_refused_where_no_answer_fits(tmp_path: Path) -> None:
    with running(Server(faults=["500", "ok"])) as server:
        judge = OpenAIJudge(
            JudgeConfig(name="openai", base_url=server.url, model="marker", cache_dir=str(tmp_path)), backoff=0.01
        )
        seen = group("strategy_7", None, "strategy_10", "strategy_7")
        assert judge.grade(*seen, "Is it clear?") == [0.7, 0.0, 1.0, 0.7]
        asked = len(server.bodies)
        assert judge.grade(*seen, "Is it clear?") == [0.7, 0.0, 1.0, 0.7]
        assert len(server.bodies) == asked, "from the cache"
        judge.grade(*seen, "Is it short?")
        assert len(server.bodies) == asked + 1, "another question is another answer"
        shown = str(server.bodies[-1]["messages"])
        assert "Is it short?" in shown
        assert "Grade programs 1 to 2." in shown
        with pytest.raises(JudgeRefused, match="less than or equal to 10"):
            judge.grade(*group("no marker", "strategy_1"), "Is it clear?")
        judge.close()


def test_methods_get_categories_and_a_zero_is_none(tmp_path: Path) -> None:
    problem, rollouts, verdicts = group("strategy_1", "strategy_10", "strategy_0")
    with running(Server()) as server:
        judge = OpenAIJudge(JudgeConfig(name="openai", base_url=server.url, model="marker", cache_dir=str(tmp_path)))
        grades = judge.grade(replace(problem, tests=TestSuite("none", "")), rollouts, verdicts, QUESTION)
        judge.close()
    assert list(map(category_of, grades)) == ["dp", "other", None]
    assert "Unless the question says what numbers mean" in str(server.bodies[-1]["messages"])
