"""The verifier as an object: extraction included, unknown is None, several threads at once."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raypoly
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.integrations.in_process import group_advantages

DOUBLE: dict[str, Any] = {
    "id": "double",
    "entry_point": "f",
    "prompt": "Double n.",
    "tests": {"kind": "calls", "cases": [{"args": [2], "expected": 4}, {"args": [5], "expected": 10}]},
}
BROKEN = DOUBLE | {"id": "broken", "prelude": "1 / 0"}
RIGHT = "Here:\n```python\ndef f(n):\n    return 2 * n\n```"
LOOP = "def f(n):\n t = 0\n for i in range(n): t += 2\n return t"


@pytest.fixture(scope="module")
def verifier() -> Iterator[raypoly.Verifier]:
    with raypoly.Verifier([DOUBLE, BROKEN], workers=2) as verifier:
        yield verifier


def test_the_program_is_looked_for_in_a_response(verifier: raypoly.Verifier) -> None:
    responses = [RIGHT, "I don't know.", None, "def f(n): return n  # no fence: a program all the same"]
    found = [verdict.status for verdict in verifier.verdicts(responses, "double")]
    assert found == ["passed", "no_code", "no_code", "wrong"]
    assert [v.status for v in verifier.verdicts(["def f(n): return n + n"], "double", extract=False)] == ["passed"]


def test_what_is_unknown_is_none_and_not_zero(verifier: raypoly.Verifier) -> None:
    assert verifier.rewards([RIGHT, RIGHT, "no"], ["double", "broken", "double"]) == [1.0, None, 0.0]


def test_a_reward_may_be_a_function_and_has_to_give_a_number(verifier: raypoly.Verifier) -> None:
    assert verifier.rewards([RIGHT], "double", lambda problem, rollout, verdict: len(rollout.text)) == [len(RIGHT)]
    assert verifier.rewards([RIGHT], "double", lambda *_: None) == [None]
    with pytest.raises(RaypolyError, match="has to give a finite number"):
        verifier.rewards([RIGHT], "double", lambda *_: float("nan"))
    with pytest.raises(UsageError, match="all_tests=True"):
        verifier.rewards([RIGHT], "double", "fraction")


def test_a_share_of_tests_is_a_reward_where_all_are_run() -> None:
    with raypoly.Verifier([DOUBLE], workers=1, evidence=False, all_tests=True) as verifier:
        assert verifier.rewards(["```python\ndef f(n): return 4\n```"], reward="fraction") == [0.5]


def test_strategies_go_into_an_objective_as_they_are(verifier: raypoly.Verifier) -> None:
    labels = verifier.strategies("double", ["def f(n): return 2 * n", LOOP, "def f(n): return n + n"])
    assert labels.ids.tolist() == [1, 2, 1]
    advantages = raypoly.objective("poly_epo", set_size=2).advantages([1, 1, 1], labels.ids)
    assert np.allclose(advantages, [-1 / 3, 2 / 3, -1 / 3])
    with pytest.raises(UsageError, match="could not be run"):
        verifier.strategies("broken", [LOOP])


def test_tasks_and_threads_share_it(verifier: raypoly.Verifier) -> None:
    async def both() -> list[list[float | None]]:
        return await asyncio.gather(*(verifier.rewards_async([RIGHT, "no"], "double") for _ in range(4)))

    assert asyncio.run(both()) == [[1.0, 0.0]] * 4

    def ask(number: int) -> list[str]:
        programs = [f"def f(n): return 2 * n + {place % 2}  # {number}" for place in range(6)]
        return [verdict.status for verdict in verifier.verdicts(programs, "double", extract=False)]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == [["passed", "wrong"] * 3] * 8


def test_sandboxes_that_are_gone_make_every_verdict_unknown() -> None:
    with raypoly.Verifier([DOUBLE], workers=1) as verifier:
        pass
    assert verifier.rewards([RIGHT, "no"]) == [None, None]


def test_a_group_goes_without_its_unknown_rewards() -> None:
    objective = raypoly.objective("poly_epo", set_size=2)
    rewards, labels = np.array([1.0, np.nan, 0.0, 1.0, np.nan, np.nan, np.nan, 1.0]), [1, 9, 2, 2, 1, 1, 1, 1]
    found = group_advantages(objective, rewards, [range(4), range(4, 8)], labels)
    assert found[[0, 2, 3]].tolist() == objective.advantages([1, 0, 1], [1, 2, 2]).tolist()
    assert found[1] == 0
    assert not found[4:].any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"problem": None}, "Say which of the 2 problems"),
        ({"problem": "treble"}, "There is no problem 'treble' among the 2"),
        ({"problem": ["double", "double"]}, "1 responses need 1 problem ids"),
    ],
)
def test_mistakes_are_a_sentence(verifier: raypoly.Verifier, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        verifier.verdicts([RIGHT], **given)


def test_a_row_and_a_limit_that_do_not_exist_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="Problem 2 can't be used: no known format"):
        raypoly.Verifier([DOUBLE, {"a": 1}])
    with pytest.raises(UsageError, match=r"There is no key scorer\.seconds"):
        raypoly.Verifier([DOUBLE], seconds=3)


def test_a_row_of_a_file_that_is_no_problem_says_why_when_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text(json.dumps(DOUBLE) + "\n" + json.dumps({"id": "bad", "prompt": "No tests."}) + "\n")
    with raypoly.Verifier(file, workers=1) as verifier:
        assert verifier.rewards([RIGHT], "double") == [1.0]
        with pytest.raises(UsageError, match=r"The problem 'bad' can't be used: .*problems.jsonl line 2: "):
            verifier.rewards([RIGHT], "bad")
