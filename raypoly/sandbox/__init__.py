"""Run programs that nobody trusts, and say how many of their problem's tests they pass. Isolation, and nothing else.

    with Sandbox(ScorerConfig()) as sandbox:
        verdict = sandbox.score(problem, code)

A candidate's process gets code and inputs only. Expected outputs never enter it.

A reviewer reads, in this order:

1. `child/` builds the walls and runs what is behind them; its docstring lists the files.
2. `zygote_client.py` starts the zygote, a process without secrets, and asks it for one confined child a program.
   `channel.py` is the socket to one child: framed messages, CPU time, SIGKILL. Both treat a child's bytes as hostile.
3. `sandbox.py` (`Sandbox`) decides what runs. At start it runs the probes, and refuses to work where one breaks out.
4. One file runs one kind of tests: `case_run.py` calls and operations, `check_run.py` a `check(candidate)`,
   `script_run.py` standard input and output. `candidate_process.py` is what the first two share. `compile_check.py`
   turns away what does not compile.
5. `prepared_suite.py` encodes the tests once. `outcome.py` words the result.

Which strategy a program uses is decided in `raypoly.strategies`. Its code parses and runs programs, so it runs in a
confined child too (the role `observe` in `child/roles.py`). No wall depends on it.
"""

from raypoly.sandbox.prepared_suite import DEFAULT_COUNTERS
from raypoly.sandbox.sandbox import Sandbox

__all__ = ["DEFAULT_COUNTERS", "Sandbox"]
