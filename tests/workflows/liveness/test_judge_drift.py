"""The canary asks the run's own judge about the same gold groups again and again, and never invents a number."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import ray

from actors.judge import JudgeClient
from actors.scorer_pool import ScorerPool
from raypoly.core.config import Config, JudgeConfig, ScorerConfig
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.judge_usage import UsageCounts
from raypoly.strategies.judge.label_agreement import adjusted_rand
from tests.support.faulty_server import Server, cluster_of, programs_of, running
from workflows.liveness.judge_drift import EVERY, JudgeDriftMonitor, check_interval, pick_gold_groups
from workflows.startup.ray_cluster import connect_ray

OPTIONS = {"num_cpus": 0.01}


@pytest.fixture
def _on_the_cluster(joined: None) -> Iterator[None]:
    with connect_ray(Config(), "canary"):
        yield


@asynccontextmanager
async def canary(
    server: Server, folder: Path, notes: list[str], used: list[UsageCounts] | None = None
) -> AsyncIterator[tuple[JudgeDriftMonitor, JudgeClient]]:
    """A canary every second step over two groups that are shown as they were written, and its judge."""
    judge_config = JudgeConfig(
        name="openai", base_url=server.url, model="marker", cache_dir=str(folder), view="raw", timeout=5.0,
        canary_every=2, canary_groups=2,
    )  # fmt: skip
    scorers = ScorerPool(ScorerConfig(workers=1), OPTIONS)
    heard = [] if used is None else used
    judge = JudgeClient(judge_config, OPTIONS, on_use=heard.append)
    try:
        await asyncio.gather(scorers.start(), judge.start())
        yield JudgeDriftMonitor(Config(judge=judge_config), scorers, judge, notes.append), judge
    finally:
        scorers.stop()
        for actor in ray.util.list_named_actors(all_namespaces=True):
            if actor["namespace"] == "raypoly-judges":
                ray.kill(ray.get_actor(actor["name"], namespace="raypoly-judges"))


async def look(canary: JudgeDriftMonitor, step: int) -> float | None:
    await asyncio.wait(start(canary, step))
    return canary.take_agreement()


def start(canary: JudgeDriftMonitor, step: int) -> set[asyncio.Task[None]]:
    """The tasks that it starts at this step."""
    before = asyncio.all_tasks()
    canary.start_if_due(step)
    return asyncio.all_tasks() - before


@pytest.mark.usefixtures("_on_the_cluster")
async def test_each_look_asks_anew_about_the_same_groups_and_gives_their_mean_agreement(tmp_path: Path) -> None:
    notes: list[str] = []
    used: list[UsageCounts] = []

    with running(Server()) as server:
        async with canary(server, tmp_path, notes, used) as (found, _):
            first = await look(found, 0)
            asked = sorted("".join(sorted(programs_of(body))) for body in server.bodies)
            assert await look(found, 2) == first, "this server's answers don't drift"
            again = sorted("".join(sorted(programs_of(body))) for body in server.bodies[len(asked) :])
    golds = pick_gold_groups(2, read_gold_groups())
    expected = [adjusted_rand([cluster_of(program) for program in g.programs], g.labels) for g in golds]
    assert first == pytest.approx(sum(expected) / 2)
    assert len(asked) == 2, "one call a group"
    assert again == asked, "past the cache, and the same groups"
    assert not notes
    assert sum(use["calls"] for use in used) == 4, "they count as the run's own"
    tokens = [sum(len(message["content"]) for message in body["messages"]) // 4 for body in server.bodies]
    assert sum(use["prompt_tokens"] for use in used) == sum(tokens)


@pytest.mark.usefixtures("_on_the_cluster")
async def test_an_outage_leaves_the_agreement_unknown_and_says_why(tmp_path: Path) -> None:
    notes: list[str] = []

    with running(Server(faults=["401"], forever=True)) as server:
        async with canary(server, tmp_path, notes) as (found, judge):
            assert await look(found, 0) is None
            (note,) = notes
            assert "unknown this time" in note
            server.forever = False
            await judge.probe()  # as the run does in an outage
            assert await look(found, 2) is not None


@pytest.mark.usefixtures("_on_the_cluster")
async def test_a_look_holds_nobody_up_and_is_not_begun_twice(tmp_path: Path) -> None:
    with running(Server(latency=1.0)) as server:
        async with canary(server, tmp_path, []) as (found, _):
            assert not start(found, 1), "it is not due"
            first = start(found, 2)
            assert len(first) == 1
            assert found.take_agreement() is None, "it goes on"
            assert not start(found, 4), "one is under way"
            await asyncio.wait(first)
            assert found.take_agreement() is not None
            assert found.take_agreement() is None, "nothing is told twice"


def test_the_groups_are_a_choice_for_all_runs_and_more_of_them_hold_the_fewer() -> None:
    golds = read_gold_groups()
    few, many = pick_gold_groups(4, golds), pick_gold_groups(12, golds)
    assert few == many[:4]
    assert all(gold.certainty == "high" and len(set(gold.labels)) > 1 for gold in few)
    assert len({gold.id for gold in many}) == 12
    assert len(pick_gold_groups(1000, golds)) == len(golds)


def test_a_judge_that_can_drift_is_looked_at_without_being_told_to() -> None:
    assert check_interval(JudgeConfig()) == 0
    assert check_interval(JudgeConfig(name="openai")) == check_interval(JudgeConfig(name="ensemble")) == EVERY
    assert check_interval(JudgeConfig(name="openai", canary_every=0)) == 0
    assert check_interval(JudgeConfig(canary_every=7)) == 7
