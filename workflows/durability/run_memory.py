"""What a run remembers beside its weights, kept in each checkpoint: the objective's memory and the problems' cursor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from raypoly.config import Config
from raypoly.objectives import Objective
from raypoly.problems.pass_rates import PassRates
from workflows.durability.checkpoints import Checkpoint

_OBJECTIVE_STATE = "objective.json"
_ORDER_STATE = "order.json"
"""With `train.refill`: where the next step's problems begin."""
CURSOR = "problems_taken"
"""In a step's row, with `train.refill`: the same."""


class RunMemory:
    """Of one run, as it was after the last completed step: what is under way comes again whole after a resume."""

    def __init__(self, config: Config, objective: Objective) -> None:
        self._refills = bool(config.train.refill)
        self._objective = objective
        self.cursor = 0
        """With `train.refill`: where in the order the problems of the next step begin."""
        self.pass_rates = PassRates()
        """What the completed steps say of each problem; empty where the order does not depend on it."""
        self.objective_state = b"{}"

    def load(self, checkpoint: Checkpoint) -> None:
        """Take up what `files` gave."""
        self._objective.load_state_dict(json.loads(checkpoint.read(_OBJECTIVE_STATE)))
        if self._refills:
            self.cursor = json.loads(checkpoint.read(_ORDER_STATE))["place"]

    def take(self, row: Mapping[str, Any], since_checkpoint: bool = True) -> None:
        """The row of metrics of a completed step, and whether the checkpoint of this start lies before it."""
        self.pass_rates.take(row)
        if since_checkpoint:
            self.cursor = row.get(CURSOR, 0)

    def keep_objective(self) -> None:
        """Take a copy of the objective's memory."""
        self.objective_state = json.dumps(self._objective.state_dict()).encode()

    def files(self) -> dict[str, bytes]:
        """The files of a checkpoint."""
        order = {_ORDER_STATE: json.dumps({"place": self.cursor}).encode()} if self._refills else {}
        return {_OBJECTIVE_STATE: self.objective_state, **order}
