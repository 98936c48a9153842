"""Problems from verl's Parquet files, read as they are (docs/from-verl.md).

    load_verl(ProblemsConfig(source="verl", path="train.parquet", chat_template="Qwen/Qwen3-4B-Base")).splits["train"]

A ground truth that holds tests of programs becomes the problem's tests; any other leaves it without, for a
`compute_score` function to judge. A row that can't be used is reported by file, row and reason.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import test_lists
from raypoly.data.formats.long_integers import dumps
from raypoly.data.formats.row_fields import Identifier, error_reason
from raypoly.data.formats.row_files import parquet_rows
from raypoly.data.problem_set import ProblemSet, problem_set_of
from raypoly.data.templates import PLAIN, ChatTemplate, Render

log = logging.getLogger(__name__)

COLUMNS = ("data_source", "prompt", "reward_model")
_OPTIONAL = ("extra_info", "images", "videos")
NO_TEMPLATE = (
    "problems.source=verl needs problems.chat_template: the folder or hub id of the tokenizer whose chat template "
    f"makes prompts of messages, as a rule what model.path says, or {PLAIN} for their texts alone."
)


@dataclass(frozen=True)
class ComputeScoreArgs:
    """The arguments that verl gives to a reward function beside the response."""

    data_source: str
    ground_truth: Any
    extra_info: Any


class _Message(BaseModel):
    role: str = Field(min_length=1)
    content: str


class _RewardModel(BaseModel):
    ground_truth: Any


class _Row(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)
    data_source: Identifier
    prompt: list[_Message] = Field(min_length=1)
    reward_model: _RewardModel
    extra_info: dict[str, Any] | None = None
    images: Any = None
    videos: Any = None


def load_verl(config: ProblemsConfig) -> ProblemSet:
    """The problems of `config.path`, a Parquet file or a folder of them, split by `config.seed`.

    Raises `UsageError` where there is no file, no chat template, no usable row, or too few problems for the splits.

    """
    if config.path is None:
        raise UsageError("problems.source=verl needs problems.path, a Parquet file or a folder of them.")
    chat = ChatTemplate.of(config)
    if chat is None:
        raise UsageError(NO_TEMPLATE)
    render = chat.renderer()
    return problem_set_of(lambda place: list(_read_problems(Path(place).expanduser(), render)), config, "verl split")


def problem_of_row(row: Mapping[str, Any], render: Render, source: str = "") -> Problem:
    """The problem of one row. Raises `ValueError` that says which column is wrong, and how."""
    try:
        it = _Row.model_validate(row)
        for name in ("images", "videos"):
            if getattr(it, name):
                raise ValueError(f"{name}: raypoly trains models of text alone")
        truth = ComputeScoreArgs(it.data_source, it.reward_model.ground_truth, it.extra_info)
        metadata = {
            "data_source": truth.data_source,
            "ground_truth": _json_text("reward_model.ground_truth", truth.ground_truth),
            "extra_info": _json_text("extra_info", truth.extra_info),
        }
        messages = [{key: value for key, value in message.items() if value is not None} for message in row["prompt"]]
        problem = Problem("", "", "", TestSuite("none", ""))
        if test_lists.holds_tests(truth.ground_truth):
            problem = test_lists.to_problem({"reward_model": row["reward_model"], "prompt": row["prompt"]})
    except ValueError as error:
        raise ValueError(error_reason(error)) from None
    content = hashlib.sha256(json.dumps([messages, metadata], sort_keys=True).encode()).hexdigest()
    return replace(
        problem, id=f"{truth.data_source}-{content[:12]}", prompt=render(messages), source=source, metadata=metadata
    )


def compute_score_args(problem: Problem) -> ComputeScoreArgs:
    """The arguments of the problem's row. Raises `UsageError` if it was not one of verl's."""
    metadata = problem.metadata
    if not {"data_source", "ground_truth", "extra_info"} <= metadata.keys():
        raise UsageError(f"Problem {problem.id} has no ground truth of verl's: set problems.source=verl.")
    return ComputeScoreArgs(
        metadata["data_source"], json.loads(metadata["ground_truth"]), json.loads(metadata["extra_info"])
    )


def _json_text(name: str, value: Any) -> str:
    try:
        return dumps(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read_problems(path: Path, render: Render) -> Iterator[Problem]:
    """The problems of every file, each that is left out logged. Raises `UsageError` where a file lacks a column."""
    known: set[str] = set()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"problems.path={str(path)!r} is a folder without a file *.parquet.")
    for file in files:
        names = parquet_rows().column_names(file)
        if missing := [name for name in COLUMNS if name not in names]:
            lacks = f"has no column {' and no '.join(missing)}"
            raise UsageError(f"{file} {lacks}: rows of verl's have {', '.join(COLUMNS)}.")
        for number, row in parquet_rows().read_parquet(file, (*COLUMNS, *_OPTIONAL)):
            try:
                if isinstance(row, ValueError):
                    raise row
                problem = problem_of_row(row, render, str(file))
                if problem.id in known:
                    raise ValueError("the same row came before")
            except ValueError as error:
                log.warning("%s row %d is left out: %s", file, number, error)
            else:
                known.add(problem.id)
                yield problem
