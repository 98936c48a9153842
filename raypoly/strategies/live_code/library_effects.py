"""What calls of built-in names, the usual libraries and containers' methods change.

    changed_by(call, own, functions)     # of heappush(h, x)  ->  [h];  of sorted(xs)  ->  [];  of unknown(x)  ->  None

It expects the spelling of `unwrapping.py`: `heappush`, whatever the import was. A name that the program binds is no
library's.
"""

from __future__ import annotations

import ast
from collections.abc import Set

from raypoly.strategies.live_code.bindings import root

PURE_MODULES = frozenset(
    {"math", "itertools", "functools", "operator", "collections", "string", "re", "typing", "cmath"}
)
MODULES = PURE_MODULES | {"heapq", "bisect", "copy", "random", "sys", "time", "queue"}
_BUILT_IN = """
    abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float format
    frozenset gcd hash hex  id int isinstance issubclass iter len list map max min object oct ord
    pow print range reduce repr reversed round set  slice sorted str sum tuple type zip Counter
    defaultdict deque OrderedDict accumulate chain product permutations  combinations islice
    takewhile dropwhile sqrt isqrt floor ceil log lcm comb perm
"""
PURE_NAMES = frozenset(_BUILT_IN.split())
_READERS = """
    bisect bisect_left bisect_right nlargest nsmallest merge deepcopy copy groupby pairwise zip_longest fsum
    starmap cache lru_cache cmp_to_key itemgetter attrgetter prod combinations_with_replacement
"""
READS_ONLY = PURE_NAMES | frozenset(_READERS.split())
"""Functions that change nothing of their arguments."""
CHANGES_FIRST = frozenset(
    {"heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right", "shuffle"}
)
"""Functions that change their first argument alone."""
_METHODS = """
    get keys values items copy count index find rfind startswith endswith lower upper strip lstrip
    rstrip split join replace  isdigit isalpha isalnum union intersection difference issubset
    issuperset bit_length bit_count format title  casefold zfill most_common encode decode
    is_integer
"""
READ_ONLY_METHODS = frozenset(_METHODS.split())
FILLS = frozenset({"append", "appendleft", "add", "extend", "extendleft", "insert", "update", "setdefault"})
CHANGING_METHODS = FILLS | {"remove", "discard", "pop", "popleft", "popitem", "clear", "sort", "reverse", "rotate"}
"""Methods that change their owner alone."""
COPIES = frozenset({"list", "set", "dict", "tuple", "deque", "Counter", "sorted", "frozenset", "OrderedDict"})
"""New containers of what they are given."""
PLAIN_RESULTS = frozenset(
    {"len", "sum", "int", "str", "range", "abs", "ord", "chr", "bool", "float", "round", "any", "all"}
)
"""Results that hold nothing of what was given."""


def library_name(call: ast.Call) -> str:
    """`heappush` of `heappush(...)` and `heapq.heappush(...)`; empty for methods of anything but a module."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in MODULES:
        return call.func.attr
    return ""


def changed_by(call: ast.Call, own: Set[str], functions: Set[str]) -> list[ast.expr] | None:
    """Objects that a call may change; None where that is not known.

    `own`: names that the program binds; `functions`: its functions, methods and classes.
    """
    if isinstance(call.func, ast.Attribute):
        owner, method = call.func.value, call.func.attr
        if method in functions:
            return None
        module = owner
        while isinstance(module, ast.Attribute):
            module = module.value
        if isinstance(module, ast.Name) and module.id in PURE_MODULES and module.id not in own:
            return []
        if method in READ_ONLY_METHODS and (method != "get" or call.args):  # a queue's `get()` takes from it
            return []
        if method in CHANGING_METHODS and not (isinstance(owner, ast.Name) and owner.id in MODULES - own):
            return [owner]
    name = library_name(call)
    if name in own or not name or root(call.func) in own:
        return None
    if name in READS_ONLY:
        return []
    return call.args[:1] if name in CHANGES_FIRST and call.args else None
