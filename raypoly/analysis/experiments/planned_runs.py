"""The runs of an experiment, each checked before anything starts, or taken from a results.json of another folder.

runs = plan_runs(experiment, out, ["scorer.workers=1"])
runs, at_once = take_results(runs, [Path("docs/results/objectives.json")], print)
for remark in check_runs(runs, at_once=1): print(remark)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from raypoly.analysis.experiments.experiment_config import OWN, ArmConfig, ExperimentConfig
from raypoly.analysis.experiments.run_result import CommandResult, ResultsFile, RunResult, read_result
from raypoly.core import settings
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import CorruptData, UsageError
from raypoly.planning import preflight
from raypoly.planning.devices import FreeResources, this_machine
from raypoly.planning.run_config import ProblemReader, load_run_config
from raypoly.run.crash import CONFIG_KEY
from raypoly.run.run_files import RunFiles, is_finished
from raypoly.run.run_identity import RunDirectory, resolve_run

_START = ("model", "warm_start", "problems")
_MEASURE = (
    *("evaluate.samples", "generator.engine", "generator.engine_args"),
    *("generator.temperature", "generator.max_tokens", "generator.max_prompt_tokens"),
    *("scorer.cpu_seconds_per_test", "scorer.cpu_seconds_per_program", "scorer.memory_mib"),
)


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed."""

    arm: str
    seed: int
    place: Path
    base: str | None
    """None: the embedded config."""
    overrides: tuple[str, ...]
    directory: RunDirectory
    """Without the keys that name folders of other runs, while these are not finished."""
    start: str = ""
    """Equal for equal beginnings, whatever the seed."""
    keys: tuple[str, ...] = ()
    """Its overrides without its folder, and the keys of the runs that it is after."""
    elsewhere: RunResult | None = None
    """Its result, if it was made in another folder."""
    arm_config: ArmConfig = field(default_factory=ArmConfig)
    before: tuple[PlannedRun, ...] = ()

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def config(self) -> Config:
        return self.directory.config

    @property
    def begins_with(self) -> PlannedRun | None:
        return next((run for run in self.before if run.arm == self.arm_config.begins_with), None)

    @property
    def all_before(self) -> Iterator[PlannedRun]:
        """Also those that are before these."""
        for run in self.before:
            yield run
            yield from run.all_before

    @property
    def root(self) -> PlannedRun:
        """The first run of its chain of weights."""
        return self if self.begins_with is None else self.begins_with.root

    @property
    def checked_config(self) -> Config:
        """Its config with its root's model, since the weights of others need not be there yet."""
        root = self.root.config
        model = self.config.model.model_copy(update={"path": root.model.path, "sha256": root.model.sha256})
        return self.config.model_copy(update={"model": model, "warm_start": root.warm_start})

    @property
    def weights(self) -> Path:
        """The Hugging Face folder that runs after this one begin with."""
        return self.begins_with.weights if self.begins_with and not self.steps else self.place / "model"

    @property
    def steps(self) -> int:
        return self.config.train.steps

    @property
    def log(self) -> Path:
        return self.place.with_name(f"{self.name}.log")

    @property
    def lock(self) -> Path:
        return self.place.with_name(f"{self.name}.lock")

    @property
    def command(self) -> list[str]:
        return self._command_line(self.overrides)

    def _command_line(self, overrides: Iterable[str], *more: str) -> list[str]:
        base = ["--config", self.base] if self.base is not None else []
        return [sys.executable, "-m", "raypoly.cli", *self.arm_config.words, *more, *base, *overrides]

    @property
    def result(self) -> RunResult:
        if self.elsewhere is not None:
            return self.elsewhere
        command = self.arm_config.command
        result = replace(read_result(self.arm, self.seed, self.start, self.steps, self.place), command=command)
        if self.begins_with is not None:
            result = replace(result, begins_with=self.begins_with.arm, root_weights=self.root.result.first_weights)
        return result if self.arm_config.is_training else replace(result, found=self.found, finished=self.finished)

    @property
    def found(self) -> CommandResult | None:
        """None for a training, and before it is done."""
        if self.elsewhere is not None:
            return self.elsewhere.found
        if self.arm_config.is_training or not (self.place / CONFIG_KEY).exists():
            return None
        return CommandResult.read(RunFiles(self.place).store)

    @property
    def finished(self) -> bool:
        if self.elsewhere is not None:
            return True
        directory = self.directory
        if self.arm_config.folders:  # what is in these folders is part of the run, and known once they are finished
            if not all(run.finished for run in self.before):
                return False
            directory = self._directory_after
        return is_finished(resolve_run(directory.config)) and (self.arm_config.is_training or self.found is not None)

    @cached_property
    def _directory_after(self) -> RunDirectory:
        return resolve_run(load_run_config(self.base, self.overrides))

    @property
    def lets_on(self) -> bool:
        """Whether runs after it may begin."""
        return self.finished and ((found := self.found) is None or found.passes)


def plan_runs(experiment: ExperimentConfig, out: Path, given: Sequence[str]) -> list[PlannedRun]:
    """All runs, the first seed of every arm first.

    `given` are overrides for all of them. Raises `UsageError` with all that is wrong, a line each.
    """
    owned = {*OWN, *experiment.seed_keys}
    if taken := [text for text in given if text.partition("=")[0].strip() in owned]:
        raise UsageError(f"{taken[0]} can't be given: an experiment gives it to each run.")
    settings.load(experiment.config, given, _silent)  # what is wrong with these is no arm's fault
    wrong: dict[str, list[str]] = {}
    runs: dict[tuple[str, int], PlannedRun] = {}
    reader = ProblemReader()
    for arm in experiment.in_order:
        for seed in experiment.seeds_of(arm):
            before = [runs[other, seed] for other in experiment.arms[arm].after if (other, seed) in runs]
            if len(before) == len(experiment.arms[arm].after):  # else what is wrong with that one is said of it
                with _noted(wrong, arm):
                    runs[arm, seed] = _plan_run(experiment, out, given, arm, seed, before, reader)
    _raise(wrong, len(experiment.arms))
    seeds = {arm: experiment.seeds_of(arm) for arm in experiment.arms}
    most = max(map(len, seeds.values()))
    return [runs[arm, seeds[arm][turn]] for turn in range(most) for arm in seeds if turn < len(seeds[arm])]


def check_runs(runs: Sequence[PlannedRun], at_once: int) -> list[str]:
    """Raise `UsageError` with all that is wrong with unfinished runs; return remarks on what is unusual."""
    wrong: dict[str, list[str]] = {}
    remarks: list[str] = []
    unfinished = {run.arm: run for run in reversed(runs) if not run.finished}
    for arm, run in reversed(unfinished.items()):
        here = this_machine(run.place)
        share = FreeResources(here.memory // at_once, here.disk // at_once)
        waits = not all(before.finished for before in run.before)
        with _noted(wrong, arm, run.arm_config.folders if waits else ()):
            found = preflight.check_config(run.checked_config, run.place, share)
            remarks += [said for said in found if said not in remarks]
    others = [run for run in runs if not run.arm_config.is_training and run.elsewhere is None]
    # one of each arm, a finished one if there is one: what it was made with must not change either
    for arm, run in {run.arm: run for run in sorted(reversed(others), key=lambda run: run.found is not None)}.items():
        with _noted(wrong, arm):
            _check_command(run)
    shared = f" (Each of {at_once} runs at once has its share of what is free.)" if at_once > 1 else ""
    _raise({message + shared: arms for message, arms in wrong.items()}, len({run.arm for run in runs}))
    return remarks


def _check_command(run: PlannedRun) -> None:
    """Ask a command, by its --dry-run, whether it can make the run. Raises `UsageError`."""
    words = run.overrides if all(each.finished for each in run.before) else _checkable(run.arm_config, run.overrides)
    command, plain = run._command_line(words, "--dry-run"), {**os.environ, "TYPER_USE_RICH": "0"}
    asked = subprocess.run(command, capture_output=True, text=True, check=False, env=plain)
    if asked.returncode:
        said = asked.stderr.strip() or f"raypoly {run.arm_config.command} ended with {asked.returncode}."
        usage = said.startswith("Usage:")  # of the command line: the last line says what is wrong
        raise UsageError(said.splitlines()[-1].removeprefix("Error: ") if usage else said)


def _checkable(arm: ArmConfig, overrides: Iterable[str]) -> tuple[str, ...]:
    # Overrides without those that name folders of other runs.
    return tuple(text for text in overrides if text.partition("=")[0] not in arm.folders)


def _plan_run(
    experiment: ExperimentConfig,
    out: Path,
    given: Sequence[str],
    arm: str,
    seed: int,
    before: Sequence[PlannedRun],
    reader: ProblemReader,
) -> PlannedRun:
    place, its = out / f"{arm}-s{seed}", experiment.arms[arm]
    folders = {run.arm: run.place for run in before}
    seeds = [f"{key}={seed}" for key in experiment.seed_keys]
    begins = [f"model.path={run.weights}" for run in before if run.arm == its.begins_with]
    begins += ["model.sha256=null"] if begins else []
    overrides = (*its.overrides(folders), *seeds, *given, *begins, *its.follows, f"run.dir={place}")
    begun = (place / CONFIG_KEY).exists()
    for run in before:
        if begun and (had := _steps_done(run.place)) and not run.finished:
            raise UsageError(
                f"{place} began with {run.name} after {had} steps, and train.steps={run.steps} are asked of that one "
                "now: give the longer arm, and those after it, other names."
            )
    checkable = overrides if all(run.finished for run in before) else _checkable(its, overrides)
    directory = resolve_run(load_run_config(experiment.config, checkable, reader=reader))
    if (repository := directory.config.run.push_to_hub) is not None:
        raise UsageError(f"run.push_to_hub={repository}: each run would replace the model of the one before; drop it.")
    keys = (*(() if its.is_training else its.words), *its.overrides({}), *seeds, *given, *its.follows)
    run = PlannedRun(arm, seed, place, experiment.config, overrides, directory, arm_config=its, before=tuple(before))
    if (done := _steps_done(place)) > run.steps:
        raise UsageError(f"{place} has {done} steps and train.steps={run.steps} are asked for: give another --out.")
    return replace(
        run,
        start=start_of(dotted_values(run.checked_config), experiment.seed_keys),
        keys=(*keys, *(f"after {text}" for run in before for text in run.keys)),
    )


def _steps_done(place: Path) -> int:
    try:
        return int(RunFiles(place).summary.get("steps", 0)) if (place / CONFIG_KEY).exists() else 0
    except CorruptData:  # it is derived: the run writes it anew when it goes on
        return 0


def start_of(values: Mapping[str, Any], seed_keys: Sequence[str]) -> str:
    """Dotted keys of a run's start and measurement, without those that get the seed."""
    kept = {k: v for k, v in values.items() if k.partition(".")[0] in _START or k in _MEASURE}
    return json.dumps({key: value for key, value in kept.items() if key not in seed_keys}, sort_keys=True)


def take_results(
    runs: Sequence[PlannedRun], files: Sequence[Path], say: Callable[[str], None]
) -> tuple[list[PlannedRun], int]:
    """(runs, most runs at once anywhere). A run that a results.json has finished with the same config file and keys,
    and this folder has not, gets its result. Raises `UsageError` where a file can't be read."""
    found: dict[tuple[str | None, tuple[str, ...]], RunResult] = {}
    read = [ResultsFile.read(file, "--also") for file in files]
    for file, each in zip(files, read, strict=True):
        for result in each.runs:
            if result.overrides is None:
                what = f"its run {result.arm}-s{result.seed} has no overrides: take the file as the experiment left it"
                raise UsageError(f"--also {file}: {what}.")
            if result.finished:
                found.setdefault((each.config, result.overrides), result)
    planned = {(run.base, run.keys) for run in runs}
    for key, result in found.items():
        if key not in planned:
            say(f"Note: {result.arm}-s{result.seed} of --also is no run of this experiment, and is left out.")
    taken = [
        run if it is None or run.finished else replace(run, elsewhere=replace(it, arm=run.arm, start=run.start))
        for run, it in ((run, found.get((run.base, run.keys))) for run in runs)
    ]
    here = {before.name for run in taken if not run.finished for before in run.all_before}  # whose weights are needed
    kept = [mine if mine.name in here else theirs for mine, theirs in zip(runs, taken, strict=True)]
    return kept, max((each.at_once for each in read), default=1)


@contextmanager
def _noted(wrong: dict[str, list[str]], arm: str, later: Iterable[str] = ()) -> Iterator[None]:
    # Keys in `later` are no mistakes: other arms will make their folders.
    try:
        yield
    except UsageError as error:
        for line in (line for line in str(error).splitlines() if not any(key in line for key in later)):
            arms = wrong.setdefault(line.replace(settings.GIVEN, "in its keys"), [])
            arms += [arm] if arm not in arms else []


def _raise(wrong: Mapping[str, Sequence[str]], arms: int) -> None:
    if wrong:
        lines = [
            f"{'Every arm' if len(who) == arms > 1 else 'Arm ' + ', '.join(who)}: {line}" for line, who in wrong.items()
        ]
        raise UsageError("\n".join(lines))


def _silent(text: str) -> None:
    """Dropped parameters are told in each run's own log."""
