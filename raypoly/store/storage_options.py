"""How remote storage is treated: how long a request may take, how long it is repeated, where copies lie."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from raypoly.caches import cache_root
from raypoly.store.location import Location


@dataclass(frozen=True)
class StorageOptions:
    """`run.storage_timeout`, `run.storage_patience` and `run.scratch`; a local store needs none of them."""

    timeout: float = 30.0
    """Seconds after which a request without an answer has failed."""
    patience: float = 300.0
    """Seconds over which a failing request is repeated."""
    scratch: Path | None = None
    """Where copies lie that must be files; `scratch/` of the user's caches if None. Nothing in it is needed again."""

    def workspace(self, location: Location) -> Path:
        """A run's folder in the scratch, named like the run."""
        root = self.scratch or cache_root() / "scratch"
        return root / hashlib.sha256(str(location).encode()).hexdigest()[:12] / location.name
