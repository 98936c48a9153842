"""Threads that go round those who ask."""

from __future__ import annotations

import threading

import pytest

from raypoly.strategies.judge.fair_queue import FairThreads


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
