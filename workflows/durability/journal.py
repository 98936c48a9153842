"""The journal: each finished stage of each group is durable before the next stage uses it.

    journal = Journal(store)
    await journal.commit(Generated(group))                        # durable when it returns
    await journal.commit(StageFinding(step, slot, "score", verdicts))
    await journal.commit(Applied(step, digest, metrics))
    await journal.seal_step(step, groups, rewards, advantages)    # one rollout file replaces the step's records

Records that arrive within some 20 ms share one numbered, immutable object (`journal/step-000012/00003.arrow`), and so
one fsync. Opening a journal cleans up after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from raypoly.core.errors import CorruptData
from raypoly.core.values import Float32, Float64, Group
from raypoly.run.store import Store
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.step_records import Applied, CompletedStep, Record, StepRecords, assemble, decode, encode
from workflows.durability.history import History

_KEY = re.compile(r"^journal/step-(\d{6,9})/(\d{5,9})\.arrow$")
_NUMBER_IN_USE = re.compile(r"^(?:damaged/)?journal/step-\d+/(\d+)\.arrow")


class AlreadyCommitted(RuntimeError):
    """A programming error: the same stage of the same group was about to be committed twice."""


@dataclass
class _OpenStep:
    keys: set[tuple[int, str]]
    applied: Applied | None

    @property
    def slots(self) -> list[int]:
        return sorted(slot for slot, kind in self.keys if kind == "generated")


class Journal:
    """One run's journal, used from one event loop. After a failed commit it accepts nothing more."""

    def __init__(self, store: Store, window_seconds: float = 0.02) -> None:
        self._store = store
        self._window = window_seconds
        # One thread, so that objects are numbered and reach the disk in the order of their records.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._waiting: list[tuple[Record, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._history = History(store)
        self._open: dict[int, _OpenStep] = {}
        self._next_number: dict[int, int] = {}
        self._committed = time.monotonic()
        self._finish_sealing()

    @property
    def seconds_since_commit(self) -> float:
        return time.monotonic() - self._committed

    async def commit(self, record: Record) -> None:
        """Return when the record is durable.

        Raises `AlreadyCommitted` for a second one of its step, slot and kind; `StorageError`, `StaleEpoch`.
        """
        record = self._claim(record)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((record, done))
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush_all())
        await done

    def step(self, step: int) -> StepRecords:
        """The records of a step that is not completed. Damaged objects are quarantined and don't count."""
        records: list[Record] = []
        for key in self._store.list(_folder(step)):
            try:
                records.extend(decode(step, _number(key), self._store.read(key)))
            except CorruptData as error:
                self._store.quarantine(key, str(error))
        return assemble(step, records)

    async def seal_step(
        self,
        step: int,
        groups: Sequence[Group],
        rewards: Sequence[Float64],
        advantages: Sequence[Float64],
        draft_advantages: Sequence[Float64 | None] = (),
        token_advantages: Sequence[Mapping[int, Float32]] = (),
        encode: Callable[[Group], Group] = lambda group: group,
    ) -> None:
        """Write the step's rollout file from its groups (in slot order), then delete the step's records.

        `rewards` (NaN if unknown) and `advantages` are float64 [N] for each group, `draft_advantages` [D];
        `token_advantages` as in `CompletedStep`. `encode`: a group as the store keeps it. The step's `Applied` must be
        committed.
        """
        state = self._open_step(step)
        if state.applied is None or [group.slot for group in groups] != state.slots:
            raise ValueError(f"step {step} can't be sealed: not all of its groups and its update are committed")
        completed = CompletedStep(
            step,
            tuple(groups),
            tuple(rewards),
            tuple(advantages),
            state.applied,
            tuple(draft_advantages),
            tuple(token_advantages) if any(token_advantages) else (),
            encode,
        )
        await self._in_writer(self._write_step, completed)
        del self._open[step]

    async def index_before(self, before: int) -> None:
        """Index and bundle the steps before this one, which a checkpoint holds."""
        await self._in_writer(self._history.index_before, before)

    def completed_steps(self) -> tuple[int, ...]:
        return self._history.steps

    def applied(self, step: int) -> Applied | None:
        """From memory; None if it was lost to damage."""
        head = self._history.head(step)
        return head.applied if head else None

    def replayable(self, checkpoint: int) -> range:
        """The completed steps after a checkpoint, each read and found sound, for the replay.

        A damaged step is quarantined and done again. Raises `CorruptData`, with its file, if there are steps after it.
        """
        # Those were trained on rollouts that can't be repeated.
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
        return tuple(sorted(set(range(before)).difference(self._history.steps)))

    def load_step(self, step: int) -> CompletedStep:
        """A completed step. Raises `CorruptData` for a damaged file: the step then counts as never done."""
        return self._history.load(step)

    async def commit_evaluation(self, step: int, split: str, payload: Mapping[str, Any], table: pa.Table) -> None:
        """Commit an evaluation's results (JSON values) with its table of samples."""
        if (step, split) in self.evaluations():
            raise AlreadyCommitted(f"the evaluation on {split} at step {step} is committed already")
        await self._in_writer(self._history.add_evaluation, step, split, payload, table)

    def evaluations(self) -> Mapping[tuple[int, str], Mapping[str, Any]]:
        """Results by (step, split), ascending, from memory."""
        return self._history.evaluations

    async def flush(self) -> None:
        if self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def close(self) -> None:
        await self.flush()
        self._writer.shutdown()

    def _claim(self, record: Record) -> Record:
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
        # One batch a window. A record that comes alone does not wait.
        loop = asyncio.get_running_loop()
        pause = 0.0
        while self._waiting or pause:
            await asyncio.sleep(pause)
            started = loop.time()
            batch, self._waiting = self._waiting, []
            if batch:
                await self._write_batch(batch)
            pause = max(0.0, started + self._window - loop.time()) if batch else 0.0
        self._flushing = None

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
        await asyncio.get_running_loop().run_in_executor(self._writer, self._unless_failed, function, *arguments)

    def _unless_failed(self, function: Callable[..., None], *arguments: Any) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            function(*arguments)
            self._committed = time.monotonic()
        except BaseException as error:
            self._failure = error
            raise

    def _write_records(self, records: Sequence[Record]) -> None:
        for step in sorted({record.step for record in records}):
            number = self._next_number.get(step) or self._first_free_number(step)
            data = encode(step, number, [record for record in records if record.step == step])
            self._store.commit(f"{_folder(step)}{number:05d}.arrow", data)
            self._next_number[step] = number + 1

    def _first_free_number(self, step: int) -> int:
        # Damaged objects count: a number is never used twice.
        keys = (*self._store.list(_folder(step)), *self._store.list(f"damaged/{_folder(step)}"))
        return 1 + max((int(match[1]) for key in keys if (match := _NUMBER_IN_USE.match(key))), default=0)

    def _write_step(self, completed: CompletedStep) -> None:
        self._history.add(completed)
        self._delete_records(completed.step)

    def _delete_records(self, step: int) -> None:
        # Last first: a crash leaves a prefix of the step's records.
        for key in reversed(self._store.list(_folder(step))):
            self._store.delete(key)

    def _finish_sealing(self) -> None:
        # The last driver died after it wrote a step's rollout file and before it deleted the records.
        keys = self._store.list("journal/")
        for key in keys:
            if not _KEY.match(key):
                self._store.quarantine(key, "it is no file of raypoly's")
        for step in sorted({int(match[1]) for key in keys if (match := _KEY.match(key))}):
            if step in self._history:
                with contextlib.suppress(CorruptData):  # then the file is quarantined, and the records count again
                    self._history.load(step)
                    self._delete_records(step)


def _folder(step: int) -> str:
    return f"journal/step-{step:06d}/"


def _number(key: str) -> int:
    match = _KEY.match(key)
    if match is None:
        raise CorruptData("it is no journal object's name")
    return int(match[2])
