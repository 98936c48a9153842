"""A pickle in a LiveCodeBench row executes nothing, whatever its shape, and costs neither memory nor time."""

from __future__ import annotations

import base64
import json
import pickle
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raypoly.data.formats import read_problems
from raypoly.data.formats.livecodebench import LARGEST
from tests.raypoly.data.source_rows import MORE_STDIN, STDIN, livecodebench

TEXT = json.dumps(MORE_STDIN)
UNICODE = b"X" + struct.pack("<I", len(TEXT)) + TEXT.encode()


class Builds:
    """BUILD calls `__setstate__`, a thing that a module may have."""

    def __setstate__(self, path: str) -> None:
        Path(path).touch()


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return exec, (f"open({self.path!r}, 'w').close()",)


PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def traps(path: str) -> dict[str, bytes]:
    """Pickles that make a file when they are loaded."""
    command = f"touch {path}".encode()
    text = b"V" + command + b"\n"
    short = b"\x8c" + bytes([len(command)]) + command
    builds = b"".join(b"\x8c" + bytes([len(word)]) + word for word in (__name__.encode(), b"Builds"))
    where = b"\x8c" + bytes([len(path)]) + path.encode()
    return {
        "REDUCE": b"cposix\nsystem\n(" + text + b"tR.",
        "INST": b"(" + text + b"iposix\nsystem\n.",
        "OBJ": b"(cposix\nsystem\n" + text + b"o.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + short + b"\x85R.",
        "NEWOBJ": b"\x80\x04\x8c\x05posix\x8c\x06system\x930" + b"cposix\nsystem\n" + short + b"\x85R.",
        "BUILD": b"\x80\x04" + builds + b"\x93)\x81" + where + b"b.",
        "a text before it": UNICODE + b"0cposix\nsystem\n(" + text + b"tR.",
        "a text after it": b"cposix\nsystem\n(" + text + b"tR0" + UNICODE + b".",
        "within a list": b"](cposix\nsystem\n(" + text + b"tRe.",
        **{f"protocol {protocol}": pickle.dumps(Trap(path), protocol) for protocol in PROTOCOLS},
    }


def reason_for(folder: Path, pickled: bytes) -> str:
    """Why a row with these private tests is set aside; empty where it is loaded."""
    column = base64.b64encode(zlib.compress(pickled)).decode()
    rows = [livecodebench("Other", "", STDIN, "[]", {}), livecodebench("Sum", "", STDIN, column, {})]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    file = read_problems(folder / "rows.jsonl")
    assert len(file.problems) + len(file.rejected) == 2
    return file.rejected[0].reason if file.rejected else ""


@pytest.mark.parametrize("shape", list(traps("")))
def test_a_pickle_that_would_make_a_file_makes_none(tmp_path: Path, shape: str) -> None:
    made = tmp_path / "sprung"
    trap = traps(str(made))[shape]
    pickle.loads(trap)
    assert made.exists()
    made.unlink()
    assert "it was not run" in reason_for(tmp_path, trap)
    assert not made.exists()


def test_a_trap_behind_the_end_of_a_text_is_never_reached(tmp_path: Path) -> None:
    made = tmp_path / "sprung"
    assert reason_for(tmp_path, UNICODE + b"." + traps(str(made))["REDUCE"]) == ""
    assert not made.exists()


NO_TEXTS = {
    "MEMOIZE": b"\x80\x04" + b"\x94" * 20_000_000 + b".",
    "MARK": b"(" * 20_000_000,
    "a length beyond all": b"\x8d" + struct.pack("<Q", 1 << 60) + b"x",
    "a length below zero": b"\x8b" + struct.pack("<i", -5) + b"x",
    "a number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "a line without end": b"V" + b"x" * 20_000_000,
    "no STOP": UNICODE,
    "two texts": UNICODE + UNICODE + b".",
    "EXT1": b"\x82\x01.",
    "PERSID": b"Pid\n.",
    "no pickle": b"\xff" * 1000,
    "nothing": b"",
    "packed twice": zlib.compress(pickle.dumps(TEXT)),
    "a bomb in a bomb": zlib.compress(zlib.compress(bytes(100_000_000))),
}


@pytest.mark.parametrize("what", list(NO_TEXTS))
def test_what_is_no_pickle_of_one_text_is_set_aside(tmp_path: Path, what: str) -> None:
    assert "private_test_cases: neither JSON nor packed JSON" in reason_for(tmp_path, NO_TEXTS[what])


def test_a_bomb_is_unpacked_no_further_than_the_bound(tmp_path: Path) -> None:
    packer = zlib.compressobj()
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range((LARGEST >> 24) + 4)) + packer.flush()
    column = base64.b64encode(bomb).decode()
    (tmp_path / "rows.jsonl").write_text(
        json.dumps(livecodebench("Bomb", "", STDIN, column, {}))
        + "\n"
        + json.dumps(livecodebench("Sum", "", STDIN, "[]", {}))
    )
    tracemalloc.start()
    file = read_problems(tmp_path / "rows.jsonl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "MiB unpacked" in file.rejected[0].reason
    assert peak < 2.5 * LARGEST


@pytest.mark.parametrize("packed", [TEXT.encode(), *(pickle.dumps(TEXT, protocol) for protocol in PROTOCOLS)])
def test_tests_are_found_in_any_packing(tmp_path: Path, packed: bytes) -> None:
    assert reason_for(tmp_path, packed) == ""
