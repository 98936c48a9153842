"""Which strategy a program uses: its canonical form, its features, and the constructs that do its work.

Programs that differ in words only have one canonical form. Features tell what a program does with its data (`hash`,
`two_pointers`, `dp`), constructs what did the work (`recursion`, `for`). The judge reads all three.

1. `evidence.py` runs in the parent: it asks sandbox children, and reads their answers as `Evidence`. All other files
   run in confined children: standard library alone, hostile source.
2. `traced_runs/observer.py` is what a child runs.
3. `live_code/live_program.py`: the live part of the program, in one spelling, and its canonical text.
4. `live_code/constructs.py` and `features/algorithm_features.py` read it: what repeats work, and names of features.
5. `traced_runs/reduce.py`: the program is run with one place after another switched off (`sites.py`), to see what its
   answers and its work need. What remains is read again, and its rounds are counted.
"""
