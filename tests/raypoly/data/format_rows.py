"""One small row of each public format, real in shape, and what tests ask of a row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raypoly.core.values import Problem
from raypoly.data.formats import problem_of

Row = dict[str, Any]
LEETCODE: Row = {
    "task_id": "two-sum",
    "prompt": "from typing import *\n",
    "completion": "class Solution:\n    def twoSum(self, nums, target):\n        return [0, 1]\n",
    "entry_point": "Solution().twoSum",
    "test": "def check(candidate):\n    assert candidate(nums = [2,7,11,15], target = 9) == [0,1]\n",
}
HUMANEVAL: Row = {
    "task_id": "HumanEval/0",
    "prompt": "from typing import List\n\n\ndef has_close_elements(numbers: List[float], threshold: float) -> bool:\n"
    '    """ Check if any two numbers are closer to each other than the threshold.\n    """\n',
    "entry_point": "has_close_elements",
    "canonical_solution": "    for i, a in enumerate(numbers):\n        for b in numbers[:i]:\n"
    "            if abs(a - b) < threshold:\n                return True\n\n    return False\n",
    "test": "\n\nMETADATA = {\n    'author': 'jt',\n    'dataset': 'test'\n}\n\n\ndef check(candidate):\n"
    "    assert candidate([1.0, 2.0, 3.9], 0.3) == False\n"
    "    assert candidate([1.0, 2.0, 2.1], 0.3) == True, 'close'\n",
}
HELPER: Row = {
    "task_id": "HumanEval/50",
    "prompt": "\n\ndef encode_shift(s: str):\n"
    "    return ''.join([chr(((ord(ch) + 5 - ord('a')) % 26) + ord('a')) for ch in s])"
    '\n\n\ndef decode_shift(s: str):\n    """\n    Undo encode_shift.\n    """\n',
    "entry_point": "decode_shift",
    "canonical_solution": "    return ''.join([chr(((ord(ch) - 5 - ord('a')) % 26) + ord('a')) for ch in s])\n",
    "test": "def check(candidate):\n    for text in ('abc', 'xyz'):\n"
    "        assert candidate(encode_shift(text)) == text\n",
}
MBPP: Row = {
    "task_id": 11,
    "text": "Write a python function to remove first and last occurrence of a given character from the string.",
    "code": "def remove_Occ(s,ch): \r\n    i = s.find(ch)\r\n    s = s[:i] + s[i + 1:]\r\n    i = s.rfind(ch)\r\n"
    "    return s[:i] + s[i + 1:] \r\n",
    "test_setup_code": "",
    "test_list": ['assert remove_Occ("hello","l") == "heo"', 'assert (remove_Occ("PHP","P")) == "H", "both"'],
    "challenge_test_list": [],
}
PLUS: Row = {
    "task_id": 2,
    "prompt": "Write a function to find the shared elements from the given two lists.",
    "code": "def similar_elements(test_tup1, test_tup2):\n  return tuple(set(test_tup1) & set(test_tup2))\n",
    "test_imports": [],
    "test_list": ["assert set(similar_elements((3, 4, 5, 6),(5, 7, 4, 10))) == set((4, 5))"],
    "test": "from math import inf\n\ndef assertion(out, exp, atol):\n    assert set(out) == set(exp), f'out: {out}'\n\n"
    "inputs = [[(3, 4, 5, 6), (5, 7, 4, 10)], [(1,), (inf,)]]\nresults = [(4, 5), ()]\n"
    "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(similar_elements(*inp), exp, 0)\n",
}
FUNCTIONAL = [{"input": "[2, 7, 11]\n9", "output": "[0, 1]", "testtype": "functional"}]
STDIN = [{"input": "3\n1 2 3\n", "output": "6\n", "testtype": "stdin"}]
LCB: Row = {
    "question_id": "2755",
    "question_content": "Two numbers that add up to target.",
    "starter_code": "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        ",
    "public_test_cases": json.dumps(FUNCTIONAL),
    "private_test_cases": "[]",
    "metadata": '{"func_name": "twoSum"}',
}
APPS: Row = {
    "problem_id": 7,
    "question": "Add two numbers.",
    "solutions": json.dumps(["print 1", "def add(a, b):\n    return a + b"]),
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
    "starter_code": "\ndef add(a, b):\n\t",
}
CONTEST: Row = {
    "name": "1_A. Sum",
    "description": "Print the sum.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["4 5\n"], "output": ["9\n"]},
    "input_file": "",
    "solutions": {
        "language": [2, 1, 3],
        "solution": ["int main(){}", "print 3", "print(sum(map(int, input().split())))"],
    },
}
EXECUTION: Row = {
    "question_id": "2777",
    "contest_id": "weekly-contest-350",
    "contest_date": "2023-06-18T00:00:00",
    "difficulty": "easy",
    "function_name": "twice",
    "code": "def twice(values):\n    return [value * 2 for value in values]",
    "input": "twice(values = [1, 2])",
    "output": "[2, 4]",
    "id": "sample_3",
    "problem_id": "17",
    "numsteps": 12,
}
TEST_OUTPUT: Row = {
    "question_title": "Any Twice",
    "question_content": "Return whether any word is there n times.",
    "question_id": "3001",
    "contest_id": "biweekly-contest-119",
    "contest_date": "2023-12-09T00:00:00",
    "difficulty": "easy",
    "test": json.dumps([{"input": '["a", "b"]\n2\n', "output": "false", "testtype": "functional"}]),
    "starter_code": "class Solution:\n    def anyTwice(self, words: List[str], n: int) -> bool:\n        ",
    "function_name": "anyTwice",
    "test_id": 4,
}
OWN: Row = {
    "id": "add",
    "entry_point": "add",
    "tests": {"kind": "calls", "cases": [{"args": [1], "kwargs": {"b": 2}, "expected": 3, "budget": {"steps": 9}}]},
}


def cases(problem: Problem) -> list[Any]:
    found: list[Any] = json.loads(problem.tests.source)
    return found


def passes(problem: Problem, code: str) -> bool:
    """What the authors' own harness says: prelude, program and check in one namespace (the rows are this file's)."""
    namespace: dict[str, Any] = {}
    exec(f"{problem.prelude}\n{code}\n{problem.tests.source}", namespace)
    try:
        namespace["check"](eval(problem.entry_point, namespace))
    except AssertionError:
        return False
    return True


def refusal(row: object) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        problem_of(row)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) <= 300
    return text
