"""Decisions about every problem; those of a finished stage are one object.

decisions = log.stage("same", lambda: compare(candidates))     # read from the folder if stored
dropped = {decision.problem_id for decision in decisions if decision.reason}
print(explain_problem(store, "two-sum"))                          # why it was kept or left out
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, get_args

from raypoly.core.errors import UsageError
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal

StageName = Literal["load", "choose", "solutions", "same", "prompts", "sampling", "split"]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""In their order."""
DERIVED: tuple[StageName, ...] = ("sampling", "split")
"""Stages that each start repeats, from the journal and from keys that may change."""


@dataclass(frozen=True)
class Decision:
    problem_id: str | None
    """None for a row without one."""
    stage: StageName
    reason: str = ""
    """Why it was left out; empty if it was kept."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: the row's place, samples that passed ..."""


class DecisionLog:
    def __init__(self, store: Store) -> None:
        self._store = store

    def stage(self, name: StageName, decide: Callable[[], Sequence[Decision]]) -> list[Decision]:
        """The stored decisions; else those of `decide`, which are then stored."""
        found = self.read(name)
        return self.keep(name, decide()) if found is None else found

    def keep(self, name: StageName, decisions: Sequence[Decision]) -> list[Decision]:
        """Store them: for good, unless the stage is `DERIVED`."""
        write = self._store.put_mutable if name in DERIVED else self._store.commit
        write(_key(name), seal({"decisions": [asdict(decision) for decision in decisions]}))
        return list(decisions)

    def read(self, name: StageName) -> list[Decision] | None:
        """None if the stage is not done. Raises `CorruptData`."""
        key = _key(name)
        if not self._store.exists(key):
            return None
        return [Decision(**row) for row in unseal(self._store.read(key), self._store.place(key))["decisions"]]


def _key(name: StageName) -> str:
    return f"stages/{max(STAGES.index(name), 1)}-{name}.json"  # `load` and `choose` are 1: both read the sources


def explain_problem(store: Store, problem_id: str) -> str:
    """A line for each stage that has decided, and the result so far. Raises `UsageError` for an unknown id."""
    log = DecisionLog(store)
    known: dict[StageName, list[Decision]] = {}
    for stage in STAGES:
        found = log.read(stage)
        if found is None:
            break
        known[stage] = found
    mine = {stage: [d for d in decisions if d.problem_id == problem_id] for stage, decisions in known.items()}
    if not mine.get("load"):
        if "load" not in known:
            raise UsageError(f"{store.uri} has read no problem yet: give the same command without --explain first.")
        names = [decision.problem_id for decision in known["load"] if decision.problem_id is not None]
        near = get_close_matches(problem_id, names, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; ids are those of the sources' rows."
        raise UsageError(f"{store.uri} has no problem {problem_id!r}{hint}")
    return "\n".join([problem_id, *_lines(mine)])


def _lines(mine: dict[StageName, list[Decision]]) -> Iterator[str]:
    for stage, decisions in mine.items():
        used = [decision for decision in decisions if not decision.reason]
        for decision in decisions:
            yield f"  {stage:9}  {_told(stage, decision)}"
        if not decisions and stage == "same":
            yield "  same       no other problem is the same"
        if decisions and not used:
            yield f"Left out at {stage}: {decisions[0].reason}."
            return
    undecided = [stage for stage in STAGES if stage not in mine]
    if undecided:
        yield f"Still in the running: {', '.join(undecided)} {'is' if len(undecided) == 1 else 'are'} not done yet."
        return
    yield f"Kept, in {mine['split'][0].facts['split']}."


def _told(stage: StageName, decision: Decision) -> str:
    facts = decision.facts
    if decision.reason:
        row = f"{facts['source']}, row {facts['row']}: " if stage in ("load", "choose") else ""
        return f"{row}{decision.reason}"
    if stage == "load":
        return f"{facts['source']}, row {facts['row']}"
    if stage == "solutions":
        return {"passed": "its own solution passes", "none": "it has no solution to check by"}.get(
            facts.get("solution", ""), "solutions were not run"
        )
    if stage == "prompts":
        if "tokens" not in facts:
            return "tokens were not counted"
        cut = f", cut to {facts['tokens_now']}" if "tokens_now" in facts else ""
        return f"{facts['tokens']} tokens{cut}"
    if stage == "sampling":
        if facts.get("passes") is None:
            return "no model was asked"
        return f"the base model solves it in {facts['passes']} of {facts['samples']} samples"
    return str(facts.get("split", ""))
