"""The judge actor: labels cross Ray, and so do its kinds of errors."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import numpy as np
import pytest
import ray

from actors.judge import JudgeClient
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, JudgeUnavailable, UsageError
from raypoly.core.values import Evidence, Problem, Rollout, TestSuite, Verdict
from tests.actors.conftest import ACTOR_OPTIONS
from tests.support.judge_server import bind_judge_server

PROBLEM = Problem("p-1", "# sum", "f", TestSuite("calls", "[]" * 1000), answer="completion", prefix="def f(n):\n")
BODIES = (" return sum([x for x in range(n)])", " return n", " return ((")
ROLLOUTS = [
    Rollout(np.arange(5, dtype=np.int32), np.arange(9, dtype=np.int32), np.zeros(9, np.float32), body, "stop", 1, 0)
    for body in BODIES
]
SYNTAX = (Evidence("a", ("comprehension",), {}, ""), Evidence("b", ("closed_form",), {}, ""), None)
VERDICTS = [Verdict("wrong", 0, 1, 0.0, "", evidence) for evidence in SYNTAX]


@asynccontextmanager
async def client(**config: str | None) -> AsyncIterator[JudgeClient]:
    judge = JudgeClient(JudgeConfig(**config), ACTOR_OPTIONS)  # type: ignore[arg-type]
    try:
        await judge.start()
        yield judge
    finally:
        judge.stop()


@contextmanager
def server(port: int = 0, fault: str = "") -> Iterator[str]:
    running = bind_judge_server(port, fault)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}/"
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


async def test_groups_are_labelled_many_at_once_and_killing_the_actor_loses_none() -> None:
    async with client() as judge:
        await judge.probe()
        answers = await asyncio.gather(*(judge.label(PROBLEM, ROLLOUTS, VERDICTS) for _ in range(20)))
        asked = [asyncio.create_task(judge.label(PROBLEM, ROLLOUTS, VERDICTS)) for _ in range(8)]
        await asyncio.sleep(0)
        ray.kill(ray.get_actor("judge"))
        answers += await asyncio.gather(*asked)
        answers.append(await judge.label(PROBLEM, ROLLOUTS, VERDICTS))
    for labels in answers:
        assert labels.ids.tolist() == [1, 2, 0]
        assert labels.degenerate.tolist() == [False, False, True]


async def test_an_outage_and_a_refusal_arrive_as_themselves() -> None:
    with server() as url:
        async with client(name="http", url=url) as judge:
            assert (await judge.label(PROBLEM, ROLLOUTS, VERDICTS)).ids.tolist() == [1, 2, 0]
    async with client(name="http", url=url) as judge:
        with pytest.raises(JudgeUnavailable, match="can't be reached"):
            await judge.label(PROBLEM, ROLLOUTS, VERDICTS)
        with pytest.raises(JudgeUnavailable):
            await judge.probe()
        with server(port=int(url.rsplit(":")[-1].strip("/")), fault="garbage"), pytest.raises(JudgeRefused):
            await judge.label(PROBLEM, ROLLOUTS, VERDICTS)


def test_a_judge_that_the_config_does_not_name_is_a_usage_error() -> None:
    async def main() -> None:
        async with client(name="http"):
            pass

    with pytest.raises(UsageError, match=r"judge\.url"):
        asyncio.run(main())


async def test_a_judge_that_nobody_asks_is_not_started_and_the_first_question_starts_one() -> None:
    judge = JudgeClient(JudgeConfig(), ACTOR_OPTIONS)
    try:
        assert await judge.stats() == {}
        assert judge.actors == {}
        answers = await asyncio.gather(*(judge.label(PROBLEM, ROLLOUTS, VERDICTS) for _ in range(3)))
        assert list(judge.actors) == ["judge"]
    finally:
        judge.stop()
    assert all(labels.ids.tolist() == [1, 2, 0] for labels in answers)
