"""The zygote: a warm Python without secrets that forks one confined child a program.

Run as `python -S -s -P zygote.py SETTINGS` with an explicit environment and its control socket as descriptor 3, whose
end ends the zygote and all its children. This file puts the modules in place and warms them; `forker.py` does the rest.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import importlib.machinery
import json
import os
import sys
import types

PACKAGE = "raypoly.verifier.sandbox.child"
"""The package that a child may import from, beside those that the settings name for evidence."""
_WARM = """
    abc array ast bisect calendar cmath collections collections.abc contextlib copy dataclasses datetime decimal
    enum fractions functools hashlib heapq io itertools json keyword math numbers operator pprint queue random re
    secrets statistics string struct tempfile textwrap threading time traceback types typing unicodedata _strptime
"""


_BUILTINS = dict(vars(builtins))


class Loader(importlib.machinery.SourceFileLoader):
    """Gives our modules their own builtins: a candidate that patches builtins patches only its own."""

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class Finder:
    """Finds these packages' modules in `folder`, which holds raypoly, without importing raypoly itself."""

    def __init__(self, folder: str, packages: list[str]) -> None:
        self.folder, self.packages = folder, packages

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        file = f"{self.folder}/{name.replace('.', '/')}.py"
        if name.rpartition(".")[0] not in self.packages or not os.path.exists(file):
            return None
        return importlib.machinery.ModuleSpec(name, Loader(name, file), origin=file)


def install_packages(folder: str, packages: list[str]) -> None:
    """Stand-ins for the packages and those above them: our modules have the same names as everywhere."""
    for package in packages:
        parts = package.split(".")
        for depth in range(len(parts)):
            module = types.ModuleType(".".join(parts[: depth + 1]))
            vars(module)["__path__"] = []
            sys.modules.setdefault(module.__name__, module)
    sys.meta_path.insert(0, Finder(folder, packages))
    sys.dont_write_bytecode = True


def main() -> None:
    settings = json.loads(sys.argv[1])
    evidence = settings["evidence"] or {"packages": []}
    install_packages(os.path.abspath(__file__).rsplit("/", 5)[0], [PACKAGE, *evidence["packages"]])
    for name in _WARM.split():
        __import__(name)
    for name in ("exit", "quit"):  # a program expects what `site` gives it
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    from raypoly.verifier.sandbox.child import forker

    forker.main(settings)


if __name__ == "__main__":
    main()
