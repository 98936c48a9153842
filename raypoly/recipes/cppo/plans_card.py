"""The card of plans that were made: counts (`plans.json`), and the same as tables (`plans.md`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from raypoly.core import __version__
from raypoly.core.tables import ReportTable
from raypoly.data.preparing.preparation_folder import influential
from raypoly.recipes.cppo.known_plans import GatePlans
from raypoly.recipes.cppo.plan_config import PlanMakingConfig
from raypoly.recipes.cppo.plan_proposals import PlanOutcome, funnel

Values = Mapping[str, Any]


def card_of(config: PlanMakingConfig, outcomes: Sequence[PlanOutcome], gate: GatePlans) -> Values:
    """The counts: a function of answers and config, without machine or time."""
    return {
        "name": config.run.name,
        "raypoly": __version__,
        "plans": funnel(outcomes, config.plans.methods),
        "gate": gate.counts,
        "config": influential(config),
    }


def encode_card(values: Values) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


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
