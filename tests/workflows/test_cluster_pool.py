"""`raypoly serve` and `raypoly score` where a Ray cluster is named: its scorers score."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from raypoly.integrations.http_client import VerdictClient
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, LOOP, RIGHT
from tests.support.ray_machines import Machines


def test_a_cluster_s_scorers_serve_verdicts(machines: Machines, tmp_path: Path) -> None:
    (problems := tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, (DOUBLE, BROKEN))))
    command = [sys.executable, "-m", "raypoly.cli", "serve", "--problems", str(problems), "--port", "0"]
    ours = os.environ | {"RAY_ADDRESS": machines.address}
    with subprocess.Popen([*command, "--workers", "2"], env=ours, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        said = ""
        for line in served.stderr:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        try:
            assert found, said
            client = VerdictClient(found[0], patience=120)
            rows = [{"problem_id": "double", "response": text} for text in (RIGHT, "no")]
            rows += [{"problem_id": "broken", "code": LOOP}, *({"problem_id": "double", "code": LOOP},) * 40]
            statuses = [verdict["status"] for verdict in client.verdicts(rows)]
            assert statuses == ["passed", "no_code", "infra", *["passed"] * 40]
        finally:
            served.terminate()
    assert served.returncode == 0


def test_a_cluster_s_scorers_score_a_file_as_this_machine_s_do(machines: Machines, tmp_path: Path) -> None:
    (problems := tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, (DOUBLE, BROKEN))))
    codes = ["def f(n):\n    return n", None, *[f"def f(n):\n    return {k} * n" for k in range(4)]]
    rows = [{"id": f"c{n}", "problem_id": "double", "code": code} for n, code in enumerate(codes)]
    rows.append({"id": "b", "problem_id": "broken", "code": LOOP})
    (programs := tmp_path / "programs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-m", "raypoly.cli", "score", "--problems", str(problems), "--programs", str(programs)]
    written = {}
    for place in ("", machines.address):
        out = tmp_path / f"verdicts{len(written)}.jsonl"
        ended = subprocess.run(
            [*command, "--evidence", "--out", str(out)],
            env=os.environ | {"RAY_ADDRESS": place},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1, ended.stderr  # one has no verdict
        found = [json.loads(line) for line in out.read_text().splitlines()]
        written[place] = [{key: value for key, value in row.items() if key != "cpu_seconds"} for row in found]
    assert written[""] == written[machines.address]
    assert {row["status"] for row in written[""]} == {"passed", "wrong", "no_code", "infra"}
