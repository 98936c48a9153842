"""Large files, read with Ray Data on all nodes: this process splits them into lines, and tasks parse them in order.

    load_sources(sources, files, read_by_size)      # Ray is up, if any file `is_large`

Small files are read here: starting Ray costs more than it saves.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from raypoly.data.formats.row_files import is_parquet, numbered_throughout, parse_line, read_lines
from raypoly.data.preparing.candidates import SourceFacts
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.sources import ReadRow, SourceFile, read_file, read_row

LARGE = 256 << 20
"""Bytes from which Ray Data reads a file."""
BLOCK = 8 << 20
"""Bytes of lines for one task, about."""
AHEAD = 4
"""Blocks for each CPU that are submitted together: a bound on the object store."""


def is_large(file: SourceFile) -> bool:
    return sum(path.stat().st_size for path in file.paths if not is_parquet(path)) >= LARGE


def read_by_size(file: SourceFile, source: SourceConfig) -> Iterator[ReadRow]:
    """In order, by tasks if the file is large. Raises `UsageError`."""
    return read_by_tasks(file, source) if is_large(file) else read_file(file, source)


def read_by_tasks(file: SourceFile, source: SourceConfig) -> Iterator[ReadRow]:
    """As `read_file`. Ray must be up."""
    import ray
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    parse = _Parse(file.name, file.revision, source)
    blocks, ahead = _blocks(file.paths), AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for first in blocks:
        yield from _rows([ray.put(block) for block in chain([first], islice(blocks, ahead - 1))], parse)
        gc.collect()  # an executor of Ray Data's refers to itself, and would hold its blocks in the object store


def _rows(blocks: Sequence[Any], parse: _Parse) -> Iterator[ReadRow]:
    """`blocks`: references."""
    import ray.data

    found = ray.data.from_arrow_refs(blocks).map_batches(parse, batch_size=None, batch_format="pyarrow")
    for batch in found.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in batch.column("row").to_pylist():
            yield pickle.loads(row)  # written by the tasks below


class _Parse:
    def __init__(self, name: str, revision: str | None, source: SourceConfig) -> None:
        self._name, self._revision, self._source = name, revision, source

    def __call__(self, block: pa.Table) -> pa.Table:
        numbers, lines = (block.column(name).to_pylist() for name in ("number", "line"))
        return pa.table({"row": pa.array(map(self._row, numbers, lines), pa.large_binary())})

    def _row(self, number: int, line: bytes) -> bytes:
        facts = SourceFacts(self._name, number, self._revision, self._source.licence)
        return pickle.dumps(read_row(parse_line(line), facts, self._source))


def _blocks(paths: Iterable[Path]) -> Iterator[Any]:
    numbers: list[int] = []
    lines: list[bytes] = []
    held = 0
    for number, line in numbered_throughout(paths, read_lines):
        numbers.append(number)
        lines.append(line)
        held += len(line)
        if held >= BLOCK:
            yield _table(numbers, lines)
            numbers, lines, held = [], [], 0
    if lines:
        yield _table(numbers, lines)


def _table(numbers: list[int], lines: list[bytes]) -> Any:
    return pa.table({"number": pa.array(numbers, pa.int64()), "line": pa.array(lines, pa.large_binary())})
