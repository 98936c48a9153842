"""Episodes of verifiers' own environment, against a server of canned answers; where verifiers 0.4.0 is installed."""

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE
from tests.support.answering_server import AnsweringServer
from tests.support.faulty_front import running

vf = pytest.importorskip("verifiers.v1", reason="needs verifiers (uv pip install verifiers==0.4.0)")


class OneCall(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc, name-defined]
    """The prompt decides the seed's parity, by which the server is right or wrong."""

    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, urls: Any, data: Any) -> Any:
        import httpx

        messages = [{"role": "user", "content": data.prompt}]
        body = {"model": ctx.model, "messages": messages, "seed": 1 if "wrong" in data.prompt else 2}
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as client:
            (await client.post(f"{endpoint}/chat/completions", json=body)).raise_for_status()
        return vf.ProgramResult(0, "", "")


class Data(vf.TaskData):  # type: ignore[misc, name-defined]
    problem: str


class Others(vf.Taskset[vf.Task[Data], vf.TasksetConfig]):  # type: ignore[misc, name-defined]
    def load(self) -> Any:
        yield vf.Task(Data(prompt="Double n.", problem=json.dumps(DOUBLE)), self.config.task)


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ids `one-call` and `others`."""
    for name, kind in {"one_call": OneCall, "others": Others}.items():
        module = ModuleType(name)
        module.Plugin, module.__all__ = kind, ["Plugin"]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)


def traces_of(taskset: dict[str, Any], url: str) -> list[Any]:
    from verifiers.v1.configs.client import EvalClientConfig

    agent = {"harness": {"id": "one-call"}, "runtime": {"type": "subprocess"}}
    environment = vf.load_environment(vf.resolve_env_config({"taskset": taskset, "agent": agent}))
    context = vf.ModelContext("solver", EvalClientConfig(base_url=url))

    async def play() -> list[Any]:
        async with environment.serving():
            return [await environment.run_episode(task, context) for task in environment.taskset]

    episodes = asyncio.run(play())
    assert not [error for episode in episodes for error in episode.errors]
    return [episode.traces[0] for episode in episodes]


def test_the_taskset_is_loaded_by_its_id_and_an_unknown_verdict_is_an_error_of_its_trace(tmp_path: Path) -> None:
    rows = [DOUBLE, DOUBLE | {"id": "second", "prompt": "wrong"}, BROKEN]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with running(AnsweringServer()) as server:
        found = traces_of({"id": "raypoly-verifiers", "problems": f"{tmp_path}/problems.jsonl"}, server.url)
    assert [trace.task.data.id for trace in found] == ["double", "second", "broken"]
    assert [trace.ok for trace in found] == [True, True, False]
    assert [trace.rewards["passed"].value for trace in found[:2]] == [1.0, 0.0]
    assert found[2].rewards == {"passed": None}
    assert "Unknown: No verdict" in found[2].last_error.message


def test_another_taskset_has_the_reward_by_one_line() -> None:
    plugged = {"passed": {"fn": "raypoly.integrations.with_verifiers.passed"}}
    with running(AnsweringServer()) as server:
        (trace,) = traces_of({"id": "others", "task": {"rewards": plugged}}, server.url)
    assert (trace.ok, trace.reward) == (True, 1.0)
