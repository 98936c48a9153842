"""Runs untrusted programs and reports how many of their problem's tests they pass. This package is isolation only.

    with Sandbox(ScorerConfig()) as sandbox:
        verdict = sandbox.score(problem, code)

A candidate's process gets code and inputs only. Expected outputs never enter it.

A reviewer reads, in this order:

1. `child/` builds the walls and runs programs inside them; its docstring lists the files.
2. `zygote_client.py` starts the zygote, a process without secrets, and asks it for one confined child a program.
   `channel.py` is the socket to one child: framed messages, CPU time, SIGKILL. Both treat a child's bytes as hostile.
   `sleep_meter.py` tells a child's sleep from its wait for a core.
3. `sandbox.py` (`Sandbox`) decides what runs. At start it runs the probes, and refuses to work if one breaks out.
4. One file runs one kind of tests: `case_run.py` calls and operations, `check_run.py` a `check(candidate)`,
   `script_run.py` standard input and output. `candidate_process.py` serves the first two. `source_reader.py` reads
   programs and runs none: it refuses those that do not compile, and says what the source of the others shows.
5. `prepared_suite.py` encodes the tests once. `outcome.py` puts the result into words.

`raypoly.strategies` decides which strategy a program uses. Its code parses and runs programs, so it runs in confined
children too (the roles `read` and `observe` in `child/roles.py`). No wall depends on it.
"""

from raypoly.verifier.sandbox.prepared_suite import DEFAULT_COUNTERS
from raypoly.verifier.sandbox.sandbox import Sandbox

__all__ = ["DEFAULT_COUNTERS", "Sandbox"]
