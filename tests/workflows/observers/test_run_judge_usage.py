"""What a run used of its judge is counted once, whatever is killed in between."""

import asyncio
from pathlib import Path

import pytest

from raypoly.run.store import open_store
from raypoly.strategies.judge.judge_usage import usage_to_json
from workflows.observers.run_judge_usage import KEY, RunJudgeUsage

ONE = {"calls": 1, "prompt_tokens": 100, "known_usd": 0.25}


def used(folder: Path, times: int, reported: int = 0) -> RunJudgeUsage:
    """A start that takes up `reported` questions from rows and asks so many more, then is closed."""

    async def main() -> RunJudgeUsage:
        use = RunJudgeUsage(open_store(folder))
        for _ in range(reported):
            use.restore_reported(usage_to_json(ONE))
        for _ in range(times):
            use.add(ONE)
        await use.close()
        return use

    return asyncio.run(main())


def test_each_row_tells_what_no_row_has_told(tmp_path: Path) -> None:
    use = used(tmp_path, times=3)
    assert use.take_unreported() == {"calls": 3, "prompt_tokens": 300, "known_usd": 0.75}
    assert use.take_unreported() == {}
    assert use.spent_usd == 0.75


def test_a_step_that_a_kill_left_unfinished_is_told_with_the_next_row_and_counts_at_once(tmp_path: Path) -> None:
    used(tmp_path, times=5)  # two of them stand in a row
    again = used(tmp_path, times=0, reported=2)
    assert again.spent_usd == 1.25
    assert again.take_unreported()["calls"] == 3


def test_rows_count_where_the_file_is_gone_or_damaged(tmp_path: Path) -> None:
    used(tmp_path, times=5)
    (tmp_path / KEY).write_bytes((tmp_path / KEY).read_bytes().replace(b"1.25", b"0.25"))
    again = used(tmp_path, times=0, reported=2)
    assert again.spent_usd == 0.5
    assert again.take_unreported() == {}


def test_money_that_may_be_lost_counts_towards_the_budget_and_an_unknown_cost_is_null(tmp_path: Path) -> None:
    async def main() -> RunJudgeUsage:
        use = RunJudgeUsage(open_store(tmp_path))
        use.add({**ONE, "lost_usd": 0.5})
        use.add({"calls": 1, "unpriced": 1})
        await use.close()
        return use

    use = asyncio.run(main())
    assert use.spent_usd == 0.75
    row = usage_to_json(use.take_unreported())
    assert row["cost_usd"] is None
    assert row["calls"] == 2
    assert row["failovers"] == 0


def test_a_judge_that_counts_nothing_leaves_no_file(tmp_path: Path) -> None:
    assert not used(tmp_path, times=0).has_usage
    assert not (tmp_path / KEY).exists()


@pytest.mark.parametrize("price", [0.0, 0.016])
def test_a_known_cost_is_told_even_where_it_is_nothing(price: float) -> None:
    assert usage_to_json({"calls": 1, "known_usd": price})["cost_usd"] == price
