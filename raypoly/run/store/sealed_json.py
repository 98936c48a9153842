"""The schema version of a run's files, and JSON files that hold it with a checksum, readable by any JSON reader.

    store.put_mutable("summary.json", seal({"state": "running"}))
    unseal(store.read("summary.json"), "summary.json")

Every file of a run says its version:

    1   the first journals: frames whose checksum leaves the version out, files that name none
    2   every file names its version under its checksum; journal objects name their number; JSON files are sealed
    3   journal objects may hold `crossed` records, and rollout files their columns
    4   journal objects and rollout files may hold parts of any stage

If you add a column, give it a value for files that lack it (`rollout_columns.migrated`). If you change what a value
means, raise `SCHEMA`. Files of the first runs have no seal: their content is not checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raypoly.core.errors import CorruptData, NewerSchema

SCHEMA = 4


def check_schema(found: int, what: str) -> None:
    """Return if this raypoly can read version `found`, else raise `NewerSchema`."""
    if found > SCHEMA:
        raise NewerSchema(
            f"{what} has schema version {found}, this raypoly reads up to {SCHEMA}: "
            "use the raypoly that wrote it or a later one, or start another run."
        )


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
