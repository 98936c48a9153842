"""What a run has lost to damage so far, over all its starts: for the terminal, `summary.json` and the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raypoly.store import Store
from raypoly.store.store import DAMAGED


class DamageReport:
    """Files that were set aside. `kept`: what an earlier start's summary told of them."""

    def __init__(self, store: Store, kept: Iterable[Mapping[str, Any]]) -> None:
        self._store = store
        reasons = {entry.get("moved_to"): entry for entry in kept}
        self._before = [
            reasons.get(key, {"key": key.removeprefix(DAMAGED), "moved_to": key, "reason": "unknown"})
            for key in store.list(DAMAGED)
        ]

    def told(self) -> list[Mapping[str, Any]]:
        """`key, moved_to, reason` of each, by name."""
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
