"""A model is measured by real actors: killed or asked for more samples later, it ends with the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from raypoly.analysis.metrics.pass_at_k import pass_at_k
from raypoly.core.config import ProblemsConfig
from raypoly.core.seeds import derive
from raypoly.data import build_problem_set
from raypoly.data.formats import row_of
from tests.support.answering_server import RIGHT, AnsweringServer
from tests.support.evaluation_process import EvaluationDriver, write_problems
from tests.support.faulty_front import running
from tests.support.preparation_rows import write_rows
from tests.support.ray_machines import Machines

Start = Callable[..., EvaluationDriver]


@pytest.fixture
def start(machines: Machines, tmp_path: Path) -> Start:
    def started(name: str, *words: str, **environment: str) -> EvaluationDriver:
        given = [*words, "scorer.workers=1", "ray.dashboard=false"]
        return EvaluationDriver(tmp_path / name, given, {"RAY_ADDRESS": machines.address, **environment})

    return started


def test_killed_and_extended_it_ends_with_the_bytes_of_one_start(
    start: Start, tmp_path: Path, warm_model: Path
) -> None:
    puzzles = build_problem_set(ProblemsConfig()).splits["test"][:6]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row_of(puzzle))}\n" for puzzle in puzzles))
    words = ["--model", str(warm_model), "--problems", str(tmp_path / "rows.jsonl"), "sampling.chunk=3"]
    words += ["generator.engine=transformers", "generator.max_tokens=40"]
    whole = start("whole", *words, "--samples", "24")
    whole.complete()
    start("killed", *words, "--samples", "16").kill_at(2)
    killed = start("killed", *words, "--samples", "24")
    killed.complete()
    assert killed.outputs() == whole.outputs()
    results = whole.results
    assert (results["samples"], results["template"], len(results["problems"]["id"])) == (24, "none", 6)
    assert results["problems"]["samples"] == [24] * 6
    assert 0 < results["pass_at_k"]["1"] < results["pass_at_k"]["10"] <= 1
    correct = results["problems"]["correct"]
    assert results["pass_at_k"]["10"] == pytest.approx(sum(pass_at_k(24, c, 10) for c in correct) / 6)
    assert results["truncated"] == pytest.approx(sum(results["problems"]["truncated"]) / (6 * 24))
    assert 1 <= results["behaviours"] <= 8
    budgets = results["slices"].get("budget", {})
    assert sum(part["problems"] for part in budgets.values()) in (0, 6), "each puzzle has one"
    assert "distinct behaviours in 8, right or wrong" in whole.log()
    samples = pq.read_table(whole.folder / "samples.parquet").to_pylist()
    assert [row["rollout"] for row in samples] == [*range(24)] * 6
    assert sum(row["status"] == "passed" for row in samples) == sum(correct)
    assert f"results: {killed.folder / 'results.json'}" in killed.log()

    fewer = start("killed", *words, "--samples", "16")
    fewer.complete()
    assert fewer.results["problems"]["samples"] == [16] * 6


def test_a_server_is_measured_through_faults_and_its_key_is_in_no_file(start: Start, tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(4)]
    file = write_problems(tmp_path / "rows.jsonl", names)
    faults = ["ok", "429-retry-after", "500", "echo-key", "ok", "400-context"]  # the last is the first sample's
    with running(AnsweringServer(key="sk-very-secret", faults=faults)) as server:
        words = ["--endpoint", server.url, "--name", "solver", "--problems", str(file), "--samples", "6"]
        driver = start("server", *words, "endpoint.api_key_env=SERVER_KEY", SERVER_KEY="sk-very-secret")
        driver.complete()
    seeds = {name: [derive(0, "evaluate model", name, i) % (1 << 31) for i in range(6)] for name in names}
    results, rows = driver.results, pq.read_table(driver.folder / "samples.parquet").to_pylist()
    ((refused, reason),) = results["set_aside"].items()
    assert reason.endswith("(HTTP 400) (The maximum context length is 8 tokens. context_length_exceeded).")
    assert f"{refused}, for one: {reason} These are not asked again; run.fresh=true begins anew." in driver.log()
    known = [name for name in names if name != refused]
    counts = {name: place for place, name in enumerate(results["problems"]["id"])}
    for column, divisor in (("correct", 2), ("truncated", 5)):
        found = {name: results["problems"][column][counts[name]] for name in names}
        assert {name: found[name] for name in known} == {
            name: sum(seed % divisor == 0 for seed in seeds[name]) for name in known
        }
    assert results["problems"]["correct"][counts[refused]] is None
    assert results["problems"]["response_tokens"] == [None] * 4, "a server's tokens are not known"
    assert (results["model"], results["weights"]) == ("solver", None)
    assert {row["status"] for row in rows} == {"passed", "wrong", "infra"}
    assert server.authorizations[0] == "Bearer sk-very-secret"
    files = [path for path in driver.folder.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert [path for path in [*files, driver.log_file] if b"sk-very-secret" in path.read_bytes()] == []


def test_a_server_that_is_asked_for_values_is_measured_by_comparing_them(start: Start, tmp_path: Path) -> None:
    right = RIGHT.strip("`").removeprefix("python\n")
    rows = [{"id": f"v{n}", "prompt": "Say it.", "tests": {"kind": "answer", "answer": right}} for n in range(2)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    with running(AnsweringServer()) as server:
        words = ["--endpoint", server.url, "--name", "solver", "--problems", str(file), "--samples", "6"]
        driver = start("values", *words)
        driver.complete()
    seeds = {row["id"]: [derive(0, "evaluate model", row["id"], i) % (1 << 31) for i in range(6)] for row in rows}
    results = driver.results
    assert (results["template"], results["no_code"]) == ("message", 0)
    assert results["problems"]["correct"] == [sum(seed % 2 == 0 for seed in of) for of in seeds.values()]
    assert results["majority_problems"] == 2
    assert results["majority_at_k"]["1"] == pytest.approx(results["pass_at_k"]["1"])
    assert "maj@4" in driver.log()
    samples = pq.read_table(driver.folder / "samples.parquet").to_pylist()
    assert {row["status"] for row in samples} == {"passed", "wrong"}
