"""What a run shows of its judge: each question in one row, over restarts too; and a look for drift changes nothing."""

from pathlib import Path

import pytest

from raypoly import Run
from raypoly.analysis.reports.run_page import write_report
from tests.support.faulty_server import Server, completion, running
from tests.support.local_driver import SMALL, LocalDriver
from tests.support.ray_machines import Machines

INPUT, OUTPUT = 100.0, 400.0
"""US dollars a million tokens: a group costs about $0.2."""
KEY = "sk-costs-51b7"


def driver(folder: Path, model: Path, server: Server, machines: Machines, *more: str) -> LocalDriver:
    own = [
        "generator.engine=transformers", f"model.path={model}", "train.steps=3", "judge.name=openai",
        f"judge.base_url={server.url}", "judge.model=marker", "judge.api_key_env=COSTS_KEY", "judge.view=raw",
        f"judge.cache_dir={folder}-cache", "judge.timeout=20", "judge.probe_seconds=0.3",
        f"judge.price_input={INPUT}", f"judge.price_output={OUTPUT}", *more,
    ]  # fmt: skip
    return LocalDriver(folder, [*SMALL, *own], {"COSTS_KEY": KEY, "RAY_ADDRESS": machines.address})


def charged(server: Server) -> float:
    """What all that the server answered costs, in US dollars."""
    usages = [completion(body)["usage"] for body in server.bodies]
    return float(sum(u["prompt_tokens"] * INPUT + u["completion_tokens"] * OUTPUT for u in usages)) / 1e6


@pytest.mark.slow
def test_a_budget_holds_over_restarts_and_neither_it_nor_a_canary_changes_what_is_learnt(
    machines: Machines, warm_model: Path, tmp_path: Path
) -> None:
    with running(Server(key=KEY)) as server:
        poor = driver(tmp_path / "poor", warm_model, server, machines, "judge.canary_every=0", "judge.max_pause=2")
        poor.overrides = [*poor.overrides, "judge.budget_usd=1.2"]
        assert poor.finish() == 75, poor.log()
        assert "judge.budget_usd=1.2 would be exceeded" in poor.log()
        asked = len(server.bodies)
        assert asked > 0
        assert charged(server) <= 1.2

        assert poor.finish() == 75, poor.log()
        assert len(server.bodies) == asked, "what the first start spent counts in the second"

        poor.overrides = [*poor.overrides[:-1], "judge.budget_usd=50"]
        assert poor.finish() == 0, poor.log()
        rows = poor.rows()
        assert sum(row["judge_step"]["cost_usd"] for row in rows) == pytest.approx(charged(server))
        assert sum(row["judge_step"]["calls"] for row in rows) == len(server.bodies)
        assert "a step, $" in poor.log()
        pauses = poor.summary["pauses"]
        assert len(pauses) >= 2
        assert all(pause["seconds"] > 0 and "budget" in pause["reason"] for pause in pauses)

    with running(Server(key=KEY)) as server:
        watched = driver(
            tmp_path / "watched", warm_model, server, machines, "judge.canary_every=1", "judge.canary_groups=2"
        )
        assert watched.finish() == 0, watched.log()
        assert watched.digests() == poor.digests()
        assert watched.weights() == poor.weights()
        rows = watched.rows()
        agreements = [row["judge_agreement"] for row in rows if row["judge_agreement"] is not None]
        assert agreements, "a look of some step came back while the run went on"
        assert all(-1 <= agreement <= 1 for agreement in agreements)
        assert all(row["strategies_structural"] is not None for row in rows)

    page = Path(write_report(Run(watched.folder))).read_text()
    for word in ("<h2>Judge</h2>", "money so far", "agreement with gold groups", "answers from the second server"):
        assert word in page
    assert "<h2>Pauses</h2>" in Path(write_report(Run(poor.folder))).read_text()
