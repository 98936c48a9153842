"""JSON files with their schema version and a checksum as keys, readable by any JSON reader.

    store.put_mutable("summary.json", seal({"state": "running"}))
    unseal(store.read("summary.json"), "summary.json")

Files of the first runs have no seal: their content is not checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raypoly.errors import CorruptData
from raypoly.store.schema import SCHEMA, check_schema

_SEAL = ("schema", "sha256")


def seal(values: Mapping[str, Any]) -> bytes:
    """The file's bytes. Raises `ValueError` if a key is one of the seal's own."""
    if taken := [key for key in _SEAL if key in values]:
        raise ValueError(f"the key {taken[0]!r} belongs to the seal")
    body = json.loads(json.dumps({**values, "schema": SCHEMA}))  # as a reader gets it: all keys are strings
    return json.dumps({**body, "sha256": _digest(body)}, indent=2).encode()


def unseal(data: bytes, what: str) -> dict[str, Any]:
    """The values. Raises `CorruptData` if they differ from what was sealed, or `NewerSchema`; both name `what`."""
    try:
        values = json.loads(data)
    except ValueError as error:
        raise CorruptData(f"{what} is damaged: it is not JSON ({error}).") from error
    if not isinstance(values, dict):
        raise CorruptData(f"{what} is damaged: it is no JSON object.")
    if any(key in values for key in _SEAL):
        digest = values.pop("sha256", None)
        if digest != _digest(values):
            raise CorruptData(f"{what} is damaged: its checksum does not match its content.")
        check_schema(values.pop("schema"), what)
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
