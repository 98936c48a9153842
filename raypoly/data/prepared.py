"""Reads the problems that `raypoly prepare` wrote: a folder of Parquet files, one for each split.

    load_prepared(ProblemsConfig(source="prepared", path="runs/prepare-leetcode-1a2b3c4d")).splits["validation"]

The files are the splits, so the keys of `problems` that make splits have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Split
from raypoly.data.formats import problem_of
from raypoly.data.formats.long_integers import loads
from raypoly.data.formats.row_files import parquet_rows
from raypoly.data.problem_set import ProblemSet, check_apart, content_hash, told_apart, without_excluded

_FOLDER = "data"
_CARD = "card.json"  # written last: a folder without it is not finished
_COLUMNS = ("id", "prompt", "entry_point", "prelude", "prefix", "answer", "solution", "reference_seconds")


def load_prepared(config: ProblemsConfig) -> ProblemSet:
    """The problems of the preparation `config.path`, with the test split of `config.test_path` and the validation split
    of `config.validation_path` if they are set.

    Raises `UsageError` if there is no finished preparation, or no training problem.
    """
    if config.path is None:
        raise UsageError("problems.source=prepared needs problems.path, the folder that raypoly prepare printed.")
    folder = test = validation = _data_folder(config.path, "problems.path")
    if config.test_path is not None:
        test = _data_folder(config.test_path, "problems.test_path")
    if config.validation_path is not None:
        validation = _data_folder(config.validation_path, "problems.validation_path")
    splits: dict[Split, Sequence[Problem]] = {
        "test": _read_split(test / "test.parquet"),
        "validation": _read_split(validation / "validation.parquet"),
        "train": _read_split(folder / "train.parquet"),
    }
    if config.exclude is not None:
        excluded = Path(config.exclude).expanduser()
        splits = {name: without_excluded(problems, excluded) for name, problems in splits.items()}
    if not splits["train"]:
        raise UsageError(f"problems.path={str(config.path)!r} holds no problem to train on.")
    splits = told_apart(splits)
    check_apart(splits, "prepare one of the two with the other one's sources as `against`")
    return ProblemSet(splits, content_hash(splits))


def _data_folder(place: str, key: str) -> Path:
    """The folder of the Parquet files: `data` of a finished preparation, or the folder itself."""
    path = Path(place).expanduser()
    for folder, done in ((path / _FOLDER, (path / _CARD).is_file()), (path, True)):
        if done and any((folder / f"{name}.parquet").is_file() for name in ("train", "validation", "test")):
            return folder
    raise UsageError(
        f"{key}={str(path)!r} holds no preparation that is done ({_CARD}, {_FOLDER}/train.parquet): give the folder "
        "that raypoly prepare printed, when it is at its end."
    )


def _read_split(path: Path) -> list[Problem]:
    found = []
    for number, row in parquet_rows().read_parquet(path) if path.is_file() else ():
        try:
            if isinstance(row, ValueError):
                raise row
            own = {name: row[name] for name in _COLUMNS if row.get(name)}
            own |= {"tests": loads(row["tests"]), "metadata": loads(row["metadata"])}
            if row.get("public_tests"):
                own["public_tests"] = loads(row["public_tests"])
            found.append(problem_of(own, row["source"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} row {number} is no row of raypoly prepare's: {error}.") from error
    return found
