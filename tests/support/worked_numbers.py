"""Worked numbers of published methods, from a folder beside the repository if there is one."""

import json
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "shared" / "vectors" / "methods.json"


def worked_cases(topic: str) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`; one that skips with a reason if the folder is missing."""
    if not FILE.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{FILE} is not here"))]
    return [pytest.param(case, id=case["name"]) for case in json.loads(FILE.read_text())[topic]]
