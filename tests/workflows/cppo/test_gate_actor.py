"""The gate actor: it answers as its model does in this process, and is replaced by one with the same bits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from actors.calls import CallContext
from actors.model_files import ModelFiles
from actors.stage_model import StageModelClient
from raypoly.algorithms.group_stage import StageModel
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gate_model import GateModel
from raypoly.recipes.cppo.gate_question import COMPLETION_TEMPLATE, WORDS
from raypoly.recipes.cppo.gate_stage import load_gate_model
from tests.actors.conftest import ACTOR_OPTIONS
from tests.raypoly.recipes.cppo.gate_folders import PLAN, PROBLEM, REWORDED, sealed_gate
from workflows.startup.ray_cluster import connect_ray


@pytest.fixture(autouse=True)
def _on_the_cluster(joined: None) -> Iterator[None]:
    with connect_ray(Config(), "gate"):
        yield


def client_of(folder: Path, context: CallContext) -> StageModelClient:
    model = StageModel(folder, load_gate_model)
    return StageModelClient("gate", ModelFiles(folder), model, ACTOR_OPTIONS, context)


def test_it_answers_as_its_model_and_is_replaced_where_it_was_lost(tmp_path: Path) -> None:
    folder, context = sealed_gate(tmp_path / "gate"), CallContext()
    here = GateModel.load(folder, WORDS, COMPLETION_TEMPLATE).ask(PROBLEM, [PLAN, REWORDED])

    async def main() -> None:
        client = client_of(folder, context)
        try:
            await client.start()
            before = await client.ask(PROBLEM, [PLAN, REWORDED])
            assert before.p == pytest.approx(here.p, abs=1e-6)
            ray.kill(client.actors["gate"])
            both = await asyncio.gather(*(client.ask(PROBLEM, [plan]) for plan in (PLAN, REWORDED)))
            assert [float(each.p[0]) for each in both] == before.p.tolist()
        finally:
            client.stop()

    asyncio.run(main())
    assert context.retries.losses == {"The gate": 1}


async def test_a_folder_that_its_node_lacks_is_the_users_error(tmp_path: Path) -> None:
    folder = sealed_gate(tmp_path / "gate")
    client = client_of(folder, CallContext())
    (folder / "config.json").unlink()

    try:
        with pytest.raises(UsageError, match="is not on node"):
            await client.start()
    finally:
        client.stop()
