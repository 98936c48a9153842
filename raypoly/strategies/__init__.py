"""Which strategy a program uses: its canonical form, its features, and the constructs that do its work.

Two programs that differ in words only have one canonical form. Features tell what a program does with its data
(`hash`, `two_pointers`, `dp`). Traced constructs tell what did the work (`recursion`, `for`). The
judge reads all three.

How a program becomes these, in the order to read:

1. `evidence.py` runs in the parent: it asks a sandbox child, and reads the answer as `Evidence`. All other files run in
   confined children: they use the standard library alone, and expect hostile source.
2. `traced_runs/observe.py` (`observe`) is what the child runs. It calls the three below.
3. `live_code/canonical.py` (`canonical`): the live part of the program, in one spelling.
4. `features/algorithm_features.py` (`algorithm_features`): names of features, read from the live part.
5. `traced_runs/instrument.py` and `meter.py`: the program is run once on a small and once on a large input, with
   counters put in; then again with one construct taken away at a time, to see whether it mattered.
"""
