"""What this run has used of its judge, over all its starts; a judge that others share knows only the sum of all.

    use = RunUse(store)                       # goes on from judge.json
    judge = JudgeClient(..., spent=lambda: use.spent_usd, on_use=use.add)
    row = {..., "judge_step": told(use.take_unreported())}

`judge.json` is written about once a second while the judge answers, so that what a killed driver had spent in a step
that it did not finish still counts towards the budget, and stands in that step's row when it is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from raypoly.errors import CorruptData, StorageError
from raypoly.judge.judge_usage import Use, spent_usd
from raypoly.store import Store
from raypoly.store.sealed_json import seal, unseal

KEY = "judge.json"
WRITE_SECONDS = 1.0


class RunJudgeUsage:
    """The sum, and what of it no row and no evaluation has reported yet. Used from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._total, self._reported = _kept(store), Counter[str]()
        self._writing: asyncio.Task[None] | None = None
        self._dirty = False
        self._one_at_a_time = threading.Lock()

    @property
    def spent_usd(self) -> float:
        """What counts towards `judge.budget_usd`."""
        return spent_usd(self._total)

    @property
    def has_usage(self) -> bool:
        """Whether the judge has counted anything for this run."""
        return bool(self._total)

    def restore_reported(self, told: Mapping[str, Any] | None) -> None:
        """A committed row or evaluation that reports so much; for each, before anything is asked."""
        for name, value in (told or {}).items():
            if name != "cost_usd" and value:
                self._reported[name] += value
                # where judge.json was lost, the rows know the most of it
                self._total[name] = max(self._total[name], self._reported[name])

    def add(self, use: Use) -> None:
        """One question used so much."""
        self._total.update(use)
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def take_unreported(self) -> Use:
        """What was used since this was last asked."""
        new = {name: value - self._reported[name] for name, value in self._total.items()}
        self._reported = Counter(self._total)
        return {name: value for name, value in new.items() if value > 0}

    async def close(self) -> None:
        """Return when all is written."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._dirty:
            await asyncio.to_thread(self._put)

    async def _write(self) -> None:
        while self._dirty:
            await asyncio.to_thread(self._put)
            await asyncio.sleep(WRITE_SECONDS)
        self._writing = None

    def _put(self) -> None:
        with self._one_at_a_time:  # a write that was given up may still be under way, with older numbers
            self._dirty = False
            try:
                self._store.put_mutable(KEY, seal({"use": dict(self._total)}))
            except StorageError:
                self._dirty = True  # the journal, which meets the same storage, is what stops the run


def _kept(store: Store) -> Counter[str]:
    """What the last start wrote; nothing where it is missing or damaged: the rows know most of it."""
    try:
        if not store.exists(KEY):
            return Counter()
        values = unseal(store.read(KEY), KEY)["use"]
        return Counter({str(name): float(value) for name, value in values.items()})
    except (StorageError, CorruptData, ValueError, KeyError, TypeError, AttributeError):
        return Counter()
