"""Experiments whose runs are made: files as trainings write them, without a model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.analysis.experiments.experiment_config import ExperimentConfig, load_experiment
from raypoly.analysis.experiments.planned_runs import PlannedRun, plan_runs
from raypoly.analysis.experiments.run_queue import RunQueue
from raypoly.analysis.experiments.run_result import (
    STRATEGIES,
    CommandResult,
    EvaluationNumbers,
    RunResult,
    problem_values,
)
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.run.store import open_store
from tests.support import finished_run

ARMS = """
seeds: [0, 1]
arms:
  grpo: {objective.name: grpo, steps: 12, evaluate.every: 4}
  poly_epo: {objective.name: poly_epo, steps: 12, evaluate.every: 4}
"""


def experiment(folder: Path, text: str = ARMS, name: str = "mine") -> ExperimentConfig:
    """That of a file with this text."""
    file = folder / f"{name}.yaml"
    file.write_text(text)
    return load_experiment(file)


def runs_of(folder: Path, text: str = ARMS) -> list[PlannedRun]:
    return plan_runs(experiment(folder, text), folder / "out", [])


PASSES = CommandResult("look-at-plans", "Looks", {"problems": 64, "accepted": 0.7, "auc": 0.58}, "0.7 were accepted")
REFUSED = CommandResult("look-at-plans", "Looks", {"problems": 64, "accepted": 0.01, "auc": None}, "0.01 were", "sft")


def finish(run: PlannedRun, gain: float = 0.0, place: Path | None = None, found: CommandResult = PASSES) -> None:
    """Write a run's files. `gain` is added to its last step's results; `found`: of a command that is no training."""
    overrides = [text for text in run.overrides if not text.startswith("run.dir=")]
    made = finished_run.write_finished_run(place or run.place, run.config.objective.name, False, *overrides)
    summary = {**finished_run.summary(run.config.objective.name), "state": "finished"}
    for evaluation in summary["evaluations"]:
        if evaluation["step"] == finished_run.STEPS:
            evaluation["pass_at_k"] = {k: value + gain for k, value in evaluation["pass_at_k"].items()}
            evaluation["strategies_correct"] += gain
        evaluation["seconds"] = 3.0
    if not run.steps:
        kept = [evaluation for evaluation in summary["evaluations"] if evaluation["step"] == 0]
        summary |= {"steps": 0, "evaluations": kept if run.arm_config.is_training else []}
    finished_run.write_summary(made, summary)
    if not run.arm_config.is_training:
        found.write(open_store(made))


@dataclass(frozen=True)
class Scripted(PlannedRun):
    """A run whose process is a few lines of Python: it stands for a training that takes no time."""

    script: str = ""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", "-E", "-c", self.script]


def scripted(run: PlannedRun, script: str) -> Scripted:
    return Scripted(**{**vars(run), "script": script})


def outcomes(runs: list[PlannedRun], at_once: int = 1) -> tuple[dict[str, str], list[str]]:
    """By name what became of those that were not finished, and what was said."""
    said: list[str] = []
    ended = RunQueue(runs, at_once, said.append).to_the_end()
    return {each.run.name: each.outcome for each in ended}, said


MEASURES = ("1", "4", "8", "16", "64", STRATEGIES)


def that_finishes(run: PlannedRun, folder: Path, first: str = "", found: CommandResult = PASSES) -> Scripted:
    """After the lines `first`, its files are there at once, made beforehand."""
    ready = folder / "ready" / run.name
    finish(run, place=ready, found=found)
    copy = f"import shutil; shutil.copytree({str(ready)!r}, {str(run.place)!r}, dirs_exist_ok=True)"
    return scripted(run, f"{first}\n{copy}")


def made_result(
    arm: str,
    seed: int,
    after: float | None = 0.5,
    before: float = 0.2,
    start: str = '{"problems.budgets": true}',
    steps: int = 80,
    finished: bool = True,
) -> RunResult:
    """A run's result as a file of an earlier version has it: without numbers by problem."""
    return RunResult(
        arm=arm,
        seed=seed,
        start=start,
        steps=steps,
        done=steps if finished else 3,
        finished=finished,
        trouble="",
        before=dict.fromkeys(MEASURES, before),
        after=dict.fromkeys(MEASURES, after),
        curves={},
        step_seconds=2.0,
        training_seconds=160.0,
        evaluation_seconds=80.0,
    )


SAMPLES = 64


def counts(correct: Sequence[int], names: Sequence[str] | None = None) -> ProblemCounts:
    zeros = (0,) * len(correct)
    halves = tuple((c - c // 2, c // 2) if c > 1 else (c,) * (c > 0) for c in correct)
    ids = tuple(names or (f"p{i}" for i in range(len(correct))))
    return ProblemCounts(ids, (SAMPLES,) * len(correct), tuple(correct), halves, zeros, zeros, zeros, halves)


def numbers(correct: Sequence[int], step: int, **changes: Any) -> EvaluationNumbers:
    given = {"problem_set": "f00d", "weights": "cafe", "raypoly": "0.9", "problems": counts(correct)}
    return EvaluationNumbers(step, "test", **(given | changes))


def by_problem(arm: str, seed: int, correct: Sequence[int], **changes: Any) -> RunResult:
    before, after = numbers([SAMPLES // 4] * len(correct), 0), numbers(correct, 80)
    made = made_result(arm, seed)
    made = replace(made, before=means(before), after=means(after), problems_before=before, problems_after=after)
    return replace(made, **changes)


def own_problems(arm: str, seed: int, correct: Sequence[int], first: int) -> RunResult:
    """With problems of its seed alone: named from p`first` on."""
    after = numbers([], 80, problems=counts(correct, [f"p{first + i}" for i in range(len(correct))]))
    return replace(by_problem(arm, seed, [1]), after=means(after), problems_after=after)


def means(found: EvaluationNumbers) -> dict[str, float | None]:
    known = {measure: problem_values(found, measure) for measure in MEASURES}
    return {measure: float(np.mean(list(values.values()))) for measure, values in known.items() if values}


def drawn(seed: int, share: float, problems: int = 60) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(c) for c in rng.binomial(SAMPLES, rng.beta(2 * share, 2 * (1 - share), problems))]
