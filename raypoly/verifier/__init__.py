"""Score programs and check data sets on this machine without Ray: the functions behind `raypoly score`.

    problems = read_problems(Path("problems.jsonl")).problems
    verdicts = score(problems, [GivenProgram("a-1", "two-sum", "class Solution: ...")], ScorerConfig(workers=4))
    unusable = [found for found in validate(problems) if found.excluded]

`infra` means unknown: the sandbox failed on all tries, or the problem's tests can't be run.
"""

from raypoly.verifier.local_pool import LocalPool
from raypoly.verifier.score_programs import GivenProgram, Validation, score, scored, validate

__all__ = ["GivenProgram", "LocalPool", "Validation", "score", "scored", "validate"]
