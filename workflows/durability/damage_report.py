"""Files that a run has lost to damage, over all its starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raypoly.run.store import Store
from raypoly.run.store.store import DAMAGED


class DamageReport:
    def __init__(self, store: Store, earlier: Iterable[Mapping[str, Any]]) -> None:
        """`earlier`: the entries of the last start's summary, which know the reasons."""
        self._store = store
        known = {entry.get("moved_to"): entry for entry in earlier}
        self._before = [
            known.get(key, {"key": key.removeprefix(DAMAGED), "moved_to": key, "reason": "unknown"})
            for key in store.list(DAMAGED)
        ]

    def entries(self) -> list[Mapping[str, Any]]:
        """`key, moved_to, reason` of each file, sorted by `moved_to`."""
        entries = {str(entry["moved_to"]): entry for entry in [*self._before, *map(vars, self._store.damaged)]}
        return [dict(entries[name]) for name in sorted(entries)]


def format_step_ranges(steps: Iterable[int]) -> list[str]:
    """Ascending steps as ranges: `3`, `7-9`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1][1:] = [step]
        else:
            runs.append([step])
    return ["-".join(map(str, run)) for run in runs]
