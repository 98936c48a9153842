"""The learner over a run's life: a step from groups to new weights, and the way back to any version of them.

A version is reached from the newest valid checkpoint by *replay*: the journal's completed steps go through the
learner again, without sampling, scoring or judging. On a CPU in fp32 the weights come back bit for bit, and the
journalled digest says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any, TypeVar

from actors.calls import LOST, CallContext
from actors.learner_group import LearnerGroup
from actors.model_files import ModelFiles
from raypoly.core.config import Config
from raypoly.core.errors import WeightsMidway, WeightsMismatch
from raypoly.core.tables import duration
from raypoly.core.values import Float32, Int32
from raypoly.learner.update_stats import UpdateStats
from raypoly.run.store.shards import Shard, ShardWriter
from workflows.durability.checkpoint_writer import CheckpointWriter, Copy
from workflows.durability.checkpoints import Checkpoint
from workflows.durability.journal import Journal
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup
from workflows.step.update_rows import UpdateRows

T = TypeVar("T")

_TELL_SECONDS = 10.0
"""Between two notes about how far a replay is."""
RANKS = "learner_ranks"
"""Key of a step's row of metrics: how many ranks took the step; one if it is missing."""


class LearnerSession:
    """One learner of one or more ranks, restored to where it was when any of them is lost."""

    def __init__(
        self,
        config: Config,
        model: ModelFiles,
        journal: Journal,
        saver: CheckpointWriter,
        options: Callable[[int], dict[str, Any]],
        note: Callable[[str], None],
        context: CallContext | None = None,
    ) -> None:
        self._config, self._journal, self._saver, self._note = config, journal, saver, note
        self._context = context or CallContext()
        self._rows = UpdateRows(config)
        self._learners = LearnerGroup(config, model, options, self._context)
        self._restoring = asyncio.Lock()
        self._borrowers, self._returned = 0, asyncio.Event()
        self._returned.set()
        self.version = 0
        """Steps applied to the weights."""
        self.checkpoint: Checkpoint | None = None
        """What this process started from; None for the starting model."""
        self.exact = True
        """Whether a repeated update must give the same bits."""
        self.drifted: list[int] = []
        """Steps whose replay gave other weights than the run had."""
        self._off_policy: dict[int, int] = {}
        self._latest: tuple[int, Sequence[TrainingGroup], str, int] | None = None
        """Step, groups, digest and ranks of the last update: the journal may not hold it whole yet."""

    @property
    def started(self) -> int:
        """How often its actors were started so far."""
        return self._learners.started

    @property
    def base(self) -> int:
        """The step of the checkpoint that this process started from."""
        return 0 if self.checkpoint is None else self.checkpoint.step

    async def start(self) -> None:
        """From the newest checkpoint, through every completed step after it."""
        self.version = 0
        await self._patiently(self._restore_newest, replace=False)

    def off_policy(self, step: int) -> int:
        """How many groups of a step were sampled under weights that replay did not reproduce."""
        return self._off_policy.get(step, 0)

    async def update(
        self, step: int, groups: Sequence[asyncio.Future[TrainingGroup | None]], watch: Stopwatch
    ) -> UpdateStats:
        """Algorithm 2, line 7: accumulate the groups in slot order, each as soon as it and all before it are ready;
        those that are ready together go together. None is a slot without a group.

        With `train.mini_batch_prompts` each so many groups make an update of their own, not counting those left out.
        """

        async def attempt() -> UpdateStats:
            async with self._restoring:
                begun = self.started
            await self._begin(step)
            watch.again("learn")
            at = taken = 0
            while at < len(groups):
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
            await self._returned.wait()
            if self.started != begun:
                return await attempt()
            with watch.stage("learn"):
                return await self._apply()

        stats = await self._patiently(attempt)
        self.version = stats.version
        taken = [trained for group in groups if (trained := await group) is not None]
        self._latest = (step, taken, stats.weight_digest, self._config.train.ranks)
        return stats

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, no update of a step begins: the weights are on their way to an engine."""
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

        Between the updates of a step the learner goes back to the step's start: only those weights have a version.
        """

        async def attempt() -> Any:
            return await self._learners.reference("update", lambda rank: rank.offer.remote(transport, peer))

        async def from_the_start() -> Any:
            try:
                return await attempt()
            except WeightsMidway:
                self.stop()
                return await attempt()  # finds the learner lost

        return await self._patiently(from_the_start)

    async def listen(self, transport: str, peer: str) -> Any:
        return await self._patiently(
            lambda: self._learners.call("update", lambda rank: rank.listen.remote(transport, peer))
        )

    async def connect(self, peer: str) -> None:
        await self._learners.call("update", lambda rank: rank.connect.remote(peer))

    async def send(self, peer: str) -> None:
        await self._learners.call("update", lambda rank: rank.send.remote(peer))

    async def withdraw(self, peer: str) -> None:
        """Does nothing if the actor is lost: its end withdraws all."""
        with suppress(*LOST):
            await self._learners.call("update", lambda rank: rank.withdraw.remote(peer))

    async def release(self) -> None:
        """Free the memory that the next step does not need."""
        await self._patiently(lambda: self._learners.call("update", lambda rank: rank.release.remote()))

    async def weight_hashes(self) -> dict[str, str]:
        """Of the current weights in the engines' dtype, by name."""
        return await self._patiently(lambda: self._learners.call("update", lambda rank: rank.weight_hashes.remote()))

    async def digest(self) -> str:
        """`weight_digest` of the current weights, as a step's row of metrics has it."""
        return await self._patiently(lambda: self._learners.call("update", lambda rank: rank.digest.remote()))

    async def logprobs(self, prompt_tokens: Int32, tokens: Int32, temperature: float) -> Float32:
        return await self._patiently(
            lambda: self._learners.call("update", lambda rank: rank.logprobs.remote(prompt_tokens, tokens, temperature))
        )

    async def cross_logprobs(self, prompts: Sequence[Int32], responses: Sequence[Int32]) -> tuple[Float32, ...]:
        """Log-probabilities of each response behind each prompt, float32 [P, T]. Ask before the step's first update."""

        async def attempt() -> tuple[Float32, ...]:
            asked = self._learners.shared(prompts), self._learners.shared(responses)
            return await self._learners.call("cross", lambda rank: rank.cross_logprobs.remote(*asked))

        return await self._patiently(attempt)

    async def copy(self) -> Copy:
        """Copy every rank's state to the host. Returns a function that writes the copies."""

        async def attempt() -> Mapping[str, Any]:
            await self._learners.each("checkpoint", lambda rank: rank.snapshot.remote())
            return self._learners.actors

        holders = await self._patiently(attempt)

        async def write(writer: ShardWriter) -> Sequence[Shard]:
            written = await self._learners.each("checkpoint", lambda rank: rank.write.remote(writer), holders)
            return [shard for shards in written for shard in shards]

        return write

    async def applied(self) -> int | None:
        """The version of the ranks' own weights, which may be one ahead of `version`; None within a step."""
        return await self._learners.call("update", lambda rank: rank.version.remote())

    async def pretrained_config(self) -> dict[str, bytes]:
        """The files that make a folder of the weights a Hugging Face one, without the tokenizer's."""
        return await self._patiently(
            lambda: self._learners.call("export", lambda rank: rank.pretrained_config.remote())
        )

    async def pretrained(self) -> dict[str, bytes]:
        """The files of a Hugging Face folder, without the tokenizer's."""
        return await self._patiently(lambda: self._learners.call("export", lambda rank: rank.save_pretrained.remote()))

    @property
    def actors(self) -> Mapping[str, Any]:
        """The ranks' handles by their names."""
        return self._learners.actors

    def stop(self) -> None:
        self._learners.stop()

    async def _patiently(self, ask: Callable[[], Awaitable[T]], replace: bool = True) -> T:
        """The answer of `ask`. If a rank is lost, restore new ranks to the same version and ask again."""
        lost = -1
        while True:
            used = self.started
            try:
                async with self._restoring:  # many may ask; one of them replaces, and the others wait for it
                    if replace and self.started <= lost:
                        await self._restore(self.version)
                    used = self.started
                return await ask()
            except LOST as error:
                lost = used
                if self.started == used:
                    self.stop()
                await self._context.retries.again("The learner", error)

    async def _launch(self) -> Checkpoint | None:
        """Start new actors from the newest checkpoint, which is returned."""
        self.stop()
        await self._saver.idle()  # else the one that is found could be dropped for a newer one
        checkpoint = await asyncio.to_thread(self._saver.checkpoints.newest_valid)
        standing = await self._learners.start(checkpoint.reader if checkpoint else None)
        self.exact = standing.exact
        if self._learners.started == 1:
            self._note(standing.rows)
        return checkpoint

    async def _begin(self, step: int) -> None:
        await self._learners.call("learn", lambda rank: rank.begin.remote(step, self._rows.normalisers))

    async def _take(self, piece: Sequence[TrainingGroup], taken: int) -> None:
        """Accumulate groups that follow the step's first `taken`. If those filled a mini-batch, update first."""
        if self._rows.begins_update(taken):
            await self._learners.call("learn", lambda rank: rank.update.remote())
        sent = self._learners.shared(self._rows.of(piece))
        await self._learners.call("learn", lambda rank: rank.accumulate.remote(sent))

    async def _apply(self) -> UpdateStats:
        return await self._learners.call("learn", lambda rank: rank.apply.remote())

    async def _restore_newest(self) -> None:
        self.checkpoint = await self._launch()
        self.version = self.base
        steps = self._journal.replayable(self.base)
        await self._replay_all(steps)
        self.version = steps.stop
        if self.drifted:
            self._off_policy[self.version] = len(self._journal.step(self.version).groups)

    async def _restore(self, version: int) -> None:
        checkpoint, known = await self._launch(), len(self.drifted)
        await self._replay_all(range(checkpoint.step if checkpoint else 0, version))
        if len(self.drifted) > known:
            self._off_policy[version] = self._config.train.prompts_per_step + self._config.train.refill

    async def _replay_all(self, steps: range) -> None:
        """Learn the journal's steps again, and say how far that is."""
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
        stats = await self._apply()
        self.check_digest(step, stats.weight_digest, digest, ranks)

    def _applied(self, step: int) -> tuple[Sequence[TrainingGroup], str, int]:
        """The groups that made the step's update, the digest of its weights, and how many ranks took it."""
        if self._latest is not None and self._latest[0] == step:
            return self._latest[1:]
        done = self._journal.load_step(step)
        of_drafts = done.draft_advantages or (None,) * len(done.groups)
        parts = zip(done.groups, done.rewards, done.advantages, of_drafts, strict=True)
        groups = [TrainingGroup(group, r, a, draft_advantages=d) for group, r, a, d in parts]
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
        now = self._config.train.ranks
        if self.exact and ranks == now:
            raise WeightsMismatch(f"{message}: was raypoly, torch or the machine changed? Use run.fresh=true to go on.")
        self.drifted.append(step)
        why = "GPU kernels are not bit-exact" if ranks == now else f"with train.ranks={ranks}, now {now}"
        self._note(
            f"{message} ({why}): groups sampled since are kept as off-policy"
            + ("." if self._rows.loss.corrects else "; loss.importance_cap corrects them.")
        )
