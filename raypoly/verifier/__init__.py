"""Score programs and check data sets on this machine without Ray: what `raypoly score` and `raypoly.Verifier` use.

`infra` means unknown: the sandbox failed on all tries, or the problem's tests can't be run.
"""

from raypoly.verifier.local_pool import LocalPool
from raypoly.verifier.score_programs import GivenProgram, Validation, scored, validated

__all__ = ["GivenProgram", "LocalPool", "Validation", "scored", "validated"]
