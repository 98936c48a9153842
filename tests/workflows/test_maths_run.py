"""A run on mathematics: Poly-EPO on answers that are compared by value, whose texts a language model groups."""

from __future__ import annotations

import json
from pathlib import Path

from raypoly import Run
from tests.support.arithmetic_rows import arithmetic_rows
from tests.support.faulty_server import Server, running
from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines


def test_poly_epo_trains_on_arithmetic_and_measures_pass_and_majority(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row, _ in arithmetic_rows(1)))
    with running(Server()) as server:
        overrides = [
            *small_run,
            *("problems.source=jsonl", f"problems.path={tmp_path / 'rows.jsonl'}", "problems.test=4"),
            *("objective.name=poly_epo", "judge.name=openai", f"judge.base_url={server.url}"),
            *("judge.cache_mib=0", "train.steps=1", "evaluate.every=1", "evaluate.samples=4"),
        ]
        run = LocalDriver(tmp_path / "run", overrides, {"RAY_ADDRESS": machines.address})
        assert run.finish() == 0, run.log()
    (row,) = run.rows()
    assert set(row["statuses"]) <= {"passed", "wrong", "no_code", "timeout"}
    assert [name.partition(":")[0] for name in row["labelled_by"]] == ["openai"]
    tests = [each for each in Run(run.folder).evaluations if each["split"] == "test"]
    assert [(each["step"], each["majority_problems"]) for each in tests] == [(0, 4), (1, 4)]
    assert all(each["majority_at_k"].keys() == each["pass_at_k"].keys() == {"1", "2", "4"} for each in tests)
