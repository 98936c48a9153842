"""The end of a preparation: the table, the files, and the command that trains on them."""

from __future__ import annotations

import json
import shlex

from rich.console import Console

from raypoly.analysis.reports.data_card_page import gate_rows_table, plan_table, stage_table
from raypoly.data.preparing.preparation_folder import influential
from raypoly.data.preparing.prepare_config import PrepareConfig
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import unseal

CARD = "card.json"
PAGE = "card.md"
FIGURE = "card.png"
EXCLUDED = "excluded.jsonl"
PLANS = "data/plans.jsonl"
"""Gold plans, as rows for supervised training."""
MODEL = "model.json"
"""The tiny model's folder at the last start. It is local to this machine, so not part of the data."""


def gate_files(config: PrepareConfig) -> tuple[str, str]:
    """The rows of a gate: those that train it, and those that measure it."""
    return f"data/{config.plans.gate_rows}.jsonl", f"data/{config.plans.gate_rows}_held_out.jsonl"


def is_done(store: Store, config: PrepareConfig) -> bool:
    """Whether the config's data set exists. An unreadable one is made again."""
    try:
        found = json.loads(store.read(CARD)) if store.exists(CARD) else {}
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("config") == influential(config)


def show(store: Store, config: PrepareConfig, console: Console) -> None:
    """Print the card's table, the paths of the files, and how to train on them."""
    values = json.loads(store.read(CARD))
    console.print(stage_table(values))
    if "plans" in values:
        console.print(plan_table(values))
    if "gate" in values and not values["gate"]["why_none"]:
        console.print(gate_rows_table(values))
    splits = ", ".join(f"{count:,} {name}" for name, count in values["splits"].items())
    lines = [
        f"data: {store.place('data')} ({splits})",
        f"left out: {store.place(EXCLUDED)}",
        f"data card: {store.place(PAGE)}",
        f"figure: {store.place(FIGURE)}",
        *([_next_plans(store, config)] if "plans" in values else []),
        *([_next_gate(store, config, values["gate"]["why_none"])] if "gate" in values else []),
        _next(store, config, "train" in values["splits"]),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _next(store: Store, config: PrepareConfig, train: bool) -> str:
    """How to use the data set: the command that trains on it, or the key of one that is tested on it."""
    purpose, key = ("to train on it", "problems.path") if train else ("to be tested on it", "problems.test_path")
    if store.location.folder is None:
        return (
            f"{purpose}: copy {store.place('data')} to a folder, and name that as {key} with problems.source=prepared"
        )
    named = f"{key}={store.location.folder}"
    if not train:
        return f"{purpose}: add {shlex.quote(named)} to a training with problems.source=prepared"
    words = ["problems.source=prepared", named, f"model.path={_model(store, config) or 'MODEL'}"]
    words.append(f"generator.max_prompt_tokens={config.generator.max_prompt_tokens}")
    return f"{purpose}: {shlex.join(['python', '-m', 'raypoly.train', *words])}"


def _next_plans(store: Store, config: PrepareConfig) -> str:
    """The command that trains a planner on the plans."""
    place = store.place(PLANS)
    if store.location.folder is None:
        return f"plans: {place}; to train on them copy them to a folder, and name them as scaffold.rows"
    words = ["objective.name=supervised", "scaffold.name=given", f"scaffold.rows={place}", "train.rollouts=1"]
    if (model := _model(store, config)) is not None:
        words.append(f"model.path={model}")
    command = shlex.join(["python", "-m", "raypoly.train", *words, "evaluate.every=0"])
    return f"plans: {place}; to train on them: {command}"


def _next_gate(store: Store, config: PrepareConfig, why_none: str) -> str:
    """The keys of an arm that trains a gate on the rows."""
    if why_none:
        return f"a gate's rows: none, since {why_none}"
    rows, held_out = map(store.place, gate_files(config))
    return f"a gate's rows: {rows}; to train on them: an arm of kind: gate, scaffold.rows: {rows}, held_out: {held_out}"


def _model(store: Store, config: PrepareConfig) -> str | None:
    """The base model, as a value of `model.path`."""
    if config.model.path is not None:
        return config.model.path
    return str(unseal(store.read(MODEL), store.place(MODEL))["path"]) if store.exists(MODEL) else None
