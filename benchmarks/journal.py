"""What durability costs: opening a long run, waiting for commits in a step, and for checkpoints.

    python -m benchmarks.journal [--steps 10999] [--size 2] [--tokens 4] [--keep FOLDER] [--no-share] [key=value ...]

Opening: a synthetic run of so many steps of 32 groups is made (some 10 ms a step), then opened as a start opens it,
in a process of its own. Share: a short tiny training, in which the time is counted that the step does nothing but
wait for the journal, and the time in which it waits for a checkpoint, as a share of ten steps. Exit code 1 where
opening 10,000 steps takes 5 s or more, the journal's share is above 3 %, or a checkpoint's above 5 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.journals.made import make

GROUPS = 32
MOST_SECONDS, MOST_SHARE, MOST_OF_CHECKPOINT = 5.0, 0.03, 0.05
EVERY = 10
"""Steps between the checkpoints of the share that is printed."""
TINY = ("train.steps=11", "train.checkpoint_every=5", "evaluate.every=0", "ray.dashboard=false")


def measured(module: str, arguments: Sequence[str]) -> Mapping[str, Any]:
    """The JSON object that is the last line of a process's output."""
    command = [sys.executable, "-m", f"benchmarks.journals.{module}", *arguments]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def opening(folder: Path, steps: int, size: int, tokens: int) -> bool:
    """Print the table; whether opening was quick enough."""
    if not (folder / "config.json").exists():
        print(f"making {steps} steps of {GROUPS} groups x {size} rollouts of {tokens} tokens ...", file=sys.stderr)
        make(folder, steps, GROUPS, size, tokens)
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = measured("opening", [str(folder), str(steps)])
    wall, cpu = found["wall"], found["cpu"]
    print(f"Opening {steps:,} steps x {GROUPS} groups: {len(files)} files, {_mib(files)} MiB")
    print(f"{'':24}{'seconds':>10}{'CPU s':>10}")
    for name in wall:
        print(f"{name:24}{wall[name]:10.2f}{cpu[name]:10.2f}")
    total = sum(wall.values())
    print(f"{'all':24}{total:10.2f}{sum(cpu.values()):10.2f}")
    requests = ", ".join(f"{count} {name}" for name, count in found["requests"].items())
    print(f"memory {found['grown_mib']} MiB; an object store would answer {requests}\n")
    return total < MOST_SECONDS or steps > 11_000


def share(overrides: Sequence[str]) -> bool:
    """Print the shares of step time of journal and checkpoints; whether they are small enough."""
    with tempfile.TemporaryDirectory() as folder:
        found = measured("share", [f"{folder}/run", *TINY, *overrides])
    print(f"Journal's share of step time, {found['steps']} steps of {found['step_seconds']:.2f} s (median)")
    print(f"{'nothing but waiting for it':36}{found['share']:8.2%}")
    print(f"{'waiting for it beside other work too':36}{found['waited']:8.2%}")
    waiting = found["checkpoint_seconds"] / (EVERY * found["step_seconds"])
    print(f"A checkpoint every {EVERY} steps, as a share of step time, {found['checkpoints']} checkpoints")
    print(f"{'waiting for it':36}{waiting:8.2%}{found['checkpoint_seconds']:10.3f} s each")
    print(f"{'it is written beside training':36}{'':8}{found['writing_seconds']:10.3f} s each")
    return bool(found["share"] <= MOST_SHARE and waiting <= MOST_OF_CHECKPOINT)


def _mib(files: Sequence[Path]) -> int:
    return round(sum(path.stat().st_size for path in files) / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_999, help="The worst number near 10,000: no segment is full.")
    parser.add_argument("--size", type=int, default=2, help="Rollouts of a group.")
    parser.add_argument("--tokens", type=int, default=4, help="Tokens of a rollout.")
    parser.add_argument("--keep", type=Path, help="Make the run there, or open the one that is there.")
    parser.add_argument("--no-share", action="store_true", help="Train nothing.")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="For the training.")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = opening(chosen.keep or Path(folder) / "run", chosen.steps, chosen.size, chosen.tokens)
    kept = (chosen.no_share or share(chosen.overrides)) and kept
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
