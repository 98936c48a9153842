"""Where actors start after a node could not make the run's environment."""

from typing import Any

import pytest
from ray.exceptions import RuntimeEnvSetupError

from actors import calls, engine_actor, learner, scorer_actors, stage_model
from actors.calls import CallContext, Retries, UnfitNodes
from actors.engine_actor import EngineClient
from actors.learner import LearnerGroup
from actors.scorer_actors import ScorerActors
from actors.stage_model import StageModelClient
from raypoly.core.config import Config, ScorerConfig

FULL = RuntimeEnvSetupError("Could not create the actor.\n[Node 10.0.0.7] Traceback\nOSError: No space left on device")
NODES = [{"NodeID": f"node-{i}", "NodeManagerAddress": f"10.0.0.{i}"} for i in (6, 7)]


class FullNode:
    """Ray with a node whose disk is full, where an actor starts unless its options say otherwise."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def nodes(self) -> list[dict[str, str]]:
        return NODES

    def kill(self, actor: Any) -> None:
        """Nothing runs here."""

    def remote(self, **_: Any) -> Any:
        return lambda _: self

    def options(self, *, scheduling_strategy: Any = "SPREAD", **_: Any) -> Any:
        self.asked.append(scheduling_strategy)
        return _Class(scheduling_strategy == "SPREAD")


class _Class:
    def __init__(self, fails: bool) -> None:
        self._fails, self.setup = fails, _SetUp(fails)

    def remote(self, *_: Any) -> Any:
        return self


class _SetUp:
    def __init__(self, fails: bool) -> None:
        self._fails = fails

    async def remote(self, *_: Any) -> None:
        if self._fails:
            raise FULL


async def test_a_node_with_a_full_disk_costs_one_retry_and_the_next_scorers_prefer_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = FullNode()
    for module in (calls, scorer_actors):
        monkeypatch.setattr(module, "ray", ray)
    notes: list[str] = []
    context = CallContext(Retries(10, notes.append))
    options = {"num_cpus": 0.1, "scheduling_strategy": "SPREAD"}
    actors = ScorerActors(ScorerConfig(workers=2), options, context, lambda count: None, lambda: None)
    await actors.start()
    assert len(actors.ready) == 2
    assert context.retries.left == 9
    assert "node 10.0.0.7 could not make the run's environment: OSError" in notes[0]
    *first, third, fourth = ray.asked
    assert first == ["SPREAD", "SPREAD"]
    for strategy in (third, fourth):
        assert avoided(strategy) == ["node-7"]


def avoided(strategy: Any) -> list[str]:
    (preferred,) = strategy.soft
    assert preferred.key == "ray.io/node-id"
    assert not strategy.hard
    found: list[str] = preferred.operator.values
    return found


NOTHING: Any = None  # is loaded


async def delivered(_: EngineClient) -> None:
    """An engine that has the weights."""


@pytest.mark.parametrize("kind", ["stage", "engine"])
async def test_any_other_actor_prefers_other_nodes_too(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    ray = FullNode()
    for module in (calls, stage_model, engine_actor):
        monkeypatch.setattr(module, "ray", ray)
    context, options = CallContext(Retries(10)), {"num_cpus": 1.0}
    if kind == "stage":
        await StageModelClient("mine", NOTHING, NOTHING, options, context).start()
    else:
        await EngineClient("generator", (NOTHING, NOTHING, ""), options, context, delivered).start()
    assert context.retries.left == 9
    assert ray.asked[0] == "SPREAD"
    assert avoided(ray.asked[1]) == ["node-7"]


async def test_the_learners_ranks_prefer_other_nodes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FullNode()
    for module in (calls, learner):
        monkeypatch.setattr(module, "ray", ray)
    context = CallContext(Retries(10))
    context.unfit.take(FULL)
    await LearnerGroup(Config(), NOTHING, lambda rank: {"num_cpus": 1.0}, context, 1.0).start(None)
    assert avoided(ray.asked[0]) == ["node-7"]


def test_a_node_that_ray_does_not_name_is_left_by_trying_them_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ray", FullNode())
    nodes = UnfitNodes()
    assert nodes.elsewhere({"num_cpus": 1}) == {"num_cpus": 1}
    nodes.take(RuntimeEnvSetupError("[Node 127.0.0.1] Traceback\nOSError: No space left on device"))
    assert nodes.elsewhere({"num_cpus": 1}) == {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
