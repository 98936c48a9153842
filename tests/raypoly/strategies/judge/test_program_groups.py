"""Groups from files: read strictly, and run so that a judge has something to read."""

from pathlib import Path

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.strategies.judge.ask_judge import map_in_order
from raypoly.strategies.judge.program_groups import entry_point_of, observing, read_groups
from tests.support.gold_rows import HASH, ROW, write_rows

METHOD = """import math


class Solution:
    def __init__(self): pass

    def twice(self, nums):
        return nums[0]
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", " line 2: this is not JSON"),
        ("[]", " line 2: the row: "),
        ('{"id": "b", "problem": "p"}', " line 2: programs: Field required"),
        ('{"id": "b", "problem": "p", "programs": []}', " line 2: programs: "),
        ('{"id": "b", "problem": "p", "programs": [3]}', " line 2: programs.0: "),
        ('{"id": "twice", "problem": "p", "programs": ["x"]}', " line 2: 'twice' appears a second time"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_groups(write_rows(tmp_path / "g.jsonl", ROW, line))
    assert said in str(caught.value)


def test_an_empty_file_has_no_group(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no group"):
        read_groups(write_rows(tmp_path / "g.jsonl"))


@pytest.mark.parametrize(
    ("program", "name"),
    [(HASH, "first_twice"), (METHOD, "Solution().twice"), ("x = 1", ""), ("", ""), ("class Solution:\n    pass", "")],
)
def test_the_entry_point_is_guessed_from_the_text(program: str, name: str) -> None:
    assert entry_point_of(program) == name


def test_programs_without_tests_or_entry_point_come_with_evidence(tmp_path: Path) -> None:
    fenced = f"Here it is:\n```python\n{HASH}```\nIt is fast."
    row = {"id": "a", "problem": "p", "programs": [HASH, METHOD, None, fenced]}
    with observing(ScorerConfig(workers=1)) as observe:
        (seen,) = observe(read_groups(write_rows(tmp_path / "g.jsonl", row)))
    free, method, nothing, response = seen.verdicts
    assert free.passed
    assert method.passed
    assert nothing.status == "no_code"
    assert free.evidence is not None
    assert free.evidence == response.evidence
    assert [rollout.text for rollout in seen.rollouts] == [HASH, METHOD, "", HASH]


def test_tests_that_can_not_be_run_are_the_groups_trouble(tmp_path: Path) -> None:
    row = ROW | {"tests": "def check(candidate:\n"}
    with observing(ScorerConfig(workers=1)) as observe:
        seen, sound = observe(read_groups(write_rows(tmp_path / "g.jsonl", row, ROW | {"id": "sound"})))
    assert "SyntaxError" in seen.trouble
    assert sound.trouble == ""


def test_work_in_threads_keeps_its_order_and_an_error_comes_when_its_turn_has_come() -> None:
    def work(number: int) -> int:
        if number == 5:
            raise ValueError("five")
        return number * number

    results = map_in_order(work, range(100), 4)
    assert [next(results) for _ in range(5)] == [(number, number * number) for number in range(5)]
    with pytest.raises(ValueError, match="five"):
        next(results)
