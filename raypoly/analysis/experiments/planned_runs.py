"""An experiment's runs, each checked before anything starts.

runs = plan_runs(experiment, out, ["scorer.workers=1"])
for remark in check_runs(runs, at_once=1): print(remark)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from raypoly.analysis.experiments.experiment_config import OWN, ArmConfig, ExperimentConfig, Kind
from raypoly.analysis.experiments.run_kinds import (
    COMMANDS,
    check_kind,
    check_thresholds,
    of_kind,
    options_of,
    resolve_with_gate,
)
from raypoly.analysis.experiments.run_result import RunResult, first_weights, read_result
from raypoly.analysis.run import Run
from raypoly.core import settings
from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import CorruptData, UsageError
from raypoly.planning import preflight
from raypoly.planning.free_resources import FreeResources, this_machine
from raypoly.recipes.cppo.gates.audit import PlanAudit
from raypoly.recipes.cppo.gates.gate_folder import FILE as GATE_FILE
from raypoly.recipes.cppo.gates.gate_folder import read_gate
from raypoly.run.run_files import is_finished
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
    """Its folder."""
    base: str | None
    """The config file; None for the embedded one."""
    overrides: tuple[str, ...]
    directory: RunDirectory
    start: str
    """The same for runs that begin with the same policy on the same problems, whatever the seed."""
    elsewhere: RunResult | None = None
    """Its result in the other folder in which it was trained."""
    arm_config: ArmConfig = field(default_factory=ArmConfig)
    """What the experiment says of its arm; the default where the run is of none, as a warm start."""
    after: PlannedRun | None = None
    """The run whose weights it begins with."""
    gate: PlannedRun | None = None
    """The run whose gate accepts its plans."""
    plans_of: tuple[PlannedRun, ...] = ()
    """The runs whose plans it is trained on, if it is a gate."""

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def kind(self) -> Kind:
        return self.arm_config.kind

    @property
    def config(self) -> Config:
        return self.directory.config

    @property
    def before(self) -> Sequence[PlannedRun]:
        """The runs that it needs."""
        return [run for run in (self.after, self.gate, *self.plans_of) if run is not None]

    @property
    def root(self) -> PlannedRun:
        """The run that its chain begins with; itself where it is after none."""
        return self if self.after is None else self.after.root

    @property
    def checked_config(self) -> Config:
        """Its config with what its root begins with, and without plans of runs: neither the weights that it begins with
        itself nor these plans need be there yet."""
        config = begun_by(self.root.config, self.config)
        if not self.plans_of:
            return config
        own = {key: value for key, value in config.scaffold.model_dump().items() if key != "plans_of"}
        return config.model_copy(update={"scaffold": type(config.scaffold).model_validate(own)})

    @property
    def weights(self) -> Path:
        """The Hugging Face folder that a run after this one begins with."""
        return self.after.weights if self.kind == "audit" and self.after else self.place / "model"

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
        if self.kind in COMMANDS:
            options = options_of(self.arm_config)
            return [sys.executable, "-m", "raypoly.cli", COMMANDS[self.kind], *options, *config, *self.overrides]
        return [sys.executable, "-m", "raypoly.train", *config, *self.overrides]

    @property
    def keys(self) -> tuple[str, ...]:
        """The overrides that define the run, without its folder, and those of the runs that it needs."""
        needs = {"model.path=": self.after, "gate.path=": self.gate, "scaffold.plans_of=": self.plans_of}
        places = ("run.dir=", *(key for key, run in needs.items() if run))
        own = (text for text in self.overrides if not text.startswith(places))
        after = (f"after {text}" for text in self.after.keys) if self.after else ()
        gate = (f"gate {text}" for text in self.gate.keys) if self.gate else ()
        return (*own, *after, *gate, *(f"plans of {text}" for run in self.plans_of for text in run.keys))

    @property
    def result(self) -> RunResult:
        """Its result so far, here or in the other folder."""
        if self.elsewhere is not None:
            return self.elsewhere
        result = replace(read_result(self.arm, self.seed, self.start, self.steps, self.place), kind=self.kind)
        if self.after is not None:
            result = replace(result, begins_with=self.after.arm, root_weights=first_weights(self.root.place))
        if self.kind == "gate":
            return replace(result, gate=self.accepted_gate, finished=self.finished)
        return result if self.kind != "audit" else replace(result, audit=self.audit, finished=self.finished)

    @property
    def accepted_gate(self) -> Mapping[str, float] | None:
        """The numbers of the gate that it trained; None where it trains none, or none is accepted yet."""
        if self.kind != "gate" or not (self.weights / GATE_FILE).exists():
            return None
        file = read_gate(self.weights)
        return {**file.validation, "tau": file.tau}

    @property
    def audit(self) -> PlanAudit | None:
        """What it found, where it is an audit that is finished."""
        if self.elsewhere is not None:
            return self.elsewhere.audit
        return PlanAudit.read(self.place) if self.kind == "audit" else None

    @property
    def finished(self) -> bool:
        """As its files say now, or those of another folder."""
        if self.elsewhere is not None:
            return True
        if self.kind == "audit":
            return self.audit is not None
        if self.gate is not None:  # its hash is part of the run, and known once it is there
            return self.gate.finished and is_finished(resolve_with_gate(self.base, self.overrides, self.gate.weights))
        return is_finished(resolve_run(self.config)) and (self.kind != "gate" or self.accepted_gate is not None)

    @property
    def lets_on(self) -> bool:
        """Whether runs after it may begin: it is finished, and where it is an audit, it passes."""
        return self.finished and ((audit := self.audit) is None or audit.passes)


def plan_runs(experiment: ExperimentConfig, out: Path, given: Sequence[str]) -> list[PlannedRun]:
    """All runs, the first seed of every arm first, so that there is something to compare early.

    `given` are overrides for all of them. Raises `UsageError` with all that is wrong, a line each.
    """
    owned = {*OWN, *experiment.seed_keys}
    if taken := [text for text in given if text.partition("=")[0].strip() in owned]:
        raise UsageError(f"{taken[0]} can't be given: an experiment gives it to each run.")
    settings.load(experiment.config, given, _silent)  # what is wrong with these is no arm's fault
    wrong: dict[str, list[str]] = {}
    runs: dict[tuple[str, int], PlannedRun] = {}
    for arm in experiment.in_order:
        needs = [other for _, other in experiment.arms[arm].needs]
        for seed in experiment.seeds_of(arm):
            known = {other: runs[other, seed] for other in needs if (other, seed) in runs}
            if len(known) == len(set(needs)):  # else what is wrong with that one is said of it
                with _noted(wrong, arm):
                    runs[arm, seed] = _run(experiment, out, given, arm, seed, known)
    _raise(wrong, len(experiment.arms))
    seeds = {arm: experiment.seeds_of(arm) for arm in experiment.arms}
    most = max(map(len, seeds.values()))
    return [runs[arm, seeds[arm][turn]] for turn in range(most) for arm in seeds if turn < len(seeds[arm])]


def check_runs(runs: Sequence[PlannedRun], at_once: int) -> list[str]:
    """Raise `UsageError` with all that speaks against the runs which are not finished; return what is only unusual."""
    wrong: dict[str, list[str]] = {}
    remarks: list[str] = []
    unfinished = {run.arm: run for run in reversed(runs) if not run.finished}
    for arm, run in reversed(unfinished.items()):
        here = this_machine(run.place)
        share = FreeResources(here.memory // at_once, here.disk // at_once)
        with _noted(wrong, arm):
            found = preflight.check_config(run.checked_config, run.place, share)
            remarks += [said for said in found if said not in remarks]
            check_kind(run.arm_config, run.config)
    shared = f" (Each of {at_once} runs at once has its share of what is free.)" if at_once > 1 else ""
    _raise({message + shared: arms for message, arms in wrong.items()}, len({run.arm for run in runs}))
    return remarks


def _run(
    experiment: ExperimentConfig,
    out: Path,
    given: Sequence[str],
    arm: str,
    seed: int,
    known: Mapping[str, PlannedRun],
) -> PlannedRun:
    """`known`: the runs that it needs, by arm."""
    place, its = out / f"{arm}-s{seed}", experiment.arms[arm]
    after, gate = (None if other is None else known[other] for other in (its.after, its.gate))
    plans_of = tuple(known[other] for other in its.plans_of)
    seeds = [f"{key}={seed}" for key in experiment.seed_keys]
    begins, accepts = after.weights if after else None, gate.weights if gate else None
    follows = of_kind(its.kind, begins, accepts, [run.place for run in plans_of])
    overrides = (*its.overrides, *seeds, *given, *follows, f"run.dir={place}")
    directory = resolve_with_gate(experiment.config, overrides, accepts)
    run = PlannedRun(
        arm,
        seed,
        place,
        experiment.config,
        overrides,
        directory,
        "",
        None,
        its,
        after,
        gate,
        plans_of,
    )
    if (done := _steps_done(directory)) > run.steps:
        raise UsageError(f"{place} has {done} steps and train.steps={run.steps} are asked for: give another --out.")
    if after is not None and directory.resumes and (had := _steps_done(after.directory)) and not after.finished:
        raise UsageError(
            f"{place} began with {after.name} after {had} steps, and train.steps={after.steps} are asked of that one "
            "now: give the longer arm, and those after it, other names."
        )
    check_thresholds(its, run.place)
    return replace(run, start=start_of(run.checked_config, experiment.seed_keys))


def begun_by(root: Config, config: Config) -> Config:
    """The config with the model, or the warm start, that the root has."""
    model = config.model.model_copy(update={"path": root.model.path, "sha256": root.model.sha256})
    return config.model_copy(update={"model": model, "warm_start": root.warm_start})


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
