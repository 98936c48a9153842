"""`python -m raypoly.doctor`: the same as `raypoly doctor`."""

import sys

from raypoly.cli import main

if __name__ == "__main__":
    main(["doctor", *sys.argv[1:]], name="raypoly")
