"""Damage a run's file as a disk, a person or a bad copy does. A seed decides where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

Damage = Callable[[Path, Path, np.random.Generator], None]
"""Damages the file at the first path. The second path is another file of the run."""

FOREIGN = (b"\x89PNG\r\n\x1a\n" + bytes(300), b"PAR1" + bytes(200) + b"PAR1", b"RAYPOLYJ" + bytes(60), b'{"state": 1}')


def flip(path: Path, other: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes() or b"\0")
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def truncate(path: Path, other: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(len(data))) if data else 0])


def zero_a_page(path: Path, other: Path, rng: np.random.Generator) -> None:
    data = path.read_bytes()
    start = int(rng.integers(max(1, len(data) // 512))) * 512
    path.write_bytes(data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :])


def append(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(1 + int(rng.integers(200))))


def swap(path: Path, other: Path, rng: np.random.Generator) -> None:
    mine, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(mine)


def delete(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.unlink()


def duplicate_beside(path: Path, other: Path, rng: np.random.Generator) -> None:
    """Copy the file to the next free number, or to a name such as a file manager gives."""
    digits = path.stem[-6:]
    named = path.with_name(f"{path.stem} (copy){path.suffix}")
    if digits.isdigit() and rng.random() < 0.7:
        named = path.with_name(f"{path.stem[:-6]}{int(digits) + 1:06d}{path.suffix}")
    if not named.exists():
        named.write_bytes(path.read_bytes())


def duplicate_over(path: Path, other: Path, rng: np.random.Generator) -> None:
    other.write_bytes(path.read_bytes())


def empty(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.write_bytes(b"")


def foreign_content(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.write_bytes(FOREIGN[int(rng.integers(len(FOREIGN)))])


def foreign_file_beside(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.with_name(("notes.txt", "step-000003", "00001.arrow.bak", "manifest.json~")[int(rng.integers(4))]).write_bytes(
        FOREIGN[int(rng.integers(len(FOREIGN)))]
    )


def folder_instead(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()
    if rng.random() < 0.5:
        (path / "thumbs.db").write_bytes(b"x")


KINDS: tuple[Damage, ...] = (
    flip,
    truncate,
    zero_a_page,
    append,
    swap,
    delete,
    duplicate_beside,
    duplicate_over,
    empty,
    foreign_content,
    foreign_file_beside,
    folder_instead,
)
