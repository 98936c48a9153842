"""What runs inside the sandbox: zygote, templates, confined children. Standard library alone.

The zygote's own finder imports this package, and what `Sandbox(evidence=...)` names; nothing else of raypoly.

The walls, in the order in which they are built:

1. `zygote.py` starts without secrets and loads the modules. `forker.py` is its loop: build the walls once, fork a child
   on request, close descriptors that are not the child's, reap it, empty its scratch.
2. `confine.py`: namespaces, file tree, Landlock, uid, capabilities, limits. `seccomp.py`: the allowlist of system
   calls. `system.py`: calls that Python has no name for.
3. `probes.py` tries to break out, from where a candidate runs.

Behind the walls:

4. `roles.py`: the first message names the child's role. `frames.py` frames messages; `plain_data.py` is their content,
   and the decoder of hostile bytes; `object_values.py` says what nodes and subclasses hold.
5. `candidate.py` and `script.py` run a program. `budget.py` counts what it spends, `holdings.py` what it holds;
   `guard.py` keeps its hands off the counters, in its own process; `stand_ins.py` is what it finds in place of calls
   that the walls refuse.
6. `checker.py` reads a simple `check(candidate)` as data, and runs any other away from the candidate.
"""
