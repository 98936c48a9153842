"""What was decided of every problem, stage by stage: each stage's decisions are one object, kept when it is done.

decisions = ledger.stage("same", lambda: compare(candidates))     # from the folder, where it is there already
dropped = {decision.problem_id for decision in decisions if decision.reason}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from raypoly.store import Lease, Store
from raypoly.store.sealed_json import seal, unseal

StageName = Literal["load", "solutions", "same", "prompts", "sampling", "split"]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""In their order."""
DERIVED: tuple[StageName, ...] = ("sampling", "split")
"""Made anew at each start, from the journal and from keys that may change."""


@dataclass(frozen=True)
class Decision:
    """What a stage did with one problem."""

    problem_id: str | None
    """None for a row without one."""
    stage: StageName
    reason: str = ""
    """Why it was left out; empty where it went on."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: the row's place, the number of tests, of samples that passed ..."""


class DecisionLog:
    """The decisions in a preparation's folder."""

    def __init__(self, store: Store, lease: Lease | None = None) -> None:
        """`lease`: None where nothing is to be written."""
        self._store, self._lease = store, lease

    def stage(self, name: StageName, decide: Callable[[], Sequence[Decision]]) -> list[Decision]:
        """The stage's decisions: those that are kept, else those that `decide` comes to, kept from now on."""
        found = self.read(name)
        return self.keep(name, decide()) if found is None else found

    def keep(self, name: StageName, decisions: Sequence[Decision]) -> list[Decision]:
        """Keep the decisions of a stage that is done: for good, unless it is a `DERIVED` one."""
        assert self._lease is not None
        self._lease.check()
        write = self._store.put_mutable if name in DERIVED else self._store.commit
        write(_key(name), seal({"decisions": [asdict(decision) for decision in decisions]}))
        return list(decisions)

    def read(self, name: StageName) -> list[Decision] | None:
        """The decisions of a stage; None where it is not done. Raises `CorruptData` where they are damaged."""
        key = _key(name)
        if not self._store.exists(key):
            return None
        return [Decision(**row) for row in unseal(self._store.read(key), self._store.place(key))["decisions"]]


def _key(name: StageName) -> str:
    return f"stages/{STAGES.index(name) + 1}-{name}.json"
