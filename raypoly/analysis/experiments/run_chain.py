"""Which of some runs begins with another one's weights, read from their configs: the stages of an experiment.

chain = RunChain.of([Run("sft-s0"), Run("joint-s0")])
chain.after, chain.root(1)           # (None, 0), 0
chain.configs[1]                     # as for every seed
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raypoly.core.config import Config
from raypoly.run.run_files import RunFiles

_WEIGHTS = "model"


@dataclass(frozen=True)
class RunChain:
    """Runs by their places in a list."""

    configs: Sequence[Config]
    """Without the seed in the place of what a run was given by another one of its seed: `FOLDER/sft-s*/model`. So seeds
    of a stage differ in their seed alone."""
    after: Sequence[int | None]
    """The run whose weights each begins with; None where it is not among them."""

    @classmethod
    def of(cls, runs: Sequence[RunFiles]) -> RunChain:
        places = {place: number for number, run in enumerate(runs) for place in (run.config.run.dir, run.uri)}
        made = {f"{place}/{_WEIGHTS}": number for place, number in places.items()}
        after = [made.get(run.config.model.path or "") for run in runs]
        return cls([_for_every_seed(run.config) for run in runs], after)

    def root(self, number: int) -> int:
        """The run that its chain begins with; itself where it is after none."""
        seen = [number]
        while (before := self.after[seen[-1]]) is not None and before not in seen:
            seen.append(before)
        return seen[-1]


def _for_every_seed(config: Config) -> Config:
    """A gate's hash is of one seed where its place is."""
    ending = re.compile(rf"-s{config.train.seed}(?=/{_WEIGHTS}$)")
    model, gate = config.model, config.gate
    if model.path is not None:
        model = model.model_copy(update={"path": ending.sub("-s*", model.path)})
    path = gate.parameters.get("path")
    if isinstance(path, str) and ending.search(path):
        gate = gate.model_copy(update={"path": ending.sub("-s*", path), "sha256": None})
    return config.model_copy(update={"model": model, "gate": gate})
