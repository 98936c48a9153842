"""The learner over a run's life: a step from groups to new weights, and the way back to any version of them.

A version is reached from the newest valid checkpoint by *replay*: the journal's completed steps go through the
learner again, without sampling, scoring or judging. On a CPU in fp32 the weights come back bit for bit, and the
journalled digest proves it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from actors.calls import LOST, CallContext, P, Question, T
from actors.learner import LearnerActor, LearnerGroup, put
from raypoly.core.config import TrainConfig
from raypoly.core.errors import WeightsMidway, WeightsMismatch
from raypoly.core.text import duration
from raypoly.learner.update_stats import UpdateStats
from raypoly.run.store.shards import Shard, ShardWriter
from workflows.durability.checkpoint_writer import CheckpointWriter, Copy
from workflows.durability.checkpoints import Checkpoint
from workflows.durability.journal import Journal
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup, UpdateRows

_TELL_SECONDS = 10.0
RANKS = "learner_ranks"
"""In a step's row: how many ranks took it; one if it is missing."""


class LearnerSession:
    """One learner, restored to where it was when any of its ranks is lost."""

    def __init__(
        self,
        config: TrainConfig,
        rows: UpdateRows,
        learners: LearnerGroup,
        journal: Journal,
        saver: CheckpointWriter,
        note: Callable[[str], None],
        context: CallContext,
    ) -> None:
        self._config, self._rows, self._learners = config, rows, learners
        self._journal, self._saver, self._note, self._context = journal, saver, note, context
        self._restoring, self._applying = asyncio.Lock(), asyncio.Lock()
        self._borrowers, self._returned = 0, asyncio.Event()
        self._returned.set()
        self.version = 0
        self.checkpoint: Checkpoint | None = None
        """None for the starting model."""
        self.exact = True
        self.drifted: list[int] = []
        """Steps whose replay gave other weights."""
        self._off_policy: dict[int, int] = {}
        # Step, groups, digest and ranks of the last update.
        self._latest: tuple[int, Sequence[TrainingGroup], str, int] | None = None

    @property
    def started(self) -> int:
        return self._learners.started

    @property
    def base(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.step

    async def start(self) -> None:
        """Restore the newest checkpoint, and replay every completed step after it."""
        self.version = 0
        await self._patiently(self._restore_newest, replace=False)

    def off_policy(self, step: int) -> int:
        """Groups of a step that were sampled under weights which replay did not reproduce."""
        return self._off_policy.get(step, 0)

    async def update(
        self,
        step: int,
        groups: Sequence[asyncio.Future[TrainingGroup | None]],
        watch: Stopwatch,
        hold: asyncio.Event | None = None,
    ) -> UpdateStats:
        """Algorithm 2, line 7: accumulate the groups in slot order, each as soon as it and all before it are ready.
        None is a slot without a group. With `train.mini_batch_prompts` each so many groups make an update of their own,
        not counting those left out. `hold`: what the last update waits for, and gradients do not."""

        async def attempt() -> UpdateStats:
            async with self._restoring:
                begun = self.started
            await self._begin(step)
            watch.again("learn")
            at = taken = 0
            while at < len(groups):
                # in slot order, never in order of arrival: sums in another order are other bits
                await groups[at]
                ready = [group.result() for group in takewhile(asyncio.Future.done, groups[at:])]
                at += len(ready)
                counted = [trained for trained in ready if trained is not None and self._rows.counts(trained)]
                for piece in self._rows.pieces(counted, taken):
                    await self._returned.wait()
                    if self.started != begun:  # somebody who wanted weights found the actor lost, and has replaced it
                        return await attempt()
                    with watch.stage("learn"):
                        await self._take(piece, taken)
                    taken += len(piece)
                    watch.done("learn", len(piece))
            if hold is not None:
                await hold.wait()
            await self._returned.wait()
            if self.started != begun:
                return await attempt()
            with watch.stage("learn"):
                async with self._applying:
                    stats = await self._learners.ask("learn", LearnerActor.apply)
                    trained = [each for group in groups if (each := group.result()) is not None]
                    self._latest = (step, trained, stats.weight_digest, self._config.ranks)
                    self.version = stats.version
                    return stats

        return await self._patiently(attempt)

    async def settled(self) -> None:
        """Return when `version` is that of the learner's weights: no update is being applied."""
        async with self._applying:
            pass

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, no update begins: the weights are on their way to an engine."""
        self._borrowers += 1
        self._returned.clear()
        try:
            yield
        finally:
            self._borrowers -= 1
            if not self._borrowers:
                self._returned.set()

    async def offer(self, transport: str, peer: str) -> Any:
        """A reference to the parcel of the current weights, owned by this process, so that it outlives the actor.
        Between the updates of a step the learner goes back to the step's start, whose weights have a version."""

        async def attempt() -> Any:
            asked = put(self._learners.actors, LearnerActor.offer, transport, peer)
            try:
                await self._learners.answers("update", asked)
            except WeightsMidway:
                self.stop()
                return await attempt()  # finds the learner lost, and so goes back to the step's start
            return asked[0].answer

        return await self._patiently(attempt)

    async def ask(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer of the ranks (`LearnerActor`); of restored ones if any of them is lost."""
        return await self._patiently(lambda: self._learners.ask(stage, question, *args, **kwargs))

    async def ask_once(self, stage: str, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The answer of the ranks as they are. Raises one of `LOST`."""
        return await self._learners.ask(stage, question, *args, **kwargs)

    async def copy(self) -> Copy:
        """Copy the ranks' states. Returns a function that writes the copies."""

        async def attempt() -> Mapping[str, Any]:
            await self._learners.ask("checkpoint", LearnerActor.snapshot)
            return self._learners.actors

        holders = await self._patiently(attempt)

        async def write(writer: ShardWriter) -> Sequence[Shard]:
            written = await self._learners.answers("checkpoint", put(holders, LearnerActor.write, writer))
            return [shard for shards in written for shard in shards]

        return write

    @property
    def actors(self) -> Mapping[str, Any]:
        return self._learners.actors

    def stop(self) -> None:
        self._learners.stop()

    async def _patiently(self, ask: Callable[[], Awaitable[T]], replace: bool = True) -> T:
        """The answer of `ask`, of new ranks restored to the same version where one is lost."""
        lost = -1
        while True:
            used = self.started
            try:
                async with self._restoring:  # many may ask; one of them replaces, and the others wait for it
                    if replace and self.started <= lost:  # nobody has replaced what this caller found lost
                        await self._restore(self.version)
                    used = self.started
                return await ask()
            except LOST as error:
                lost = used
                if self.started == used:  # the other ranks wait for the lost one for ever
                    self.stop()
                await self._context.again("The learner", error)

    async def _launch(self) -> Checkpoint | None:
        self.stop()
        await self._saver.idle()  # else the one that is found could be dropped for a newer one
        checkpoint = await asyncio.to_thread(self._saver.checkpoints.newest_valid)
        standing = await self._learners.start(checkpoint.reader if checkpoint else None)
        self.exact = standing.exact
        if self._learners.started == 1:
            self._note(standing.rows)
        return checkpoint

    async def _begin(self, step: int) -> None:
        await self._learners.ask("learn", LearnerActor.begin, step, self._rows.normalisers)

    async def _take(self, piece: Sequence[TrainingGroup], taken: int) -> None:
        """Accumulate groups that follow the step's first `taken`, after the update of a full mini-batch."""
        if self._rows.begins_update(taken):
            await self._learners.ask("learn", LearnerActor.update)
        await self._learners.ask("learn", LearnerActor.accumulate, self._rows.of(piece))

    async def _restore_newest(self) -> None:
        self.checkpoint = await self._launch()
        self.version = self.base
        steps = self._journal.replayable(self.base)
        await self._replay_all(steps)
        self.version = steps.stop
        for step in self._under_way(self.version) if self.drifted else ():
            begun = self._journal.step(step)
            self._off_policy[step] = len(begun.groups.keys() | begun.conversations.keys())

    async def _restore(self, version: int) -> None:
        checkpoint, known = await self._launch(), len(self.drifted)
        await self._replay_all(range(checkpoint.step if checkpoint else 0, version))
        if len(self.drifted) > known:
            every = self._config.prompts_per_step + self._config.refill
            self._off_policy |= dict.fromkeys(self._under_way(version), every)

    def _under_way(self, version: int) -> range:
        """Steps of which rollouts may be there when the learner has this version."""
        return range(version, version + 1 + self._config.ahead)

    async def _replay_all(self, steps: range) -> None:
        if steps:
            which = f"steps {steps[0] + 1} to {steps[-1] + 1}" if len(steps) > 1 else f"step {steps[0] + 1}"
            self._note(f"Learning {which} again from the journal, without sampling ...")
        began = told = time.monotonic()
        for number, step in enumerate(steps, 1):
            await self._replay(step)
            now = time.monotonic()
            if now - told >= _TELL_SECONDS and number < len(steps):
                told, left = now, (now - began) / number * (len(steps) - number)
                self._note(f"  learned {number} of {len(steps)} again, {duration(left)} left")

    async def _replay(self, step: int) -> None:
        groups, digest, ranks = self._applied(step)
        await self._begin(step)
        taken = 0
        for piece in self._rows.pieces([trained for trained in groups if self._rows.counts(trained)], taken):
            await self._take(piece, taken)
            taken += len(piece)
        stats = await self._learners.ask("learn", LearnerActor.apply)
        self.check_digest(step, stats.weight_digest, digest, ranks)

    def _applied(self, step: int) -> tuple[Sequence[TrainingGroup], str, int]:
        if self._latest is not None and self._latest[0] == step:
            return self._latest[1:]
        done = self._journal.load_step(step)
        of_drafts = done.draft_advantages or (None,) * len(done.groups)
        by_token = done.token_advantages or ({},) * len(done.groups)
        parts = zip(done.groups, done.rewards, done.advantages, of_drafts, by_token, strict=True)
        groups = [
            TrainingGroup(group, r, a, draft_advantages=d, token_advantages=tokens) for group, r, a, d, tokens in parts
        ]
        return groups, done.applied.digest, done.applied.metrics.get(RANKS, 1)

    def check_digest(self, step: int, got: str, want: str, ranks: int) -> None:
        """Compare the weights that a repeated update gave with those that the run had, of an update on `ranks` ranks.

        If they differ, raise `WeightsMismatch` on a CPU with as many ranks. A GPU, whose kernels may not be bit-exact,
        or another number of ranks, which sums in another order, gives a note: groups that were sampled under the old
        weights are kept, and their rows say how far they are off.
        """
        if got == want:
            return
        message = f"Replaying step {step} gave other weights than the run had then"
        now = self._config.ranks
        if self.exact and ranks == now:
            raise WeightsMismatch(f"{message}: was raypoly, torch or the machine changed? Use run.fresh=true to go on.")
        self.drifted.append(step)
        why = "GPU kernels are not bit-exact" if ranks == now else f"with train.ranks={ranks}, now {now}"
        self._note(
            f"{message} ({why}): groups sampled since are kept as off-policy"
            + ("." if self._rows.loss.corrects else "; loss.importance_cap corrects them.")
        )
