"""The learner: an actor a rank (`LearnerActor`), and their client in the driver (`LearnerGroup`, a worker group).

    learners = LearnerGroup(config, model, options, context, temperature)
    standing = await learners.start(checkpoint.reader)
    await learners.ask("learn", LearnerActor.accumulate, rows)          # every rank; rank 0's answer

Ranks wait for each other within a call. If one is lost the others can't go on: catch `LOST`, and `start` new actors at
another port, on the nodes that are there then. `raypoly.learner.policy_learner` does the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

import ray

from actors.calls import LOST, START, CallContext, P, Question, T, result
from actors.model_files import ModelFiles
from actors.watched import GROUP, Watched, of_run
from raypoly.algorithms import losses
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError, WeightsMidway
from raypoly.core.values import Float32, Int32
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.planning.placement import engine_number
from raypoly.rollouts.engines.transfer import Parcel, Sender, build_sender
from raypoly.run.store.shards import ModelWriter, RunWitness, Shard, ShardReader, ShardWriter

if TYPE_CHECKING:
    from raypoly.learner.checkpoint_state import Snapshot

_WRITING = "writing"
# A rank may fail by a dead neighbour before Ray reports the death, by so many seconds at most.
_NEIGHBOUR_SECONDS = 60.0


@dataclass(frozen=True)
class Rendezvous:
    """An actor's rank, and the `torch.distributed.TCPStore` of rank 0 where the ranks of its learner meet."""

    rank: int
    size: int
    host: str
    port: int


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

    def __init__(
        self, model: ModelFiles, config: Config, temperature: float, witness: RunWitness | None = None
    ) -> None:
        """`temperature`: of the log-probabilities that are trained."""
        self._model, self._config, self._temperature, self._witness = model, config, temperature, witness
        self._snapshot: Snapshot | None = None
        self._senders: dict[str, Sender] = {}

    def __repr__(self) -> str:
        return of_run(f"Learner({self._model.name})")

    def meeting(self) -> tuple[str, int]:
        """Host and port where the ranks meet, for as long as this actor, rank 0, lives."""
        from raypoly.learner.sharding import RendezvousStore

        host = ray.util.get_node_ip_address()
        self._store = RendezvousStore(host)
        return host, self._store.port

    def setup(self, checkpoint: ShardReader | None, place: Rendezvous | None = None) -> Standing:
        """Load the starting model, or a checkpoint. With a `place` it returns when all ranks are there. Raises
        `UsageError` where this node does not see the run's folder."""
        if self._witness is not None:
            self._witness.find(ray.util.get_node_ip_address())
        # torch and models take seconds to import, which no driver needs
        from raypoly.learner.policy_learner import PolicyLearner
        from raypoly.learner.ranks import ONE, device

        config, ranks = self._config, ONE
        if place is not None:
            from raypoly.learner.sharding import ShardedRanks  # imports FSDP, which one rank does not need

            ranks = ShardedRanks(place.rank, place.size, place.host, place.port, device())
        self._ranks = ranks
        self._learner = PolicyLearner(
            self._model.here(), config.train, losses.of_run(config), self._temperature, config.model, ranks
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

    def reference_logprobs(self, pairs: Sequence[tuple[Int32, Int32]]) -> Sequence[Float32]:
        return self._learner.reference_logprobs(pairs)

    def snapshot(self) -> None:
        """Copy the state as it is now, for `write`."""
        self._snapshot = self._learner.snapshot()

    @ray.method(concurrency_group=_WRITING)  # type: ignore[untyped-decorator]
    def write(self, writer: ShardWriter) -> tuple[Shard, ...]:
        """Write the copy and drop it."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            raise RuntimeError("snapshot() comes before write()")
        return writer.write(snapshot.rank, snapshot.parts())

    def pretrained_config(self) -> dict[str, bytes]:
        return self._learner.pretrained_config()

    def write_model(self, writer: ModelWriter) -> dict[str, bytes]:
        """Write the finished model's weights. Returns its folder's other files (no tokenizer)."""
        write, dtype = partial(writer.write, beat=self.beat), self._config.run.model_dtype
        return self._learner.write_pretrained(write, dtype, beat=self.beat)

    def listen(self, transport: str, peer: str) -> Mapping[str, Any]:
        """Make a sender for the engine, in place of an earlier one. Returns what the engine's `connect` needs."""
        dtype, rank = self._config.model.dtype, self._ranks.rank
        sender = self._senders[peer] = build_sender(transport, dtype, rank, engine_number(peer))
        return sender.listen(ray.util.get_node_ip_address())

    def connect(self, peer: str) -> None:
        self._senders[peer].connect()

    def offer(self, transport: str, peer: str) -> Parcel:
        """The parcel of the current weights; empty where this actor has not met the engine. Raises `WeightsMidway`."""
        version = self._learner.version
        if self._learner.midway:
            raise WeightsMidway(f"Step {version} is between its updates.")
        if self._config.train.offload == "all":  # also of a new learner: the engine has their place, or gets it now
            self._learner.release()
        if transport == "objects":
            return Parcel(version, weights=self._learner.host_weights())  # Ray copies them before the next call
        sender = self._senders.get(peer)
        if sender is None:
            return Parcel(version)
        parcels = self._ranks.gather(sender.offer(self._learner.whole_weights(), version))
        return next((parcel for parcel in parcels if parcel.pieces), parcels[0])  # of the rank that sends

    def weight_hashes(self) -> dict[str, str]:
        """Of the current weights in the engines' dtype, by name."""
        return self._learner.weight_hashes()

    def digest(self) -> str:
        """As a step's row has it."""
        return self._learner.digest()

    def send(self, peer: str) -> None:
        self._senders[peer].send()

    def withdraw(self, peer: str) -> None:
        if peer in self._senders:
            self._senders[peer].withdraw()

    def release(self) -> None:
        """Free the memory that the next step does not need, or that an engine on this device needs before."""
        self._learner.release()


@dataclass(frozen=True)
class Asked(Generic[T]):
    """A question that one rank is answering."""

    who: str
    actor: Any
    answer: Awaitable[T]
    """Ray's reference, owned by this process."""


class LearnerGroup:
    """All ranks of one learner. Used from one event loop."""

    def __init__(
        self,
        config: Config,
        model: ModelFiles,
        options: Callable[[int], dict[str, Any]],
        context: CallContext,
        temperature: float,
        witness: RunWitness | None = None,
    ) -> None:
        """`options`: Ray's, by rank."""
        self._arguments, self._options = (model, config, temperature, witness), options
        self._context, self._size = context, config.train.ranks
        self._actors: list[Any] = []
        self.started = 0
        """Starts so far."""

    @property
    def actors(self) -> dict[str, Any]:
        return {self._who(rank): actor for rank, actor in enumerate(self._actors)}

    async def start(self, checkpoint: ShardReader | None) -> Standing:
        """Start new actors with the starting model, or with a checkpoint of any number of ranks. Old ones are ended."""
        self.stop()
        self._actors = []
        self.started += 1
        actor = ray.remote(concurrency_groups={_WRITING: 1, GROUP: 1})(LearnerActor)
        for rank in range(self._size):
            name = self._who(rank) + (f"-{self.started}" if self.started > 1 else "")
            options = self._context.unfit.elsewhere(self._options(rank))
            self._actors.append(actor.options(name=name, **options).remote(*self._arguments))
        if self._size == 1:
            return await self.ask(START, LearnerActor.setup, checkpoint)
        first, *_ = ranks = [{who: actor} for who, actor in self.actors.items()]
        ((host, port),) = await self.answers(START, put(first, LearnerActor.meeting))
        places = [Rendezvous(rank, self._size, host, port) for rank in range(self._size)]
        asked = [
            each
            for rank, place in zip(ranks, places, strict=True)
            for each in put(rank, LearnerActor.setup, checkpoint, place)
        ]
        return (await self.answers(START, asked))[0]

    async def ask(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Rank 0's answer, when all ranks have answered. Raises one of `LOST` where a rank is lost."""
        return (await self.answers(stage, put(self.actors, question, *args, **kwargs)))[0]

    async def answers(self, stage: str, asked: Sequence[Asked[T]]) -> Sequence[T]:
        """All answers, in the ranks' order. Raises as `ask`."""
        tasks = [asyncio.ensure_future(self._answer(stage, each)) for each in asked]
        try:
            return await asyncio.gather(*tasks)
        except (*LOST, RaypolyError):
            raise
        except Exception as error:  # a rank's own error, or what it makes of a neighbour's death
            lost = await _lost(tasks)
            if lost is None:
                raise
            raise lost from error
        finally:
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        for actor in self._actors:
            ray.kill(actor)

    async def _answer(self, stage: str, asked: Asked[T]) -> T:
        with self._context.in_flight.waiting(stage, asked.who, asked.actor):
            return await result(asked.answer)

    def _who(self, rank: int) -> str:
        return "learner" if self._size == 1 else f"learner-{rank}"


def put(actors: Mapping[str, Any], question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> Sequence[Asked[T]]:
    """Put a question to these actors. Several get one copy of the arguments in the object store."""
    sent = list(args) if len(actors) < 2 else [ray.put(each) for each in args]
    asked = ((who, actor, getattr(actor, question.__name__)) for who, actor in actors.items())
    return [Asked(who, actor, method.remote(*sent, **kwargs)) for who, actor, method in asked]


async def _lost(tasks: Sequence[asyncio.Task[Any]]) -> BaseException | None:
    # without the lost rank the others would wait for ever
    pending = {task for task in tasks if not task.done()}
    until = asyncio.get_running_loop().time() + _NEIGHBOUR_SECONDS
    while True:
        errors = (task.exception() for task in tasks if task.done() and not task.cancelled())
        lost = next((error for error in errors if isinstance(error, LOST)), None)
        left = until - asyncio.get_running_loop().time()
        if lost is not None or not pending or left <= 0:
            return lost
        _, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
