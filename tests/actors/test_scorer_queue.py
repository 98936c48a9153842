"""In which order the pool's programs run, and what waits for what; on actors that sleep, in a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from actors.scorer_actors import ScorerWorker
from actors.scorer_pool import CHUNK, ScorerPool
from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite, Verdict
from tests.support.timed_services import LocalActor, TimedActors, TimedScorers, timed_program
from tests.support.virtual_clock import VirtualLoop

START_SECONDS, NEVER = 2.0, 1e6
PROBLEM = Problem("p", "", "f", TestSuite("calls", "[]"))


class Noting:
    """An actor whose programs take the seconds that they say, times `factor`; it notes what it was given at once."""

    def __init__(self, given: list[list[str]], factor: float, start_seconds: float) -> None:
        self._given, self._factor, self._start_seconds = given, factor, start_seconds

    async def setup(self) -> None:
        await asyncio.sleep(self._start_seconds)

    async def score(self, problem: Problem, suite: Any, codes: Sequence[str]) -> list[Verdict]:
        self._given.append(list(codes))
        seconds = [float(code.split("(")[1].split(")")[0]) for code in codes]
        await asyncio.sleep(self._factor * sum(seconds))
        return [Verdict("passed", 1, 1, each) for each in seconds]


class NotingActors(TimedActors):
    def __init__(self, notes: NotingScorers, slow: int, places: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._notes, self._slow, self._places = notes, slow, places

    async def _start(self, worker: ScorerWorker) -> None:
        self._make(worker)

    def _make(self, worker: ScorerWorker) -> Any:
        worker.started += 1
        factor = 10.0 if worker.index < self._slow else 1.0
        places = self._places + self._config.workers
        start = START_SECONDS if list(self).index(worker) < places else NEVER
        worker.actor = LocalActor(Noting(self._notes.given, factor, start))
        return worker.actor


class NotingScorers(TimedScorers):
    """The pool over such actors."""

    def __init__(self, workers: int, slow: int = 0, places: int = 0, **config: float) -> None:
        """`slow`: so many are ten times slower. `places`: actors that there are CPUs for, beyond the first."""
        self.given: list[list[str]] = []
        self.actors_class = partial(NotingActors, self, slow, places)
        super().__init__(ScorerConfig(workers=workers, **config), {})  # type: ignore[arg-type]

    @property
    def program_seconds(self) -> float:
        """The mean that decides how many programs travel together."""
        return self._program_seconds


def programs(seconds: Sequence[float], name: str) -> list[str]:
    return [timed_program(each, 0.0, f"{name}.{i}") for i, each in enumerate(seconds)]


def in_virtual_time(
    workers: int, work: Callable[[NotingScorers], Awaitable[None]], slow: int = 0, places: int = 0, **config: float
) -> NotingScorers:
    async def main() -> NotingScorers:
        pool = NotingScorers(workers, slow, places, **config)
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


def test_the_pool_grows_while_programs_wait_and_gives_back_what_idles() -> None:
    async def work(pool: NotingScorers) -> None:
        assert await ended(pool, programs([1.0] * 40, "many")) == pytest.approx(40 / 4 + START_SECONDS, abs=1.0)
        assert pool.counts()["idle"] == 4
        await asyncio.sleep(29)
        assert pool.counts() == {"busy": 0, "idle": 4, "starting": 0}
        await asyncio.sleep(3)
        assert pool.counts() == {"busy": 0, "idle": 1, "starting": 0}

    in_virtual_time(1, work, places=3, max_workers=8, idle_seconds=30.0)


def test_all_that_work_waits_for_is_asked_for_within_a_second_and_what_is_not_needed_is_withdrawn() -> None:
    """Without free CPUs: actors that stay pending are what an autoscaler sees."""

    async def work(pool: NotingScorers) -> None:
        few = asyncio.create_task(pool.score(PROBLEM, programs([1.0] * 4, "few")))
        await asyncio.sleep(0.9)
        assert pool.counts()["starting"] == 3
        many = asyncio.create_task(pool.score(PROBLEM, programs([1.0] * 40, "many")))
        await asyncio.sleep(1.0)
        assert pool.counts()["starting"] == 7
        await asyncio.sleep(39.0)
        assert pool.counts()["starting"] == 7, "withdrawn at once, an actor that starts would be lost for nothing"
        await asyncio.gather(few, many)
        await asyncio.sleep(22.0)
        assert pool.counts() == {"busy": 0, "idle": 1, "starting": 0}

    in_virtual_time(1, work, places=0, max_workers=8)


def test_a_pool_without_a_larger_most_stays_as_it_is() -> None:
    async def work(pool: NotingScorers) -> None:
        assert await ended(pool, programs([1.0] * 8, "many")) == pytest.approx(4.0)
        assert sum(pool.counts().values()) == 2

    in_virtual_time(2, work, places=9)


def test_slow_actors_hold_up_the_end_of_a_step_by_little() -> None:
    """Six actors, two of them ten times slower: 4.2 of full speed."""

    async def work(pool: NotingScorers) -> None:
        assert await ended(pool, programs([0.5] * 96, "many")) < 1.2 * 96 * 0.5 / 4.2

    pool = in_virtual_time(6, work, slow=2)
    assert pool.programs_run == 96


def test_free_cpus_make_up_for_slow_actors() -> None:
    """Two of six actors ten times slower, and CPUs free for two more: as fast as six within a fifth."""
    took: dict[int, float] = {}

    async def work(pool: NotingScorers) -> None:
        took[len(took)] = await ended(pool, programs([0.5] * 96, "many"))

    in_virtual_time(6, work)
    in_virtual_time(6, work, slow=2, places=2, max_workers=8)
    assert took[1] < 1.2 * took[0]


def test_a_slow_program_is_not_given_to_a_second_actor() -> None:
    async def work(pool: NotingScorers) -> None:
        await pool.score(PROBLEM, programs([0.1] * 8, "first"))
        assert await ended(pool, programs([30.0], "slow")) == pytest.approx(30.4, abs=0.2)

    assert sum(len(codes) for codes in in_virtual_time(2, work).given) == 9


def test_an_event_loop_that_ends_sends_no_more_programs() -> None:
    """They would run for ever: nothing cancels what is started while the loop cancels all."""

    async def main() -> NotingScorers:
        pool = NotingScorers(2, 0, 0)
        await pool.start()
        asyncio.create_task(pool.score(PROBLEM, programs([1.0] * 9, "many")))  # noqa: RUF006
        await asyncio.sleep(0.5)
        return pool

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop, pool = runner.get_loop(), runner.run(main())
        assert pool.counts()["busy"] == 2
    assert asyncio.all_tasks(loop) == set()
    assert sum(len(codes) for codes in pool.given) == 2


class CountingLoop(VirtualLoop):
    """Counts what it is asked to run soon."""

    def __init__(self) -> None:
        self.wakeups = 0
        super().__init__()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        self.wakeups += 1
        return super().call_soon(callback, *args, context=context)


def test_idle_actors_are_not_woken_for_chunks_that_others_get() -> None:
    def wakeups(workers: int) -> int:
        async def main() -> int:
            pool, loop = NotingScorers(workers), asyncio.get_running_loop()
            assert isinstance(loop, CountingLoop)
            await pool.start()
            before = loop.wakeups
            for n in range(64):
                await pool.score(PROBLEM, programs([0.2] * 16, str(n)))
            pool.stop()
            return loop.wakeups - before

        with asyncio.Runner(loop_factory=CountingLoop) as runner:
            return runner.run(main())

    assert wakeups(1000) == wakeups(16)
