"""`raypoly serve` where a Ray cluster is named: its scorers score."""

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
