"""`raypoly train` with short waits: the longest wait between two probes of the judge is 1 s instead of 60 s.

python -m tests.workflows.liveness.short_waits train.steps=20 judge.name=openai

An outage of a minute is then met by as many probes as one of an hour is by `python -m raypoly.train`.
"""

import sys

from raypoly.cli import main
from workflows.liveness import judge_pause

if __name__ == "__main__":
    judge_pause.LONGEST_WAIT /= 60
    main(["train", *sys.argv[1:]], name="raypoly")
