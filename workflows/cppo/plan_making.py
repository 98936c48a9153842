"""`raypoly make-plans`: gold plans of training problems for a planner, and rows for a gate.

data/plans.jsonl                            gold plans, as rows of the scaffold `given`
data/gate.jsonl, gate_held_out.jsonl        labelled plans: those that train a gate, and those that measure it
plans.json, plans.md                        what was proposed, left out and kept
plans/                                      every answer of teacher and judge: the same command asks none twice
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from raypoly import data
from raypoly.commands.command_options import Overrides
from raypoly.core import __version__
from raypoly.core.progress_display import show_progress
from raypoly.core.settings import load_of
from raypoly.core.tables import ReportTable
from raypoly.core.values import Problem
from raypoly.data.preparing.data_card import encode_card
from raypoly.data.preparing.preparation_folder import PreparationFolder, influential
from raypoly.data.templates import ChatTemplate
from raypoly.recipes.cppo.gate_rows import encode_rows, written_plans
from raypoly.recipes.cppo.known_plans import GatePlans, JudgedPlan
from raypoly.recipes.cppo.plan_config import PlanMakingConfig
from raypoly.recipes.cppo.plan_proposals import PlanOutcome, encode_plans, funnel, gold_plan
from raypoly.run.store import Store
from workflows.cppo.plan_questions import PlanQuestions
from workflows.liveness.shutdown import Shutdown, run_workflow

PLANS, CARD, PAGE = "data/plans.jsonl", "plans.json", "plans.md"
Values = Mapping[str, Any]


def make_plans_command(
    config: Annotated[str, typer.Option("--config", help="A YAML file, such as configs/cppo/plans.yaml.")],
    overrides: Overrides = None,
) -> None:
    """Ask a teacher and a judge for plans of training problems: docs/cppo.md."""
    make_plans(load_of(PlanMakingConfig, config, overrides or []))


def make_plans(config: PlanMakingConfig) -> None:
    """Make plans of the training problems, or go on. Raises `UsageError`, and `PausedTooLong`."""
    config.check_servers()
    folder, console = PreparationFolder.of(config), Console()
    print(folder.uri, flush=True)
    # before the folder holds anything, so that a corrected config can start there
    written = written_plans(config.plans.label, config.plans.methods)
    # training problems alone: nothing that is held out is shown to a server
    problems = data.build_problem_set(config.problems).splits["train"]
    ending = Shutdown(config.run.grace_seconds)

    async def work() -> None:
        with ending.guard():
            store, lease = folder.open()
            try:
                outcomes, gate = await ask_for_plans(config, problems, written, store, console)
                await asyncio.to_thread(_write, config, outcomes, gate, store, console)
            finally:
                lease.release()

    run_workflow(work(), ending)


async def ask_for_plans(
    config: PlanMakingConfig,
    problems: Sequence[Problem],
    written: Mapping[str, Sequence[str]],
    store: Store,
    console: Console,
) -> tuple[Sequence[PlanOutcome], GatePlans]:
    """`written`: planners' plans to be labelled, by problem."""
    plans, note = config.plans, _noted_on(console)
    questions = PlanQuestions(plans, ChatTemplate.of(config.problems), store, note)
    asked = [(it, plan) for it in problems for plan in written.get(it.id, ())[-plans.label_plans :]]
    good: list[PlanOutcome | JudgedPlan] = []
    done: list[PlanOutcome | JudgedPlan] = []

    def count(found: PlanOutcome | JudgedPlan) -> None:
        done.append(found)
        valid = found.valid if isinstance(found, JudgedPlan) else gold_plan(found, plans.methods)
        good.extend([found] if valid else [])

    labelled = f", {len(asked):,} plans of planners to label" if plans.label else ""
    note(f"plans: {len(problems):,} training problems{labelled}")
    try:
        with show_progress("problems and plans", len(problems) + len(asked), lambda: (len(done), len(good)), console):
            outcomes = await questions.outcomes(problems, count)
            judged = await questions.judged(asked, count)
    finally:
        questions.close()
    by_id = {it.id: it for it in problems}
    return outcomes, await asyncio.to_thread(GatePlans.of, by_id, outcomes, judged, plans)


def _write(
    config: PlanMakingConfig,
    outcomes: Sequence[PlanOutcome],
    gate: GatePlans,
    store: Store,
    console: Console,
) -> None:
    values = card_of(config, outcomes, gate)
    files = dict(zip(config.plans.gate_files, (gate.train, gate.held_out), strict=True))
    for key, content in {
        PLANS: encode_plans(outcomes, config.plans.methods),
        **{key: encode_rows(rows) for key, rows in files.items()},
        PAGE: plans_page(values).encode(),
        CARD: encode_card(values),
    }.items():
        if content:
            store.put_mutable(key, content)
        elif store.exists(key):
            store.delete(key)
    for table in plans_tables(values):
        console.print(table)
    note = _noted_on(console)
    words = ["objective.name=supervised", "scaffold.name=given", f"scaffold.rows={store.place(PLANS)}"]
    command = shlex.join(["python", "-m", "raypoly.train", *words, "train.rollouts=1", "evaluate.every=0"])
    remote = " (copied to a folder)" if store.location.folder is None else ""
    note(f"plans: {store.place(PLANS)}; to train on them{remote}: {command}")
    rows, held_out = map(store.place, config.plans.gate_files)
    note(
        f"a gate's rows: none, since {gate.why_none}"
        if gate.why_none
        else f"a gate's rows: {rows}; to train on them: raypoly train-gate --held-out {held_out} scaffold.rows={rows}"
    )


def _noted_on(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True)


def card_of(config: PlanMakingConfig, outcomes: Sequence[PlanOutcome], gate: GatePlans) -> Values:
    """The counts: a function of answers and config, without machine or time."""
    return {
        "name": config.run.name,
        "raypoly": __version__,
        "plans": funnel(outcomes, config.plans.methods),
        "gate": gate.counts,
        "config": influential(config),
    }


def plans_page(values: Values) -> str:
    gate = values["gate"]
    tables = "\n".join(table.markdown() for table in plans_tables(values))
    none = f"\nNo rows of a gate: {gate['why_none']}.\n" if gate["why_none"] else ""
    said = ", ".join(f"{count:,} {word}" for word, count in gate["judged"].items())
    labelled = f"\nPlans of planners that the judge labelled: {said}.\n" if said else ""
    return (
        f"# {values['name']}\n\nMade by `raypoly make-plans`, raypoly {values['raypoly']}.\n\n{tables}{none}{labelled}"
    )


def plans_tables(values: Values) -> list[ReportTable]:
    """From problems asked about to gold plans; and a gate's rows, if there are any."""
    return [_plan_table(values["plans"]), *([] if values["gate"]["why_none"] else [_gate_table(values["gate"])])]


def _plan_table(plans: Values) -> ReportTable:
    rows = [
        ("training problems", plans["problems"]),
        *((f"the {who}", count) for who, count in plans["unanswered"].items()),
        ("methods proposed", plans["proposed"]),
        *((f"left out: {why}", count) for why, count in plans["left_out"].items() if count),
        ("methods kept", plans["kept"]),
        ("problems with too few", plans["too_few"]),
        ("gold plans", plans["plans"]),
    ]
    return ReportTable(("plans", ""), [(name, f"{count:,}") for name, count in rows])


def _gate_table(gate: Values) -> ReportTable:
    train, held_out = gate["train"], gate["held_out"]
    rows = [(kind.replace("_", " "), train.get(kind, 0), held_out.get(kind, 0)) for kind in {**train, **held_out}]
    return ReportTable(("a gate's rows", "to train on", "held out"), [(it[0], *map(str, it[1:])) for it in rows])
