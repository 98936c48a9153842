"""`train.ahead_mode=in_flight` in a real run: weights reach an engine between two tokens."""

from __future__ import annotations

from pathlib import Path

from raypoly import Run
from raypoly.data import build_problem_set
from raypoly.data.problem_order import PassRates, build_problem_order
from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines

STEPS = 4
OWN = (
    "generator.engine=tests.support.slow_engine:SlowEngine",
    "train.ahead=1",
    "train.ahead_mode=in_flight",
    "loss.importance_cap=2",
    f"train.steps={STEPS}",
)


def test_a_run_has_rollouts_of_two_weights_and_killed_it_trains_each_problem_once(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    driver = LocalDriver(tmp_path / "run", [*small_run, *OWN], {"RAY_ADDRESS": machines.address})
    driver.start()
    assert driver.wait_for_commits(30), driver.log()
    driver.kill()
    machines.wait_until_idle()
    assert driver.finish() == 0, driver.log()
    rows, run = driver.rows(), Run(driver.folder)
    assert len(rows) == STEPS
    assert any(0 < row["stale_tokens"] < 1 for row in rows), [row["stale_tokens"] for row in rows]
    problems = build_problem_set(run.config.problems).splits["train"]
    order = build_problem_order(run.config, problems, PassRates())
    for step in range(STEPS):
        groups = run.completed(step).groups
        assert [group.problem_id for group in groups] == [problem.id for problem in order.batch(step)]
        for rollout in (rollout for group in groups for rollout in group.rollouts):
            assert step - 1 <= rollout.weight_version <= step
            assert rollout.newer_from is None or 0 < rollout.newer_from < len(rollout.tokens)
