"""However large a file of problems is, reading, validating and comparing it takes the memory of a few.

    RAYPOLY_BIG_FILE=5 python -m pytest -s tests/raypoly/data/test_big_files.py

`RAYPOLY_BIG_FILE` is the file's size in GiB. Where it is not set, the file has 128 MiB, and the caches, which hold that
much, are made as small as it is: then memory may grow by a third of the file at most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.raypoly.data.big_files import peak_of, write

WHOLE = os.environ.get("RAYPOLY_BIG_FILE")
SIZE = int(float(WHOLE) * (1 << 30)) if WHOLE else 128 << 20
SMALL_CACHES = (
    "import raypoly.verifier.local_pool as pool, raypoly.verifier.sandbox.sandbox as sandbox\n"
    "pool.WINDOW_CHARACTERS = sandbox.SUITE_CHARACTERS = 4 << 20\n"
    "import raypoly.data.preparing.candidates as candidates, raypoly.data.preparing.output_files as output\n"
    "import raypoly.run.store.store as store\n"
    "candidates.MEMORY = output._GROUP_CHARACTERS = store.PART = 1 << 20"
)
STREAM = (
    "from raypoly.data.formats import ProblemStream; assert sum(1 for _ in ProblemStream(Path({path!r}))) == {rows}"
)
DUPLICATES = (
    "from raypoly.cli import app; app(['score', '--problems', {path!r}, '--duplicates'], standalone_mode=False)"
)
VALIDATE = (
    "from raypoly.cli import app; app(['score', '--problems', {path!r}, '--validate', '--workers', '1'], "
    "standalone_mode=False)"
)


PREPARE = (
    "from raypoly.cli import app; app(['prepare', '--config', {config!r}, 'sources.big.path=' + {path!r}, "
    "'run.dir={out}/{rows}'], standalone_mode=False)"
)
CONFIG = """
sources: {big: {}}
solutions: {check: false}
sampling: {samples: 0}
split: {validation: 1}
ray: {dashboard: false}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[Path, int], tuple[Path, int]]]:
    """The file, and a short one to measure against, each with its rows."""
    folder = tmp_path_factory.mktemp("big")
    large, short = folder / "large.jsonl", folder / "short.jsonl"
    yield (large, write(large, SIZE)), (short, write(short, 4 << 20))
    large.unlink()


# to compare them, problems are read in the same way: reading alone is measured for the documentation
WORKS = {"compared": DUPLICATES, "validated": VALIDATE, "prepared": PREPARE} | ({"read": STREAM} if WHOLE else {})


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_memory_does_not_grow_with_the_file(
    files: tuple[tuple[Path, int], tuple[Path, int]], work: str, tmp_path: Path
) -> None:
    setup = "" if WHOLE else SMALL_CACHES
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    names = [work.format(path=str(path), rows=rows, config=str(config), out=str(tmp_path)) for path, rows in files]
    large, short = (peak_of(name, setup) for name in names)
    print(f"{large / 2**20:,.0f} MiB, {short / 2**20:,.0f} MiB for a short file")
    assert large < 2 << 30
    assert large - short < (1 << 30 if WHOLE else SIZE // 3)
