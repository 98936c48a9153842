"""The tutorials run as they are written, one after another in one folder, with fewer steps and samples.

A page's blocks of bash and python run in its order, in one shell. This differs from a reader's shell:
- every `raypoly train`, and every `raypoly evaluate` of a model, gets the words of `FEWER` at its end;
- python blocks without another block between them are cells of one notebook;
- a block with a title is written to the file that it names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
FIRST = "quickstart.md"
AFTER_IT = ("own-problems.md", "own-reward.md", "own-objective.md", "evaluate.md", "notebook.md", "verifier-in-trl.md")
NEEDS = {"verifier-in-trl.md": "trl"}
"""What a page needs that `make setup` does not install."""
FEWER = {
    "train": "warm_start.steps=20 train.steps=2 train.prompts_per_step=4 evaluate.samples=4 "
    "evaluate.validation_samples=4 generator.engine=transformers",
    "evaluate --model": "generator.engine=transformers",
}
PRINTS = {
    FIRST: r"pass@1\b",
    "own-problems.md": r"passed .* 16 [\s\S]*# \d+ times n",
    "own-reward.md": r"an error is no answer .* holds[\s\S]*step 2/2",
    "own-objective.md": r"step 2/2[\s\S]*0\.71 -0\.29 +0\.29 -0\.71",
    "evaluate.md": r"pass@8\b",
}
"""What shows that the page did what it says."""
SECONDS = 1500.0
"""For a page. A start of training takes 30 s of CPU time, the short warm start 60."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, the file that it names, the line where its text begins, and its text."""

    language: str
    title: str
    line: int
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    """The blocks of bash and python, in order; others are for reading."""
    for found in re.finditer(r'^```(bash|python)(?: title="([^"]*)")?\n(.*?)^```$', page, re.M | re.S):
        yield Block(found[1], found[2] or "", page.count("\n", 0, found.start(3)) + 1, found[3])


def script_of(name: str, page: str) -> str:
    """The page as a script for bash, which ends at the first failure and says where on the page that is."""
    cases = [f"""'{words}'*) command raypoly "$@" {fewer} ;;""" for words, fewer in FEWER.items()]
    lines = [
        "set -E",
        """trap 'echo "docs/tutorials/$PLACE: this block failed" >&2; exit 1' ERR""",
        'raypoly() { case "$1 $2" in',
        *cases,
        '*) command raypoly "$@" ;; esac; }',
    ]
    for (language, title), group in groupby(blocks_of(page), lambda block: (block.language, block.title)):
        cells = list(group)
        if language == "bash":
            for block in cells:
                lines += [f"PLACE={name}:{block.line}", block.text]
        else:
            to, text = (f"cat > {title}", cells[0].text) if title else ("python -", cells_below(cells))
            lines += [f"PLACE={name}:{cells[0].line}", f"{to} <<'PYTHON'\n{text}PYTHON"]
    return "\n".join(lines)


def cells_below(cells: Sequence[Block]) -> str:
    """The cells in one text, each at its own lines of the page, so that a traceback names those."""
    text = ""
    for cell in cells:
        text += "\n" * (cell.line - 1 - text.count("\n")) + cell.text
    return text


def run_page(name: str, folder: Path) -> str:
    """What the page prints. Raises `AssertionError` with the place and the last words if a block fails."""
    script = script_of(name, (TUTORIALS / name).read_text()).replace("PYTHONPATH=.", f"PYTHONPATH=.:{ROOT}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "RAYPOLY_RUNS": str(folder)}
    ended = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def after_first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the quick start ran, and what it printed."""
    folder = tmp_path_factory.mktemp("tutorials")
    return folder, run_page(FIRST, folder)


def test_the_quick_start_trains_reports_and_plans(after_first: tuple[Path, str]) -> None:
    folder, printed = after_first
    assert re.search(PRINTS[FIRST], printed)
    assert (folder / "first-run.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", AFTER_IT)
def test_a_tutorial_runs_from_top_to_bottom(name: str, after_first: tuple[Path, str]) -> None:
    """Each after those before it on the list: they share files."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs {NEEDS[name]}, which is not installed")
    printed = run_page(name, after_first[0])
    assert re.search(PRINTS.get(name, ""), printed), printed


def test_a_block_that_fails_is_told_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = "```python\nx = 1\n```\n\n```python\nassert x > 1\n```\n"
    (tmp_path / "wrong.md").write_text(f"# Why?\n\n```bash\ntrue\n```\n\n{cells}")
    monkeypatch.setattr("tests.raypoly.test_tutorials.TUTORIALS", tmp_path)
    with pytest.raises(AssertionError, match=r"(?s)line 12.*docs/tutorials/wrong\.md:8: this block failed"):
        run_page("wrong.md", tmp_path)


@pytest.mark.parametrize("name", [FIRST, *AFTER_IT])
def test_a_tutorial_asks_in_its_title_and_answers_in_ten_lines(name: str) -> None:
    lines = (TUTORIALS / name).read_text().splitlines()
    assert lines[0].startswith("# How do I ")
    assert lines[0].endswith("?")
    assert any(line.startswith("```") for line in lines[:10])


def test_all_tutorials_are_run_and_on_the_site_in_their_order() -> None:
    assert {FIRST, *AFTER_IT} == {page.name for page in TUTORIALS.glob("*.md")}
    nav = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]
    assert re.findall(r"tutorials/(\S+)", nav) == [FIRST, *AFTER_IT]
