"""Write a small run with known verdicts: two steps and an evaluation, scored by the real sandbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.analysis.metrics.pass_at_k import summarise
from raypoly.analysis.metrics.problem_counts import GroupOutcomes
from raypoly.core.config import ScorerConfig
from raypoly.core.settings import load
from raypoly.core.values import Group, Labels, Rollout, Verdict
from raypoly.data import build_problem_set
from raypoly.data.formats import read_problems
from raypoly.run.run_identity import resolve_run
from raypoly.run.sinks import MetricsFile
from raypoly.run.store.catalogue import evaluation_key, step_key
from raypoly.run.store.rollout_files import encode_evaluation, encode_step
from raypoly.run.store.sealed_files import seal
from raypoly.run.store.step_records import Applied, CompletedStep
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier import LocalPool

LOOP = "def f(ns):\n    total = 0\n    for n in ns:\n        total += n\n    return total\n"
HALVES = (
    "def f(ns):\n    if len(ns) < 2:\n        return ns[0] if ns else 0\n"
    "    half = len(ns) // 2\n    return f(ns[:half]) + f(ns[half:])\n"
)
WRONG = "def f(ns):\n    return 0\n"
RAISES = "def f(ns):\n    return ns.total\n"
PROGRAMS = (LOOP, HALVES, WRONG, RAISES)
"""The programs of each training group: two pass in two ways, one is wrong, one raises."""
SAMPLES = (LOOP, LOOP, LOOP, HALVES, HALVES, WRONG, WRONG, WRONG)
"""The programs of each problem in the evaluation: five of eight pass."""
NAMES = ("one", "two", "three", "four")
STEPS = 2
SCORER = ["scorer.workers=1"]

Label = Callable[[int, int], tuple[int, ...] | None]
"""Maps (step, slot) to the strategies that the run stores as the judge's; 0 is degenerate."""
Change = Callable[[str, int, Verdict], Verdict]
"""Maps (problem, place, verdict) to the verdict that the run stores."""


def as_scored(problem: str, place: int, verdict: Verdict) -> Verdict:
    return verdict


def row_of(name: str, expected: int = 6) -> dict[str, Any]:
    """A problem that asks for a sum; another `expected` makes its tests wrong."""
    cases = [{"args": [[1, 2, 3]], "expected": expected}, {"args": [[5, 5]], "expected": 10}]
    tests = {"kind": "calls", "cases": cases}
    return {"id": name, "prompt": f"Sum, problem {name}.", "entry_point": "f", "tests": tests}


def write_problems(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@cache
def verdicts(programs: tuple[str, ...]) -> tuple[Verdict, ...]:
    """The sandbox's verdicts with evidence. They are the same for every problem here."""
    path = Path(__file__).with_name("problem.jsonl")
    (problem,) = read_problems(path).problems
    with LocalPool(ScorerConfig(workers=1), StrategyEvidence()) as pool:
        return tuple(pool.score((problem, code) for code in programs))


def rollout(code: str, seed: int) -> Rollout:
    tokens = np.arange(3, dtype=np.int32)
    text = f"So:\n```python\n{code}```\n"
    return Rollout(tokens, tokens, np.full(3, -0.5, np.float32), text, "stop", seed, 0)


def as_judged(step: int, slot: int) -> tuple[int, ...]:
    """What the structural judge says of each group: two ways that add up, a placeholder, one that never ends."""
    return (1, 2, 0, 1)


def without_labels(step: int, slot: int) -> None:
    """Label nothing, as a run does whose objective needs no judge."""


def write_scored_run(
    folder: Path, stored: Change = as_scored, label: Label = without_labels, place: str | None = None, *overrides: str
) -> str:
    """Write the run and return its URI. Its problems are in `problems.jsonl` beside it."""
    path = write_problems(folder / "problems.jsonl", [row_of(name) for name in NAMES])
    own = [f"run.dir={place or folder / 'run'}", "train.steps=2", "train.prompts_per_step=2", "train.rollouts=4"]
    source = ["problems.source=jsonl", f"problems.path={path}", "problems.validation=2", "problems.test=0"]
    config = load(None, [*own, *source, *SCORER, *overrides], lambda text: None)
    directory = resolve_run(config)
    problem_set = build_problem_set(config.problems)
    store, lease = directory.open("test", problems=problem_set.hash)
    store.workspace.mkdir(parents=True, exist_ok=True)
    metrics = MetricsFile(store.workspace / "metrics.jsonl")
    for step in range(STEPS):
        groups = tuple(
            _group(step, slot, problem.id, stored, label) for slot, problem in enumerate(problem_set.splits["train"])
        )
        rewards = tuple(np.array([float(v.passed) for v in group.verdicts or ()]) for group in groups)
        row = {"step": step, "reward": float(np.mean(rewards)), "strategies": 3.0}
        completed = CompletedStep(step, groups, rewards, rewards, Applied(step, f"{step:064x}", row, len(groups)))
        store.commit(step_key(step), encode_step(completed))
        metrics.log(row)
    metrics.close()
    names = [problem.id for problem in problem_set.splits["validation"]]
    payload = evaluation_payload(names, stored) | {"step": 2, "split": "validation", "samples": 8, "set_aside": {}}
    key = evaluation_key(2, "validation")
    store.commit(key, encode_evaluation(2, "validation", payload, evaluation_table(names, stored)))
    store.put_mutable("summary.json", seal({"steps": STEPS, "evaluations": [payload]}))
    lease.release()
    return directory.uri


def evaluation_payload(names: Sequence[str], stored: Change) -> dict[str, Any]:
    """The numbers that an evaluation of `SAMPLES` reports."""
    groups = [[stored(name, i, verdict) for i, verdict in enumerate(verdicts(SAMPLES))] for name in names]
    return {"problems": len(names), **summarise([GroupOutcomes.of(group, None).outcome(None) for group in groups])}


def _group(step: int, slot: int, name: str, stored: Change, label: Label) -> Group:
    found = tuple(stored(name, place, verdict) for place, verdict in enumerate(verdicts(PROGRAMS)))
    ids = label(step, slot)
    labels = None if ids is None else Labels(np.array(ids, np.int32), np.array(ids) == 0, "hand")
    return Group(
        step,
        slot,
        name,
        tuple(rollout(code, i) for i, code in enumerate(PROGRAMS)),
        {"score": found, "judge": labels} if labels else {"score": found},
    )


def evaluation_table(names: Sequence[str], stored: Change) -> pa.Table:
    """The table of an evaluation, one row a sample."""
    rows = []
    for name in names:
        for i, (code, found) in enumerate(zip(SAMPLES, verdicts(SAMPLES), strict=True)):
            verdict = stored(name, i, found)
            row = {"problem_id": name, "rollout": i, "text": rollout(code, i).text, "response_tokens": 3}
            row |= {"finish_reason": "stop", "seed": i, "status": verdict.status, "detail": verdict.detail}
            strategy = verdict.evidence.strategy if verdict.evidence else None
            rows.append({**row, "strategy": strategy, "label": None})
    return pa.Table.from_pylist(rows)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
