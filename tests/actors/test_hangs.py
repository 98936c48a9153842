"""Whatever hangs is found within the configured time, its stack names the line, and one restart is tried."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from actors.calls import CallContext, result
from actors.generator import Generator
from actors.judge import JudgeClient
from actors.model_files import ModelFiles
from actors.scorer_pool import ScorerPool
from raypoly.core.config import Config, GeneratorConfig, JudgeConfig, ScorerConfig
from raypoly.core.errors import RaypolyError, Stalled
from raypoly.rollouts.engines import SampleRequest
from raypoly.run.store.local_store import Disk, LocalStore
from raypoly.run.store.step_records import Applied
from tests.actors.conftest import ACTOR_OPTIONS
from tests.actors.hanging_engine import hang
from tests.actors.test_judge import PROBLEM, ROLLOUTS, VERDICTS
from tests.actors.test_scorer import RIGHT, squares
from tests.support.local_driver import wait_for
from tests.support.random_model import random_model
from tests.workflows.liveness.test_shutdown import title
from workflows.durability.journal import Journal
from workflows.liveness.watchdog import STORAGE, Stacks, Watchdog
from workflows.startup.ray_cluster import descendants

SECONDS = 5.0
OPTIONS = {**ACTOR_OPTIONS, "namespace": "hangs"}


@dataclass
class Guard:
    """A watchdog over parts of a run, and what it said."""

    store: LocalStore
    actors: Callable[[], Mapping[str, Any]]
    context: CallContext = field(default_factory=CallContext)
    notes: list[str] = field(default_factory=list)
    failures: list[RaypolyError] = field(default_factory=list)

    async def over(self, work: Awaitable[Any]) -> Any:
        """What the work gives; None where the watchdog ended it."""
        task, ended, loop = asyncio.ensure_future(work), asyncio.Event(), asyncio.get_running_loop()

        def failed(error: RaypolyError) -> None:
            self.failures.append(error)
            loop.call_soon_threadsafe(ended.set)

        watchdog = Watchdog(SECONDS, self.context.in_flight, self.actors, Stacks(self.store), self.notes.append, failed)
        with watchdog:
            waiting = asyncio.ensure_future(ended.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if ended.is_set():
            task.cancel()
            return None
        return task.result()

    @property
    def stacks(self) -> str:
        return "\n".join(path.read_text() for path in sorted((self.store.root / "stacks").glob("*.txt")))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "run")


@pytest.mark.parametrize("in_c", [False, True])
async def test_a_hung_engine_is_restarted_and_its_submission_repeated(
    store: LocalStore, tmp_path: Path, in_c: bool
) -> None:
    generator, guard = engine(tmp_path, store, times=1, in_c=in_c)
    assert await guard.over(sampled(generator)) == [0, 1, 2]
    generator.stop()
    assert generator.repeated == 1
    assert guard.failures == []
    assert "generator made no progress" in guard.notes[0]
    assert str(store.root / "stacks") in guard.notes[0]
    assert "hanging_engine.py" in guard.stacks
    assert "PyDLL" in guard.stacks or "in sample" in guard.stacks


async def test_an_engine_that_hangs_again_ends_the_run(store: LocalStore, tmp_path: Path) -> None:
    generator, guard = engine(tmp_path, store, times=9)
    assert await guard.over(sampled(generator)) is None
    generator.stop()
    (failure,) = guard.failures
    assert isinstance(failure, Stalled)
    for word in ("generator", "generate", "again after its restart", str(store.root / "stacks"), "stall_seconds"):
        assert word in str(failure)


async def test_a_hung_sandbox_is_restarted_with_its_scorer(store: LocalStore) -> None:
    context = CallContext()
    scorers = ScorerPool(ScorerConfig(workers=1), OPTIONS, context=context)
    guard = Guard(store, lambda: scorers.actors, context)
    await scorers.start()
    pulse = await result(scorers.actors["scorer-0"].pulse.remote())
    sandbox = descendants(pulse.pid)
    for pid in sandbox:
        os.kill(pid, signal.SIGSTOP)
    (verdict,) = await guard.over(scorers.score(squares(), [RIGHT]))
    scorers.stop()
    assert verdict.status == "passed"
    assert "scorer-0 made no progress" in guard.notes[0]
    assert "raypoly/verifier/sandbox/" in guard.stacks
    assert sandbox
    await asyncio.to_thread(wait_for, lambda: not any(map(title, sandbox)), 300)


async def test_a_judge_whose_server_never_answers_is_found(store: LocalStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        context = CallContext()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        judge = JudgeClient(JudgeConfig(name="http", url=url), OPTIONS, context=context)
        guard = Guard(store, lambda: judge.actors, context)
        await judge.start()
        assert await guard.over(judge.label(PROBLEM, ROLLOUTS, VERDICTS)) is None
        judge.stop()
    assert "judge made no progress" in guard.notes[0]
    assert "http_judge.py" in guard.stacks
    assert isinstance(guard.failures[0], Stalled)


class HungDisk(Disk):
    """Its syncs hang once it is told to."""

    def __init__(self) -> None:
        self.hangs, self.free = threading.Event(), threading.Event()

    def sync(self, file: BinaryIO) -> None:
        if self.hangs.is_set():
            self.free.wait(300)
        super().sync(file)


async def test_a_hung_disk_ends_the_run_and_the_stacks_are_kept_elsewhere(tmp_path: Path) -> None:
    disk = HungDisk()
    store = LocalStore(tmp_path / "run", disk)
    journal = Journal(store)
    guard = Guard(store, dict)

    async def commit() -> None:
        with guard.context.in_flight.waiting("commit", STORAGE):
            await journal.commit(Applied(0, "", {}))

    disk.hangs.set()
    assert await guard.over(commit()) is None
    disk.free.set()
    (failure,) = guard.failures
    assert "the storage made no progress" in str(failure)
    path = Path(str(failure).partition(" is in ")[2].partition(".txt")[0] + ".txt")
    told = path.read_text()
    path.unlink()
    assert store.root not in path.parents
    assert "test_hangs.py" in told
    assert "in sync" in told
    await journal.close()


def engine(folder: Path, store: LocalStore, times: int, in_c: bool = False) -> tuple[Generator, Guard]:
    """A generator that hangs so often, and a guard over it."""
    model = random_model(folder / "model")
    hang(model, times, in_c)
    config = Config(generator=GeneratorConfig(engine="tests.actors.hanging_engine:HangingEngine"))
    context = CallContext()
    generator = Generator(config, ModelFiles(model), lambda index: OPTIONS, context)
    return generator, Guard(store, lambda: generator.actors, context)


async def sampled(generator: Generator) -> list[int]:
    """The slots that came."""
    await generator.start()
    requests = [SampleRequest(slot, PROMPT, (1, 2)) for slot in range(3)]
    return [slot async for slot, _ in generator.sample(requests)]


PROMPT = ROLLOUTS[0].prompt_tokens
