"""The journal: each finished stage of each group is durable before the next stage uses it.

    journal = Journal(store, lease)
    await journal.commit(Generated(group))                        # durable when it returns
    await journal.commit(Scored(step, slot, verdicts))
    await journal.commit(Applied(step, digest, metrics))
    await journal.seal_step(step, groups, rewards, advantages)      # one rollout file in place of the step's records

Records that arrive within some 20 ms share one numbered, immutable object (`journal/step-000012/00003.arrow`), hence
one fsync. Nothing committed is replaced or committed twice; what a crash leaves behind is put in order on opening.
What becomes of completed steps: `workflows/durability/history.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from raypoly.errors import CorruptData
from raypoly.store import Applied, Lease, Record, Store
from raypoly.store.catalogue import step_key
from raypoly.store.record_encoding import decode, encode
from raypoly.store.rollout_files import Evaluation
from raypoly.store.step_records import CompletedStep, Kind, StepRecords, assemble
from raypoly.values import Float64, Group
from workflows.durability.history import History

_KEY = re.compile(r"^journal/step-(\d{6,9})/(\d{5,9})\.arrow$")
_NUMBER_IN_USE = re.compile(r"^(?:damaged/)?journal/step-\d+/(\d+)\.arrow")


class AlreadyCommitted(RuntimeError):
    """A programming error: the same stage of the same group was about to be committed twice."""


@dataclass
class _OpenStep:
    """What is committed, or on its way, of a step that is not completed."""

    keys: set[tuple[int, Kind]]
    applied: Applied | None

    @property
    def slots(self) -> list[int]:
        return sorted(slot for slot, kind in self.keys if kind == "generated")


class Journal:
    """One run's journal, used from one event loop.

    Where a commit fails, every waiter gets the error and the journal takes nothing more: what reached the disk is
    found out by opening it again.
    """

    def __init__(self, store: Store, lease: Lease, window_seconds: float = 0.02) -> None:
        self._store = store
        self._lease = lease
        self._window = window_seconds
        # One thread: objects get their numbers, and reach the disk, in the order of their records.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._waiting: list[tuple[Record, asyncio.Future[None]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._history = History(store, lease)
        self._open: dict[int, _OpenStep] = {}
        self._next_number: dict[int, int] = {}
        self._finish_sealing()

    async def commit(self, record: Record) -> None:
        """Return when the record is durable.

        Raises `AlreadyCommitted` for a second record of the same step, slot and kind; `StorageError` and `StaleEpoch`
        where it could not be written.
        """
        record = self._claim(record)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((record, done))
        if self._flush is None:
            self._flush = loop.create_task(self._flush_all())
        await done

    def step(self, step: int) -> StepRecords:
        """What is committed of a step that is not completed; damaged objects are set aside and don't count."""
        records: list[Record] = []
        for key in self._store.list(_folder(step)):
            try:
                records.extend(decode(step, _number(key), self._store.read(key)))
            except CorruptData as error:
                self._quarantine(key, error)
        return assemble(step, records)

    async def seal_step(
        self, step: int, groups: Sequence[Group], rewards: Sequence[Float64], advantages: Sequence[Float64]
    ) -> None:
        """Write the step's rollout file from its groups (in slot order), then delete the step's records.

        `rewards` (NaN where unknown) and `advantages` are float64 [N] for each group. The step's `Applied` is
        committed already.
        """
        state = self._open_step(step)
        if state.applied is None or [group.slot for group in groups] != state.slots:
            raise ValueError(f"step {step} can't be sealed: not all of its groups and its update are committed")
        completed = CompletedStep(step, tuple(groups), tuple(rewards), tuple(advantages), state.applied)
        await self._in_writer(self._write_step, completed)
        del self._open[step]

    async def index_before(self, before: int) -> None:
        """A checkpoint holds the steps before this one: index and bundle them, for none is ever done again."""
        await self._in_writer(self._history.index_before, before)

    def completed_steps(self) -> tuple[int, ...]:
        """The steps whose rollouts are kept, ascending."""
        return self._history.steps

    def applied(self, step: int) -> Applied | None:
        """A completed step's digest and metrics, at no cost; None where they were lost to damage."""
        head = self._history.head(step)
        return head.applied if head else None

    def replayable(self, checkpoint: int) -> range:
        """The completed steps that follow a checkpoint, each read and found sound: they are replayed, then it goes on.

        A damaged step is set aside and done again from its start. Raises `CorruptData`, naming its file, where steps
        after it are there, for what was trained on can't be told from what would be trained on now.
        """
        step = checkpoint
        with contextlib.suppress(CorruptData):
            while step in self._history:
                self._history.load(step)
                step += 1
        later = [known for known in self._history.steps if known > step]
        if later:
            raise CorruptData(
                f"{self._store.uri}/{step_key(step)} is damaged or missing, the run has steps up to {later[-1]} and no "
                "checkpoint between is valid: bring the file or a checkpoint back, or start anew with run.fresh=true."
            )
        return range(checkpoint, step)

    def lost_steps(self, before: int) -> tuple[int, ...]:
        """The steps before this one whose rollouts were lost to damage."""
        return tuple(sorted(set(range(before)).difference(self._history.steps)))

    def load_step(self, step: int) -> CompletedStep:
        """A completed step, exactly as it was trained on.

        A damaged file is set aside and raises `CorruptData`; the step then counts as never done, to be done again.
        """
        return self._history.load(step)

    async def commit_evaluation(self, step: int, split: str, payload: Mapping[str, Any], table: pa.Table) -> None:
        """Commit an evaluation's results (JSON values) with its table of samples; immutable from then on."""
        if (step, split) in self.evaluations():
            raise AlreadyCommitted(f"the evaluation on {split} at step {step} is committed already")
        await self._in_writer(self._history.add_evaluation, step, split, payload, table)

    def evaluations(self) -> Mapping[tuple[int, str], Mapping[str, Any]]:
        """The results of every committed evaluation by (step, split), ascending; at no cost."""
        return self._history.evaluations

    def load_evaluation(self, step: int, split: str) -> Evaluation:
        """A committed evaluation with its samples; a damaged file is set aside and raises `CorruptData`."""
        return self._history.load_evaluation(step, split)

    async def flush(self) -> None:
        """Return when everything that was handed in is durable or has failed."""
        if self._flush is not None:
            await asyncio.wait([self._flush])

    async def close(self) -> None:
        """As `flush`; nothing can be committed from then on."""
        await self.flush()
        self._writer.shutdown()

    def _claim(self, record: Record) -> Record:
        """Note that this record is being committed; a second one of its kind is refused from now on."""
        state = self._open_step(record.step)
        if (record.slot, record.kind) in state.keys:
            raise AlreadyCommitted(f"{record.kind} of step {record.step}, slot {record.slot} is committed already")
        if self._failure is not None:
            raise self._failure
        state.keys.add((record.slot, record.kind))
        if isinstance(record, Applied):
            record = state.applied = replace(record, groups=len(state.slots))
        return record

    def _open_step(self, step: int) -> _OpenStep:
        if step in self._history:
            raise AlreadyCommitted(f"step {step} is completed: nothing of it can be committed again")
        if step not in self._open:
            found = self.step(step)
            self._open[step] = _OpenStep(set(found.keys), found.applied)
        return self._open[step]

    async def _flush_all(self) -> None:
        """Write what waits until nothing does, one batch a window; a record that comes alone does not wait for one."""
        loop = asyncio.get_running_loop()
        pause = 0.0
        while self._waiting or pause:
            await asyncio.sleep(pause)
            started = loop.time()
            batch, self._waiting = self._waiting, []
            if batch:
                await self._write_batch(batch)
            pause = max(0.0, started + self._window - loop.time()) if batch else 0.0
        self._flush = None

    async def _write_batch(self, batch: Sequence[tuple[Record, asyncio.Future[None]]]) -> None:
        writing = self._in_writer(self._write_records, [record for record, _ in batch])
        (error,) = await asyncio.gather(writing, return_exceptions=True)
        for _, done in batch:
            if done.done():  # its waiter was cancelled
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    async def _in_writer(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a writing function in the journal's thread; its failure is the last thing that the journal does."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._unless_failed, function, *arguments)

    def _unless_failed(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            function(*arguments)
        except BaseException as error:
            self._failure = error
            raise

    def _write_records(self, records: Sequence[Record]) -> None:
        for step in sorted({record.step for record in records}):
            number = self._next_number.get(step) or self._first_free_number(step)
            data = encode(step, number, [record for record in records if record.step == step])
            self._lease.check()
            self._store.commit(f"{_folder(step)}{number:05d}.arrow", data)
            self._next_number[step] = number + 1

    def _first_free_number(self, step: int) -> int:
        """Beyond every number in use, those of damaged objects included: a number is never given twice."""
        keys = (*self._store.list(_folder(step)), *self._store.list(f"damaged/{_folder(step)}"))
        return 1 + max((int(match[1]) for key in keys if (match := _NUMBER_IN_USE.match(key))), default=0)

    def _write_step(self, completed: CompletedStep) -> None:
        self._history.add(completed)
        self._delete_records(completed.step)

    def _delete_records(self, step: int) -> None:
        # Last first: what a crash leaves is a prefix of the step's history.
        for key in reversed(self._store.list(_folder(step))):
            self._store.delete(key)

    def _finish_sealing(self) -> None:
        """Delete records whose rollout file is there and valid: the last driver died between the two."""
        keys = self._store.list("journal/")
        for key in keys:
            if not _KEY.match(key):
                self._quarantine(key, CorruptData("it is no file of raypoly's"))
        for step in sorted({int(match[1]) for key in keys if (match := _KEY.match(key))}):
            if step in self._history:
                with contextlib.suppress(CorruptData):  # then the file is set aside, and the records count again
                    self._history.load(step)
                    self._lease.check()
                    self._delete_records(step)

    def _quarantine(self, key: str, reason: CorruptData) -> None:
        self._lease.check()
        self._store.quarantine(key, str(reason))


def _folder(step: int) -> str:
    return f"journal/step-{step:06d}/"


def _number(key: str) -> int:
    match = _KEY.match(key)
    if match is None:
        raise CorruptData("it is no journal object's name")
    return int(match[2])
