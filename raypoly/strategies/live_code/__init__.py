"""What of a program its result depends on, in one spelling.

- `folding.py` folds constants, annotations and flags that never change. `unwrapping.py` spells library names in one
  way, and opens the class around the entry.
- `slicing.py` keeps the statements that the result depends on. `bindings.py` and `function_facts.py` tell it which
  names are read, bound, changed and shared; `library_effects.py` what library calls change.
- `decoys.py` takes away containers that are filled and never read. `renaming.py` numbers the names.
- `canonical.py` puts these together. `constructs.py` lists what repeats work: loops, comprehensions, recursion.
"""
