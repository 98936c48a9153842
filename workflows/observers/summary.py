"""summary.json: what a run came to so far, derived from what it committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from raypoly.config import Config
from raypoly.errors import CorruptData, StorageError
from raypoly.judge.spending import recent
from raypoly.run import SUMMARY
from raypoly.store import Store
from raypoly.store.sealed_json import seal, unseal
from workflows.durability.damage_report import DamageReport, format_step_ranges
from workflows.durability.journal import Journal


class Summary:
    """Rewritten whole whenever something changes; a reader never sees half of it."""

    def __init__(self, store: Store, journal: Journal, config: Config) -> None:
        self._store, self._journal, self._config = store, journal, config
        self._seconds: Counter[str] = Counter()
        kept = _kept(store)
        self._damage = DamageReport(store, kept.get("damaged", []))
        self._pauses: dict[str, Mapping[str, Any]] = {str(p["since"]): p for p in _kept_pauses(kept)}
        """By their beginning. Those of a step or an evaluation that a kill left unfinished are kept here alone."""
        self._judge_costs: list[float | None] = []
        self._clipped = 0
        self._set_aside: dict[str, dict[str, Any]] = {}
        self.steps = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in the row of one completed step."""
        self._seconds.update(row["seconds"])
        self._pauses |= {str(pause["since"]): pause for pause in row["pauses"]}
        if row.get("judge_step"):
            self._judge_costs.append(row["judge_step"]["cost_usd"])
        self._clipped += row["clipped"]
        for problem, reason in row.get("set_aside_problems", {}).items():
            groups = self._set_aside.get(problem, {"groups": 0})["groups"]
            self._set_aside[problem] = {"groups": groups + 1, "reason": reason}
        self.steps = row["step"] + 1

    def clip_share(self, clipped: bool) -> float:
        """Share of clipped updates with one more that is not added yet."""
        return (self._clipped + clipped) / (self.steps + 1)

    def judge_usd(self, cost: float | None) -> tuple[float | None, float | None]:
        """US dollars that the judge costs a step, and from the next step to the end, with the cost of one step more
        that is not added yet; None where a cost is unknown."""
        a_step = recent([*self._judge_costs, cost])
        return a_step, None if a_step is None else a_step * (self._config.train.steps - self.steps - 1)

    def pause(self, pause: Mapping[str, Any], state: str) -> None:
        """A pause begins (without `seconds`) or is over."""
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
            "set_aside": self._set_aside,
            "damaged": self._damage.entries(),
            "missing_rollouts": format_step_ranges(self._journal.lost_steps(self.steps)),
        }
        self._store.put_mutable(SUMMARY, seal(summary))


def _kept(store: Store) -> dict[str, Any]:
    """What an earlier start wrote; nothing where it is missing or damaged: all but some pauses is derived anew."""
    try:
        return unseal(store.read(SUMMARY), SUMMARY) if store.exists(SUMMARY) else {}
    except (StorageError, CorruptData):
        return {}


def _kept_pauses(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pauses that an earlier start told of; one that never ended was cut off by that start's death."""
    now = datetime.now(UTC).isoformat()
    names = ("since", "seconds", "reason", "interrupted")
    pauses = [{name: pause[name] for name in names if name in pause} for pause in kept.get("pauses", [])]
    return [p if "seconds" in p or "interrupted" in p else {**p, "interrupted": now} for p in pauses if "since" in p]
