"""A folder in the hub's layout: a card that names configurations and splits, and rows in Parquet and JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.preparation_rows import problem_row

CARD = """---
license: mit
configs:
- config_name: lines
  default: true
  data_files:
  - {split: train, path: lines/train-*.jsonl}
  - {split: test, path: lines/test.jsonl}
- config_name: columns
  data_files:
  - {split: train, path: columns/train-*.parquet}
---
# A data set
"""
LEVELS = ("Easy", "Medium", "Hard")


def hub_folder(folder: Path, count: int = 12) -> Path:
    """`count` training rows in two files, a0, a1 ..., and two test rows. Row 0 has no difficulty, row 1 no tags."""
    rows = [
        problem_row(
            f"a{number}",
            number,
            difficulty=LEVELS[number % 3] if number else None,
            estimated_date=f"2025-{number % 12 + 1:02}-01",
            tags=["Array", "Dynamic Programming"][: number % 3],
            rating=1000 + 100 * number,
        )
        for number in range(count)
    ]
    tests = [problem_row(f"t{number}", number + 5, difficulty="Easy") for number in range(2)]
    for name in ("lines", "columns"):
        (folder / name).mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for number, part in enumerate((rows[:5], rows[5:])):
        (folder / "lines" / f"train-{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in part))
        pq.write_table(pa.Table.from_pylist(part), folder / "columns" / f"train-{number}.parquet")
    (folder / "lines" / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tests))
    return folder
