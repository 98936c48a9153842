"""Run a problem's `check(candidate)` in a process of its own, with a stand-in for the candidate.

The stand-in sends the arguments out (`("call", done, args, kwargs)`, with the number of assertions that held so far)
and gets `(result, (args, kwargs))` back: what the candidate returned, and its arguments as it left them, which are
written into the checker's own objects in place; or None where the candidate failed, which fails the assertion. The
last message is `("done", held, failures)`, with the text of each failure, or `("broken", text)` where the check can't
be run at all. With `all_tests`, an assertion that fails is noted and the check goes on.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

from raypoly.sandbox.child import frames, linked_nodes, plain_data

_HELD = "__held__"


class CandidateFailed(Exception):
    """The candidate raised or died in a call."""


class Held:
    """Counts assertions of the check's own body, and keeps what failed."""

    def __init__(self, all_tests: bool) -> None:
        self.all_tests = all_tests
        self.count = 0
        self.failures: list[str] = []

    def __enter__(self) -> None:
        """An assertion begins."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> bool:
        if kind is None:
            self.count += 1
            return False
        self.failures.append(f"{kind.__name__}: {error}"[:200])
        return self.all_tests


def serve(channel: int, namespace: dict[str, Any], source: str, all_tests: bool) -> None:
    """Execute the check in `namespace`, where the prelude has run, and say what came of it."""
    sys.setrecursionlimit(20_000)  # helpers such as is_same_list recurse a frame a node
    make = linked_nodes.maker(namespace)
    held = Held(all_tests)

    def candidate(*args: Any, **kwargs: Any) -> Any:
        frames.send(channel, plain_data.encode(("call", held.count, args, kwargs)))
        answer = plain_data.unpack(frames.receive(channel), make)
        if answer is None:
            raise CandidateFailed
        result, (args_after, kwargs_after) = answer
        for before, after in zip(args, args_after, strict=True):
            write_back(before, after)
        for name, after in kwargs_after.items():
            write_back(kwargs[name], after)
        return result

    try:
        namespace[_HELD] = held
        exec(compile(_counted(source), "<check>", "exec", dont_inherit=True), namespace)
        check = namespace["check"]
    except BaseException as error:  # noqa: BLE001 - whatever a check raises is told to the parent
        frames.send(channel, plain_data.encode(("broken", f"{type(error).__name__}: {error}"[:200])))
        return
    try:
        check(candidate)
    except BaseException as error:  # noqa: BLE001 - an operation on a wrong result may raise anything
        if all_tests or not held.failures:
            held.failures.append(f"{type(error).__name__}: {error}"[:200])
    frames.send(channel, plain_data.encode(("done", held.count, held.failures)))


def _counted(source: str) -> ast.Module:
    """The check with each assertion of its body inside `with __held__:`."""
    tree = ast.parse(source)
    for part in tree.body:
        if isinstance(part, ast.FunctionDef) and part.name == "check":
            _Counting().generic_visit(part)
    return ast.fix_missing_locations(tree)


class _Counting(ast.NodeTransformer):
    """Not into functions of the check's own: their assertions are part of one of its tests."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        item = ast.withitem(ast.Name(_HELD, ast.Load()))
        return ast.copy_location(ast.With([item], [node]), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node


def write_back(before: Any, after: Any) -> None:
    """Make the object `before` equal to `after`, in place, as far as objects of its kind can be changed."""
    if type(before) is list and type(after) is list:
        if len(before) == len(after):
            for index, (old, new) in enumerate(zip(before, after, strict=True)):
                if type(old) is type(new) and type(old) in (list, dict, set):
                    write_back(old, new)
                else:
                    before[index] = new
        else:
            before[:] = after
    elif type(before) is type(after) and type(before) in (dict, set):
        before.clear()
        before.update(after)
    elif type(before) is type(after) and type(before).__name__ in ("ListNode", "TreeNode"):
        for name in ("val", "next", "left", "right"):
            if hasattr(after, name):
                setattr(before, name, getattr(after, name))
