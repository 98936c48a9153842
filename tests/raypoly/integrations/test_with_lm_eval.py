"""A task's file, evaluated by the harness with canned responses; where lm_eval 0.4.13 is installed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

lm_eval = pytest.importorskip("lm_eval", reason="needs lm_eval (uv pip install lm_eval==0.4.13)")


def test_the_mean_goes_without_what_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    from raypoly.integrations import with_lm_eval

    class Canned(LM):  # type: ignore[misc]
        def generate_until(self, requests: Any) -> list[str]:
            return [RIGHT if "wrong" not in request.args[0] else "no" for request in requests]

        def loglikelihood(self, requests: Any) -> Any:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    rows = [DOUBLE, DOUBLE | {"id": "again"}, DOUBLE | {"id": "third", "prompt": "wrong"}, BROKEN]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    documented = (with_lm_eval.__doc__ or "").split("    task: ")[1].split("\n\n")[0]
    (tmp_path / "raypoly.yaml").write_text("task: " + documented.replace("\n    ", "\n"))
    monkeypatch.chdir(tmp_path)
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = lm_eval.simple_evaluate(Canned(), tasks=["raypoly"], task_manager=manager, bootstrap_iters=0)
    results = found["results"]["raypoly"]
    assert [results["passed,none"], results["unknown,none"]] == pytest.approx([2 / 3, 1 / 4])
    assert with_lm_eval.process_results({"problem": DOUBLE}, [[RIGHT, "no"]]) == {"passed": 0.5, "unknown": 0.0}
