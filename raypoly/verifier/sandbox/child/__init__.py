"""What runs inside the sandbox: the zygote, its templates and its confined children. Standard library only.

Nothing of raypoly is imported here but this package and `raypoly.strategies`, and these by the zygote's own finder.

The walls, in the order in which they are built:

1. `zygote.py` starts without secrets and loads the modules. `forker.py` is its loop: build the walls once, fork a child
   on request, close all descriptors that are not the child's, reap it and empty its scratch.
2. `confine.py` builds and shuts the walls: namespaces, the file tree, Landlock, uid, capabilities, limits.
   `seccomp.py` is the allowlist of system calls. `system.py` makes the calls that Python has no name for.
3. `probes.py` tries to break out of all that, from where a candidate runs.

What a child does behind the walls:

4. `roles.py`: the first message names the child's role. `frames.py` frames messages; `plain_data.py` is their content
   and the decoder that reads hostile bytes; `linked_nodes.py` writes `ListNode` and `TreeNode` by value,
   `base_values.py` what a subclass's value holds.
5. `candidate.py` and `script.py` run a program, `observer.py` sees which of its constructs work, `reader.py` reads
   programs and runs none. `budget.py` counts what a puzzle's program spends, `holdings.py` what it holds;
   `counted_code.py` compiles it so that its statements can be told apart. `guard.py` keeps the program's hands off the
   counters, in its own process. `self_pipe.py` lets `asyncio` run without sockets.
6. `checker.py` reads a simple `check(candidate)` as data, and runs any other away from the candidate.
"""
