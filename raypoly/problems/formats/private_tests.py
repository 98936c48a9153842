"""LiveCodeBench's private tests: JSON, or base64 of zlib of JSON, or of a pickle of a text that is JSON.

A pickle is a program. Nothing here runs one: its instructions are listed, and only those that hold a text are let by.
"""

from __future__ import annotations

import binascii
import pickletools
import zlib
from typing import Any

from raypoly.problems.formats.long_integers import loads

LARGEST = 1 << 28
"""Bytes unpacked: what becomes of them takes several times the memory."""
INSTRUCTIONS = 32
"""More of them hold no text but a program."""
_JSON = ("[", "{", '"')
_PASSED_OVER = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))
_TEXTS = frozenset(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"))


def unpack_tests(column: str, name: str) -> Any:
    """The value of a column of tests. Raises `ValueError` that names the column."""
    try:
        return loads(column if column.lstrip()[:1] in _JSON else _text(_decompress(column)))
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{name}: neither JSON nor packed JSON: {error}") from None


def _decompress(column: str) -> bytes:
    stream = zlib.decompressobj()
    data = stream.decompress(binascii.a2b_base64(column.encode()), LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"more than {LARGEST >> 20} MiB unpacked")
    if not stream.eof:
        raise ValueError("the compressed data are cut short")
    return data


def _text(data: bytes) -> str | bytes:
    """The data if they are JSON, else the text that a pickle of nothing else holds."""
    if data[:1].decode("latin-1") in _JSON:
        return data
    text: str | None = None
    for number, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if number >= INSTRUCTIONS:
            raise ValueError(f"the pickle has more than {INSTRUCTIONS} instructions; it was not run")
        if instruction.name in _TEXTS and text is None:
            text = argument
        elif instruction.name not in _PASSED_OVER:
            raise ValueError(f"the pickle is more than a text ({instruction.name}); it was not run")
    if text is None:
        raise ValueError("the pickle holds no text")
    return text
