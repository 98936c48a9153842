"""How long a run of many steps takes to go on: from the command to its first new group, beside a run without a past.

    python -m benchmarks.resume [--steps 1000] [--rounds 3] [--model FOLDER] [key=value ...]

A tiny run of so many steps is made by the parts that write real ones, with a checkpoint of a real learner at its end;
then the same command is given for it and for an empty folder, in turn. The difference of the medians is what the past
costs. Exit code 1 where it is 30 s or more.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.journals.made import CHECKPOINT_EVERY, config_of, make
from raypoly.algorithms.losses import of_run
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.learner.policy_learner import PolicyLearner
from tests.support.driver_process import Driver
from tests.support.warm_model import cached_warm_model
from workflows.durability.checkpoints import Checkpoints

MOST_SECONDS = 30.0
PATIENCE = 600.0
Save = Callable[[Checkpoints, int], None]
GROUPS, SIZE, TOKENS = 20, 8, 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="A Hugging Face folder to start from; default: one made once.")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="For both runs.")
    given = parser.parse_args()
    model = given.model or cached_warm_model()
    overrides = [f"model.path={model}", "evaluate.every=0", "ray.dashboard=false", *given.overrides]
    with tempfile.TemporaryDirectory(prefix="resume-") as folder:
        past = Path(folder, "past")
        print(f"making {given.steps} steps of {GROUPS} groups x {SIZE} rollouts ...", file=sys.stderr)
        make(past, given.steps, GROUPS, SIZE, TOKENS, overrides, _saver(past, model, given.steps, overrides))
        resumed, bare = [], []
        for round_ in range(given.rounds):
            again, fresh = Path(folder, f"again-{round_}"), Path(folder, f"fresh-{round_}")
            shutil.copytree(past, again)
            bare.append(first_group(fresh, 0, 2 * given.steps, overrides))
            resumed.append(first_group(again, given.steps, 2 * given.steps, overrides))
            print(f"round {round_ + 1}: bare {bare[-1]:.1f} s, with its past {resumed[-1]:.1f} s", flush=True)
    cost = statistics.median(resumed) - statistics.median(bare)
    print(f"{given.steps} steps cost {cost:.1f} s over a bare start of {statistics.median(bare):.1f} s")
    sys.exit(int(cost >= MOST_SECONDS))


def _saver(folder: Path, model: Path, steps: int, overrides: Sequence[str]) -> Save:
    """Writes what a learner of that many steps writes."""
    config = config_of(folder, 2 * steps, overrides)
    learner = PolicyLearner(model, config.train, of_run(config), config.generator.temperature, config.model)
    learner.begin(0, Normalisers(GROUPS, SIZE, config.generator.max_tokens))
    learner.apply()  # so that there are moments

    def save(checkpoints: Checkpoints, step: int) -> None:
        learner.version = step
        snapshot, writer = learner.snapshot(), checkpoints.prepare(step)
        assert writer is not None
        files = {**learner.pretrained_config(), "objective.json": b"{}"}
        checkpoints.commit(writer, writer.write(snapshot.rank, snapshot.parts()), files)

    return save


def first_group(folder: Path, step: int, steps: int, overrides: Sequence[str]) -> float:
    """Seconds from the command until the journal has a group of a step; then the driver is killed."""
    own = [f"train.steps={steps}", f"train.checkpoint_every={CHECKPOINT_EVERY}"]
    driver = Driver(str(folder), folder.with_suffix(".log"), [*overrides, *own])
    journal, started = folder / "journal" / f"step-{step:06d}", time.monotonic()
    driver.start()
    try:
        while not list(journal.glob("*.arrow")):
            if not driver.lives or time.monotonic() > started + PATIENCE:
                sys.exit(f"no group of step {step} came: {driver.log()[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - started
    finally:
        driver.kill()


if __name__ == "__main__":
    main()
