"""Worked numbers of published methods, from a folder beside the repository if there is one."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "vectors"


def worked_cases(topic: str, of: str = "methods") -> list[Any]:
    """Parameters for `pytest.mark.parametrize`, of the file `of`; one that skips with a reason if it is missing."""
    file = FOLDER / f"{of}.json"
    if not file.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{file} is not here"))]
    return [pytest.param(case, id=case["name"]) for case in json.loads(file.read_text())[topic]]
