"""Keep a candidate's hands off the counters that run beside it in its own process.

Three lines of defence, each enough against most tricks. A program may not contain names that lead to frames, code
objects, namespaces or finalizers, nor reach an attribute by a computed name (`check_program`). What could do so inside
the library is replaced. An audit hook, which nothing can remove, ends the process at any event outside a short list.
Finalizers matter because they can run within a hook, uncounted. Nothing put in place leads to the counters or the
nonce: it speaks to the hook. Tampering is the verdict `error`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import gc
import operator
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from opcode import opmap
from os import _exit
from types import CodeType, FunctionType
from typing import Any, NoReturn

Report = Callable[..., None]

# what may be imported while counted (second line: what those import when used)
_IMPORTS = """
    __future__ bisect collections collections.abc functools heapq itertools math operator typing
    _bisect _collections _collections_abc _functools _heapq _operator abc
"""

_SPECIAL = """
    __name__ __main__ __future__ __init__ __call__ __iter__ __next__ __len__ __getitem__ __setitem__ __contains__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __repr__ __str__ __add__ __sub__ __mul__ __mod__
    __floordiv__ __truediv__ __neg__ __abs__ __radd__ __iadd__ __and__ __or__ __xor__ __slots__ __doc__ __module__
    __qualname__ __annotations__ __classcell__ __static_attributes__ __firstlineno__
    __enter__ __exit__ __index__ __int__ __reversed__ __post_init__
"""
_FRAMES = """
    tb_frame tb_next tb_lasti tb_lineno gi_frame gi_code gi_yieldfrom cr_frame cr_await ag_frame ag_await
    f_back f_locals f_globals f_builtins
"""
_SYS_NAMES = """settrace gettrace setprofile getprofile call_tracing _getframe _current_frames"""
_COMPUTING = """getattr setattr delattr vars dir attrgetter methodcaller Protocol runtime_checkable"""
_ELSEWHERE = """_sys _convert types contextlib stdlib_re bltns modules meta_path path_hooks"""
# what differs in an observed run
_TELLING = """getrecursionlimit getallocatedblocks getrefcount exc_info"""
_REFUSED = frozenset(f"{_SYS_NAMES} {_COMPUTING} {_ELSEWHERE} {_TELLING}".split())
# of an attribute in the program's text; or replaced, which a program that looked could see
_ONLY_CALLED = frozenset({"hasattr", "wraps", "update_wrapper"})
_FORMATS = frozenset({"format", "format_map"})
_LOOKED_AT = _ONLY_CALLED | _FORMATS | {"sys", "type", "ABCMeta"}
GENERATORS = 0x20 | 0x80 | 0x200
_FIELD_OF_A_FIELD = re.compile(r"\{[^{}:!]*[.\[]")
# our own tests come by `marshal`, which a counted program can't import
_HARMLESS = frozenset(
    {"builtins.id", "gc.get_referents", "array.__new__", "sys.unraisablehook", "marshal.loads", "sys._getframe"}
)
# harmless in an observed run, where no counter lives among a program's names
_OWN_NAMES = ("locals", "globals")
# what an observed program may import too, if its tests have no budgets
_OBSERVED_IMPORTS = ("sys", "cmath", "re", "string", "copy", "random", "datetime", "decimal", "fractions", "statistics")
# what the observer does
_OBSERVERS = frozenset({"marshal.dumps"})
# what it does to compile a program whose tests are over, before it runs again
_COMPILING = frozenset({"compile", "function.__new__"})
_allowed = set[str]()
_kept: list[Any] = []
_audit = sys.audit
_FORBIDDEN = "raypoly.forbidden"


def tampered(report: Report, what: str) -> NoReturn:
    try:
        report("tamper", what)
    finally:
        _exit(0)


def check_program(code: CodeType, source: str, lasting: bool = False) -> str | None:
    """The first name in a program that leads behind the scenes; None if there is none.

    `lasting`: nor may it see when an object goes. A counted program's objects are held a little longer.
    """
    names: set[str] = set()
    matches = cleans_up = False
    todo: list[Any] = [code]
    # through all code objects and constants of the program: names can be hidden in each
    while todo:
        found = todo.pop()
        if type(found) is str:
            if _leads_behind(found):
                return found[:60]
        elif type(found) in (tuple, frozenset):
            todo.extend(found)
        elif type(found) is CodeType:
            names.update(found.co_names)
            matches = matches or opmap["MATCH_CLASS"] in found.co_code[::2]
            cleans_up = cleans_up or (found.co_flags & GENERATORS > 0 and len(found.co_exceptiontable) > 0)
            todo += [*found.co_names, *found.co_varnames, *found.co_consts]
            todo += [name for name in found.co_freevars + found.co_cellvars if name != "__class__"]  # of `super()`
    if names & _REFUSED:
        return min(names & _REFUSED)
    # parsing costs more than walking the code, and most programs name nothing that needs it
    tree = ast.parse(source) if matches or cleans_up or names & _LOOKED_AT else None
    if tree is None:
        return None
    return _computed(tree) or (_cleanup(tree) if lasting else None)


def _computed(tree: ast.Module) -> str | None:
    """The first way to reach an attribute by a computed name, or to look at what is replaced."""
    called = {id(node.func): node.args for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        # `case A(x)` reads the attribute that `A.__match_args__` names, which can be computed
        if isinstance(node, ast.MatchClass) and node.patterns:
            return "__match_args__"
        if isinstance(node, ast.ImportFrom) and any(alias.name == "sys" for alias in node.names):
            return "sys"
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        args = called.get(id(node), [])
        if name in _ONLY_CALLED and not (args and _is_plain(args[-1] if name == "hasattr" else None)):
            return name
        if name == "sys" and isinstance(node, ast.Attribute):
            return name
        if name in _FORMATS and isinstance(node, ast.Attribute):
            text = node.value.value if isinstance(node.value, ast.Constant) else None
            if type(text) is not str or _FIELD_OF_A_FIELD.search(text):
                return name
    return None


def _cleanup(tree: ast.Module) -> str | None:
    """The first thing that runs when an object goes: the end of a generator's block, a class by computed names."""
    compared = {
        id(part.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
        if isinstance(part, ast.Call) and len(part.args) == 1
    }
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name == "ABCMeta" or (name == "type" and isinstance(node, ast.Name) and id(node) not in compared):
            return name
        if isinstance(node, (ast.Try, ast.TryStar)) and _waits(node):
            last = (handler for handler in node.handlers if not _is_ordinary(handler, tree))
            ends = [*node.finalbody, *(part for handler in last for part in handler.body)]
            if not all(isinstance(end, ast.Pass) for end in ends):
                return "finally"
        if isinstance(node, (ast.With, ast.AsyncWith)) and _waits(node):
            return "with"
    return None


def _is_ordinary(handler: ast.ExceptHandler, tree: ast.Module) -> bool:
    # a builtin error by its name is not the end of a generator
    name = handler.type.id if isinstance(handler.type, ast.Name) else ""
    used = {id(other.type) for other in ast.walk(tree) if isinstance(other, ast.ExceptHandler)}
    kind = vars(builtins).get(name)
    return (
        isinstance(kind, type)
        and issubclass(kind, Exception)
        and all(id(node) in used for node in ast.walk(tree) if getattr(node, "id", getattr(node, "name", "")) == name)
    )


def _waits(block: ast.AST) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) for node in ast.walk(block))


def _is_plain(name: ast.expr | None) -> bool:
    text = name.value if isinstance(name, ast.Constant) else None
    return name is None or (type(text) is str and text.isidentifier() and text not in _REFUSED)


def _leads_behind(text: str) -> bool:
    # a docstring may say anything: it has spaces
    return text in _FRAMES.split() or (
        "__" in text and text not in _SPECIAL.split() and (" " not in text or "{" in text)
    )


def close(
    report: Report, observed: bool = False, budgeted: bool = True, watched: bool = True
) -> Callable[[], bool] | None:
    """Shut the ways out; a candidate can't undo it.

    `observed`: it is run to see what it needs, and not to be scored. `watched`: the program could reach a
    module; then returns a function that says whether a module, or what is in one, has changed since.
    """
    gc.disable()  # a collection within a hook would run finalizers uncounted
    for name in _OWN_NAMES if budgeted else ():
        vars(builtins)[name] = _forbidden(name)
    imports = _IMPORTS.split() + ([] if budgeted else list(_OBSERVED_IMPORTS))
    for name in ("attrgetter", "methodcaller"):
        setattr(operator, name, _forbidden(f"operator.{name}"))
    functools.update_wrapper = _unchanged if budgeted else _update_wrapper  # type: ignore[assignment]
    functools.wraps = _wraps  # type: ignore[assignment]
    vars(sys.modules["collections"]).pop("_proxy", None)  # a weak reference's callback is a finalizer
    # an import finds only what is in here: the rest is gone, and then the dictionary itself (`sys` is replaced piece by
    # piece)
    modules = _emptied(sys.modules, imports)
    for name in _SYS_NAMES.split():
        setattr(sys, name, _forbidden(f"sys.{name}"))
    del sys.modules
    sys.meta_path.clear()
    sys.path_hooks.clear()
    # the hook comes last: from here on our own imports and lookups would be events, too
    before = _contents(modules) if watched else []
    sys.addaudithook(_hook(report, _HARMLESS | _OBSERVERS if observed else _HARMLESS))
    return (lambda: _contents(modules) != before) if watched else None


@contextmanager
def observing() -> Iterator[None]:
    """Let the observer compile, within, and work, from here on: the tests are over, and nothing of the program runs."""
    _allowed.update(_OBSERVERS | _COMPILING)
    yield
    _allowed.difference_update(_COMPILING)


def _emptied(modules: dict[str, Any], imports: list[str]) -> list[Any]:
    """Takes all but `imports` out. Returns what a program could change."""
    found = {name: modules[name] for name in imports if name in modules}
    # A module that lost its last reference would be cleared, and our own functions with it. `popitem` hands over the
    # dictionary's own reference: a copy would write to the page of each module, which the parent shares until then.
    while modules:
        _kept.append(modules.popitem())
    modules.update(found)
    kept = (module for name, module in found.items() if name not in ("re", "sys"))  # `re` keeps what it has compiled
    return [*kept, builtins, sys]


def _contents(modules: list[Any]) -> list[tuple[str, int]]:
    """Names and identities of what modules hold, and their classes, functions and containers."""
    found = []
    for module in modules:
        for name, value in vars(module).items():
            found.append((name, id(value)))
            if isinstance(value, (type, FunctionType)):
                found += [(inner, id(held)) for inner, held in vars(value).items()]
            elif isinstance(value, (list, set, dict)):
                found += [("", id(held)) for held in (value.values() if isinstance(value, dict) else value)]
    return found


def _forbidden(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        _audit(_FORBIDDEN, f"{name}()")

    return call


def _unchanged(wrapper: Any, wrapped: Any) -> Any:
    # attributes that `functools.wraps` copies would count as held
    return wrapper


def _update_wrapper(wrapper: Any, wrapped: Any) -> Any:
    # the library's can be told to read and set any attribute of anything
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(wrapped, name):
            setattr(wrapper, name, getattr(wrapped, name))
    wrapper.__dict__.update(getattr(wrapped, "__dict__", {}))
    wrapper.__wrapped__ = wrapped
    return wrapper


def _wraps(wrapped: Any) -> Callable[[Any], Any]:
    return functools.partial(functools.update_wrapper, wrapped=wrapped)


def _hook(report: Report, harmless: frozenset[str]) -> Callable[[str, tuple[Any, ...]], None]:
    def on_event(event: str, args: tuple[Any, ...]) -> None:
        if event in harmless or event in _allowed or (event == "object.__getattr__" and args[1] == "f_code"):
            return
        if event == _FORBIDDEN:
            tampered(report, f"{args[0]} can't be used in a budgeted test")
        detail = args[0] if event == "import" else args[1] if event.startswith("object.__") else ""
        tampered(report, f"{event} {detail}".strip())

    return on_event
