"""A recipe is a folder or two: without CPPO's, everything else imports what is there, and the default run can start."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.structure import ROOT, Module, modules_below

RECIPE = re.compile(
    r"raypoly/recipes/cppo/|workflows/cppo/|tests/raypoly/recipes/cppo/|tests/workflows/cppo/|configs/.*cppo"
)
FOLDERS = ("raypoly", "actors", "workflows", "tests", "benchmarks", "docs/tools")
OURS = ("raypoly.", "actors.", "workflows.", "tests.", "benchmarks.", "docs.")
PLACE = re.compile(r"((?:raypoly|actors|workflows)(?:\.\w+)+):\w+")
"""A part by name, as tables and configs have it."""


@pytest.fixture(scope="module")
def rest() -> dict[str, Module]:
    """The other modules, by name."""
    return {it.name: it for it in modules_below(*FOLDERS) if not RECIPE.match(it.path)}


def imports(module: Module) -> Iterator[str]:
    """What it imports from us, early or late: `package.module`, or `package.module.name` of what may be either."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named_places(module: Module) -> Iterator[str]:
    """The modules of parts that it names in texts."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := PLACE.fullmatch(node.value)):
            yield found[1]


def test_every_other_module_imports_and_names_what_is_there(rest: dict[str, Module]) -> None:
    there = {*rest, *(".".join(name.split(".")[:size]) for name in rest for size in range(1, name.count(".") + 1))}
    lost = [
        f"{module.path}: {name}"
        for module in rest.values()
        for name in (*imports(module), *named_places(module))
        if name.startswith(OURS) and not {name, name.rpartition(".")[0]} & there
    ]
    assert lost == []


def test_the_default_run_can_start_without_the_recipe(tmp_path: Path) -> None:
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run([*listed, "raypoly", "actors", "workflows", "configs"], check=True, capture_output=True)
    for name in names.stdout.decode().split():
        if not RECIPE.match(name) and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    assert not (tmp_path / "raypoly/recipes/cppo").exists()
    environment = {**os.environ, "RAYPOLY_RUNS": str(tmp_path / "runs"), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "raypoly.cli", "train", "--dry-run"]
    planned = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stderr
    assert "run folder:" in planned.stdout
