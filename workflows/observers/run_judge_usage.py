"""What this run has used of its judge, over all its starts. A judge that runs share only knows the sum of all.

    usage = RunJudgeUsage(store)              # goes on from judge.json
    judge = JudgeClient(..., spent=lambda: usage.spent_usd, on_use=usage.add)
    row = {..., "judge_step": usage_to_json(usage.take_unreported())}

`judge.json` is written about once a second while the judge answers. So the spending of a killed driver counts towards
the budget even if its step was not finished, and stands in that step's row when it is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from raypoly.core.errors import CorruptData, StorageError
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal
from raypoly.strategies.judge.judge_usage import UsageCounts, spent_usd

KEY = "judge.json"
_WRITE_SECONDS = 1.0


class RunJudgeUsage:
    """The total use, and what of it is not reported yet. Used from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._total, self._reported = _read_total(store), Counter[str]()
        self._writing: asyncio.Task[None] | None = None
        self._dirty = False
        self._one_at_a_time = threading.Lock()

    @property
    def total(self) -> UsageCounts:
        """Over all starts of the run."""
        return dict(self._total)

    @property
    def spent_usd(self) -> float:
        """US dollars that count towards `judge.budget_usd`."""
        return spent_usd(self._total)

    @property
    def has_usage(self) -> bool:
        return bool(self._total)

    def restore_reported(self, reported: Mapping[str, Any] | None) -> None:
        """Count what a committed row or evaluation reports, before the judge is asked."""
        for name, value in (reported or {}).items():
            if name != "cost_usd" and value:
                self._reported[name] += value
                # if judge.json was lost, the rows know most of it
                self._total[name] = max(self._total[name], self._reported[name])

    def add(self, use: UsageCounts) -> None:
        self._total.update(use)
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def take_unreported(self) -> UsageCounts:
        """The use since the last call."""
        new = {name: value - self._reported[name] for name, value in self._total.items()}
        self._reported = Counter(self._total)
        return {name: value for name, value in new.items() if value > 0}

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if self._dirty:
            await asyncio.to_thread(self._put)

    async def _write(self) -> None:
        while self._dirty:
            await asyncio.to_thread(self._put)
            await asyncio.sleep(_WRITE_SECONDS)
        self._writing = None

    def _put(self) -> None:
        with self._one_at_a_time:  # a cancelled write may still be under way, with older numbers
            self._dirty = False
            try:
                self._store.put_mutable(KEY, seal({"use": dict(self._total)}))
            except StorageError:
                self._dirty = True  # the journal meets the same error, and stops the run


def _read_total(store: Store) -> Counter[str]:
    # empty if the file is missing or damaged: the rows know most of it
    try:
        if not store.exists(KEY):
            return Counter()
        values = unseal(store.read(KEY), KEY)["use"]
        return Counter({str(name): float(value) for name, value in values.items()})
    except (StorageError, CorruptData, ValueError, KeyError, TypeError, AttributeError):
        return Counter()
