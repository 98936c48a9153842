"""Short trainings under a seeded plan of kills: each must end as the undisturbed one, bit for bit.

    python -m benchmarks.chaos --kills 200 --seed 1 [--engine vllm|transformers|both] [--store local|s3] [--a-run 5]
                               [--kinds driver,generator,scorer,judge,learner,node,partition] [--model FOLDER]
                               [--at-once 3] [--keep FOLDER] [--json FILE]

Killed are: the driver (its whole process group), the generator's, scorer's, judge's and learner's processes, the Ray
node of one of them with all that is on it, and that node's network for a while. Compared are the weights, their digest
after each step, and what the rollouts say; and every committed object is watched as it appears: none may change, no
stage of a group may be committed twice. Runs share Ray clusters of simulated nodes. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.disturbed import Outcome
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.series import Series, run_all
from tests.support.driver_process import SMALL
from tests.support.kill_plan import KINDS, kill_plans
from tests.support.warm_model import cached_warm_model


def main() -> int:
    given = _arguments()
    started = time.monotonic()
    model = given.model or cached_warm_model()
    wanted = _shares(given.engine, given.kills)
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        folder.mkdir(parents=True, exist_ok=True)
        fleet = stack.enter_context(Fleet(_at_once(given), given.store, folder))
        why = fleet.why_no_partition() if "partition" in given.kinds else ""
        kinds = [kind for kind in given.kinds if kind != "partition" or not why]
        series = [
            Series(
                engine,
                kills,
                kill_plans(given.seed + at, given.a_run, kinds),
                [*SMALL, f"model.path={model}", *given.set],
            )
            for at, (engine, kills) in enumerate(wanted.items())
        ]
        outcomes = []
        for outcome in run_all(fleet, series):
            outcomes.append(outcome)
            _print_run(outcome)
    print("\n" + table([outcome for outcome in outcomes if not outcome.undisturbed], given.kinds, why))
    print(f"{given.store} store, seed {given.seed}: {time.monotonic() - started:.0f} s in all")
    if given.json:
        given.json.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=2))
    return int(any(outcome.faults for outcome in outcomes) or any(one.struck < one.kills for one in series))


def _shares(engine: str, kills: int) -> dict[str, int]:
    """Kills by engine."""
    if engine != "both":
        return {engine: kills}
    on_vllm = -(-kills // 5)
    return {name: share for name, share in {"vllm": on_vllm, "transformers": kills - on_vllm}.items() if share}


def _at_once(given: argparse.Namespace) -> int:
    """Clusters: not more than there are runs to fill them."""
    return 1 if given.store == "s3" else min(given.at_once, -(-given.kills // given.a_run))


def table(outcomes: Sequence[Outcome], kinds: Sequence[str], why_no_partition: str) -> str:
    """Kills by kind, then the runs."""
    struck: Counter[str] = sum((outcome.struck for outcome in outcomes), Counter())
    missed: Counter[str] = sum((outcome.missed for outcome in outcomes), Counter())
    lines = [f"{'killed':<12}{'struck':>8}{'missed':>8}"]
    for kind in kinds:
        if kind == "partition" and why_no_partition:
            lines.append(f"{kind:<12}{'skipped':>8}{'':>8}  not possible here: {why_no_partition}")
        else:
            lines.append(f"{kind:<12}{struck[kind]:>8}{missed[kind]:>8}")
    lines.append(f"{'all':<12}{struck.total():>8}{missed.total():>8}")
    for engine in sorted({outcome.engine for outcome in outcomes}):
        runs = [outcome for outcome in outcomes if outcome.engine == engine]
        lines.append(f"  on {engine}: {sum(run.struck.total() for run in runs)} in {len(runs)} runs")
    equal = sum(not outcome.faults for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes) / max(1, len(outcomes))
    objects, gave_up = sum(o.objects for o in outcomes), sum(o.gave_up for o in outcomes)
    lines.append(
        f"{len(outcomes)} runs, {equal} equal to the undisturbed one, {len(outcomes) - equal} not; {objects} objects "
        f"watched; {gave_up} times a driver gave up by itself; {seconds:.0f} s a run"
    )
    return "\n".join(lines)


def _print_run(outcome: Outcome) -> None:
    what = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.struck.items())) or "undisturbed"
    end = "; ".join(outcome.faults) if outcome.faults else "done" if outcome.undisturbed else "equal"
    took = f"{outcome.engine}, {outcome.starts} starts, {outcome.seconds:.0f} s"
    print(f"run {outcome.number}: {what}: {end} ({took})", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kills that must strike, all runs together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--a-run", type=int, default=5, help="kills in one run")
    parser.add_argument(
        "--engine", choices=("transformers", "vllm", "both"), default="transformers", help="both: a fifth on vLLM"
    )
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument(
        "--at-once",
        type=int,
        default=min((os.cpu_count() or 1) + 1, 4),
        help="runs side by side, each on a cluster of its own; default: CPUs + 1, 4 at most; with --store s3 one",
    )
    parser.add_argument("--kinds", type=_kinds, default=list(KINDS), help=f"comma-separated, of: {', '.join(KINDS)}")
    parser.add_argument("--model", type=Path, help="a Hugging Face folder to start from; default: one made once")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the runs")
    parser.add_argument("--keep", type=Path, help="where runs and logs stay; default: nowhere")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise argparse.ArgumentTypeError(f"no such kind: {', '.join(unknown)}")
    return kinds


if __name__ == "__main__":
    sys.exit(main())
