"""Parquet files that carry their own checksum: SHA-256 over every byte of the file, kept in its key-value metadata.

Any Parquet reader opens them. The checksum is computed with zeros in its own place. It is checked before anything is
parsed, so damage anywhere in the file is found before a decoder sees it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from raypoly.core.errors import CorruptData

_KEY = "raypoly.sha256"
_BLANK = b"0" * 64
_MAGIC = b"PAR1"


def encode_table(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """The file's bytes: the table, the metadata, and the checksum of both."""
    return encode_tables(table.schema, [table], metadata)


def encode_tables(schema: pa.Schema, tables: Iterable[pa.Table], metadata: Mapping[str, str]) -> bytes:
    """One file of several tables of one schema, each a row group (of at most 2^20 rows), one in memory at a time."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
        writer.add_key_value_metadata({**metadata, _KEY: _BLANK.decode()})
    with memoryview(sink.getvalue()) as data:  # a large step's file is copied once only
        place = _checksum_place(data)
        digest = hashlib.sha256(data).hexdigest().encode()
        return b"".join((data[:place], digest, data[place + len(_BLANK) :]))


def decode_table(data: bytes) -> tuple[pa.Table, dict[str, str]]:
    """The table and the metadata. Raises `CorruptData` if a byte differs from what was written."""
    file, metadata = open_checked(data)
    return file.read(use_threads=False), metadata  # files are small: starting threads costs more than reading


def open_checked(data: bytes) -> tuple[pq.ParquetFile, dict[str, str]]:
    """The file, with only its footer decoded, and its metadata. Raises like `decode_table`."""
    verify_checksum(data)
    file = pq.ParquetFile(pa.BufferReader(data))
    metadata = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    return file, {key: value for key, value in metadata.items() if key not in (_KEY, "ARROW:schema")}


def verify_checksum(data: bytes) -> None:
    """Return if the checksum holds, else raise `CorruptData`."""
    place = _checksum_place(data)
    digest = hashlib.sha256()
    view = memoryview(data)
    for part in (view[:place], _BLANK, view[place + len(_BLANK) :]):
        digest.update(part)
    if digest.hexdigest().encode() != data[place : place + len(_BLANK)]:
        raise CorruptData("its checksum does not match its content")


def _checksum_place(data: bytes | memoryview) -> int:
    """The position of the 64 hex digits: after the last occurrence of the key and a length byte."""
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise CorruptData("it is no Parquet file, or was cut short")
    footer = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    found = bytes(data[footer:]).rfind(_KEY.encode())  # in the footer only: a rollout's text may say anything
    # In the footer's compact Thrift a value is preceded by its field header and its length, one byte each.
    place = footer + found + len(_KEY) + 2
    if found < 0 or place + len(_BLANK) > len(data):
        raise CorruptData("it carries no checksum of raypoly's")
    return place
