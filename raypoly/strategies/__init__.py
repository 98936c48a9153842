"""Which strategy a program uses: its canonical form, its features, and the constructs that do its work.

Two programs that differ in words only have one canonical form. Features tell what a program does with its data
(`hash`, `two_pointers`, `dp`). Traced constructs tell what did the work (`recursion`, `for`). The
judge reads all three.

How a program becomes these, in the order to read:

1. `evidence.py` runs in the parent: it asks a sandbox child, and reads the answer as `Evidence`. All other files run in
   confined children: they use the standard library alone, and expect hostile source.
2. `traced_runs/observe.py` (`observe`) is what the child runs. It calls those below.
3. `live_code/live_program.py` (`live_program`): the live part of the program, in one spelling, found once.
4. `live_code/canonical.py`, `live_code/constructs.py` and `features/algorithm_features.py` read from it: its text, what
   repeats work in it, and names of features.
5. `traced_runs/instrument.py` and `meter.py`: the program is run once on a small and once on a large input, with
   counters put in; then again with one construct taken away at a time, to see whether it mattered.
"""
