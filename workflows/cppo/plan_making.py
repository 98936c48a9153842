"""The plans of a preparation: gold plans for a planner, and rows for a gate.

made = await make_plans(config, candidates, written, store, lease, note, console)
made.outcomes, made.gate
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from raypoly.commands.offline.command_progress import show_progress
from raypoly.core.values import TestSuite
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.prepare_config import PrepareConfig
from raypoly.recipes.cppo.gate_plans import GatePlans, JudgedPlan
from raypoly.recipes.cppo.plan_proposals import PlanOutcome, gold_plan
from raypoly.run.store import Lease, Store
from workflows.cppo.plan_questions import PlanQuestions


@dataclass(frozen=True)
class PlansMade:
    """What teacher and judge said of the training problems."""

    outcomes: Sequence[PlanOutcome]
    gate: GatePlans


async def make_plans(
    config: PrepareConfig,
    candidates: Sequence[Candidate],
    written: Mapping[str, Sequence[str]],
    store: Store,
    lease: Lease,
    note: Callable[[str], None],
    console: Console,
) -> PlansMade:
    """Ask about the training problems alone: nothing that is held out is shown to a server. `written`: plans of
    planners to be labelled, by problem. Raises `PausedTooLong`."""
    plans = config.plans
    questions = PlanQuestions(plans, config.prompts.chat_template, store, lease, note)
    asked = [(it, plan) for it in candidates for plan in written.get(it.id, ())[-plans.label_plans :]]
    good: list[PlanOutcome | JudgedPlan] = []
    done: list[PlanOutcome | JudgedPlan] = []

    def count(found: PlanOutcome | JudgedPlan) -> None:
        done.append(found)
        valid = found.valid if isinstance(found, JudgedPlan) else gold_plan(found, plans.methods)
        good.extend([found] if valid else [])

    labelled = f", {len(asked):,} plans of planners to label" if plans.label else ""
    note(f"plans: {len(candidates):,} training problems{labelled}")
    try:
        with show_progress("problems and plans", len(candidates) + len(asked), lambda: (len(done), len(good)), console):
            outcomes = await questions.outcomes(candidates, count)
            judged = await questions.judged(asked, count)
    finally:
        questions.close()
    gate = await asyncio.to_thread(_gate_plans, config, candidates, outcomes, judged)
    return PlansMade(outcomes, gate)


def _gate_plans(
    config: PrepareConfig,
    candidates: Sequence[Candidate],
    outcomes: Sequence[PlanOutcome],
    judged: Sequence[JudgedPlan],
) -> GatePlans:
    wanted = {it.problem_id for it in judged} | {it.problem_id for it in outcomes if it.kept}
    problems = {
        it.id: replace(it.problem, tests=TestSuite("none", ""), public_tests=None)  # which take most of the memory
        for it in candidates
        if it.id in wanted
    }
    return GatePlans.of(problems, outcomes, judged, config.plans, config.split.seed)
