"""An experiment's runs by the lean loop: one process and one thread a run, without Ray.

    python -m benchmarks.lean configs/experiments/coverage.yaml --split validation --out runs/lean
    python -m benchmarks.lean ... --arms paper,coverage --seeds 100-159 --split test
    python -m benchmarks.lean --table runs/lean --split validation

A run's row is appended to OUT/runs.jsonl when it is finished, and a run that has one is not repeated: stop at any time,
and start several at once (each takes the first run that nobody has). Seconds are CPU seconds, of the sandboxes too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import resource
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raypoly.analysis.experiments.experiment_config import ExperimentConfig, load_experiment
from raypoly.core import __version__, settings
from raypoly.core.values import Split
from tests.support.lean_loop import LeanLoop, PassedEvidence, VerdictMemory

KS = ("1", "4", "8", "16", "64")
FAILED = 0.08
"""A run fails where its pass@64 ends so much below its start's."""
_ONE_THREAD = ("generator.engine=transformers", "train.threads=1", "generator.threads=1")
_TELL_EVERY = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", help="an experiment's file")
    parser.add_argument("--out", type=Path, default=Path("runs/lean"))
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--arms", help="by name, with commas between; default: all")
    parser.add_argument("--seeds", help="such as 100-159 or 5,6; default: the experiment's")
    parser.add_argument("--samples", type=int, default=128, help="samples of a problem in an evaluation; default: 128")
    parser.add_argument("--table", type=Path, help="print what a folder holds")
    given = parser.parse_args()
    if given.table is not None:
        show(list(rows_of(given.table)), given.split)
        return
    if given.experiment is None:
        parser.error("name an experiment's file, or --table FOLDER")
    experiment = load_experiment(given.experiment)
    arms = given.arms.split(",") if given.arms else list(experiment.arms)
    seeds = list(_seeds(given.seeds)) if given.seeds else list(experiment.seeds)
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for arm in arms:
            with (given.out / f"{given.split}-{arm}-s{seed}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another process has it
                if not any(
                    (row["arm"], row["seed"], row["split"]) == (arm, seed, given.split) for row in rows_of(given.out)
                ):
                    row = run(experiment, arm, seed, given.split, given.samples, given.out)
                    with (given.out / "runs.jsonl").open("a") as file:
                        file.write(json.dumps(row) + "\n")
    show(list(rows_of(given.out)), given.split)


def run(experiment: ExperimentConfig, arm: str, seed: int, split: Split, samples: int, out: Path) -> dict[str, Any]:
    """One run's row: measures of the start and of the end on `split`, and of their parts."""
    begun = _cpu()
    overrides = [f"{key}={seed}" for key in experiment.seed_keys] + list(experiment.arms[arm].overrides({}))
    config = settings.load(experiment.config, [*overrides, *_ONE_THREAD], lambda note: None)
    memory = VerdictMemory(config, out / f"verdicts-s{seed}.db")
    held_out = VerdictMemory(config, out / f"held-out-s{seed}.db", PassedEvidence())
    loop = LeanLoop(config, memory)

    def measured() -> dict[str, Any]:
        return _measures(loop.evaluate(split, samples, held_out))

    before = _once(out / f"start-{split}-s{seed}-{samples}.json", measured)
    rewards: list[float] = []
    for step in range(config.train.steps):
        trained, _ = loop.step()
        rewards.append(statistics.fmean(float(group.rewards.mean()) for group in trained))
        if (step + 1) % _TELL_EVERY == 0:
            recent = statistics.fmean(rewards[-_TELL_EVERY:])
            print(f"{arm} seed {seed}: step {step + 1}, reward {recent:.3f}, {_cpu() - begun:.0f} CPU s", flush=True)
    after = measured()
    memory.close()
    held_out.close()
    return {
        "arm": arm,
        "seed": seed,
        "split": split,
        "steps": config.train.steps,
        "samples": samples,
        "overrides": overrides,
        "raypoly": __version__,
        "before": before,
        "after": after,
        "rewards": [round(value, 4) for value in rewards],
        "cpu_seconds": round(_cpu() - begun, 1),
    }


def _once(place: Path, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the file has, measured where it is missing: all arms of a seed share their warm start."""
    if not place.exists():
        place.write_text(json.dumps(measured()))
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def _measures(results: Mapping[str, Any]) -> dict[str, Any]:
    def short(part: Mapping[str, Any]) -> dict[str, Any]:
        curve = {k: round(part["pass_at_k"][k], 5) for k in KS if k in part["pass_at_k"]}
        return curve | {"strategies": round(part["strategies_correct"], 4)}

    parts = {key: {value: short(part) for value, part in own.items()} for key, own in results["slices"].items()}
    return short(results) | {"slices": parts}


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    place = folder / "runs.jsonl" if folder.is_dir() else folder
    if place.exists():
        yield from map(json.loads, place.read_text().splitlines())


def show(rows: Sequence[Mapping[str, Any]], split: str) -> None:
    """Means over seeds with a standard error, and how many runs failed."""
    kept = [row for row in rows if row["split"] == split]
    print(f"{split}: mean over seeds (standard error)")
    print(f"{'arm':16}{'runs':>5}" + "".join(f"{f'pass@{k}':>15}" for k in KS) + f"{'strategies':>15}{'failed':>8}")
    for arm in dict.fromkeys(row["arm"] for row in kept):
        own = [row for row in kept if row["arm"] == arm]
        cells = [_mean([row["after"][key] for row in own]) for key in (*KS, "strategies")]
        failed = sum(row["after"]["64"] < row["before"]["64"] - FAILED for row in own)
        print(f"{arm:16}{len(own):>5}" + "".join(f"{cell:>15}" for cell in cells) + f"{failed:>8}")


def _mean(values: Sequence[float]) -> str:
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.fmean(values):.3f} ({spread:.3f})"


def _seeds(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _cpu() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


if __name__ == "__main__":
    main()
