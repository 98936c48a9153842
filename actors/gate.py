"""The gate actor: holds the model of a gate. `GateClient` is the driver's side, which replaces an actor that was lost.

Until the replacement has answered, the calls wait: nobody's absence is a refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray

from actors.calls import LOST, START, CallContext, ReplacedActor, result
from actors.model_files import ModelFiles
from actors.watched import WATCHED, Watched
from raypoly.core.values import Problem, TestSuite
from raypoly.recipes.cppo.gates.base_gate import GateAnswers
from raypoly.recipes.cppo.gates.gate_folder import GateFile
from raypoly.recipes.cppo.gates.model_gate import ModelGate


class GateActor(Watched):
    """Answers one call at a time."""

    def __init__(self, model: ModelFiles, file: GateFile, threads: int) -> None:
        self._files, self._file, self._threads = model, file, threads

    def __repr__(self) -> str:
        return f"Gate({self._files.name})"

    def setup(self) -> None:
        import torch

        from raypoly.recipes.cppo.gates.gate_model import GateModel

        torch.set_num_threads(self._threads)  # another number adds in another order
        self._model = GateModel.load(self._files.here(), self._file.words, self._file.template, self.beat)

    def ask(self, problem: Problem, plans: Sequence[str]) -> GateAnswers:
        return self._model.ask(problem, plans)


class GateClient(ReplacedActor):
    """One gate actor, with Ray's `options`."""

    def __init__(
        self, gate: ModelGate, model: ModelFiles, options: dict[str, Any], context: CallContext | None = None
    ) -> None:
        """`model`: the gate's folder."""
        super().__init__("gate", context)
        self._arguments, self._options = (model, gate.file, gate.config.threads), options

    async def start(self) -> None:
        """Start the actor and load the model. Raises `UsageError` where that can't be had there."""
        while True:
            self._started += 1
            self._actor = self._launch()
            try:
                with self._context.in_flight.waiting(START, "gate", self._actor):
                    await result(self._actor.setup.remote())
                return
            except LOST as error:
                await self._context.retries.again("The gate", error)

    async def ask(self, problem: Problem, plans: Sequence[str]) -> GateAnswers:
        """What the model says about each plan. The problem's tests and solution stay here."""
        bare = replace(problem, tests=TestSuite(problem.tests.kind, ""), public_tests=None, solution="")
        answers: GateAnswers = await self._call("gate", lambda actor: actor.ask.remote(bare, list(plans)))
        return answers

    def _launch(self) -> Any:
        actor = ray.remote(**WATCHED)(GateActor).options(name=self._next_name, **self._options)
        return actor.remote(*self._arguments)
