"""The user's cache folder, for results that belong to no run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """`$RAYPOLY_CACHE`, else `$XDG_CACHE_HOME/raypoly`, else `~/.cache/raypoly`."""
    if own := os.environ.get("RAYPOLY_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "raypoly"
