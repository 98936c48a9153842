"""Why a problem was kept or left out, told from a preparation's folder, whether it is done or not.

print(explain(store, "two-sum"))
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from raypoly.errors import UsageError
from raypoly.preparing.decision_log import STAGES, Decision, DecisionLog, StageName
from raypoly.store import Store


def explain_problem(store: Store, problem_id: str) -> str:
    """Lines for a person: one a stage that has decided, the last one says how it stands.

    Raises `UsageError` where the preparation has no problem of this id.
    """
    ledger = DecisionLog(store)
    known: dict[StageName, list[Decision]] = {}
    for stage in STAGES:
        found = ledger.read(stage)
        if found is None:
            break
        known[stage] = found
    mine = {stage: [d for d in decisions if d.problem_id == problem_id] for stage, decisions in known.items()}
    if not mine.get("load"):
        raise UsageError(_unknown(problem_id, known.get("load"), store))
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
        row = f"{facts['source']}, row {facts['row']}: " if stage == "load" else ""
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


def _unknown(problem_id: str, loaded: list[Decision] | None, store: Store) -> str:
    if loaded is None:
        return f"{store.uri} has read no problem yet: give the same command without --explain first."
    names = [decision.problem_id for decision in loaded if decision.problem_id is not None]
    near = get_close_matches(problem_id, names, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; ids are those of the sources' rows."
    return f"{store.uri} has no problem {problem_id!r}{hint}"
