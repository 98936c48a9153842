"""How often the intervals of an experiment's table hold the truth, and how often its tests reject what is true.

    python -m benchmarks.coverage [--experiments 2000] [--only difference]       # some minutes

Experiments are made of random numbers (`tests.support.simulated_experiments`), so their truth is known. Each line is
one kind of experiment: the share of those that hold the truth (or reject, or find a difference), the bounds that it has
to keep, and the kind. A share may lie outside by 2.6 standard errors of the simulation. Exit code 1 where one lies
further.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from tests.support.simulated_experiments import all_cells


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=2_000, help="of each kind; default: 2000")
    parser.add_argument("--only", default="", help="kinds whose name has this text")
    given = parser.parse_args(arguments)
    outside = 0
    for cell in all_cells():
        if given.only not in cell.name:
            continue
        found = cell.measured(given.experiments, np.random.default_rng(sum(cell.name.encode())))
        outside += not found.ok
        mark = "" if found.ok else "  <- outside"
        print(f"{found.share:6.3f}  {found.low:.2f} to {found.high:.2f}  {cell.name}{mark}", flush=True)
    print(f"{outside} outside their bounds")
    sys.exit(outside > 0)


if __name__ == "__main__":
    main()
