"""The schema version of a run's files, written into each of them.

    1   the first journals: frames whose checksum leaves the version out, files that name none
    2   every file names its version under its checksum; journal objects name their number; JSON files are sealed
    3   journal objects may hold `crossed` records, and rollout files their columns
    4   journal objects and rollout files may hold parts of any stage (`part_columns.py`)

If you add a column, give it a value for files that lack it (`rollout_columns.migrated`). If you change what a value
means, raise `SCHEMA`.
"""

from __future__ import annotations

from raypoly.errors import NewerSchema

SCHEMA = 4


def check_schema(found: int, what: str) -> None:
    """Return if this raypoly can read version `found`, else raise `NewerSchema`."""
    if found > SCHEMA:
        raise NewerSchema(
            f"{what} has schema version {found}, this raypoly reads up to {SCHEMA}: "
            "use the raypoly that wrote it or a later one, or start another run."
        )
