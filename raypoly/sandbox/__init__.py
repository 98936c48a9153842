"""Run programs that nobody trusts, and say what they are worth.

    with Sandbox(ScorerConfig()) as sandbox:
        verdict = sandbox.score(problem, extract_code(problem, response))

A candidate's process gets code and inputs only; what is expected never enters it.
"""

from raypoly.sandbox.code_extraction import extract_code
from raypoly.sandbox.prepared_suite import DEFAULT_COUNTERS
from raypoly.sandbox.sandbox import Sandbox

__all__ = ["DEFAULT_COUNTERS", "Sandbox", "extract_code"]
