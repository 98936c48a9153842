"""The scorer pool: every program gets its verdict once, whatever happens to the actors."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray.autoscaler.v2.sdk import get_cluster_status

from actors import calls
from actors.calls import CallContext, Retries
from actors.scorer_pool import ScorerPool
from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests, SandboxError
from raypoly.core.values import Problem, TestSuite
from tests.actors.conftest import ACTOR_OPTIONS

WORKERS = 2


def squares(identity: str = "squares", padding: int = 0) -> Problem:
    rows = [{"args": [n], "expected": sum(i * i for i in range(n)), "budget": None} for n in (0, 3, 40)]
    return Problem(identity, "# sum of squares", "f", TestSuite("calls", json.dumps(rows) + " " * padding))


RIGHT = "def f(n):\n    return sum([i * i for i in range(n)])"
WRONG = "def f(n):\n    return n"
BROKEN = "def f(n):\n    return (("
ENDLESS = "def f(n):\n    while True:\n        pass"
SLOW = "def f(n):\n    for _ in range(6_000_000):\n        pass\n    return sum(i * i for i in range(n))"


@asynccontextmanager
async def pool(retries: int = 10, **config: float) -> AsyncIterator[ScorerPool]:
    context = CallContext(Retries(retries))
    scorers = ScorerPool(ScorerConfig(**{"workers": WORKERS} | config), ACTOR_OPTIONS, context=context)  # type: ignore[arg-type]
    try:
        await scorers.start()
        yield scorers
    finally:
        scorers.stop()


def variants(count: int) -> list[str]:
    """Right and wrong programs in turn, no two alike."""
    return [
        f"def f(n):\n    k = {i}\n    return sum(i * i for i in range(n)) + (k - {i}) + {i % 2}" for i in range(count)
    ]


async def test_verdicts_come_in_order_with_their_evidence_and_identical_programs_of_a_problem_run_once() -> None:
    async with pool() as scorers:
        verdicts = await scorers.score(squares("four"), [None, BROKEN])
        assert verdicts[0].status == "no_code"
        assert verdicts[1].evidence is None
        before = scorers.programs_run
        first, second = await asyncio.gather(
            scorers.score(squares(), [RIGHT, WRONG, RIGHT, RIGHT]), scorers.score(squares(), [RIGHT, WRONG])
        )
        assert [verdict.status for verdict in first] == ["passed", "wrong", "passed", "passed"]
        assert first[0].evidence is not None
        assert first[0].evidence.strategy == "scan"
        assert scorers.programs_run == before + 2
        assert first[0] is first[2] is second[0]
        # another problem with the same tests asks the same of its programs
        await scorers.score(squares("twin"), [WRONG, RIGHT])
        assert scorers.programs_run == before + 2


async def test_a_timeout_is_measured_again() -> None:
    async with pool(cpu_seconds_per_test=0.3, cpu_seconds_per_program=1.0) as scorers:
        for runs in (1, 2):
            (verdict,) = await scorers.score(squares(), [ENDLESS])
            assert verdict.status == "timeout"
            assert scorers.programs_run == runs


@pytest.mark.parametrize("padding", [0, 100_000], ids=["sent", "stored"])
async def test_all_scorers_killed_at_once_lose_nothing_and_are_replaced(padding: int) -> None:
    """A long test suite is kept where the new scorers find it."""
    codes = variants(24)

    async with pool() as scorers:
        asked = asyncio.create_task(scorers.score(squares(padding=padding), codes))
        while scorers.programs_run < 4:
            await asyncio.sleep(0.005)
        for index in range(WORKERS):
            ray.kill(ray.get_actor(f"scorer-{index}"))
        verdicts = await asyncio.wait_for(asked, 300)
        assert [v.status for v in verdicts] == ["passed", "wrong"] * 12
        assert ray.get_actor("scorer-0-2") is not None


async def test_a_lost_scorer_beyond_the_least_costs_no_retry_and_leaves_no_other_behind() -> None:
    async with pool(retries=0, workers=1, max_workers=2, idle_seconds=1.0) as scorers:
        asked = asyncio.create_task(scorers.score(squares(), [f"{SLOW} + {i} - {i}" for i in range(30)]))
        while scorers.counts()["busy"] < 2:
            await asyncio.sleep(0.005)
        ray.kill(ray.get_actor("scorer-1"))
        assert {v.status for v in await asyncio.wait_for(asked, 300)} == {"passed"}
        await asyncio.sleep(3.0)
        assert scorers.counts() == {"busy": 0, "idle": 1, "starting": 0}


async def test_pending_actors_are_demand_that_an_autoscaler_sees_and_that_goes_with_the_work() -> None:
    def demand() -> int:
        found = get_cluster_status(ray.get_runtime_context().gcs_address).resource_demands.ray_task_actor_demand
        return sum(bundle.count for each in found for bundle in each.bundles_by_count)

    async def until(wanted: int) -> float:
        began = time.monotonic()
        while demand() != wanted:
            assert time.monotonic() - began < 60
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    scorers = ScorerPool(ScorerConfig(workers=1, max_workers=20, cpus=1.0), {"num_cpus": 1})
    try:
        await scorers.start()
        asked = asyncio.create_task(scorers.score(squares(), [f"{SLOW} + {i} - {i}" for i in range(60)]))
        assert await until(18) < 10, "two of twenty have a CPU"
        assert {v.status for v in await asyncio.wait_for(asked, 300)} == {"passed"}
        await until(0)
    finally:
        scorers.stop()


async def test_more_scorers_than_cpus_are_told_with_what_to_do_and_are_no_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "NOTE_SECONDS", 0.5)
    notes: list[str] = []
    context = CallContext(Retries(note=notes.append))
    scorers = ScorerPool(ScorerConfig(workers=5), {"num_cpus": 1.0}, context=context)
    starting = asyncio.create_task(scorers.start())
    try:
        while not notes or not notes[-1].startswith("Waiting for 3 of 5 "):
            assert not starting.done()
            await asyncio.sleep(0.05)
        began, told = time.monotonic(), len(notes)
        while len(notes) == told:
            await asyncio.sleep(0.05)
        assert all(call.since > began for call in context.in_flight.open)
    finally:
        starting.cancel()
        scorers.stop()
    assert notes[-1] == (
        "Waiting for 3 of 5 scorers (scorer.workers): each needs scorer.cpus=1 of a node, and none of 1 has more "
        "than 0 free. `ray status` shows who has them. Unless an autoscaler brings more, add nodes, or lower "
        "scorer.workers or scorer.cpus."
    )


async def test_a_sandbox_that_fails_is_tried_elsewhere_and_one_that_always_fails_is_an_error_and_no_verdict() -> None:
    async with pool() as scorers:
        await scorers.score(squares(), [RIGHT])
        asked = asyncio.create_task(scorers.score(squares(), [SLOW]))
        await asyncio.sleep(0.3)
        kill_zygotes()
        (verdict,) = await asyncio.wait_for(asked, 300)
        assert verdict.status == "passed"
        asked = asyncio.create_task(scorers.score(squares(), [f"{SLOW}  # once more"]))
        while not asked.done():
            kill_zygotes()
            await asyncio.sleep(0.05)
        with pytest.raises(SandboxError, match="squares"):
            await asked


def kill_zygotes() -> None:
    """End the sandbox's own process on every scorer, as the kernel does when memory runs out."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"zygote.py" in entry.read_bytes() and is_ours(int(entry.parent.name)):
                os.kill(int(entry.parent.name), signal.SIGKILL)


def is_ours(pid: int) -> bool:
    """Whether a process hangs below one of this test's Ray."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        if pid == os.getpid():
            return True
    return False


async def test_a_problem_with_a_solution_is_calibrated_once_and_the_policy_s_loops_cost_a_second() -> None:
    async with pool(cpu_seconds_per_test=60.0, cpu_seconds_per_program=120.0) as scorers:
        problem = replace(squares(), solution=RIGHT)
        first, second = await asyncio.gather(
            scorers.score(problem, [ENDLESS, RIGHT]), scorers.score(problem, [WRONG, SLOW])
        )
        assert [verdict.status for verdict in first + second] == ["timeout", "passed", "wrong", "passed"]
        assert first[0].cpu_seconds < 3


async def test_broken_tests_are_the_problem_s_fault_and_a_caller_that_gives_up_takes_nothing_from_another() -> None:
    async with pool() as scorers:
        broken = Problem("odd", "", "f", TestSuite("check", "def check(candidate):\n    assert nowhere(candidate)"))
        for problem in (replace(squares("bad"), prelude="import nowhere"), replace(squares(), prelude="1 / 0")):
            with pytest.raises(BrokenTests, match=r"prelude of problem .* can't be run"):
                await scorers.score(replace(problem, solution=RIGHT), [RIGHT])
            with pytest.raises(BrokenTests, match="can't be run"):
                await scorers.score(problem, [RIGHT])
        assert (await scorers.score(broken, [RIGHT]))[0].status == "wrong"
        assert (await scorers.score(squares(), [RIGHT]))[0].passed
        impatient, patient = (asyncio.create_task(scorers.score(squares(), variants(8))) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        assert [v.status for v in await patient] == ["passed", "wrong"] * 4
