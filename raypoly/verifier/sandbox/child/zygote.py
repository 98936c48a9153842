"""The zygote: a warm Python that holds no secret and forks one confined child for each program.

Run as `python -S -s -P zygote.py SETTINGS` with an explicit environment and its control socket as descriptor 3.
On that socket the parent sends one request a child, a descriptor (the child's channel) with it; the zygote says
how it ended when asked (`forker.py`). The end of the socket is the end of the zygote and all its children. This file
only puts the modules in place and warms them.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import importlib.machinery
import json
import os
import sys
import types

PACKAGES = (
    "raypoly",
    "raypoly.verifier",
    "raypoly.verifier.sandbox",
    "raypoly.verifier.sandbox.child",
    "raypoly.strategies",
    "raypoly.strategies.live_code",
    "raypoly.strategies.features",
    "raypoly.strategies.traced_runs",
)
"""The packages that a child may import from, and those above them."""
_WARM = """
    abc array ast bisect calendar cmath collections collections.abc contextlib copy dataclasses datetime decimal
    enum fractions functools hashlib heapq io itertools json keyword math numbers operator pprint queue random re
    secrets statistics string struct tempfile textwrap threading time traceback types typing unicodedata _strptime
"""


_BUILTINS = dict(vars(builtins))


class Loader(importlib.machinery.SourceFileLoader):
    """Gives our modules builtins of their own, so that a candidate that patches builtins patches only its own."""

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class Finder:
    """Finds the modules of `PACKAGES` in `folder`, which holds raypoly, without importing raypoly itself."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        file = f"{self.folder}/{name.replace('.', '/')}.py"
        if name.rpartition(".")[0] not in PACKAGES[3:] or not os.path.exists(file):
            return None
        return importlib.machinery.ModuleSpec(name, Loader(name, file), origin=file)


def install_packages(folder: str) -> None:
    """Stand-ins for the packages, so that our modules have the same names here as everywhere."""
    for name in PACKAGES:
        module = types.ModuleType(name)
        vars(module)["__path__"] = []
        sys.modules[name] = module
    sys.meta_path.insert(0, Finder(folder))
    sys.dont_write_bytecode = True


def main() -> None:
    install_packages(os.path.abspath(__file__).rsplit("/", 5)[0])
    for name in _WARM.split():
        __import__(name)
    for name in ("exit", "quit"):  # a program expects what `site` gives it
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    from raypoly.verifier.sandbox.child import forker

    forker.main(json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
