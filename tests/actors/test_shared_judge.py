"""The judge behind a rate-limited server: one detached actor for all jobs of a cluster, which nothing is lost with."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from actors.judge import NAMESPACE, JudgeClient
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeUnavailable
from raypoly.core.values import Evidence, Problem, Rollout, TestSuite, Verdict
from tests.actors.conftest import ACTOR_OPTIONS
from tests.support.faulty_server import Server, running

KEY = "sk-test-4f1c9d2ab7"
PROBLEM = Problem("p-1", "# sum", "f", TestSuite("calls", "[]"))


def group(number: int) -> tuple[Problem, list[Rollout], list[Verdict]]:
    """Three programs of two strategies; no two groups alike."""
    texts = [f"def f(n):\n    return strategy_{s} + {number}" for s in (1, 2, 1)]
    texts[2] += " + 0"
    nothing = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    rollouts = [Rollout(*nothing, text, "stop", 1, 0) for text in texts]
    verdicts = [Verdict("passed", 1, 1, 0.0, "", Evidence(text, (), {}, "")) for text in texts]
    return replace(PROBLEM, id=f"p-{number}"), rollouts, verdicts


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY)
    with running(Server(key=KEY)) as found:
        yield found


def client(server: Server, folder: Path, idle_seconds: float = 900.0, **more: Any) -> JudgeClient:
    settings = {"name": "openai", "model": "marker", "api_key_env": "JUDGE_TEST_KEY", "cache_dir": str(folder), **more}
    return JudgeClient(JudgeConfig(base_url=server.url, **settings), ACTOR_OPTIONS, idle_seconds)


def actors() -> list[Any]:
    """The shared judges that live."""
    return [actor for actor in ray.util.list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE]


def end_all() -> None:
    for actor in actors():
        ray.kill(ray.get_actor(actor["name"], namespace=NAMESPACE))


@pytest.fixture(autouse=True)
def no_judge_is_left() -> Iterator[None]:
    yield
    end_all()


async def test_two_jobs_ask_one_actor_and_what_one_paid_for_the_other_has(server: Server, tmp_path: Path) -> None:
    one, other = client(server, tmp_path), client(server, tmp_path, max_pause=60.0)
    await asyncio.gather(one.start(), other.start())
    assert len(actors()) == 1
    answers = await asyncio.gather(*(one.label(*group(number)) for number in range(20)))
    again = await asyncio.gather(*(other.label(*group(number)) for number in range(20)))
    for labels in answers + again:
        assert labels.ids.tolist() == [1, 2, 1]
    assert len(server.bodies) == 20
    assert (await other.stats())["calls"] == 20
    one.stop()
    assert (await other.label(*group(99))).ids.tolist() == [1, 2, 1]


async def test_an_ensemble_that_asks_a_server_is_shared_too(server: Server, tmp_path: Path) -> None:
    asked = {"name": "ensemble", "members": ["structural", "openai"]}
    one, other = client(server, tmp_path, **asked), client(server, tmp_path, **asked)
    await asyncio.gather(one.start(), other.start())
    assert len(actors()) == 1, "one limiter for the server"
    assert (await one.label(*group(1))).judge == (await other.label(*group(1))).judge
    assert len(server.bodies) == 1, "what one paid for the other has"
    one.stop()
    other.stop()


async def test_another_key_or_model_is_another_actor(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client(server, tmp_path).start()
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY + "-other")
    await client(server, tmp_path).start()
    await client(server, tmp_path, votes=3).start()
    assert len(actors()) == 3


def test_another_key_or_prompt_in_the_same_files_is_another_actor(server: Server, tmp_path: Path) -> None:
    key, prompt = tmp_path / "key", tmp_path / "prompt"
    files: dict[str, Any] = {"api_key_env": None, "api_key_file": str(key), "prompt_file": str(prompt)}

    async def main() -> None:
        for number, (held, said) in enumerate([(KEY, "one"), (KEY, "one"), (KEY + "-new", "one"), (KEY, "two")]):
            key.write_text(held)
            prompt.write_text(said)
            await client(server, tmp_path, **files).start()
            assert len(actors()) == (1, 1, 2, 3)[number]

    asyncio.run(main())
    assert KEY not in str(actors())


async def test_an_actor_that_nobody_asks_ends_itself_and_is_started_again(server: Server, tmp_path: Path) -> None:
    judge = client(server, tmp_path, idle_seconds=3.0)
    await judge.start()
    assert (await judge.label(*group(0))).ids.tolist() == [1, 2, 1]
    deadline = time.monotonic() + 300
    while actors() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert not actors()
    assert (await judge.label(*group(1))).ids.tolist() == [1, 2, 1]


def test_an_outage_arrives_as_itself_and_the_key_is_nowhere(server: Server, tmp_path: Path) -> None:
    async def main() -> None:
        judge = client(server, tmp_path, timeout=5.0)
        await judge.start()
        assert (await judge.label(*group(0))).ids.tolist() == [1, 2, 1]
        server.stopped, server.faults, server.forever = True, ["503"], True
        with pytest.raises(JudgeUnavailable) as outage:
            await judge.label(*group(1))
        assert KEY not in str(outage.value)
        assert all(f"Bearer {KEY}" == authorization for authorization in server.authorizations)

    asyncio.run(main())
    assert KEY not in str(ray.state.actors())  # what the dashboard shows
    session = Path(ray.worker.global_worker.node.get_session_dir_path())
    for path in [*session.rglob("*.log"), *session.rglob("*.out"), *session.rglob("*.err"), *tmp_path.rglob("*")]:
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert KEY.encode() not in entry.read_bytes()
