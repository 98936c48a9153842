"""Worked numbers of the field, from a folder beside the repository where it exists."""

import json
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "shared" / "vectors" / "methods.json"


def worked_cases(topic: str) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`, or one that skips with the reason."""
    if not FILE.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{FILE} is not here"))]
    return [pytest.param(case, id=case["name"]) for case in json.loads(FILE.read_text())[topic]]
