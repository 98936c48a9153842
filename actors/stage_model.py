"""The actor that holds the model of a stage. `StageModelClient` is the driver's side, which replaces a lost actor.

Until the replacement has answered, the calls wait: nobody's absence is an answer.
"""

from __future__ import annotations

from typing import Any

import ray

from actors.calls import CallContext, ReplacedActor
from actors.model_files import ModelFiles
from actors.watched import WATCHED, Watched, of_run
from raypoly.algorithms.group_stage import StageModel


class StageModelActor(Watched):
    """Answers one call at a time."""

    def __init__(self, name: str, files: ModelFiles, model: StageModel) -> None:
        self._name, self._files, self._spec = name, files, model

    def __repr__(self) -> str:
        return of_run(f"{self._name}({self._files.name})")

    def setup(self) -> None:
        """Load the model. An error fails this call; the actor lives on."""
        import torch

        torch.set_num_threads(self._spec.threads)  # another number adds in another order
        self._model = self._spec.load(self._files.here(), self.beat)

    def ask(self, *question: Any) -> Any:
        return self._model.ask(*question)


class StageModelClient(ReplacedActor):
    """One actor, with Ray's `options`."""

    def __init__(
        self,
        stage: str,
        files: ModelFiles,
        model: StageModel,
        options: dict[str, Any],
        context: CallContext | None = None,
    ) -> None:
        super().__init__(stage, context)
        self._arguments, self._options = (stage, files, model), options

    async def ask(self, *question: Any) -> Any:
        """The model's answer to what travels to its actor."""
        return await self._call(self.who, lambda actor: actor.ask.remote(*question))

    def _launch(self) -> Any:
        options = self._context.unfit.elsewhere(self._options)
        return ray.remote(**WATCHED)(StageModelActor).options(name=self._next_name, **options).remote(*self._arguments)
