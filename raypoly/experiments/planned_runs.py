"""An experiment's runs, each checked before anything starts.

runs = planned(experiment, out, ["scorer.workers=1"])
for remark in check(runs, at_once=1): print(remark)
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from raypoly import preflight, settings
from raypoly.config import Config
from raypoly.errors import CorruptData, UsageError
from raypoly.experiments.experiment_config import OWN, ExperimentConfig
from raypoly.experiments.run_result import RunResult, read_result
from raypoly.free_resources import FreeResources, this_machine
from raypoly.run import Run, is_finished
from raypoly.run_identity import RunDirectory, dotted_values, resolve_run

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
    """Its folder."""
    base: str | None
    """The config file; None for the embedded one."""
    overrides: tuple[str, ...]
    directory: RunDirectory
    start: str
    """The same for runs that begin with the same policy on the same problems, whatever the seed."""
    elsewhere: RunResult | None = None
    """Its result in the other folder in which it was trained."""

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def config(self) -> Config:
        return self.directory.config

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
        """The command that trains it, or goes on with it."""
        config = ["--config", self.base] if self.base is not None else []
        return [sys.executable, "-m", "raypoly.train", *config, *self.overrides]

    @property
    def keys(self) -> tuple[str, ...]:
        """The overrides that define the run, without its folder."""
        return tuple(text for text in self.overrides if not text.startswith("run.dir="))

    @property
    def result(self) -> RunResult:
        """Its result so far, here or in the other folder."""
        return self.elsewhere or read_result(self.arm, self.seed, self.start, self.steps, self.place)

    @property
    def finished(self) -> bool:
        """As its files say now, or those of another folder."""
        return self.elsewhere is not None or is_finished(resolve_run(self.config))


def plan_runs(experiment: ExperimentConfig, out: Path, given: Sequence[str]) -> list[PlannedRun]:
    """All runs, the first seed of every arm first, so that there is something to compare early.

    `given` are overrides for all of them. Raises `UsageError` with all that is wrong, a line each.
    """
    owned = {*OWN, *experiment.seed_keys}
    if taken := [text for text in given if text.partition("=")[0].strip() in owned]:
        raise UsageError(f"{taken[0]} can't be given: an experiment gives it to each run.")
    settings.load(experiment.config, given, _silent)  # what is wrong with these is no arm's fault
    wrong: dict[str, list[str]] = {}
    runs: list[PlannedRun] = []
    most = max(len(experiment.seeds_of(arm)) for arm in experiment.arms)
    for turn in range(most):
        for arm in experiment.arms:
            seeds = experiment.seeds_of(arm)
            if turn < len(seeds):
                with _noted(wrong, arm):
                    runs.append(_run(experiment, out, given, arm, seeds[turn]))
    _raise(wrong, len(experiment.arms))
    return runs


def check_runs(runs: Sequence[PlannedRun], at_once: int) -> list[str]:
    """Raise `UsageError` with all that speaks against the runs which are not finished; return what is only unusual."""
    wrong: dict[str, list[str]] = {}
    remarks: list[str] = []
    unfinished = {run.arm: run for run in reversed(runs) if not run.finished}
    for arm, run in reversed(unfinished.items()):
        here = this_machine(run.place)
        share = FreeResources(here.memory // at_once, here.disk // at_once)
        with _noted(wrong, arm):
            remarks += [said for said in preflight.check_config(run.config, run.place, share) if said not in remarks]
    shared = f" (Each of {at_once} runs at once has its share of what is free.)" if at_once > 1 else ""
    _raise({message + shared: arms for message, arms in wrong.items()}, len({run.arm for run in runs}))
    return remarks


def warm_starts(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """For each tiny model that the runs begin with, a run of no step that makes it."""
    found = [_of_no_step(run) for run in runs if run.config.model.path is None]
    return list({run.place: run for run in found}.values())


def _of_no_step(run: PlannedRun) -> PlannedRun:
    """Named by what decides the model; it measures nothing, and has the engine that starts soonest."""
    problems = run.config.problems.model_dump(exclude={"budgets"})  # which the policy never sees
    key = json.dumps([run.config.warm_start.model_dump(), problems], sort_keys=True)
    place = run.place.with_name(f"warm-start-{hashlib.sha256(key.encode()).hexdigest()[:8]}")
    kept = [text for text in run.overrides if text.startswith(("warm_start.", "problems."))]
    own = ["train.steps=0", "train.schedule=constant", "evaluate.every=0", "generator.engine=transformers"]
    overrides = (*(text for text in kept if not text.startswith("problems.budgets=")), *own, f"run.dir={place}")
    directory = resolve_run(settings.load(run.base, overrides, _silent))
    return PlannedRun("warm start", run.seed, place, run.base, overrides, directory, start="")


def _run(experiment: ExperimentConfig, out: Path, given: Sequence[str], arm: str, seed: int) -> PlannedRun:
    place = out / f"{arm}-s{seed}"
    seeds = [f"{key}={seed}" for key in experiment.seed_keys]
    overrides = (*experiment.arms[arm].overrides, *seeds, *given, f"run.dir={place}")
    config = settings.load(experiment.config, overrides, _silent)
    directory = resolve_run(config)
    run = PlannedRun(arm, seed, place, experiment.config, overrides, directory, start_of(config, experiment.seed_keys))
    if (done := _steps_done(directory)) > run.steps:
        raise UsageError(f"{place} has {done} steps and train.steps={run.steps} are asked for: give another --out.")
    return run


def _steps_done(directory: RunDirectory) -> int:
    try:
        return int(Run(directory.location).summary.get("steps", 0)) if directory.resumes else 0
    except CorruptData:  # it is derived: the run writes it anew when it goes on
        return 0


def start_of(config: Config, seed_keys: Sequence[str]) -> str:
    """The keys that define a run's start and its measurement, without those that get the seed."""
    kept = {k: v for k, v in dotted_values(config).items() if k.partition(".")[0] in _START or k in _MEASURE}
    return json.dumps({key: value for key, value in kept.items() if key not in seed_keys}, sort_keys=True)


@contextmanager
def _noted(wrong: dict[str, list[str]], arm: str) -> Iterator[None]:
    """Keep what is wrong with an arm under its message: many arms may have the same mistake."""
    try:
        yield
    except UsageError as error:
        for line in str(error).splitlines():
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
