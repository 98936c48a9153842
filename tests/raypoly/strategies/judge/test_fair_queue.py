"""Turns go round those who ask, and each asker's own come in order."""

from __future__ import annotations

from raypoly.strategies.judge.fair_queue import FairQueue
from raypoly.strategies.judge.judge_usage import asking_for, current_asker


def taken(turns: FairQueue[str]) -> list[str]:
    found = []
    while (item := turns.take()) is not None:
        found.append(item)
    return found


def test_who_asks_for_little_waits_for_one_turn_of_each_other() -> None:
    turns = FairQueue[str]()
    for number in range(5):
        turns.add("many", f"m{number}")
    turns.add("few", "f0")
    turns.add("few", "f1")
    turns.add("third", "t0")
    assert len(turns) == 8
    assert taken(turns) == ["m0", "f0", "t0", "m1", "f1", "m2", "m3", "m4"]
    assert turns.first() is None


def test_who_comes_back_again_and_again_does_not_overtake() -> None:
    turns = FairQueue[str]()
    turns.add("many", "m0")
    turns.add("many", "m1")
    assert turns.take() == "m0"
    turns.add("quick", "q0")
    assert turns.take() == "m1"
    turns.add("many", "m2")
    assert turns.take() == "q0"
    turns.add("quick", "q1")
    assert taken(turns) == ["m2", "q1"]


def test_who_gives_up_leaves_its_run_its_place() -> None:
    turns = FairQueue[str]()
    for item in ("a0", "a1"):
        turns.add("a", item)
    turns.add("b", "b0")
    turns.drop("a", "a0")
    assert turns.first() == "a1"
    turns.drop("a", "a1")
    assert taken(turns) == ["b0"]


def test_who_asks_is_known_inside_and_forgotten_outside() -> None:
    assert current_asker() == ""
    with asking_for("a"):
        with asking_for("b"):
            assert current_asker() == "b"
        assert current_asker() == "a"
    assert current_asker() == ""
