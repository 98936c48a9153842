"""JSON and Parquet files carry their own checksum, and any other reader can still open them."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.core.errors import CorruptData
from raypoly.run.store.sealed_files import decode_table, encode_table, seal, unseal

TABLE = pa.table({"text": ["raypoly.sha256 @" + "0" * 64, "b"], "tokens": pa.array([[1, 2], []], pa.list_(pa.int32()))})
METADATA = {"digest": "ab12", "metrics": '{"note": "raypoly.sha256"}'}


def test_table_and_metadata_come_back_and_any_parquet_reader_opens_it() -> None:
    data = encode_table(TABLE, METADATA)
    table, metadata = decode_table(data)
    assert table.equals(TABLE)
    assert metadata == METADATA
    assert pq.read_table(io.BytesIO(data)).equals(TABLE)
    assert pq.read_metadata(io.BytesIO(data)).metadata[b"digest"] == b"ab12"


def test_every_flipped_byte_is_found_before_anything_is_parsed() -> None:
    data = encode_table(TABLE, METADATA)
    for place in range(len(data)):
        with pytest.raises(CorruptData):
            decode_table(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


@pytest.mark.parametrize("length", [0, 3, 4, 8, 11, 12, 100, -1, -8])
def test_truncated_file_is_found(length: int) -> None:
    with pytest.raises(CorruptData):
        decode_table(encode_table(TABLE, METADATA)[:length])


def test_file_of_another_writer_is_found() -> None:
    sink = io.BytesIO()
    pq.write_table(TABLE.select(["tokens"]), sink)
    with pytest.raises(CorruptData, match="no checksum"):
        decode_table(sink.getvalue())


def test_sealed_json_says_what_was_changed_in_it() -> None:
    data = seal({"lr": 0.003, "pass_at_k": {1: 0.5}})
    assert unseal(data, "a.json") == {"lr": 0.003, "pass_at_k": {"1": 0.5}}
    for changed in (data.replace(b"0.003", b"0.001"), data.replace(b'"sha256"', b'"sha257"'), b'{"lr": 0.003}'):
        with pytest.raises(CorruptData, match=r"a\.json is damaged: its checksum"):
            unseal(changed, "a.json")
