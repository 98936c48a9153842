"""What the house looks like, measured from its source.

    python -m tests.support.structure            # the numbers
    python -m tests.support.structure --list     # and what they count, by place

"Product" is raypoly/, actors/ and workflows/. Lines are physical lines. A late import (inside a function or under
TYPE_CHECKING) counts as an import. A private name is reached where a test imports it or takes it as an attribute of
something that is not `self` or `cls`. Prose is docstrings and attribute strings (a bare string after a name), in words.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("raypoly", "actors", "workflows")
ABOVE: Mapping[str, tuple[str, ...]] = {"raypoly": ("actors", "workflows"), "actors": ("workflows",)}
"""What each part may not import."""
COMMANDS = "raypoly/commands/"
ROOMS = (
    *("core", "run", "algorithms", "data", "verifier", "strategies", "learner", "rollouts", "planning", "analysis"),
    *("recipes", "integrations", "commands"),
)
"""The rooms of raypoly/ in the order of a step: each imports only those before it."""
EXEMPT_PROSE = ("raypoly/algorithms/objectives/", "raypoly/algorithms/losses/")
"""Says what methods are and where they fail: formulas and sources, which are not counted as prose."""
LONG = 60
"""Lines of a function that one has to scroll for."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its path below the root and its syntax."""

    name: str
    path: str
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


def modules_below(*folders: str) -> Sequence[Module]:
    """Every tracked or new Python file below the folders of the root."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    paths = [name for name in sorted(set(names)) if name.endswith(".py") and (ROOT / name).exists()]
    return [Module(_dotted(path), path, (ROOT / path).read_text("utf-8")) for path in paths]


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported_modules(module: Module, known: Mapping[str, Module]) -> set[str]:
    """The product modules that a module imports, early or late; a package's own `__init__` only by its name."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in below if name in known}
            if any(name not in known for name in below):
                found.add(node.module)
    return {name for name in found if name in known and name != module.name}


def upward_imports(modules: Sequence[Module]) -> list[str]:
    """`path: module` for each import, early or late, against workflows -> actors -> raypoly. The commands are the way
    in: they may import workflows."""
    known = {module.name: module for module in modules}
    return [
        f"{module.path}: {name}"
        for module in modules
        if not module.path.startswith(COMMANDS)
        for name in sorted(imported_modules(module, known))
        if name.partition(".")[0] in ABOVE.get(module.path.partition("/")[0], ())
    ]


def upward_rooms(modules: Sequence[Module]) -> list[str]:
    """`path: name` for each import, early or late, of a later room or of raypoly's own top level."""
    known = {module.name: module for module in modules}
    found = []
    for module in modules:
        room = _room(module.name)
        if room is None:
            continue
        for name in sorted(imported_modules(module, known)):
            other = _room(name)
            if name.startswith("raypoly") and (other is None or ROOMS.index(other) > ROOMS.index(room)):
                found.append(f"{module.path}: {name}")
    return found


def _room(name: str) -> str | None:
    """`core` for `raypoly.core.errors`; None outside the rooms."""
    parts = name.split(".")
    return parts[1] if parts[0] == "raypoly" and len(parts) > 1 and parts[1] in ROOMS else None


def prose_words(modules: Sequence[Module]) -> int:
    """Words of docstrings and attribute strings outside `EXEMPT_PROSE`."""
    strings = (
        node.value.value
        for module in modules
        if not module.path.startswith(EXEMPT_PROSE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return sum(len(text.split()) for text in strings)


def top_entries() -> list[str]:
    """What lies in raypoly/ itself: rooms and files."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "raypoly"]
    paths = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return sorted({path.split("/")[1] for path in paths if (ROOT / path).exists()})


def import_circles(modules: Sequence[Module]) -> list[list[str]]:
    """The sets of modules that import each other, each sorted (strongly connected components of two or more)."""
    known = {module.name: module for module in modules}
    graph = {name: sorted(imported_modules(module, known)) for name, module in known.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10_000))
    try:
        for name in graph:
            if name not in index:
                visit(name)
    finally:
        sys.setrecursionlimit(limit)
    return found


def public_classes(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Module-level class names without a leading underscore, and the files that define them."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.path)
    return places


def file_names(modules: Sequence[Module]) -> dict[str, list[str]]:
    """File names but `__init__.py` and `__main__.py`, and their places."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        if not Path(module.path).name.startswith("__"):
            places[Path(module.path).name].append(module.path)
    return places


def long_functions(modules: Sequence[Module]) -> list[str]:
    """Functions above `LONG` lines, as `path:line name (lines)`."""
    return [
        f"{module.path}:{node.lineno} {node.name} ({size})"
        for module in modules
        for node in module.functions
        if (size := _size(node)) > LONG
    ]


def private_names(tests: Sequence[Module]) -> list[str]:
    """`path: name` for each private name that a test file reaches, once a file."""
    found: set[str] = set()
    for module in tests:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
                found.add(f"{module.path}: {node.attr}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PRODUCT:
                found |= {f"{module.path}: {alias.name}" for alias in node.names if _is_private(alias.name)}
    return sorted(found)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def public_names(modules: Sequence[Module]) -> int:
    """Classes, functions and methods without a leading underscore, and module constants."""
    count = 0
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                count += not node.name.startswith("_")
        for node in module.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            count += sum(isinstance(t, ast.Name) and not t.id.startswith("_") for t in targets)
    return count


def importers_of_benchmarks(tests: Sequence[Module]) -> list[str]:
    """Test files that import `benchmarks`."""
    found = []
    for module in tests:
        for node in ast.walk(module.tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "benchmarks" for name in names):
                found.append(module.path)
                break
    return found


def function_lines(module: Module, name: str) -> int:
    """Lines of the longest function of this name; 0 where there is none."""
    return max((_size(node) for node in module.functions if node.name == name), default=0)


def _size(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def named_twice(places: Mapping[str, Sequence[str]]) -> list[str]:
    """`name: its places` for each name that has more than one."""
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def main() -> None:
    product, tests = modules_below(*PRODUCT), modules_below("tests")
    train = next(module for module in product if module.path == "workflows/train.py")
    measured: dict[str, Sequence[str] | int] = {
        "product lines": sum(module.lines for module in product),
        "product files": len(product),
        "entries in raypoly/": top_entries(),
        "words of docstrings and attribute strings": prose_words(product),
        "test lines": sum(module.lines for module in tests),
        f"functions above {LONG} lines": long_functions(product),
        "imports upwards between rooms": [*upward_imports(product), *upward_rooms(product)],
        "import circles, late imports included": [" <-> ".join(circle) for circle in import_circles(product)],
        "public class names twice": named_twice(public_classes(product)),
        "file names twice": named_twice(file_names(product)),
        "public names": public_names(product),
        "test files that import benchmarks": importers_of_benchmarks(tests),
        "private names reached from tests": private_names(tests),
        "lines of workflows/train.py": train.lines,
        "lines of its step": function_lines(train, "step"),
    }
    for what, value in measured.items():
        print(f"{what:<40} {value if isinstance(value, int) else len(value):>7,}")
        if "--list" in sys.argv and not isinstance(value, int):
            print("".join(f"    {line}\n" for line in value), end="")


if __name__ == "__main__":
    main()
