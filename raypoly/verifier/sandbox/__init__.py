"""Run untrusted programs and count the tests that they pass. This package is isolation alone.

    with Sandbox(ScorerConfig()) as sandbox:
        verdict = sandbox.score(problem, code)

A candidate's process gets code and inputs. Expected outputs never enter it.

Reading order for a review:

1. `child/`: the walls, and what runs behind them; its docstring lists the files.
2. `zygote_client.py` starts the zygote, a process without secrets, and gets one confined child a program from it.
   It has the interface of what reads evidence, `EvidenceReader`.
   `channel.py` is the socket to a child, whose bytes are hostile. `sleep_meter.py` tells sleep from waiting for a core.
3. `sandbox.py` decides what runs. It refuses to work if a probe breaks out.
4. One file a kind of tests: `case_run.py` (calls, operations), `check_run.py` (a `check(candidate)`), `script_run.py`
   (standard input and output). `candidate_process.py` serves the first two.
5. `source_reader.py` reads programs and runs none.
6. `prepared_suite.py` encodes the tests once. `outcome.py` puts results into words.
"""

from raypoly.verifier.sandbox.prepared_suite import DEFAULT_COUNTERS
from raypoly.verifier.sandbox.sandbox import Sandbox
from raypoly.verifier.sandbox.zygote_client import EvidenceReader

__all__ = ["DEFAULT_COUNTERS", "EvidenceReader", "Sandbox"]
