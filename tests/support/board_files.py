"""Read back what Weights & Biases (offline) and TensorBoard were given, from their files.

points(event_rows(run_folder), "test/pass@8")         # [(0, 0.25), (80, 0.5)]
points(offline_rows(run_folder), "test/pass@8")
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, float]
_WRITTEN_SECONDS = 20.0


def points(rows: Sequence[Row], name: str) -> list[tuple[int, float]]:
    """The values of one number with their steps, in the order in which they were written."""
    return [(int(row["step"]), row[name]) for row in rows if name in row]


def event_rows(run: Path) -> list[Row]:
    """The events of a run's TensorBoard files, the oldest file first."""
    from tensorboardX.proto.event_pb2 import Event

    events = [Event.FromString(data) for file in _by_age(run / "tensorboard") for data in _records(file)]
    return [
        {"step": event.step, **{value.tag: value.simple_value for value in event.summary.value}}
        for event in events
        if event.summary.value
    ]


def offline_rows(run: Path) -> list[Row]:
    """The rows of a run's offline W&B files, the oldest file first, without what W&B adds."""
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in _offline_records(run)
        if record.WhichOneof("record_type") == "history"
    ]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def offline_runs(run: Path) -> list[Any]:
    """What each start told W&B of its run: `run_id`, `display_name`, `run_group`."""
    return [record.run for record in _offline_records(run) if record.WhichOneof("record_type") == "run"]


def _offline_records(run: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    for folder in sorted((run / "wandb").glob("offline-run-*")):  # named by their second
        deadline, records = time.monotonic() + _WRITTEN_SECONDS, list[Any]()
        # W&B's service writes on for a moment after `finish`
        while time.monotonic() < deadline and not any(it.WhichOneof("record_type") == "exit" for it in records):
            records = [
                Record.FromString(data) for file in folder.glob("*.wandb") for data in _logged(file.read_bytes())
            ]
            time.sleep(0.02)
        yield from records


def _by_age(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda file: int(file.name.rpartition(".")[2]))


def _records(file: Path) -> Iterator[bytes]:
    """Of a TFRecord file: length, its checksum, the data, its checksum."""
    content, place = file.read_bytes(), 0
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        yield content[place + 12 : place + 12 + size]
        place += size + 16


def _logged(content: bytes) -> Iterator[bytes]:
    """Of a log in LevelDB's format, which W&B begins with seven bytes: blocks of 32 KiB; in them pieces with checksum,
    length and kind (1 whole, 2 first, 3 middle, 4 last)."""
    place, data = 7, b""
    while place + 7 <= len(content):
        if (left := -place % 32768) and left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        if place + 7 + size > len(content):  # it is being written
            return
        data = (data if kind > 2 else b"") + content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield data
