"""The end of a preparation: the table, the files, and the command that trains on them."""

from __future__ import annotations

import json
import shlex

from rich.console import Console

from raypoly.analysis.reports.data_card_page import stage_table
from raypoly.data.preparing.preparation_folder import influential
from raypoly.data.preparing.prepare_config import PrepareConfig
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import unseal

CARD = "card.json"
PAGE = "card.md"
FIGURE = "card.png"
EXCLUDED = "excluded.jsonl"
MODEL = "model.json"
"""The tiny model's folder at the last start: of this machine, so no part of the data."""


def is_done(store: Store, config: PrepareConfig) -> bool:
    """Whether the data set is there. An unreadable one is made again."""
    try:
        found = json.loads(store.read(CARD)) if store.exists(CARD) else {}
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("config") == influential(config)


def show(store: Store, config: PrepareConfig, console: Console) -> None:
    values = json.loads(store.read(CARD))
    console.print(stage_table(values))
    splits = ", ".join(f"{count:,} {name}" for name, count in values["splits"].items())
    lines = [
        f"data: {store.place('data')} ({splits})",
        f"left out: {store.place(EXCLUDED)}",
        f"data card: {store.place(PAGE)}",
        f"figure: {store.place(FIGURE)}",
        _next(store, config, "train" in values["splits"]),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _next(store: Store, config: PrepareConfig, train: bool) -> str:
    """The command that trains on the data, or the key of one that is tested on it."""
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


def _model(store: Store, config: PrepareConfig) -> str | None:
    """The base model, as a value of `model.path`."""
    if config.model.path is not None:
        return config.model.path
    return str(unseal(store.read(MODEL), store.place(MODEL))["path"]) if store.exists(MODEL) else None
