"""A page's rollouts are few enough, of whole groups, and are said to be a sample."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.analysis.reports.rollout_browser import RolloutSample, rollout_browser, sample_rollouts
from raypoly.core.values import Problem, TestSuite
from raypoly.run.run_files import STATEMENTS, write_statements
from raypoly.run.store import open_store
from raypoly.run.store.catalogue import step_key
from tests.support.finished_run import write_finished_run
from tests.support.long_run import write_long_run


def test_the_last_evaluation_and_every_step_of_a_short_run_are_whole(tmp_path: Path) -> None:
    run = Run(write_long_run(tmp_path / "short", steps=3, groups=2, rollouts=4, tests=5))
    sample = sample_rollouts(run, 1000)
    assert Counter((row["source"], row["step"]) for row in sample.rows) == {
        ("test", 3): 40, ("training", 0): 8, ("training", 1): 8, ("training", 2): 8,
    }  # fmt: skip
    assert sample.said == [
        "All 40 rollouts of the last evaluation (test split, step 3).",
        "All 24 training rollouts of all steps.",
    ]
    training = next(row for row in sample.rows if row["source"] == "training")
    assert training["advantage"] is not None
    assert training["label"] in {"1", "2", "3", "4"}


def test_a_long_run_is_sampled_from_its_first_to_its_last_step_and_says_so(tmp_path: Path) -> None:
    run = Run(write_long_run(tmp_path / "long", steps=120, groups=2, rollouts=8, tests=5))
    sample = sample_rollouts(run, 400)
    training = Counter(row["step"] for row in sample.rows if row["source"] == "training")
    assert (len(training), min(training), max(training)) == (50, 0, 119)
    assert set(training.values()) == {8}, "one whole group of each step"
    assert sample.said == [
        "All 40 rollouts of the last evaluation (test split, step 120).",
        "400 of the 800 training rollouts of 50 of 120 steps, evenly spaced: the first groups of each.",
    ]
    few = sample_rollouts(run, 20)
    evaluated = Counter(row["problem"] for row in few.rows if row["source"] == "test")
    assert [*evaluated.values()] == [4] * 5
    assert few.said[0] == (
        "20 of the 40 rollouts of the last evaluation (test split, step 120): the first of each problem."
    )


def test_each_rollout_has_its_problem_s_statement_where_the_run_kept_it(tmp_path: Path) -> None:
    folder = write_long_run(tmp_path / "told", steps=1, groups=2, rollouts=4, tests=5)
    assert {row["statement"] for row in sample_rollouts(Run(folder), 100).rows} == {""}
    names = {row["problem"] for row in sample_rollouts(Run(folder), 100).rows}
    problems = [Problem(name, f"Do {name}.", "f", TestSuite("calls", "[]")) for name in names]
    write_statements(open_store(folder), problems)
    sample = sample_rollouts(Run(folder), 100)
    assert all(row["statement"] == f"Do {row['problem']}." for row in sample.rows)
    assert "Do " in rollout_browser({"told": sample})
    (folder / STATEMENTS).write_bytes(b"torn")
    assert Run(folder).statements == {}


def test_prompts_are_left_out_where_the_tokenizer_is_damaged(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "torn")
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "tokenizer.json").write_text('{"version": ')
    sample = sample_rollouts(Run(folder), 100)
    assert {row["prompt"] for row in sample.rows} == {""}
    assert sample.said[0] == f"Prompts are not shown, since {folder}/model/tokenizer.json can't be read."


def test_rollouts_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "damaged")
    (folder / step_key(3)).write_bytes(b"nothing")
    said = sample_rollouts(Run(folder), 100).said
    assert said[0] == "The rollouts of the last evaluation (test, step 12) can't be read."
    assert said[-1] == "The rollouts of steps 3 can't be read."


@pytest.mark.parametrize("most", [1, 7])
def test_no_more_is_taken_than_asked_for(tmp_path: Path, most: int) -> None:
    run = Run(write_long_run(tmp_path / "run", steps=9, groups=1, rollouts=4))
    assert Counter(row["source"] for row in sample_rollouts(run, most).rows) == {"training": most, "test": most}


def test_the_longest_programs_of_a_page_lose_their_middle_and_say_so() -> None:
    row = {"problem": "p", "prompt": "", "status": "passed", "detail": "", "strategy": "", "label": "", "step": 0,
           "advantage": None, "source": "test"}  # fmt: skip
    rows = [{**row, "text": f"begin {i} {'x' * 100_000} end"} for i in range(400)] + [{**row, "text": "short"}]
    page = rollout_browser({"one": RolloutSample(rows, [])})
    assert 10_000_000 < len(page) < 20_000_000
    assert page.count("characters are left out") == 400
    assert all(text in page for text in ("begin 399 xxx", "xxx end", '"short"'))
