"""What of a program its result depends on, in one spelling.

- `live_program.py` finds it, once for all who ask, by the files below, in this order.
- `unwrapping.py` spells library names in one way, and opens the class around the entry. `folding.py` folds constants
  and annotations.
- `settling.py` takes away opaque predicates and terms that cancel. `certain_tests.py` and `algebra.py` decide them, by
  `value_ranges.py` (from `stored_values.py`) and `name_facts.py`.
- `slicing.py` keeps the statements that the result depends on. `bindings.py` and `function_facts.py` tell it which
  names are read, bound, changed and shared; `library_effects.py` what library calls change; `exceptions.py` what may
  leave a `try`; `item_order.py` where the order of a list matters.
- `decoys.py` takes away containers that are filled and never read. `renaming.py` gives the names letters.
- `canonical.py` writes the text. `constructs.py` lists what repeats work: loops, comprehensions, recursion.
"""
