"""Bundles: the rollouts of up to a hundred steps in one Parquet file; and a reader that finds a step in any file.

    files = RolloutFiles(store)
    files.table(12)            # Arrow, from step-000012.parquet or from its bundle
    files.step(12)             # as it was trained on

A bundle has one row group for each step, in order. The metadata of the steps' files are in the bundle's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raypoly.errors import CorruptData, StorageError
from raypoly.store.catalogue import PREFIX, Catalogue, Span, step_key
from raypoly.store.checked_parquet import decode_table, encode_tables, open_checked
from raypoly.store.rollout_columns import migrated, padded
from raypoly.store.rollout_files import decode_step, head_of, metadata_of, read_head, read_step_table
from raypoly.store.sealed_json import SCHEMA, check_schema
from raypoly.store.step_records import CompletedStep, Head
from raypoly.store.store import Store

BLOCK = 100
"""The most steps in a bundle, which never crosses a multiple of this."""
MAX_BYTES = 256 << 20
"""The approximate size limit of a bundle, which is read whole."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose checksum holds."""

    heads: Mapping[int, Head]
    file: Any

    @classmethod
    def parse(cls, data: bytes, span: Span, what: str) -> Bundle:
        """Raises `CorruptData` if it differs from what was written or holds other steps; `NewerSchema`."""
        file, metadata = open_checked(data)
        check_schema(int(metadata.get("schema", "1")), what)
        heads = [head_of(entry) for entry in json.loads(metadata.get("steps", "[]"))]
        if [head.step for head in heads] != list(span.steps):
            raise CorruptData("it holds other steps than its name says")
        return cls({head.step: head for head in heads}, file)

    def table(self, step: int) -> pa.Table:
        """The rollouts of one of its steps."""
        return self.file.read_row_group(list(self.heads).index(step), use_threads=False)


def encode_bundle(files: Mapping[int, bytes]) -> bytes:
    """A bundle's bytes from the valid rollout files of consecutive steps."""
    heads = [read_head(data, step) for step, data in files.items()]
    metadata = {"schema": str(SCHEMA), "steps": json.dumps([metadata_of(head) for head in heads])}
    found = (open_checked(data)[0].schema_arrow.remove_metadata() for data in files.values())
    schema = migrated(pa.unify_schemas(found).empty_table()).schema
    tables = (padded(migrated(_table(data)), schema).cast(schema) for data in files.values())
    return encode_tables(schema, tables, metadata)


def _table(data: bytes) -> pa.Table:
    return decode_table(data)[0]


class RolloutFiles:
    """Reads a run's rollouts. Keeps the last bundle, so that reading its steps one by one reads it once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: tuple[str, Bundle] | None = None

    def table(self, step: int) -> pa.Table:
        """A step's rollouts, one row each.

        Raises `StorageError` if there are none, `CorruptData` if they are damaged, `NewerSchema`.
        """
        return self._read(step)[0]

    def step(self, step: int) -> CompletedStep:
        """A completed step, bit for bit as it was trained on. Raises like `table`."""
        return decode_step(*self._read(step))

    def bundle(self, span: Span, key: str) -> Bundle:
        """A whole bundle. Raises like `table`."""
        if self._last is None or self._last[0] != key:
            try:
                self._last = key, Bundle.parse(self._store.read(key), span, f"{self._store.uri}/{key}")
            except CorruptData as error:
                raise CorruptData(f"{self._store.uri}/{key} is damaged: {error}.") from error
        return self._last[1]

    def _read(self, step: int) -> tuple[pa.Table, Head]:
        if self._store.exists(step_key(step)):
            try:
                table, metadata = read_step_table(self._store, step)
                return table, head_of(metadata, table)
            except StorageError:
                if self._store.exists(step_key(step)):  # else a live driver has just bundled it
                    raise
        for span, key in Catalogue.of(self._store.list(f"{PREFIX}steps-")).bundles.items():
            if step in span.steps:
                bundle = self.bundle(span, key)
                return migrated(bundle.table(step)), bundle.heads[step]
        raise StorageError(f"{self._store.uri} has no rollouts of step {step}.")
