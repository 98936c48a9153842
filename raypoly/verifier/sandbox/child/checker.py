"""A problem's `check(candidate)`: read as plain cases where it is simple, else run with a stand-in for the candidate.

`read_cases` turns a list of simple assertions into arguments and expected values, once a problem; the parent compares.
A check is internet data, so both are done in a confined child.

Any other check runs in a process of its own (`serve`). The stand-in sends `("call", assertions held, number, args,
kwargs)` and gets `(result, (args, kwargs))`: the candidate's result, or which argument it is, and its arguments as it
left them, which are written into the checker's own objects; `("raised", kind, text)`, a builtin exception which the
check may expect; or None where the candidate failed in another way, which fails the assertion. `number` is that of a
function which the candidate returned, or -1. The last message is `("done",
held, failures)`, or `("broken", text)` where the check can't be run. With `all_tests` a failed assertion is noted and
the check goes on.

What runs here could write on the channel, so no result may run as code. A check that would run one is broken: `reading`
finds its line before anything runs, and a hook that nothing removes ends the process where reading did not see it.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import sys
from collections.abc import Callable
from os import _exit
from types import CodeType, FrameType
from typing import Any, NoReturn

from raypoly.verifier.sandbox.child import frames, plain_data
from raypoly.verifier.sandbox.child import object_values as object_values

_HELD = "__held__"
_CHECK = "<check>"
_getframe = sys._getframe
# what runs what it is given as code, or code that it names
_RUNNERS = """
    eval exec compile __import__ builtins.eval builtins.exec builtins.compile importlib.import_module pickle.loads
    pickle.load pickle.Unpickler marshal.loads marshal.load timeit.timeit timeit.repeat
"""
_WORDS = ("eval", "exec", "compile", "__import__", "import_module", "load", "Unpickler", "timeit")
"""One is in each of them: most checks have none, and need no reading."""
# events at which code begins that was not there before
_RUNS = frozenset({"exec", "function.__new__", "object.__setattr__", "pickle.find_class"})
# they write the code themselves, of names that they have checked; the second is that of 3.11 and 3.12
_builders: Any = vars(dataclasses)
_dataclass_maker = _builders.get("_create_fn") or _builders["_FuncBuilder"].add_fns_to_class
_MAKERS = frozenset({collections.namedtuple.__code__, _dataclass_maker.__code__})
# methods that a program does not miss
_SHOWN = frozenset({"__init__", "__repr__", "__str__"})
# prelude helpers that compare nodes by value, and the class of these
_NODE_HELPERS = {"is_same_list": "ListNode", "is_same_tree": "TreeNode"}


class CandidateFailed(Exception):
    """The candidate raised or died in a call."""


class Held:
    """Counts assertions of the check's own body, and keeps failures."""

    def __init__(self, all_tests: bool) -> None:
        self.all_tests = all_tests
        self.called = False
        """Whether the check has got a result, or has failed to get one."""
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


class _Program:
    """The candidate, away in its process; what it keeps there and the check keeps here has numbers."""

    def __init__(self, channel: int, namespace: dict[str, Any], held: Held) -> None:
        self._channel, self._held = channel, held
        self._given = frozenset(namespace)
        self._anew = object_values.maker(namespace, plain_data.Opaque)
        self._functions: dict[int, tuple[int, Any]] = {}
        self._numbers: dict[int, int] = {}
        self._objects: list[Any] = []
        self._sent = set[int]()

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._held.called = True
        self._sent.clear()
        message = ("call", self._held.count, number, args, kwargs)
        frames.send(self._channel, plain_data.encode(message, typed=self._keep))

        def make(kind: str, content: Any) -> Any:
            return (*args, *kwargs.values())[content] if kind == "argument" else self._make(kind, content)

        try:
            answer = plain_data.unpack(frames.receive(self._channel), make)
        except Exception as error:  # noqa: BLE001 - not of the kind that the program says: the check may not see it
            failure = f"{type(error).__name__}: {error}"[:200]
            frames.send(self._channel, plain_data.encode(("done", self._held.count, [*self._held.failures, failure])))
            _exit(0)
        if answer is None:
            raise CandidateFailed
        if len(answer) == 3:
            raise object_values.exception(*answer[1:])
        result, (args_after, kwargs_after) = answer
        # a check may look at its arguments after the call: they become what the candidate made of them
        for before, after in zip(args, args_after, strict=True):
            write_back(before, after)
        for name, after in kwargs_after.items():
            write_back(kwargs[name], after)
        return result

    def _keep(self, value: Any) -> tuple[str, Any] | None:
        if id(value) in self._functions:
            return "function", self._functions[id(value)][0]
        if not _is_bare(type(value), self._given) or not hasattr(value, "__dict__"):
            return None
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        # once a message: an object may hold itself
        attributes = {} if number in self._sent else dict(vars(value))
        self._sent.add(number)
        return "object", (number, type(value).__name__, attributes)

    def _make(self, kind: str, content: Any) -> Any:
        if kind == "function":

            def function(*args: Any, **kwargs: Any) -> Any:
                return self.call(content, args, kwargs)

            self._functions[id(function)] = content, function
            return function
        if kind == "object":
            vars(self._objects[content[0]]).update(content[2])
            return self._objects[content[0]]
        return self._anew(kind, content)


def _is_bare(kind: type, given: frozenset[str]) -> bool:
    # whether a program needs no method of the class, or has them from the prelude
    own = {name for name, value in vars(kind).items() if callable(value) or isinstance(value, property)}
    from_check = kind.__module__ == object_values.CANDIDATE and kind.__mro__ == (kind, object)
    return from_check and (kind.__name__ in given or own <= _SHOWN)


def serve(channel: int, namespace: dict[str, Any], source: str, all_tests: bool, name: str) -> None:
    """Execute the check in the prelude's `namespace`. By `name`, the entry point, it may call the candidate too."""
    sys.setrecursionlimit(20_000)  # helpers such as is_same_list recurse a frame a node
    held = Held(all_tests)
    program = _Program(channel, namespace, held)

    def candidate(*args: Any, **kwargs: Any) -> Any:
        return program.call(-1, args, kwargs)

    def broken(why: str) -> NoReturn:
        frames.send(channel, plain_data.encode(("broken", why[:200])))
        _exit(0)

    check = None
    try:
        tree = _counted(source)
        namespace[_HELD] = held
        namespace[name] = candidate
        own = compile(tree, _CHECK, "exec", dont_inherit=True)
        lines = reading(tree, name, broken) if any(word in source for word in _WORDS) else set()
        sys.addaudithook(_hook(own, lines, broken))
        exec(own, namespace)
        check = namespace["check"]
        check(candidate)
    except BaseException as error:  # noqa: BLE001 - an operation on a wrong result may raise anything
        why = f"{type(error).__name__}: {error}"[:200]
        if check is None and not held.called:
            broken(why)
        if all_tests or not held.failures:
            held.failures.append(why)
    frames.send(channel, plain_data.encode(("done", held.count, held.failures)))


def reading(tree: ast.Module, name: str, broken: Callable[[str], NoReturn]) -> set[int]:
    """Lines on which the check runs code of its own. Calls `broken` if one would run what a result has reached."""
    reached, aliases = _reached(tree, name), _aliases(tree)
    own, read, runs = set[int](), set[int](), frozenset(_RUNNERS.split())
    for node in ast.walk(tree):  # a call comes before what is in it
        if isinstance(node, ast.Call):
            runners = [part for part in (node.func, *node.args) if _full_name(part, aliases) in runs]
            if not runners:
                continue
            given = node.args[:1] if node.func in runners else [part for part in node.args if part not in runners]
            if _names(*given) & reached:
                broken(f"line {node.lineno} of its check would run a result as code: {ast.unparse(node)}")
            own.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            read.update(map(id, runners))
        elif not isinstance(node, ast.Name | ast.Attribute) or id(node) in read or not isinstance(node.ctx, ast.Load):
            continue
        elif _full_name(node, aliases) in runs:
            broken(f"line {node.lineno} of its check hands out what could run a result as code: {ast.unparse(node)}")
    return own


def _reached(tree: ast.Module, name: str) -> set[str]:
    """Names that may hold what the candidate gave, or what it could change: by any statement, in whatever order."""
    reached, known = {"candidate", name.rpartition(".")[2]}, 0
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    reached.update(part.arg for part in functions["check"].args.args[:1] if "check" in functions)
    while known != len(reached):
        known = len(reached)
        for node in ast.walk(tree):
            reached |= _reaches(node, reached, functions)
    return reached


def _reaches(node: ast.AST, reached: set[str], functions: dict[str, ast.FunctionDef]) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name} if _names(*node.body) & reached else set()
    if isinstance(node, ast.Call):
        return _reaches_by_call(node, reached, functions)
    for source in ("value", "iter", "context_expr"):
        if isinstance(value := getattr(node, source, None), ast.AST) and _names(value) & reached:
            targets = [getattr(node, target, None) for target in ("target", "optional_vars")]
            return _names(*filter(None, targets), *getattr(node, "targets", ()))
    return set()


def _reaches_by_call(call: ast.Call, reached: set[str], functions: dict[str, ast.FunctionDef]) -> set[str]:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    found = set[str]()
    if _names(call.func) & reached:  # it may change its arguments
        for part in given:
            while isinstance(part, ast.Attribute | ast.Subscript | ast.Starred):
                part = part.value
            found |= {part.id} if isinstance(part, ast.Name) else set()
    if not _names(*given) & reached:
        return found
    if isinstance(call.func, ast.Attribute):
        found |= _names(call.func.value)
    for part in (call.func, *given):  # what may be called with it, as `map` does
        called = part if isinstance(part, ast.Lambda) else functions.get(getattr(part, "id", getattr(part, "attr", "")))
        found |= {arg.arg for arg in ast.walk(called.args) if isinstance(arg, ast.arg)} if called else set()
    return found


def _names(*nodes: ast.AST) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _aliases(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found.update({alias.asname or alias.name: above + alias.name for alias in node.names})
    return found


def _full_name(node: ast.AST, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    return f"{_full_name(node.value, aliases)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _hook(own: CodeType, lines: set[int], broken: Callable[[str], NoReturn]) -> Callable[[str, tuple[Any, ...]], None]:
    def on_event(event: str, args: tuple[Any, ...]) -> None:
        if event not in _RUNS or args[0] is own or (event == "object.__setattr__" and args[1] != "__code__"):
            return
        by = _getframe(1).f_code
        frame: FrameType | None = _getframe(1)
        while frame and frame.f_code.co_filename != _CHECK:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return  # a module's own code
            frame = frame.f_back
        line = frame.f_lineno if frame else 0
        if by not in _MAKERS and not (by.co_filename == _CHECK and line in lines):
            broken(f"line {line} of its check would run a value as code ({event} in {by.co_name})")

    return on_event


def _counted(source: str) -> ast.Module:
    tree = ast.parse(source)
    for part in tree.body:
        if isinstance(part, ast.FunctionDef) and part.name == "check":
            _Counting().generic_visit(part)
    return ast.fix_missing_locations(tree)


class _Counting(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        item = ast.withitem(ast.Name(_HELD, ast.Load()))
        return ast.copy_location(ast.With([item], [node]), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node


def write_back(before: Any, after: Any) -> None:
    """Make `before` equal to `after`, in place, as far as its kind can be changed."""
    if type(before) is list and type(after) is list:
        if len(before) == len(after):
            for index, (old, new) in enumerate(zip(before, after, strict=True)):
                if type(old) is type(new) and type(old) in (list, dict, set):
                    write_back(old, new)
                else:
                    before[index] = new
        else:
            before[:] = after
    elif type(before) is type(after) and isinstance(before, dict | set | collections.deque):
        before.clear()
        (before.extend if isinstance(before, collections.deque) else before.update)(after)
    elif type(before) is type(after) and type(before).__name__ == "ndarray" and before.shape == after.shape:
        before[...] = after
    elif type(before) is type(after) and type(before).__name__ in ("ListNode", "TreeNode"):
        for name in ("val", "next", "left", "right"):
            if hasattr(after, name):
                setattr(before, name, getattr(after, name))


def read_cases(namespace: dict[str, Any], source: str, name: str) -> list[tuple[Any, ...]] | None:
    """`[(args, kwargs, expected), ...]`; None unless `check` only compares calls, none of them by `name`.

    Understood: `assert candidate(...) == VALUE` and `assert is_same_list(candidate(...), VALUE)` (and `is_same_tree`)
    with the prelude's helpers. The call may have `*` and `**`.
    """
    tree = ast.parse(source)
    body = _assertions(tree)
    if body is None or any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree)):
        return None
    # defines `check` and the names that its literals use; `check` itself is never called here
    exec(compile(source, "<check>", "exec", dont_inherit=True), namespace)
    found: list[tuple[Any, ...]] = []
    for assertion in body:
        if isinstance(assertion.test, ast.Constant) and assertion.test.value:
            continue
        parts = _call_and_expected(assertion.test)
        if parts is None:
            return None
        call, expected, kind = parts
        args, kwargs = list[Any](), dict[str, Any]()
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                args += _value(argument.value, namespace)
            else:
                args.append(_value(argument, namespace))
        for keyword in call.keywords:
            value = _value(keyword.value, namespace)
            given = value if keyword.arg is None else {keyword.arg: value}
            if not kwargs.keys().isdisjoint(given) or not all(isinstance(name, str) for name in given):
                return None  # no call: running the check says so
            kwargs |= given
        value = _value(expected, namespace)
        if object_values.loses_type((tuple(args), kwargs)):
            return None  # the program is to get more than plain data
        if kind is None and type(value).__name__ in _NODE_HELPERS.values():
            return None  # `==` on nodes is identity, which no value can stand for
        found.append((tuple(args), kwargs, value))
    return found or None


def _assertions(tree: ast.Module) -> list[ast.Assert] | None:
    checks = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "check"]
    if len(checks) != 1 or checks[0].decorator_list:
        return None
    body = [part for part in checks[0].body if not isinstance(part, ast.Pass)]
    assertions = [statement for statement in body if isinstance(statement, ast.Assert)]
    return assertions if len(assertions) == len(body) else None


def _call_and_expected(test: ast.expr) -> tuple[ast.Call, ast.expr, str | None] | None:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left, right, kind = test.left, test.comparators[0], None
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and len(test.args) == 2 and not test.keywords:
        kind = _NODE_HELPERS.get(test.func.id)
        left, right = test.args
        if kind is None:
            return None
    else:
        return None
    if not _is_candidate(left) or any(_is_candidate(node) for node in ast.walk(right)):
        return None
    assert isinstance(left, ast.Call)
    return left, right, kind


def _is_candidate(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "candidate"


def _value(node: ast.expr, namespace: dict[str, Any]) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        code = compile(ast.Expression(node), "<check>", "eval", dont_inherit=True)
        return eval(code, namespace)
