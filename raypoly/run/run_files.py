"""A run's files, finished or live: `RunFiles` reads them, and writes nothing."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.values import Problem
from raypoly.run.crash import CONFIG_KEY
from raypoly.run.plateau import has_ended
from raypoly.run.run_identity import (
    STARTS,
    RunDirectory,
    parse_config,
    problem_sets,
    storage_options,
    unseal_config,
    versions,
)
from raypoly.run.sinks import METRICS
from raypoly.run.store import Store, open_store
from raypoly.run.store.catalogue import PREFIX, Catalogue
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.rollout_columns import attempts_alone, drafts_alone
from raypoly.run.store.rollout_files import RolloutFiles, read_evaluation
from raypoly.run.store.sealed_files import unseal
from raypoly.run.store.step_records import CompletedStep

SUMMARY = "summary.json"
ROLLOUTS = "rollouts"
EVALUATIONS = "evaluations/"
"""Where `raypoly evaluate --run` writes: SPLIT-step-STEP-TIME.json, and .parquet with the samples."""
STATEMENTS = "statements.json.gz"
"""Prompts of the run's problems by id, for people."""
REPORT = "report.html"
FIGURE = "figure.png"


def write_statements(store: Store, problems: Iterable[Problem]) -> None:
    """Keep the problems' prompts, which `RunFiles.statements` reads. Raises `StorageError`."""
    prompts = json.dumps({problem.id: problem.prompt for problem in problems}, ensure_ascii=False)
    store.put_mutable(STATEMENTS, gzip.compress(prompts.encode("utf-8", "replace"), 6, mtime=0))


class RunFiles:
    """One run's files. Raises `UsageError` if the place is not a run's; methods raise `StorageError`."""

    def __init__(self, place: str | Path | Location, options: StorageOptions | None = None) -> None:
        self.store = open_store(place, options, make=False)
        folder = self.store.location.folder
        if folder is not None and folder.is_file():
            raise UsageError(f"{self.uri} is a file, not a run folder.")
        try:
            names = self.store.peek()  # says where there is no such bucket; a look for one key can't
        except StorageError as error:
            raise UsageError(f"{self.uri} can't be read: {error}") from error
        if CONFIG_KEY not in names:
            runs = [folder / name for name in names if (folder / name / CONFIG_KEY).is_file()] if folder else []
            instead = f", but runs such as {runs[0]}" if runs else ""
            raise UsageError(f"{self.uri} is not a run folder: it holds no {CONFIG_KEY}{instead}.")

    @property
    def uri(self) -> str:
        """The folder's absolute path, or the URI."""
        return self.store.uri

    @property
    def directory(self) -> Path:
        """The run's own folder, or that of local copies for remote storage."""
        return self.store.workspace

    @property
    def name(self) -> str:
        return self.store.location.name

    @cached_property
    def config(self) -> Config:
        """The resolved config of the run's last start."""
        starts = self.store.list(STARTS)
        values = unseal_config(self.store.read(CONFIG_KEY), self.store.place(CONFIG_KEY))
        try:
            for change in self._unsealed(starts[-1])["changes"] if starts else []:
                *sections, key = change["key"].split(".")
                inner = values
                for section in sections:
                    inner = inner.setdefault(section, {})
                inner[key] = change["new"]
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptData(f"{self.store.place(starts[-1])} is damaged or another version's: {error}.") from error
        return parse_config(values, self.store.place(CONFIG_KEY))

    @cached_property
    def statements(self) -> Mapping[str, str]:
        """The problems' prompts by id, of the last start; empty where they are not kept or can't be read."""
        try:
            found: dict[str, str] = json.loads(gzip.decompress(self.store.read(STATEMENTS)))
        except (StorageError, OSError, EOFError, ValueError, zlib.error):
            return {}
        return found

    @property
    def problem_sets(self) -> tuple[str, ...]:
        """As `run_identity.problem_sets`."""
        return problem_sets(self.store)

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions of raypoly of the run's starts, each once."""
        return versions(self.store)

    @property
    def summary(self) -> Mapping[str, Any]:
        """summary.json; empty until the first evaluation is written."""
        return self._unsealed(SUMMARY) if self.store.exists(SUMMARY) else {}

    @property
    def finished(self) -> bool:
        """Whether the summary records the config's last step, or a plateau, as done."""
        return "steps" in self.summary and has_ended(self.config, self.summary["steps"], lambda: self.rows)

    @property
    def evaluations(self) -> Sequence[Mapping[str, Any]]:
        """`step, split, samples, pass_at_k ...` of each evaluation, in order."""
        evaluations: Sequence[Mapping[str, Any]] = self.summary.get("evaluations", [])
        return evaluations

    @property
    def later_evaluations(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Results of `raypoly evaluate --run`: names below `evaluations/` and contents, none of damaged ones."""
        found = []
        for key in self.store.list(EVALUATIONS):
            if key.endswith(".json"):
                try:
                    content = self._unsealed(key)
                except CorruptData:
                    content = {}
                found.append((key.removeprefix(EVALUATIONS).removesuffix(".json"), content))
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl without an unfinished last line. Raises `CorruptData`."""
        content = self.store.read(METRICS) if self.store.exists(METRICS) else b""
        try:
            return [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
        except ValueError as error:
            told = f"{self.store.place(METRICS)} is damaged: {error}. The run's next start writes it again."
            raise CorruptData(told) from error

    @property
    def steps_done(self) -> int:
        return int(self.rows[-1]["step"]) + 1 if self.rows else 0

    @property
    def steps(self) -> list[int]:
        """The steps with stored rollouts."""
        return list(self._files())

    def rollouts(self, step: int) -> pa.Table:
        """All attempts of a step with verdict and label, one row each. Raises `UsageError` if there are none."""
        return attempts_alone(self.stored(step))

    def drafts(self, step: int) -> pa.Table:
        """The drafts of a step, one row each. `draft_of` of an attempt is `rollout` here. Raises as `rollouts`."""
        return drafts_alone(self.stored(step))

    def stored(self, step: int) -> pa.Table:
        """All rows of a step: each group's drafts, then its attempts. Raises as `rollouts`."""
        self._must_have(step)
        return self._reader.table(step)

    def completed(self, step: int) -> CompletedStep:
        """A step as it was trained on. Raises as `rollouts`."""
        self._must_have(step)
        return self._reader.step(step)

    def samples(self, step: int, split: str = "test") -> pa.Table:
        """An evaluation's samples, one row each, grouped by problem. Raises `UsageError` if there is no such one."""
        known = Catalogue.of(self.store.list(PREFIX)).evaluations
        if (step, split) not in known:
            held = ", ".join(f"{name} at step {at}" for at, name in sorted(known)) or "none yet"
            raise UsageError(f"{self.uri} has no evaluation of {split} at step {step}; it has: {held}.")
        return read_evaluation(self.store, step, split).table

    def _must_have(self, step: int) -> None:
        files = self._files()
        if step not in files:
            held = f"{min(files)} to {max(files)}" if files else "none yet"
            raise UsageError(f"{self.uri} has no rollouts of step {step}; it has: {held}.")

    @cached_property
    def _reader(self) -> RolloutFiles:
        return RolloutFiles(self.store)

    def _unsealed(self, key: str) -> dict[str, Any]:
        return unseal(self.store.read(key), self.store.place(key))

    def _files(self) -> Mapping[int, str]:
        return Catalogue.of(self.store.list(PREFIX)).files


def is_finished(directory: RunDirectory) -> bool:
    if not directory.resumes:
        return False
    try:
        run = RunFiles(directory.location, storage_options(directory.config))
        summary = run.summary
        return summary.get("state") == "finished" and has_ended(directory.config, summary["steps"], lambda: run.rows)
    except (CorruptData, ValueError):  # derived: the next start writes it again
        return False
