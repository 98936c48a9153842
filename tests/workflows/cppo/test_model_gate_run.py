"""A step whose gate is a model: its actor is asked about plans that keep the contract, and waited for if it is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.exceptions import RayActorError

from actors.model_files import ModelFiles
from actors.stage_model import StageModelClient
from raypoly.algorithms.group_stage import StageModel
from raypoly.core.values import Problem
from raypoly.recipes.cppo.gate_question import GateAnswers
from raypoly.recipes.cppo.gate_stage import load_gate_model
from raypoly.run.store.step_records import CompletedStep
from tests.raypoly.recipes.cppo.gate_folders import BREACH, PLAN, sealed_gate
from tests.support.timed_run import close_run
from tests.support.timed_services import LocalActor
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.test_scaffold_rounds import TwoRounds
from tests.workflows.step.virtual_run import Sampler, open_virtual
from workflows.train import Training


class Planner(Sampler):
    """Of two plans the first keeps the contract, and names its problem."""

    async def sample(self, requests: Sequence[Any]) -> AsyncIterator[Any]:
        plans = {request.slot: request.max_tokens is not None for request in requests}
        async for slot, rollouts in super().sample(requests):
            if plans[slot]:
                first, second = rollouts
                said = PLAN.replace("A: ", f"A: {first.prompt_tokens[-1]} ")
                rollouts = replace(first, text=said), replace(second, text=BREACH)
            yield slot, rollouts


class TwoMethods(TwoRounds):
    @property
    def methods_of_plan(self) -> int:
        return 2


class Actor:
    """Says .9 of plans of problems with an even number, .1 of others."""

    def __init__(self, dies_at: int) -> None:
        self._left = dies_at

    async def setup(self) -> None:
        """It has nothing to load."""

    async def ask(self, problem: Problem, plans: Sequence[str]) -> GateAnswers:
        self._left -= 1
        if not self._left:
            raise RayActorError
        assert not problem.tests.source
        even = np.array([int(plan.split()[1]) % 2 == 0 for plan in plans])
        return GateAnswers(np.where(even, 0.9, 0.1), np.full(len(plans), 0.75))


class LocalGate(StageModelClient):
    """The client itself, over actors of this process, of which the first ones die at a call of theirs."""

    deaths: tuple[int, ...] = ()

    def _launch(self) -> Any:
        return LocalActor(Actor(self.deaths[self.started - 1] if self.started <= len(self.deaths) else 0))

    def stop(self) -> None:
        self._actor = None


def step(folder: Path, gate: Path, deaths: tuple[int, ...]) -> tuple[CompletedStep, dict[str, int]]:
    """A step as the journal has it, and how often each actor was lost."""
    own = (
        f"scaffold.name={__name__}:TwoMethods",
        "objective.name=cppo",
        "loss.name=clipped_surrogate",
        "stages.own=[model_gate]",
        f"stages.gate.path={gate}",
    )

    async def work() -> tuple[CompletedStep, dict[str, int]]:
        opened = await open_virtual(folder, {"p1"}, own)
        services: Any = opened.services
        services.generator = Planner({"p1"}, shared=True)
        model = LocalGate("gate", ModelFiles(gate), StageModel(gate, load_gate_model), {}, services.context)
        model.deaths = deaths
        services.models = {"gate": model}
        await Training(opened).step(0)
        found = opened.durability.journal.load_step(0)
        await close_run(opened)
        return found, dict(services.context.retries.losses)

    return run_virtual(work())


def test_a_gate_whose_actor_dies_is_waited_for_and_nobody_is_refused(tmp_path: Path) -> None:
    gate = sealed_gate(tmp_path / "gate", tau=0.5)
    whole, lost = step(tmp_path / "whole", gate, deaths=())
    assert not lost
    for group in whole.groups:
        part = group.findings["gate"]
        accepted = int(group.problem_id.removeprefix("p")) % 2 == 0
        assert part.column("p").to_pylist() == [0.9 if accepted else 0.1, 0.0]
        assert part.column("accepted").to_pylist() == [accepted, False]
        assert part.column("mass").to_pylist() == [0.75, None], "nobody was asked about a plan that breaches"
    assert whole.applied.metrics["gate/mass"] == pytest.approx(0.75)
    waited, lost = step(tmp_path / "waited", gate, deaths=(1, 2, 2))
    assert lost["The gate"] == 3
    assert waited.applied.digest == whole.applied.digest
