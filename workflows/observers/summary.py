"""summary.json: the run's results so far, derived from what it committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, StorageError
from raypoly.run.run_files import SUMMARY
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal
from raypoly.strategies.judge.judge_usage import recent_mean
from workflows.durability.history import DamageReport, format_step_ranges
from workflows.durability.journal import Journal


class Summary:
    """Rewrites the file whole whenever something changes."""

    def __init__(self, store: Store, journal: Journal, config: Config) -> None:
        self._store, self._journal, self._config = store, journal, config
        self._seconds: Counter[str] = Counter()
        earlier = _read_earlier(store)
        self._told = {(each.get("step"), each.get("split")) for each in earlier.get("evaluations", [])}
        self._damage = DamageReport(store, earlier.get("damaged", []))
        # By their beginning. Only this file keeps the pauses of a step or evaluation that a kill left unfinished.
        self._pauses: dict[str, Mapping[str, Any]] = {str(p["since"]): p for p in _earlier_pauses(earlier)}
        self._judge_costs: list[float | None] = []
        self._clipped = 0
        self._skipped: dict[str, dict[str, Any]] = {}
        self.steps = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self._seconds.update(row["seconds"])
        self._pauses |= {str(pause["since"]): pause for pause in row["pauses"]}
        if row.get("judge_step"):
            self._judge_costs.append(row["judge_step"]["cost_usd"])
        self._clipped += row["clipped"]
        for problem, reason in row.get("set_aside_problems", {}).items():
            groups = self._skipped.get(problem, {"groups": 0})["groups"]
            self._skipped[problem] = {"groups": groups + 1, "reason": reason}
        self.steps = row["step"] + 1

    def told_before(self, results: Mapping[str, Any]) -> bool:
        """Whether an earlier start's summary has it."""
        return (results["step"], results["split"]) in self._told

    def clip_share(self, clipped: bool) -> float:
        """Share of clipped updates, with one more."""
        return (self._clipped + clipped) / (self.steps + 1)

    def judge_usd(self, cost: float | None) -> tuple[float | None, float | None]:
        """US dollars of the judge a step, and from the next step to the end, with one more step of `cost`; None if
        unknown."""
        a_step = recent_mean([*self._judge_costs, cost])
        return a_step, None if a_step is None else a_step * (self._config.train.steps - self.steps - 1)

    def pause(self, pause: Mapping[str, Any], state: str) -> None:
        """A pause without `seconds` begins."""
        self._pauses[str(pause["since"])] = pause
        self.write(state)

    def write(self, state: str) -> None:
        """`state`: running, paused or finished."""
        evaluations = [dict(results) for results in self._journal.evaluations().values()]
        pauses = self._pauses | {str(pause["since"]): pause for e in evaluations for pause in e.get("pauses", [])}
        summary = {
            "state": state,
            "objective": self._config.objective.name,
            "seed": self._config.train.seed,
            "warm_start_seed": self._config.warm_start.seed,
            "steps": self.steps,
            "evaluations": evaluations,
            "stage_seconds": {stage: round(value, 3) for stage, value in self._seconds.items()},
            "pauses": [pauses[since] for since in sorted(pauses)],
            "set_aside": self._skipped,
            "damaged": self._damage.entries(),
            "missing_rollouts": format_step_ranges(self._journal.lost_steps(self.steps)),
        }
        self._store.put_mutable(SUMMARY, seal(summary))


def _read_earlier(store: Store) -> dict[str, Any]:
    # empty if missing or damaged: only some pauses can't be derived anew
    try:
        return unseal(store.read(SUMMARY), SUMMARY) if store.exists(SUMMARY) else {}
    except (StorageError, CorruptData):
        return {}


def _earlier_pauses(earlier: Mapping[str, Any]) -> list[dict[str, Any]]:
    # one without an end was interrupted by that start's death
    now = datetime.now(UTC).isoformat()
    names = ("since", "seconds", "reason", "interrupted")
    pauses = [{name: pause[name] for name in names if name in pause} for pause in earlier.get("pauses", [])]
    return [p if "seconds" in p or "interrupted" in p else {**p, "interrupted": now} for p in pauses if "since" in p]
