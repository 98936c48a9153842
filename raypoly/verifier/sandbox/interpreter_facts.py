"""What a sandbox asks of the interpreter that programs run in; any Python runs this file, with names of packages."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable


def interpreter_facts(packages: Iterable[str]) -> tuple[tuple[int, int], str, list[str]]:
    """Its version and path, and the folders of those of the packages that it has."""
    specs = [importlib.util.find_spec(name) for name in packages]
    places = [place for spec in specs for place in ((spec and spec.submodule_search_locations) or [])]
    folders = [folder for place in places for folder in (place, f"{place}.libs") if os.path.isdir(folder)]
    return sys.version_info[:2], os.path.realpath(sys.executable), folders  # not the link in a virtual environment


if __name__ == "__main__":
    print(json.dumps(interpreter_facts(sys.argv[1:])))
