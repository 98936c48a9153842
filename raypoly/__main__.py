"""`python -m raypoly`: the command `raypoly`."""

from raypoly.cli import main

if __name__ == "__main__":
    main()
