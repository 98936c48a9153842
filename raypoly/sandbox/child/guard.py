"""Keep a candidate's hands off the counters that run beside it in its own process.

Three lines of defence, each enough against most tricks: names that lead to frames, code objects, namespaces or
finalizers may not stand in the program (`check_names`); the few ways to reach an attribute by a computed name are
replaced; and an audit hook, which nothing can remove, ends the process at any event outside a short list. A
finalizer matters because it can run inside the tracer, where nothing is counted. Tampering is the verdict `error`.
"""

from __future__ import annotations

import functools
import gc
import operator
import sys
from collections.abc import Callable
from os import _exit
from types import CodeType, FunctionType
from typing import Any, NoReturn

Report = Callable[..., None]

_IMPORTS = """
    __future__ bisect collections collections.abc functools heapq itertools math operator typing
    _bisect _collections _collections_abc _functools _heapq _operator abc
"""
"""What may be imported while counted (the second line: what those import when used)."""

_SPECIAL = """
    __name__ __main__ __future__ __init__ __call__ __iter__ __next__ __len__ __getitem__ __setitem__ __contains__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __repr__ __str__ __add__ __sub__ __mul__ __mod__
    __floordiv__ __truediv__ __neg__ __abs__ __radd__ __iadd__ __and__ __or__ __xor__ __slots__ __doc__ __module__
    __qualname__ __annotations__ __enter__ __exit__ __index__ __int__ __reversed__ __post_init__
"""
_FRAMES = """tb_frame tb_next gi_frame gi_code cr_frame ag_frame f_back f_locals f_globals f_builtins"""
_SYS_NAMES = """settrace gettrace setprofile getprofile call_tracing _getframe _current_frames"""
_HARMLESS = frozenset({"builtins.id", "gc.get_referents", "array.__new__", "sys.unraisablehook", "marshal.loads"})
"""Our own tests come by `marshal`, which a counted program can't import."""
_COMPUTED_NAMES = ("getattr", "setattr", "delattr", "vars", "dir", "type")
_OWN_NAMES = ("locals", "globals")
"""Harmless where no counter lives among a program's names, as in an observed run."""
_OBSERVED_IMPORTS = ("sys", "cmath")
"""What an observed program may import too, if its tests have no budgets."""
_OBSERVERS = frozenset({"sys.setprofile", "sys._getframe"})
"""What the observer does; a program's own ways to do it are replaced."""
_kept: list[Any] = []


def tampered(report: Report, what: str) -> NoReturn:
    """Say so, and end the process."""
    report("tamper", what)
    _exit(0)


def check_names(code: CodeType) -> str | None:
    """The first name in a program that leads behind the scenes, None where there is none."""
    texts = [*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars]
    constants = list(code.co_consts)
    while constants:
        constant = constants.pop()
        if type(constant) is str:
            texts.append(constant)
        elif type(constant) in (tuple, frozenset):
            constants.extend(constant)
        elif type(constant) is CodeType:
            inner = check_names(constant)
            if inner is not None:
                return inner
    for text in texts:
        if text in _FRAMES.split() or ("__" in text and text not in _SPECIAL.split() and not _is_prose(text)):
            return text[:60]
    return None


def _is_prose(text: str) -> bool:
    """A docstring may speak of anything: no attribute name has a space in it."""
    return " " in text and "{" not in text


def close(report: Report, observed: bool = False, budgeted: bool = True) -> Callable[[], bool]:
    """Shut the ways out; nothing here can be undone by the candidate.

    `observed`: nothing is counted among the program's names, but by our own profiler. Returns a function that says
    whether a module, or what is in one, has changed since.
    """
    _kept.extend((dict(sys.modules), report))
    gc.disable()  # a collection inside the tracer would run finalizers uncounted
    _replace_builtins(report, _COMPUTED_NAMES + (_OWN_NAMES if budgeted else ()))
    imports = _IMPORTS.split() + ([] if budgeted else list(_OBSERVED_IMPORTS))
    for name in ("attrgetter", "methodcaller"):
        setattr(operator, name, _forbidden(report, f"operator.{name}"))
    functools.update_wrapper = _update_wrapper  # type: ignore[assignment]
    functools.wraps = _wraps  # type: ignore[assignment]
    vars(sys.modules["collections"]).pop("_proxy", None)  # a weak reference's callback is a finalizer
    for name in list(sys.modules):
        if name not in imports:
            del sys.modules[name]
    modules = [*map(sys.modules.__getitem__, sys.modules), *(_kept[0][name] for name in ("builtins", "sys"))]
    for name in _SYS_NAMES.split():
        setattr(sys, name, _forbidden(report, f"sys.{name}"))
    del sys.modules
    sys.meta_path.clear()
    sys.path_hooks.clear()
    before = _contents(modules)
    sys.addaudithook(_hook(report, _HARMLESS | _OBSERVERS if observed else _HARMLESS))
    return lambda: _contents(modules) != before


def _contents(modules: list[Any]) -> list[tuple[str, int]]:
    """Names and identities of what modules hold, and of what their classes and functions hold."""
    found = []
    for module in modules:
        for name, value in vars(module).items():
            found.append((name, id(value)))
            if isinstance(value, (type, FunctionType)):
                found += [(inner, id(held)) for inner, held in vars(value).items()]
    return found


def _forbidden(report: Report, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        tampered(report, f"{name}() can't be used in a budgeted test")

    return call


def _update_wrapper(wrapper: Any, wrapped: Any) -> Any:
    """Without the copying of attributes: it can be told to set any attribute of anything."""
    return wrapper


def _wraps(wrapped: Any) -> Callable[[Any], Any]:
    return functools.partial(_update_wrapper, wrapped=wrapped)


def _replace_builtins(report: Report, computed: tuple[str, ...]) -> None:
    builtins = vars(sys.modules["builtins"])
    real_type = type

    def type_of(*args: Any) -> Any:
        kind = real_type(args[0]) if len(args) == 1 else real_type
        if issubclass(kind, real_type):
            tampered(report, "type() can't make or name classes in a budgeted test")
        return kind

    for name in computed:
        builtins[name] = _forbidden(report, name)
    builtins["type"] = type_of


def _hook(report: Report, harmless: frozenset[str]) -> Callable[[str, tuple[Any, ...]], None]:
    def on_event(event: str, args: tuple[Any, ...]) -> None:
        if event in harmless or (event == "object.__getattr__" and args[1] == "f_code"):
            return
        detail = args[0] if event == "import" else args[1] if event.startswith("object.__") else ""
        tampered(report, f"{event} {detail}".strip())

    return on_event
