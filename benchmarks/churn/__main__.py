"""Nodes are lost and others join while work goes on: results stay, and the pool of scorers uses what there is.

    python -m benchmarks.churn [--changes 20] [--seed 0] [--a-run 4] [--at-once 2] [--skip trainings|sleepers]
                               [--model FOLDER] [--keep FOLDER] [--json FILE]

First, short trainings on a head and three worker nodes of two CPUs, with an elastic pool. During their steps the node
of an actor is killed with all that is on it, or another joins, in turn by a seeded plan. Each training must end as the
undisturbed one: weights, rollouts, and the counts of verdicts, bit for bit; no stage of a group may be committed twice.

Then, the pool over scorers that sleep 0.1 s a program, on a real Ray: programs a second by the number of scorers (85 %
of proportional or more); a node that joins while work waits has a scorer at work 10 s later or sooner; under as many
changes again each program has its own verdict, once; and an idle pool is back at its least within `scorer.idle_seconds`
and a second or two. Exit code 1 if any of this fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.chaos.disturbed import Outcome
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.series import Series, run_all
from benchmarks.churn.sleeping import IDLE_SECONDS, PROGRAM_SECONDS, PoolLife, pool_life, programs_a_second
from tests.support.driver_process import SMALL
from tests.support.kill_plan import change_plans
from tests.support.warm_model import cached_warm_model

SCORERS = (2, 4, 8, 16)
LEAST_SHARE = 0.85
JOIN_SECONDS = 10.0
REST_SECONDS = 2.0
"""Beyond `scorer.idle_seconds`: the pool looks twice a second, on a machine that may be busy."""
_NODES, _CPUS = 3, 2
_ELASTIC = ("train.rollouts=12", "scorer.workers=2", "scorer.max_workers=6", "scorer.idle_seconds=5")


def main() -> int:
    given = _arguments()
    started = time.monotonic()
    found: dict[str, object] = {}
    faults: list[str] = []
    if given.skip != "trainings":
        outcomes = _trainings(given)
        found["runs"] = [vars(outcome) for outcome in outcomes]
        faults += _print_trainings(outcomes, given.changes)
    if given.skip != "sleepers":
        rates, life = programs_a_second(SCORERS), pool_life(given.changes)
        found |= {"programs_a_second": rates, "life": asdict(life)}
        faults += _print_rates(rates) + _print_life(life, given.changes)
    print(f"seed {given.seed}: {time.monotonic() - started:.0f} s in all")
    print("\n".join(f"FAILED: {fault}" for fault in faults) or "all as it must be")
    if given.json:
        given.json.write_text(json.dumps(found | {"faults": faults}, indent=2))
    return int(bool(faults))


def _trainings(given: argparse.Namespace) -> list[Outcome]:
    model = given.model or cached_warm_model()
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="churn-")))
        folder.mkdir(parents=True, exist_ok=True)
        at_once = min(given.at_once, -(-given.changes // given.a_run))
        fleet = stack.enter_context(Fleet(at_once, "local", folder, nodes=_NODES, cpus=_CPUS))
        plans = change_plans(given.seed, given.a_run)
        overrides = [*SMALL, *_ELASTIC, f"model.path={model}"]
        outcomes = []
        for outcome in run_all(fleet, [Series("transformers", 2 * given.changes, plans, overrides)]):
            outcomes.append(outcome)
            what = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.struck.items())) or "undisturbed"
            end = "; ".join(outcome.faults) or "equal"
            print(f"run {outcome.number}: {what}: {end} ({outcome.starts} starts, {outcome.seconds:.0f} s)", flush=True)
        return outcomes


def _print_trainings(outcomes: Sequence[Outcome], changes: int) -> list[str]:
    """Returns what must not be."""
    runs = [outcome for outcome in outcomes if not outcome.undisturbed]
    lost, gained = (sum(run.struck[kind] for run in runs) for kind in ("lose", "gain"))
    equal = sum(not run.faults for run in runs)
    print(
        f"\nnodes lost {lost}, joined {gained} ({sum(run.used for run in runs)} had scorers) in {len(runs)} runs; "
        f"{equal} runs equal to the undisturbed one; {sum(run.objects for run in outcomes)} objects watched; "
        f"{sum(run.gave_up for run in runs)} times a driver gave up by itself\n"
    )
    faults = [f"run {outcome.number}: {fault}" for outcome in outcomes for fault in outcome.faults]
    if lost + gained < 2 * changes:
        faults.append(f"only {lost} nodes were lost and {gained} joined during steps, not {changes} each")
    return faults


def _print_rates(rates: Mapping[int, float]) -> list[str]:
    faults = []
    print(f"{'scorers':>8}{'programs/s':>12}{'proportional':>14}")
    for scorers, rate in rates.items():
        share = rate / (scorers / PROGRAM_SECONDS)
        print(f"{scorers:>8}{rate:>12.1f}{share:>14.1%}")
        if share < LEAST_SHARE:
            faults.append(f"{scorers} scorers run {share:.1%} of proportional, not {LEAST_SHARE:.0%}")
    print()
    return faults


def _print_life(life: PoolLife, changes: int) -> list[str]:
    rest = IDLE_SECONDS + REST_SECONDS
    print(
        f"a scorer at work on a node that joined: after {life.joined:.1f} s (at most {JOIN_SECONDS:.0f})\n"
        f"nodes lost under the pool: {life.lost}; programs asked {life.asked}, counted {life.counted}, "
        f"with another's verdict {life.mistaken}\n"
        f"back at the least: {life.rested:.1f} s after the last verdict (idle_seconds {IDLE_SECONDS:g}, "
        f"at most {rest:g})\n"
    )
    found = {
        "a node that joined had no scorer at work in time": life.joined > JOIN_SECONDS,
        "an idle pool kept its scorers": life.rested > rest,
        "a verdict was lost or counted twice": life.asked != life.counted or life.mistaken > 0,
        "too few nodes were lost under the pool": life.lost < changes,
    }
    return [fault for fault, is_so in found.items() if is_so]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=20, help="nodes that are lost, and as many that join")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--a-run", type=int, default=4, help="of both, in one training")
    parser.add_argument("--at-once", type=int, default=2, help="trainings side by side, each on a cluster of its own")
    parser.add_argument("--skip", choices=("trainings", "sleepers"))
    parser.add_argument("--model", type=Path, help="a Hugging Face folder to start from; default: one made once")
    parser.add_argument("--keep", type=Path, help="where runs and logs stay; default: nowhere")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
