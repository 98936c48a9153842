"""The learner actor: one rank, which owns its part of the master weights and the optimizer.

`raypoly.learner.policy_learner` does the work. `actors.learner_group` calls all ranks together.
`actors.weight_delivery` says when weights are sent to an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from actors.model_files import ModelFiles
from actors.watched import Watched
from raypoly.algorithms.losses import of_run
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config
from raypoly.core.errors import WeightsMidway
from raypoly.core.values import Float32, Int32
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.planning.placement import engine_number
from raypoly.rollouts import scaffolds
from raypoly.rollouts.engines.transfer import Parcel, Sender, build_sender
from raypoly.run.store.shards import Shard, ShardReader, ShardWriter

if TYPE_CHECKING:
    from raypoly.learner.checkpoint_state import Snapshot

WRITING = "writing"
"""The concurrency group in which shards are written, beside the calls that train."""


@dataclass(frozen=True)
class Rendezvous:
    """Which rank an actor is, and where the ranks of its learner meet."""

    rank: int
    size: int
    host: str
    port: int
    """A `torch.distributed.TCPStore` of rank 0 listens there."""


@dataclass(frozen=True)
class Standing:
    """The state of a learner that was set up."""

    version: int
    """Of its weights."""
    exact: bool
    """Whether a repeated update gives the same bits."""
    rows: str
    """How rows go through its model, in a sentence."""


class LearnerActor(Watched):
    """One rank. Calls come in order: begin, accumulate ..., update, ..., apply. Only `write` runs beside them.

    `peer` names an engine in the methods that send weights.
    """

    def __init__(self, model: ModelFiles, config: Config) -> None:
        self._model, self._config = model, config
        self._snapshot: Snapshot | None = None
        self._senders: dict[str, Sender] = {}

    def __repr__(self) -> str:
        """Ray asks once, when the actor is made."""
        return f"Learner({self._model.name})"

    def meeting(self) -> tuple[str, int]:
        """For rank 0: host and port where the ranks of this learner meet, for as long as this actor lives."""
        from raypoly.learner.sharding import RendezvousStore

        host = ray.util.get_node_ip_address()
        self._store = RendezvousStore(host)
        return host, self._store.port

    def setup(self, checkpoint: ShardReader | None, place: Rendezvous | None = None) -> Standing:
        """Load the starting model, or a checkpoint. With a `place` it returns when all ranks are there."""
        from raypoly.learner.policy_learner import (
            PolicyLearner,  # imports torch and models, seconds that no driver needs
        )
        from raypoly.learner.ranks import ONE, device

        config, ranks = self._config, ONE
        if place is not None:
            from raypoly.learner.sharding import ShardedRanks  # imports FSDP, which one rank does not need

            ranks = ShardedRanks(place.rank, place.size, place.host, place.port, device())
        self._ranks = ranks
        # what nobody sampled is learned as the model itself gives it
        temperature = config.generator.temperature if scaffolds.of_run(config).samples else 1.0
        self._learner = PolicyLearner(
            self._model.here(), config.train, of_run(config), temperature, config.model, ranks
        )
        if checkpoint is not None:
            self._learner.load(*checkpoint.share(ranks.rank, ranks.size))
        return Standing(self._learner.version, self._learner.exact, self._learner.rows)

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
        """Write the copy and drop it."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            raise RuntimeError("snapshot() comes before write()")
        return writer.write(snapshot.rank, snapshot.parts())

    def pretrained_config(self) -> dict[str, bytes]:
        return self._learner.pretrained_config()

    def save_pretrained(self) -> dict[str, bytes]:
        return self._learner.save_pretrained()

    def listen(self, transport: str, peer: str) -> Mapping[str, Any]:
        """Make a sender for the engine, in place of an earlier one. Returns what the engine's `connect` needs."""
        dtype, rank = self._config.model.dtype, self._ranks.rank
        sender = self._senders[peer] = build_sender(transport, dtype, rank, engine_number(peer))
        return sender.listen(ray.util.get_node_ip_address())

    def connect(self, peer: str) -> None:
        self._senders[peer].connect()

    def offer(self, transport: str, peer: str) -> Parcel:
        """The parcel of the current weights; empty where this actor has not met the engine.

        Raises `WeightsMidway` between the updates of a step.
        """
        version = self._learner.version
        if self._learner.midway:
            raise WeightsMidway(f"Step {version} is between its updates.")
        if transport == "objects":
            return Parcel(version, weights=self._learner.host_weights())  # Ray copies them before the next call
        sender = self._senders.get(peer)
        if sender is None:
            return Parcel(version)
        parcels = self._ranks.gather(sender.offer(self._learner.whole_weights(), version))
        return next((parcel for parcel in parcels if parcel.pieces), parcels[0])  # of the rank that sends

    def weight_hashes(self) -> dict[str, str]:
        return self._learner.weight_hashes()

    def digest(self) -> str:
        return self._learner.digest()

    def send(self, peer: str) -> None:
        self._senders[peer].send()

    def withdraw(self, peer: str) -> None:
        if peer in self._senders:
            self._senders[peer].withdraw()

    def release(self) -> None:
        self._learner.release()
