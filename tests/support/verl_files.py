"""Rows in verl's schema, as its `examples/data_preprocess` scripts write them, and their Parquet files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TEXT = pa.string()
SCHEMA = pa.schema(
    {
        "data_source": TEXT,
        "prompt": pa.list_(pa.struct({"content": TEXT, "role": TEXT})),
        "ability": TEXT,
        "reward_model": pa.struct({"ground_truth": TEXT, "style": TEXT}),
        "extra_info": pa.struct({"answer": TEXT, "index": pa.int64(), "question": TEXT, "split": TEXT}),
    }
)


def gsm8k_row(index: int, **changes: Any) -> dict[str, Any]:
    question = f"Ann has {index} apples and buys 2. How many has she?"
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{question} Let's think step by step."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(index + 2)},
        "extra_info": {"split": "train", "index": index, "answer": f"#### {index + 2}", "question": question},
    } | changes


def code_row(index: int, **tests: Any) -> dict[str, Any]:
    """A row as in Eurus-2-RL-Data or code-r1: the ground truth is JSON."""
    held = tests or {"inputs": [f"{index} 1\n"], "outputs": [f"{index + 1}\n"]}
    return gsm8k_row(
        index,
        data_source="taco",
        prompt=[{"role": "system", "content": "You write Python."}, {"role": "user", "content": f"Add. ({index})"}],
        ability="code",
        reward_model={"style": "rule", "ground_truth": json.dumps(held)},
    )


def write_parquet(path: Path, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return path
