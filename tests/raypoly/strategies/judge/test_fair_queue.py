"""Turns, and threads, go round those who ask, and each asker's own come in order."""

from __future__ import annotations

import threading

import pytest

from raypoly.strategies.judge.fair_queue import FairQueue, FairThreads
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


def test_who_fills_all_threads_lets_another_in_at_the_first_that_is_free() -> None:
    threads, go, order = FairThreads(2), threading.Event(), list[str]()

    def work(name: str) -> None:
        go.wait(60)
        order.append(name)

    many = [threads.submit("many", lambda i=i: work(f"many {i}")) for i in range(50)]  # type: ignore[misc]
    few = [threads.submit("few", lambda i=i: work(f"few {i}")) for i in range(4)]  # type: ignore[misc]
    go.set()
    for future in (*many, *few):
        future.result(60)
    assert len(order) == 54
    assert max(order.index(f"few {i}") for i in range(4)) < 12


def test_results_and_errors_are_whose_they_are() -> None:
    threads = FairThreads(1)
    failed = threads.submit("a", lambda: 1 // 0)
    fine = threads.submit("a", lambda: 2)
    assert fine.result(60) == 2
    with pytest.raises(ZeroDivisionError):
        failed.result(60)


def test_who_gave_up_before_its_turn_costs_nothing() -> None:
    threads, go, done = FairThreads(1), threading.Event(), list[int]()
    first = threads.submit("a", lambda: go.wait(60))
    left = threads.submit("a", lambda: done.append(1))
    last = threads.submit("a", lambda: done.append(2))
    assert left.cancel()
    go.set()
    first.result(60)
    last.result(60)
    assert done == [2]
