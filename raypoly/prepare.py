"""`python -m raypoly.prepare`: the same as `raypoly prepare`."""

import sys

from raypoly.cli import main

if __name__ == "__main__":
    main(["prepare", *sys.argv[1:]], name="raypoly")
