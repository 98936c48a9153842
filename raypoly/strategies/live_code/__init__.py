"""What of a program its result depends on, in one spelling.

- `live_program.py` finds it by the files below, in this order, and writes it as canonical text.
- `unwrapping.py` spells library names one way, and opens the class around the entry. `folding.py` folds constants.
- `needed.py` keeps the statements that the result depends on. `bindings.py` tells it which names are read and bound,
  `sharing.py` which stand for one object, `library_effects.py` what library calls change.
- `renaming.py` gives the names letters.
- `constructs.py` lists what repeats work: loops, comprehensions, recursion.
"""
