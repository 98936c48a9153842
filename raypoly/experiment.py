"""`python -m raypoly.experiment`: the same as `raypoly experiment`."""

import sys

from raypoly.cli import main

if __name__ == "__main__":
    main(["experiment", *sys.argv[1:]], name="raypoly")
