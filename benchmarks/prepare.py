"""A preparation by the tiny model, undisturbed and killed at random: how long it takes, and whether its files differ.

    python -m benchmarks.prepare --problems LeetCodeDataset-v0.2.0-train.jsonl.gz --kills 10

The killed one is started again until it has been killed so often, at moments drawn over the time that the undisturbed
one took, and then to its end. Prints one line each; exit code 1 where a byte differs.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.preparation_process import PreparationDriver, changed_outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", required=True, help="a file that raypoly prepare reads")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("overrides", nargs="*", help="keys of the preparation, such as sampling.samples=4")
    given = parser.parse_args()
    words = [f"sources.leetcode.path={Path(given.problems).absolute()}", *given.overrides]
    moments = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="raypoly-prepare-") as folder:
        whole = PreparationDriver(Path(folder) / "whole", words)
        begun = time.monotonic()
        whole.complete()
        seconds = time.monotonic() - begun
        print(f"undisturbed: {seconds:.0f} s", flush=True)
        killed = PreparationDriver(Path(folder) / "killed", words)
        begun, done = time.monotonic(), 0
        while done < given.kills:
            killed.start()
            try:
                killed.finish(moments.uniform(0, 1.5 * seconds / given.kills + 10))
                break
            except subprocess.TimeoutExpired:
                killed.kill()
                done += 1
        killed.complete()
        print(f"killed {done} times: {time.monotonic() - begun:.0f} s in all", flush=True)
        found = changed_outputs(whole.folder, killed.folder)
    print(f"{', '.join(found)} differ" if found else "all files are the same, byte for byte")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
