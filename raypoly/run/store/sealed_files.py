"""Sealed files: JSON and Parquet that carry the schema number and a SHA-256 over all of their content.

    store.put_mutable("summary.json", seal({"state": "running"}))
    unseal(store.read("summary.json"), "summary.json")
    store.commit(key, encode_table(table, {"step": "12"}))
    table, metadata = decode_table(store.read(key), key)

Any reader of JSON or Parquet opens them.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raypoly.core.errors import CorruptData, OtherSchema
from raypoly.run.store.store import sha256_of

SCHEMA = 1
"""The form of all files of a run. Raise it when a value's meaning or a column changes: no other number is read."""
_SEAL = ("schema", "sha256")
_KEY = "raypoly.sha256"
_BLANK = b"0" * 64
_MAGIC = b"PAR1"


def check_schema(found: object, what: str) -> None:
    """Raise `OtherSchema`, which names `what`, where a file's number is not `SCHEMA`."""
    if str(found) != str(SCHEMA):
        raise OtherSchema(
            f"{what} has schema {found}, and this raypoly reads only schema {SCHEMA}: "
            "use the raypoly that wrote it, or start another run (run.fresh=true)."
        )


def seal(values: Mapping[str, Any]) -> bytes:
    """A JSON file's bytes. Raises `ValueError` if a key is one of the seal's own."""
    if taken := [key for key in _SEAL if key in values]:
        raise ValueError(f"the key {taken[0]!r} belongs to the seal")
    body = json.loads(json.dumps({**values, "schema": SCHEMA}))  # as a reader gets it: all keys are strings
    return json.dumps({**body, "sha256": _digest(body)}, indent=2).encode()


def unseal(data: bytes, what: str) -> dict[str, Any]:
    """The values. Raises `CorruptData` if they differ from what was sealed, or `OtherSchema`; both name `what`."""
    try:
        values = json.loads(data)
    except ValueError as error:
        raise CorruptData(f"{what} is damaged: it is not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise CorruptData(f"{what} is damaged: it is no JSON object.")
    if values.pop("sha256", None) != _digest(values):
        raise CorruptData(f"{what} is damaged: its checksum does not match its content.")
    check_schema(values.pop("schema", None), what)
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def encode_table(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """A Parquet file's bytes."""
    return encode_tables(table.schema, [table], metadata)


def encode_tables(schema: pa.Schema, tables: Iterable[pa.Table], metadata: Mapping[str, str]) -> bytes:
    """One file of several tables of one schema, each a row group, one in memory at a time."""
    sink = pa.BufferOutputStream()
    _write_parquet(sink, schema, tables, metadata)
    with memoryview(sink.getvalue()) as data:  # a large step's file is copied once only
        place = _checksum_place(data)
        digest = hashlib.sha256(data).hexdigest().encode()
        return b"".join((data[:place], digest, data[place + len(_BLANK) :]))


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table], metadata: Mapping[str, str]) -> None:
    """The bytes of `encode_tables` in a local file, which is never whole in memory. Raises `OSError`."""
    _write_parquet(str(path), schema, tables, metadata)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        with memoryview(data) as view:
            place = _checksum_place(view)
        file.seek(place)
        file.write(sha256_of(path).encode())


def _write_parquet(sink: Any, schema: pa.Schema, tables: Iterable[pa.Table], metadata: Mapping[str, str]) -> None:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata({**metadata, "schema": str(SCHEMA), _KEY: _BLANK.decode()})


def decode_table(data: bytes, what: str = "the file") -> tuple[pa.Table, dict[str, str]]:
    """The table and the metadata. Raises like `open_checked`."""
    file, metadata = open_checked(data, what)
    return file.read(use_threads=False), metadata  # files are small: starting threads costs more than reading


def open_checked(data: bytes, what: str) -> tuple[pq.ParquetFile, dict[str, str]]:
    """The file, with only its footer decoded, and its metadata.

    Raises `CorruptData` if a byte differs from what was written, or `OtherSchema`, which names `what`.
    """
    _verify_checksum(data)  # before anything is parsed: a decoder that meets damage may crash, or read on
    file = pq.ParquetFile(pa.BufferReader(data))
    metadata = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    check_schema(metadata.pop("schema", None), what)
    return file, {key: value for key, value in metadata.items() if key not in (_KEY, "ARROW:schema")}


def _verify_checksum(data: bytes) -> None:
    # The checksum lies in the file, in its key-value metadata. It was computed with zeros in its own place.
    place = _checksum_place(data)
    digest = hashlib.sha256()
    view = memoryview(data)
    for part in (view[:place], _BLANK, view[place + len(_BLANK) :]):
        digest.update(part)
    if digest.hexdigest().encode() != data[place : place + len(_BLANK)]:
        raise CorruptData("its checksum does not match its content")


def _checksum_place(data: bytes | memoryview) -> int:
    """The position of the 64 hex digits."""
    if len(data) < 12 or bytes(data[:4]) != _MAGIC or bytes(data[-4:]) != _MAGIC:
        raise CorruptData("it is no Parquet file, or was cut short")
    # The last 8 bytes are the footer's length and the magic. Only the footer is searched: a rollout's text may hold
    # the key, too. In the footer's compact Thrift a value follows its field header and its length, one byte each.
    footer = max(0, len(data) - 8 - int.from_bytes(bytes(data[-8:-4]), "little"))
    found = bytes(data[footer:]).rfind(_KEY.encode())
    place = footer + found + len(_KEY) + 2
    if found < 0 or place + len(_BLANK) > len(data):
        raise CorruptData("it carries no checksum of raypoly's")
    return place
