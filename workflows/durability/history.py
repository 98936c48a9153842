"""A run's completed steps and evaluations: their heads in memory, their rollouts on the store.

    history = History(store)                 # cleans up after a crash; quarantines damaged files
    history.head(12).metrics; history.load(12)
    history.index_before(400)                # no step before 400 will ever be trained again

A step starts with a rollout file of its own. Once a later checkpoint is committed, its head goes into the index and its
file into a bundle: opening reads a few dozen objects, however long the run is.
"""

# Every object is committed before the ones that it replaces are deleted: a crash leaves both, and opening deletes the
# old ones.

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from raypoly.core.errors import CorruptData, StorageError
from raypoly.run.store import Store
from raypoly.run.store.catalogue import (
    INDEX,
    PREFIX,
    Catalogue,
    Span,
    bundle_key,
    decode_segment,
    encode_segment,
    evaluation_key,
    index_spans,
    parse_segments,
    segment_key,
    step_key,
)
from raypoly.run.store.rollout_files import (
    BLOCK,
    MAX_BYTES,
    RolloutFiles,
    encode_bundle,
    encode_evaluation,
    encode_step,
    is_large,
    read_evaluation,
    read_head,
    write_step,
)
from raypoly.run.store.step_records import CompletedStep, Head
from raypoly.run.store.store import DAMAGED

K = TypeVar("K")
T = TypeVar("T")
_READS_AT_ONCE = 16
_STRANGER = "it is no file of raypoly's"


class History:
    """One thread at a time may write; others may read meanwhile."""

    def __init__(self, store: Store, block: int = BLOCK) -> None:
        """`block`: the most steps in a bundle."""
        self._store, self._block = store, block
        self._files = RolloutFiles(store)
        self._heads: dict[int, Head] = {}
        self._payloads: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._segments: set[Span] = set()
        self._singles: set[int] = set()
        self._bundles: dict[Span, str] = {}
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="history") as pool:
            self._open_index(pool)
            self._open_rollouts(pool)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps whose rollouts are kept, ascending."""
        bundles = list(self._bundles)  # a copy: the journal's thread may be adding one
        return tuple(sorted({*self._singles, *(step for span in bundles for step in span.steps)}))

    def __contains__(self, step: int) -> bool:
        return step in self._singles or any(step in span.steps for span in list(self._bundles))

    def head(self, step: int) -> Head | None:
        """None if unknown; it may outlive the rollouts."""
        return self._heads.get(step)

    def load(self, step: int) -> CompletedStep:
        """A completed step as it was trained on. A missing or damaged file is quarantined and raises `CorruptData`."""
        if step not in self:
            raise CorruptData(f"{self._store.uri}/{step_key(step)} is missing or was set aside.")
        try:
            found = self._files.step(step)
            if found.applied != self._heads[step].applied:
                raise CorruptData(f"{self._store.uri}: the rollouts of step {step} are another run's.")
        except CorruptData as error:
            self._quarantine_rollouts(step, error)
            raise
        return found

    def add(self, completed: CompletedStep) -> None:
        head = Head.of(completed.applied)
        for span in [span for span in self._segments if head.step in span.steps]:
            self._store.delete(segment_key(span))  # it describes the step as it was before its file was lost
            self._segments.discard(span)
        if is_large(completed):
            self._commit_by_file(completed)
        else:
            self._store.commit(step_key(head.step), encode_step(completed))
        self._singles.add(head.step)
        self._heads[head.step] = head

    def _commit_by_file(self, completed: CompletedStep) -> None:
        with tempfile.TemporaryFile() as file:  # without a name: a kill leaves nothing
            path = Path(f"/proc/self/fd/{file.fileno()}")
            try:
                write_step(completed, path)
            except OSError as error:
                raise StorageError(
                    f"{tempfile.gettempdir()} could not be written ({error.strerror or error}): make room there, or "
                    "set TMPDIR to another folder."
                ) from error
            self._store.commit(step_key(completed.step), path)

    @property
    def evaluations(self) -> Mapping[tuple[int, str], Mapping[str, Any]]:
        """Results by (step, split), ascending."""
        return dict(sorted(self._payloads.items()))

    def add_evaluation(self, step: int, split: str, payload: Mapping[str, Any], table: pa.Table) -> None:
        self._store.commit(evaluation_key(step, split), encode_evaluation(step, split, payload, table))
        self._payloads[step, split] = payload

    def index_before(self, before: int) -> None:
        """Index the steps before `before`, and bundle one block of them."""
        for span in index_spans(before):
            if not any(segment.covers(span) for segment in self._segments):
                heads = (self._heads[step] for step in span.steps if step in self._heads)
                self._store.commit(segment_key(span), encode_segment(span, heads, self._payloads))
                self._segments.add(span)
        self._delete_covered_segments()
        for first in range(0, before - self._block + 1, self._block):
            singles = sorted(self._singles.intersection(range(first, first + self._block)))
            if singles:
                self._bundle(singles)
                return

    def _bundle(self, steps: Iterable[int]) -> None:
        part: dict[int, bytes] = {}
        for step in steps:
            data = self._checked(step)
            full = sum(map(len, part.values())) + len(data or b"") > MAX_BYTES
            if part and (data is None or full or step - 1 not in part):
                self._commit_bundle(part)
                part = {}
            if data is not None:
                part[step] = data
        if part:
            self._commit_bundle(part)

    def _commit_bundle(self, part: Mapping[int, bytes]) -> None:
        span = Span(min(part), max(part))
        self._store.commit(bundle_key(span), encode_bundle(part))
        self._bundles[span] = bundle_key(span)
        for step in span.steps:
            self._singles.discard(step)
            self._store.delete(step_key(step))

    def _checked(self, step: int) -> bytes | None:
        data = self._store.read(step_key(step))
        try:
            read_head(data, step)
        except CorruptData as error:
            self._quarantine_rollouts(step, error)
            return None
        return data

    def _delete_covered_segments(self) -> None:
        for span in list(self._segments):
            if any(other != span and other.covers(span) for other in self._segments):
                self._store.delete(segment_key(span))
                self._segments.discard(span)

    def _open_index(self, pool: ThreadPoolExecutor) -> None:
        keys, strangers = parse_segments(self._store.list(INDEX))
        for key in strangers:
            self._quarantine(key, _STRANGER)
        read = _read_all(
            pool,
            keys,
            lambda span: decode_segment(span, self._store.read(keys[span])),
            lambda span, error: self._quarantine(keys[span], error),
        )
        for span, (heads, evaluations) in read:
            self._segments.add(span)
            self._heads.update(heads)
            self._payloads.update(evaluations)
        self._delete_covered_segments()

    def _open_rollouts(self, pool: ThreadPoolExecutor) -> None:
        found = Catalogue.of(self._store.list(PREFIX))
        for key in found.strangers:
            self._quarantine(key, _STRANGER)
        self._singles, self._bundles = set(found.singles), dict(found.bundles)
        for span, key in found.bundles.items():
            twice = self._singles.intersection(span.steps)
            if twice or not all(step in self._heads for step in span.steps):
                self._open_bundle(span, key, twice)
        singles = sorted(step for step in self._singles if step not in self._heads)
        self._heads.update(
            _read_all(pool, singles, lambda s: read_head(self._store.read(step_key(s)), s), self._quarantine_rollouts)
        )
        self._payloads.update(
            _read_all(
                pool,
                sorted(found.evaluations.keys() - self._payloads.keys()),
                lambda key: read_evaluation(self._store, *key).payload,
                lambda key, error: self._quarantine(evaluation_key(*key), error),
            )
        )

    def _open_bundle(self, span: Span, key: str, twice: Iterable[int]) -> None:
        try:
            heads = self._files.bundle(span, key).heads
        except CorruptData as error:
            self._quarantine(key, error)
            del self._bundles[span]
            return
        self._heads = {**heads, **self._heads}
        for step in sorted(twice):  # the last driver died before it deleted them
            self._store.delete(step_key(step))
            self._singles.discard(step)

    def _quarantine_rollouts(self, step: int, reason: CorruptData) -> None:
        if step in self._singles:
            self._singles.discard(step)
            self._quarantine(step_key(step), reason)
            return
        for span in [span for span in self._bundles if step in span.steps]:
            self._quarantine(self._bundles.pop(span), reason)

    def _quarantine(self, key: str, reason: CorruptData | str) -> None:
        cause = reason.__cause__ if isinstance(reason, CorruptData) else None  # the cause does not repeat the key
        self._store.quarantine(key, str(cause or reason))


class DamageReport:
    """Files that a run has lost to damage, over all its starts."""

    def __init__(self, store: Store, earlier: Iterable[Mapping[str, Any]]) -> None:
        """`earlier`: the entries of the last start's summary, which know the reasons."""
        self._store = store
        known = {entry.get("moved_to"): entry for entry in earlier}
        self._before = [
            known.get(key, {"key": key.removeprefix(DAMAGED), "moved_to": key, "reason": "unknown"})
            for key in store.list(DAMAGED)
        ]

    def entries(self) -> list[Mapping[str, Any]]:
        """`key, moved_to, reason` of each file, sorted by `moved_to`."""
        entries = {str(entry["moved_to"]): entry for entry in [*self._before, *map(vars, self._store.damaged)]}
        return [dict(entries[name]) for name in sorted(entries)]


def format_step_ranges(steps: Iterable[int]) -> list[str]:
    """Ascending steps as ranges: `3`, `7-9`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1][1:] = [step]
        else:
            runs.append([step])
    return ["-".join(map(str, run)) for run in runs]


def _read_all(
    pool: ThreadPoolExecutor, items: Iterable[K], read: Callable[[K], T], damaged: Callable[[K, CorruptData], None]
) -> Iterator[tuple[K, T]]:
    """Each sound item with what `read` returns for it; `damaged` is called for the others."""
    futures = [(item, pool.submit(read, item)) for item in items]
    try:
        for item, future in futures:
            try:
                found = future.result()
            except CorruptData as error:
                damaged(item, error)
            else:
                yield item, found
    finally:
        for _, future in futures:  # after an outage each would wait for the storage's whole patience
            future.cancel()
