"""Short trainings under a seeded plan of kills: each must end as the undisturbed one, bit for bit.

    python -m benchmarks.chaos --kills 200 --seed 1 [--engine vllm|transformers] [--store local|s3] [--a-run 5]
                               [--kinds driver,generator,scorer,judge,learner,node,partition] [--model FOLDER]
                               [--keep FOLDER] [--json FILE]

Killed are: the driver (its whole process group), the generator's, scorer's, judge's and learner's processes, the Ray
node of one of them with all that is on it, and that node's network for a while. Compared are the weights, their digest
after each step, and what the rollouts say; and every committed object is watched as it appears: none may change, no
stage of a group may be committed twice. All runs share one Ray cluster of simulated nodes. Exit code 1 if any differs.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.chaos.disturbed import Disturbed, Outcome
from benchmarks.chaos.driver import SMALL
from benchmarks.chaos.machines import Machines
from benchmarks.chaos.model import cached_warm_model
from benchmarks.chaos.plan import KINDS, plans


def main() -> int:
    given = _arguments()
    started = time.monotonic()
    model = given.model or cached_warm_model()
    overrides = [*SMALL, f"model.path={model}", f"generator.engine={given.engine}"]
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        folder.mkdir(parents=True, exist_ok=True)
        if given.store == "s3":
            _allow_s3()  # before the nodes start, for their actors write to it as well
        machines = stack.enter_context(Machines())
        prefix = stack.enter_context(_s3(machines.here)) if given.store == "s3" else str(folder)
        kinds = [kind for kind in given.kinds if kind != "partition" or not machines.why_no_partition]
        reference = Disturbed(0, _place(prefix, 0), folder / "run-0.log", overrides, machines).run([], None)
        outcomes = [reference]
        _print_run(reference)
        for number, plan in enumerate(plans(given.seed, given.a_run, kinds), 1):
            done = sum(outcome.struck.total() for outcome in outcomes)
            if reference.faults or done >= given.kills or number > 2 * -(-given.kills // given.a_run):
                break
            plan = plan[: given.kills - done]
            disturbed = Disturbed(number, _place(prefix, number), folder / f"run-{number}.log", overrides, machines)
            outcomes.append(disturbed.run(plan, _place(prefix, 0)))
            _print_run(outcomes[-1])
        why = machines.why_no_partition if "partition" in given.kinds else ""
    print("\n" + table(outcomes[1:], given.kinds, why))
    print(f"{given.engine}, {given.store} store, seed {given.seed}: {time.monotonic() - started:.0f} s in all")
    if given.json:
        given.json.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=2))
    struck = sum(outcome.struck.total() for outcome in outcomes)
    return int(any(outcome.faults for outcome in outcomes) or struck < given.kills)


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
    end = "; ".join(outcome.faults) if outcome.faults else "equal" if outcome.number else "done"
    print(f"run {outcome.number}: {what}: {end} ({outcome.starts} starts, {outcome.seconds:.0f} s)", flush=True)


def _place(prefix: str, number: int) -> str:
    path, mark, options = prefix.partition("?")
    return f"{path}/run-{number}{mark}{options}"


def _allow_s3() -> None:
    """Credentials for this process and all that it starts."""
    from tests.s3_server import S3Server  # needs moto, which only tests do otherwise

    os.environ.update(S3Server("").environment)


@contextlib.contextmanager
def _s3(host: str) -> Iterator[str]:
    """The URI of a bucket on a server of this process."""
    from tests.s3_server import s3_server

    with s3_server(host) as server:
        yield server.uri("chaos")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kills that must strike, all runs together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--a-run", type=int, default=5, help="kills in one run")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--kinds", type=_kinds, default=list(KINDS), help=f"comma-separated, of: {', '.join(KINDS)}")
    parser.add_argument("--model", type=Path, help="a Hugging Face folder to start from; default: one made once")
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
