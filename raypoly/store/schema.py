"""The version of what a run's files say, written into each of them.

    1   the first journals: frames whose checksum leaves the version out, files that name none
    2   every file names its version under its checksum; journal objects name their number; JSON files are sealed
    3   journal objects may hold `crossed` records, and rollout files their columns

Whoever adds a column gives it a value for the files that lack it (`columns.migrated`); whoever changes what a value
means raises `SCHEMA`.
"""

from __future__ import annotations

from raypoly.errors import NewerSchema

SCHEMA = 3


def check_schema(found: int, what: str) -> None:
    """Return where this raypoly can read what was written in version `found`; raise `NewerSchema` else."""
    if found > SCHEMA:
        raise NewerSchema(
            f"{what} has schema version {found}, this raypoly reads up to {SCHEMA}: "
            "use the raypoly that wrote it or a later one, or start another run."
        )
