"""Plans of planners: what a run's steps hold, each once, without those that no gate is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gate_rows import written_plans
from tests.raypoly.recipes.cppo.planner_run import CUT, write_planner_run
from tests.support.scored_run import write_scored_run

ONE, TWO, THREE = (f"A: Sort by {word}.\nB: Count every {word}." for word in ("end", "start", "day"))
BREACHES = ("A: Sort.\nA: Sort.", "A: Sort by end.", f"{CUT}{THREE}")


def test_each_plan_is_there_once_and_the_newest_come_last(tmp_path: Path) -> None:
    first = write_planner_run(tmp_path / "first", {"p": [ONE, TWO], "q": [*BREACHES, ONE]}, {"p": [THREE, ONE]})
    second = write_planner_run(tmp_path / "second", {"p": [TWO], "r": BREACHES})
    assert written_plans([first], 2) == {"p": [TWO, THREE, ONE], "q": [ONE]}
    assert written_plans([first, second], 2) == {"p": [THREE, ONE, TWO], "q": [ONE]}
    assert written_plans([first], 3) == {}
    assert written_plans([], 2) == {}


def test_what_has_no_plans_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere does not exist|nowhere is not a run"):
        written_plans([str(tmp_path / "nowhere")], 2)
    with pytest.raises(UsageError, match=r"has no plans: name a run that has trained a planner"):
        written_plans([write_scored_run(tmp_path)], 2)
