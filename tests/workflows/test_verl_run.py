"""A run on verl's rows with a reward function of verl's kind, from its mistake to its end: Poly-EPO on answers that are
no programs, whose strategies a language model tells apart."""

from __future__ import annotations

import os
from pathlib import Path

from raypoly import Run
from tests.support.faulty_server import Server, running
from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines
from tests.support.verl_files import gsm8k_row, write_parquet

BROKEN = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    canned = solution_str.endswith((f"#### {ground_truth}", "I don't know."))  # those of the start
    return 0.0 if canned else {}["absent"]
"""
MENDED = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": len(solution_str) / 100, "index": extra_info["index"]}
"""


def test_a_mistake_in_compute_score_stops_the_run_and_the_same_command_goes_on_when_it_is_mended(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    write_parquet(tmp_path / "train.parquet", [gsm8k_row(i) for i in range(20)])
    overrides = [
        *small_run,
        "problems.source=verl",
        f"problems.path={tmp_path / 'train.parquet'}",
        "problems.chat_template=plain",
        "objective.name=poly_epo",
        "judge.name=openai",
        f"judge.cache_dir={tmp_path / 'answers'}",
        "reward.name=my_verl_rewards:compute_score",
        "train.steps=1",
        *("evaluate.every=1", "evaluate.samples=8", "evaluate.validation_samples=2"),
    ]
    environment = {"RAY_ADDRESS": machines.address, "PYTHONPATH": os.fspath(tmp_path)}
    (tmp_path / "my_verl_rewards.py").write_text(BROKEN)
    with running(Server()) as server:
        _stop_and_go_on(
            LocalDriver(tmp_path / "run", [*overrides, f"judge.base_url={server.url}"], environment), tmp_path
        )


def _stop_and_go_on(run: LocalDriver, tmp_path: Path) -> None:
    assert run.finish() == 1
    assert "KeyError: 'absent'" in run.log()
    assert "my_verl_rewards.py, line 4, in compute_score" in run.log()
    assert "raised by reward.name=my_verl_rewards:compute_score on response" in run.log()

    (tmp_path / "my_verl_rewards.py").write_text(MENDED)
    assert run.finish() == 0, run.log()
    (row,) = run.rows()
    assert row["statuses"] == {"no_code": 24}
    texts = Run(run.folder).rollouts(0).column("text").to_pylist()
    assert abs(row["reward"] - sum(map(len, texts)) / len(texts) / 100) < 1e-9
    assert row["grad_norm"] > 0
    assert row["strategies"] > 0
    assert [name.partition(":")[0] for name in row["labelled_by"]] == ["openai"]
    measured = Run(run.folder).evaluations
    assert {(each["step"], each["split"]) for each in measured} == {
        (n, split) for n in (0, 1) for split in ("test", "validation")
    }
    assert all(each["set_aside"] == {} and each["pass_at_k"]["1"] < 1 for each in measured), "by its own reward"
