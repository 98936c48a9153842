"""The learner actor: one rank, which owns its part of the master weights and the optimizer.

`raypoly.policy.policy_learner` does the work, and `actors.learner_group` calls all ranks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from actors.watched import Watched
from actors.weight_sending import WeightSending
from raypoly.config import Config
from raypoly.losses import of_run
from raypoly.losses.aggregation import Normalisers
from raypoly.policy.places import Place
from raypoly.policy.training_rows import TrainingRow
from raypoly.policy.update_stats import UpdateStats
from raypoly.store.shards import Shard, ShardReader, ShardWriter
from raypoly.values import Float32, Int32

if TYPE_CHECKING:
    from raypoly.policy.snapshots import Snapshot

WRITING = "writing"
"""The concurrency group in which shards are written, beside the calls that train."""


@dataclass(frozen=True)
class Standing:
    """Where a learner that was set up stands."""

    version: int
    """Of its weights."""
    exact: bool
    """Whether a repeated update gives the same bits."""


class LearnerActor(WeightSending, Watched):
    """One rank. Calls come in order: begin, accumulate ..., update, ..., apply; only `write` goes on beside them."""

    def __init__(self, model_path: str, config: Config) -> None:
        self._model_path, self._config = Path(model_path), config
        self._snapshot: Snapshot | None = None

    def __repr__(self) -> str:
        return f"Learner(weights={self._learner.version if hasattr(self, '_learner') else 'none yet'})"

    def meeting(self) -> tuple[str, int]:
        """For rank 0: host and port where the ranks of this learner meet, for as long as this actor lives."""
        from raypoly.policy.sharding import Meeting

        host = ray.util.get_node_ip_address()
        self._meeting = Meeting(host)
        return host, self._meeting.port

    def setup(self, checkpoint: ShardReader | None, place: Place | None = None) -> Standing:
        """Load the starting model, or a checkpoint; with the other ranks where there are some."""
        from raypoly.policy.policy_learner import PolicyLearner  # brings torch and models, seconds that no driver needs
        from raypoly.policy.ranks import join

        config = self._config
        self._ranks = join(place)
        self._learner = PolicyLearner(
            self._model_path, config.train, of_run(config), config.generator.temperature, config.model, self._ranks
        )
        if checkpoint is not None:
            self._learner.load(*checkpoint.share(self._ranks.rank, self._ranks.size))
        return Standing(self._learner.version, self._learner.exact)

    def begin(self, step: int, normalisers: Normalisers) -> None:
        self._learner.begin(step, normalisers)

    def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        self._learner.accumulate(rows)

    def update(self) -> None:
        self._learner.update()

    def apply(self) -> UpdateStats:
        return self._learner.apply()

    def version(self) -> int | None:
        """How many steps were applied; None between the updates of one."""
        return None if self._learner.midway else self._learner.version

    def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        return self._learner.logprobs(prompt_tokens, tokens, temperature)

    def cross_logprobs(self, prompts: Sequence[Int32], responses: Sequence[Int32]) -> tuple[Float32, ...]:
        return self._learner.cross_logprobs(prompts, responses)

    def snapshot(self) -> None:
        """Keep a copy of the state as it is now, for `write`."""
        self._snapshot = self._learner.snapshot()

    @ray.method(concurrency_group=WRITING)  # type: ignore[untyped-decorator]
    def write(self, writer: ShardWriter) -> tuple[Shard, ...]:
        """Write the copy, and let it go."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            raise RuntimeError("snapshot() comes before write()")
        return writer.write(snapshot.rank, snapshot.parts())

    def pretrained_config(self) -> dict[str, bytes]:
        return self._learner.pretrained_config()

    def save_pretrained(self) -> dict[str, bytes]:
        return self._learner.save_pretrained()
