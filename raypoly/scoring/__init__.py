"""Score programs and check data sets on this machine, without Ray: what `raypoly score` does, as calls.

    problems = read_problems(Path("problems.jsonl")).problems
    verdicts = score(problems, [Program("a-1", "two-sum", "class Solution: ...")], ScorerConfig(workers=4))
    unusable = [found for found in validate(problems) if found.reason]

Programs run in `raypoly.sandbox`, one sandbox a worker thread. A verdict of `infra` says that nobody knows what the
program is worth: the sandbox failed again and again, or the problem's tests can't be run.
"""

from raypoly.scoring.local_pool import LocalPool
from raypoly.scoring.score_programs import Program, Validation, score, scored, validate

__all__ = ["LocalPool", "Program", "Validation", "score", "scored", "validate"]
