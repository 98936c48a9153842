"""The gate actor: it answers as its model does in this process, and is replaced by one with the same bits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import ray

from actors.calls import CallContext
from actors.gate import GateClient
from actors.model_files import ModelFiles
from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gates.gate_model import GateModel
from raypoly.recipes.cppo.gates.gate_question import COMPLETION_TEMPLATE, WORDS
from raypoly.recipes.cppo.gates.model_gate import ModelGate, ModelGateConfig
from tests.actors.conftest import ACTOR_OPTIONS
from tests.support.gate_folders import PLAN, PROBLEM, REWORDED, sealed_gate


def client_of(folder: Path, context: CallContext) -> GateClient:
    return GateClient(ModelGate(ModelGateConfig(path=str(folder))), ModelFiles(folder), ACTOR_OPTIONS, context)


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
