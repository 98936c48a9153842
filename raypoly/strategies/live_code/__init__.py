"""What of a program its result depends on, in one spelling.

- `live_program.py` finds it by the files below, in this order, and writes it as canonical text.
- `unwrapping.py` spells library names one way, and opens the class around the entry. `folding.py` folds constants.
- `slicing.py` keeps the statements that the result depends on. `bindings.py` and `function_facts.py` tell it which
  names are read, bound, changed and shared; `library_effects.py` what library calls change; `exceptions.py` what may
  leave a `try`.
- `decoys.py` takes away containers that are filled and never read. `renaming.py` gives the names letters.
- `constructs.py` lists what repeats work: loops, comprehensions, recursion.
"""
