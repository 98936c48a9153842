"""In which order the pool's programs run, and what waits for what; on actors that sleep, in a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from actors.scorer import CHUNK, ScorerPool
from raypoly.config import ScorerConfig
from raypoly.values import Problem, TestSuite, Verdict
from tests.support.timed_services import LocalActor, TimedScorers, timed_program
from tests.support.virtual_clock import VirtualLoop

PROBLEM = Problem("p", "", "f", TestSuite("calls", "[]"))


class Noting:
    """An actor whose programs take the seconds that they say; it notes what it was given at once."""

    def __init__(self, given: list[list[str]]) -> None:
        self._given = given

    async def score(self, problem: Problem, suite: Any, codes: Sequence[str]) -> list[Verdict]:
        self._given.append(list(codes))
        seconds = [float(code.split("(")[1].split(")")[0]) for code in codes]
        await asyncio.sleep(sum(seconds))
        return [Verdict("passed", 1, 1, each) for each in seconds]


class NotingScorers(TimedScorers):
    """The pool over such actors."""

    def __init__(self, workers: int) -> None:
        super().__init__(ScorerConfig(workers=workers), {})
        self.given: list[list[str]] = []

    @property
    def program_seconds(self) -> float:
        """The mean that decides how many programs travel together."""
        return self._program_seconds

    async def _start(self, worker: Any) -> None:
        worker.started += 1
        worker.actor = LocalActor(Noting(self.given))


def programs(seconds: Sequence[float], name: str) -> list[str]:
    return [timed_program(each, 0.0, f"{name}.{i}") for i, each in enumerate(seconds)]


def in_virtual_time(workers: int, work: Callable[[NotingScorers], Awaitable[None]]) -> NotingScorers:
    async def main() -> NotingScorers:
        pool = NotingScorers(workers)
        await pool.start()
        await work(pool)
        pool.stop()
        return pool

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def ended(pool: ScorerPool, codes: Sequence[str], order: int = 0) -> float:
    await pool.score(PROBLEM, codes, order)
    return asyncio.get_running_loop().time()


def test_a_loop_holds_up_no_other_program() -> None:
    async def work(pool: NotingScorers) -> None:
        loop, others = await asyncio.gather(
            ended(pool, programs([5.0], "loop")), ended(pool, programs([0.1] * 7, "others"))
        )
        assert loop == pytest.approx(5.0)
        assert others == pytest.approx(0.7)

    in_virtual_time(2, work)


def test_the_programs_that_are_needed_first_run_first() -> None:
    async def work(pool: NotingScorers) -> None:
        late, early = await asyncio.gather(
            ended(pool, programs([1.0] * 4, "late"), order=7), ended(pool, programs([1.0] * 2, "early"), order=2)
        )
        assert early == pytest.approx(2.0)
        assert late == pytest.approx(6.0)

    in_virtual_time(1, work)


@pytest.mark.parametrize(("seconds", "together"), [(0.001, CHUNK), (0.02, 2), (0.049, 1), (0.2, 1)])
def test_short_programs_travel_together(seconds: float, together: int) -> None:
    async def work(pool: NotingScorers) -> None:
        await pool.score(PROBLEM, programs([seconds] * 80, "first"))
        pool.given.clear()
        await pool.score(PROBLEM, programs([seconds] * 8, "next"))

    given = in_virtual_time(2, work).given
    assert [len(codes) for codes in given] == [together] * (8 // together)


def test_programs_that_take_no_time_at_all_travel_on() -> None:
    """So many without code, or that do not parse, that their mean time is 0 in floating point."""

    async def work(pool: NotingScorers) -> None:
        for n in range(10):
            await pool.score(PROBLEM, programs([0.0] * 800, f"none.{n}"))
        assert pool.program_seconds < 1e-320
        pool.given.clear()
        await pool.score(PROBLEM, programs([0.0] * 8, "next"))

    assert [len(codes) for codes in in_virtual_time(2, work).given] == [CHUNK]
