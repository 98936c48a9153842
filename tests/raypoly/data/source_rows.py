"""A row of every source with all of its columns, types, encodings and oddities, and a right and a wrong program."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
SUM = "print(sum(map(int, input().split())))"
NO_SUM = "print(max(map(int, input().split())))"
TWO_SUM = "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        "
FIND = TWO_SUM + "return [[i, j] for j in range(len(nums)) for i in range(j) if nums[i] + nums[j] == target][0]"
NO_FIND = TWO_SUM + "return [0, 0]"
REVERSE = (
    "class Solution:\n    def reverseList(self, head: Optional[ListNode]) -> Optional[ListNode]:\n        last = None\n"
    "        while head:\n            head.next, last, head = last, head, head.next\n        return last"
)
NO_REVERSE = REVERSE.replace("return last", "return head")
ADD = "def add(a, b):\n    return a + b"
NO_ADD = "def add(a, b):\n    return a - b"


@dataclass(frozen=True)
class Sample:
    """One row, and what its tests have to say of two programs."""

    name: str
    row: Row
    right: str
    wrong: str
    solved: bool = True
    """Whether the row brings a solution."""


def packed(tests: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def livecodebench(question: str, starter: str, public: list[Row], private: str, metadata: Row) -> Row:
    return {
        "question_title": question,
        "question_content": f"{question}: the statement.",
        "platform": "leetcode" if starter else "atcoder",
        "question_id": f"lcb-{question}",
        "contest_id": "weekly-contest-438",
        "contest_date": "2025-02-23T00:00:00",
        "starter_code": starter,
        "difficulty": "easy",
        "public_test_cases": json.dumps(public),
        "private_test_cases": private,
        "metadata": json.dumps(metadata),
    }


FUNCTIONAL = [{"input": "[2, 7, 11, 15]\n9", "output": "[0, 1]", "testtype": "functional"}]
MORE_FUNCTIONAL = [{"input": "[3, 2, 4]\n6", "output": "[1, 2]", "testtype": "functional"}]
STDIN = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
MORE_STDIN = [{"input": "4 5 6\n", "output": "15\n", "testtype": "stdin"}]
LEETCODE_IMPORTS = "from typing import *\n\nfrom functools import *\nfrom collections import *\nimport math\n"
CHECK = (
    "def check(candidate):\n    assert candidate(nums = [2,7,11,15], target = 9) == [0,1]\n"
    "    assert candidate(nums = [3,2,4], target = 6) == [1,2]\n"
)
CHECK_LIST = (
    "def check(candidate):\n    assert is_same_list(candidate(head = list_node([1,2,3])), list_node([3,2,1]))\n"
    "    assert is_same_list(candidate(head = list_node([])), list_node([]))\n"
)
LEETCODE = {
    "task_id": "two-sum",
    "prompt": LEETCODE_IMPORTS,
    "completion": FIND,
    "entry_point": "Solution().twoSum",
    "test": CHECK,
    "query": "Given an array of integers nums and an integer target, return indices.",
    "response": f"To solve it:\n```python\n{FIND}\n```",
    "input_output": [{"input": "nums = [2,7,11,15], target = 9", "output": "[0,1]"}],
}
V2 = LEETCODE | {
    "meta": {"question_id": "1", "difficulty": "Easy", "question_title": "Given an array", "lang_code": TWO_SUM},
}
V3 = LEETCODE | {
    "task_id": "two-sum-v3",
    "question_id": 1,
    "difficulty": "Easy",
    "tags": ["Array", "Hash Table"],
    "problem_description": "Given an array of integers nums and an integer target, return indices.",
    "starter_code": TWO_SUM,
    "estimated_date": "2015-08-07",
}


def code_r1(dataset: str, truth: Row, reference: str) -> Row:
    return {
        "data_source": "code",
        "prompt": [
            {"role": "system", "content": "You are a helpful programming assistant."},
            {"role": "user", "content": f"Please solve the programming task below. ({dataset})"},
        ],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(truth)},
        "extra_info": {"split": "train", "index": 3, "prompt": "Solve.", "reference": reference, "dataset": dataset},
    }


APPS = {
    "problem_id": 2361,
    "question": "Add two numbers.",
    "solutions": json.dumps(["print 1", "import sys\n" + SUM]),
    "input_output": json.dumps({"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}),
    "difficulty": "interview",
    "url": "https://codeforces.com/problemset/problem/4/Z",
    "starter_code": "",
}
APPS_CALL = APPS | {
    "problem_id": 2362,
    "solutions": json.dumps([ADD]),
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
    "starter_code": "\ndef add(a, b):\n\t",
}
TACO = {
    "question": "Add numbers, one a line or a line of them.",
    "solutions": json.dumps(["import sys\nprint(sum(map(int, sys.stdin.read().split())))"]),
    "starter_code": "",
    "input_output": json.dumps({"inputs": [["1 2"], "4 5\n"], "outputs": [["3"], "9\n"]}),
    "difficulty": "VERY_HARD",
    "raw_tags": "['math']",
    "name": None,
    "source": "codechef",
    "tags": "['Mathematics', 'Greedy algorithms']",
    "skill_types": "['Greedy algorithms']",
    "url": "https://www.codechef.com/problems/ADD",
    "Expected Auxiliary Space": None,
    "time_limit": "2.0 seconds",
    "date": "2021-07-05",
    "picture_num": "0",
    "memory_limit": "256.0 megabytes",
    "Expected Time Complexity": None,
}
CODE_CONTESTS = {
    "name": "1575_Z. Sum",
    "description": "Print the sum.\n\nExample\n\nInput\n\n1 2\n\nOutput\n\n3",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["4 5\n", "7 7\n"], "output": ["9\n", "14\n"]},
    "source": 2,
    "difficulty": 7,
    "solutions": {"language": [2, 1, 3], "solution": ["int main(){}", "print 3", SUM]},
    "incorrect_solutions": {"language": [3], "solution": [NO_SUM]},
    "cf_contest_id": 1575,
    "cf_index": "Z",
    "cf_points": 0.0,
    "cf_rating": 800,
    "cf_tags": ["implementation", "math"],
    "is_description_translated": False,
    "untranslated_description": "",
    "time_limit": {"seconds": 2, "nanos": 500000000},
    "memory_limit_bytes": 256000000,
    "input_file": "",
    "output_file": "",
}
CODE_CONTESTS_PLUS = {
    "source": "Codeforces",
    "id": "1575_Y",
    "title": "Y. Sum",
    "description": "Print the sum.",
    "time_limit": 2000,
    "memory_limit": 256,
    "validator": "#include <testlib.h>",
    "generator": "#include <testlib.h>",
    "generator_cmd": "./gen -n 2",
    "checker": None,
    "correct_submissions": [{"code": "int main(){}", "language": "cpp"}, {"code": SUM, "language": "py3"}],
    "incorrect_submissions": [{"code": NO_SUM, "language": "py3"}],
    "test_cases": [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}],
    "true_positive_rate": 1.0,
    "true_negative_rate": 0.95,
}
CODEFORCES = {
    "id": "852/Z",
    "aliases": ["853/Y"],
    "contest_id": "852",
    "contest_name": "Bubble Cup X",
    "contest_type": "ICPC",
    "contest_start": 1504535700,
    "contest_start_year": 2017,
    "index": "Z",
    "time_limit": 2.0,
    "memory_limit": 256.0,
    "title": "Sum",
    "description": "Add the numbers of a line.",
    "input_format": "One line of numbers.",
    "output_format": "Their sum.",
    "interaction_format": None,
    "note": "1 + 2 = 3",
    "examples": [{"input": "1 2", "output": "3"}],
    "editorial": None,
    "rating": 1100,
    "tags": ["math"],
    "testset_size": 3,
    "official_tests": [
        {"input": "1 2\n", "output": "3\n"},
        {"input": "4 5\r\n", "output": "9\r\n"},
        {"input": "1 2 3 4 ...", "output": "1"},
    ],
    "official_tests_complete": False,
    "input_mode": "stdio",
    "generated_checker": None,
    "executable": True,
    "generated_tests": 0,
}
CHECKER = """import sys

def main():
    with open(sys.argv[1]) as f:
        n = int(f.read())
    with open(sys.argv[3]) as f:
        a, b = map(int, f.read().split())
    print(1 if a + b == n else 0)
    sys.exit(0)

if __name__ == "__main__":
    main()
"""
CODEFORCES_CHECKED = CODEFORCES | {
    "id": "852/Y",
    "description": "Print two numbers whose sum is n.",
    "generated_checker": CHECKER,
    "official_tests": [{"input": "7\n", "output": "3 4\n"}, {"input": "9\n", "output": "4 5\n"}],
    "official_tests_complete": True,
}
HUMANEVAL = {
    "task_id": "HumanEval/Z",
    "prompt": 'import math\n\n\ndef add(a: int, b: int) -> int:\n    """ Add.\n    >>> add(1, 2)\n    3\n    """\n',
    "canonical_solution": "    return a + b\n",
    "test": "\n\nMETADATA = {\n    'author': 'jt'\n}\n\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n",
    "entry_point": "add",
}
HUMANEVAL_PLUS = HUMANEVAL | {
    "task_id": "HumanEvalPlus/Z",
    "test": "import numpy as np\n\ndef is_floats(x) -> bool:\n    return isinstance(x, float)\n\n"
    "def assertion(out, exp, atol):\n    assert out == exp, f'{out} {exp}'\n\ndef check(candidate):\n"
    "    inputs = [[1, 2], [5, 6]]\n    results = [3, 11]\n"
    "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 0)\n",
}
MBPP = {
    "task_id": 9001,
    "text": "Write a function to add two numbers.",
    "code": ADD.replace("\n", "\r\n"),
    "test_list": ["assert add(1, 2) == 3", "assert add(4, 5) == 9"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
SANITIZED = {
    "source_file": "Benchmark Questions Verification V2.ipynb",
    "task_id": 9002,
    "prompt": "Write a function to add two numbers.",
    "code": ADD,
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(add(1, 2), 3)"],
}
MBPP_PLUS = SANITIZED | {
    "task_id": 9003,
    "test": "import numpy as np\n\ndef assertion(out, exp, atol):\n    assert out == exp\n\ninputs = [[1, 2], [4, 5]]\n"
    "results = [3, 9]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(add(*inp), exp, 0)\n",
}


def intellect(number: int, info: object) -> Row:
    return {
        "source": "apps",
        "task_type": "verifiable_code",
        "in_source_id": str(number),
        "prompt": "Solve the following coding problem using the programming language python:\n\nAdd two numbers.",
        "gold_standard_solution": ADD if "function_call" in str(info) else SUM,
        "verification_info": info,
        "metadata": '{"difficulty": "introductory"}',
        "problem_id": f"vcp_{number}",
    }


READS = [{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}]
CALLS = [{"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]}]
COPY_READS = [{"fn_name": None, "input": "1 2\n", "output": "3\n", "type": "stdin_stdout"}]
COPY_CALLS = [{"fn_name": "add", "input": "[1, 2]", "output": "[3]", "type": "function_call"}]


def deepcoder(tests: object, solution: str = "", **more: Any) -> Row:
    solutions = {"solutions": [f"```python\n{solution}\n```"]} if solution else {}
    return {"problem": f"Solve it. ({len(json.dumps(tests))})", "tests": json.dumps(tests)} | solutions | more


LCB_TESTS = [test | {"metadata": {"func_name": "twoSum"}} for test in FUNCTIONAL + MORE_FUNCTIONAL]
OWN = {
    "id": "own",
    "prompt": "Add.",
    "entry_point": "add",
    "solution": ADD,
    "tests": {"kind": "calls", "cases": [{"args": [1], "kwargs": {"b": 2}, "expected": 3}]},
}

SAMPLES = [
    Sample("LeetCodeDataset v0.2", V2, FIND, NO_FIND),
    Sample("LeetCodeDataset v0.3.1", V3, FIND, NO_FIND),
    Sample(
        "code-r1 leetcode2k",
        code_r1("LeetCodeDataset", {"functional": CHECK_LIST + "\ncheck(Solution().reverseList)"}, REVERSE),
        REVERSE,
        NO_REVERSE,
    ),
    Sample("code-r1 TACO", code_r1("TACO", {"inputs": ["1 2\n"], "outputs": ["3\n"]}, SUM), SUM, NO_SUM),
    Sample(
        "LiveCodeBench functional",
        livecodebench("Two", TWO_SUM, FUNCTIONAL, packed(MORE_FUNCTIONAL), {"func_name": "twoSum"}),
        FIND,
        NO_FIND,
        solved=False,
    ),
    Sample("LiveCodeBench stdin", livecodebench("Sum", "", STDIN, packed(MORE_STDIN), {}), SUM, NO_SUM, solved=False),
    Sample(
        "LiveCodeBench with plain private tests",
        livecodebench("Plain", "", STDIN, json.dumps(MORE_STDIN), {}),
        SUM,
        NO_SUM,
        solved=False,
    ),
    Sample("APPS", APPS, SUM, NO_SUM),
    Sample("APPS with a function", APPS_CALL, ADD, NO_ADD),
    Sample("TACO", TACO, SUM, NO_SUM),
    Sample("CodeContests", CODE_CONTESTS, SUM, NO_SUM),
    Sample("CodeContests+", CODE_CONTESTS_PLUS, SUM, NO_SUM),
    Sample("open-r1/codeforces", CODEFORCES, SUM, NO_SUM, solved=False),
    Sample(
        "open-r1/codeforces with a checker",
        CODEFORCES_CHECKED,
        "print(1, int(input()) - 1)",
        "print(1, int(input()))",
        solved=False,
    ),
    Sample("HumanEval", HUMANEVAL, ADD, NO_ADD),
    Sample("HumanEval+", HUMANEVAL_PLUS, ADD, NO_ADD),
    Sample("MBPP", MBPP, ADD, NO_ADD),
    Sample("MBPP sanitized", SANITIZED, ADD, NO_ADD),
    Sample("MBPP+", MBPP_PLUS, ADD, NO_ADD),
    Sample("PrimeIntellect", intellect(1, json.dumps({"language": "python", "test_cases": READS})), SUM, NO_SUM),
    Sample(
        "PrimeIntellect with a function in a Python literal",
        intellect(2, repr({"language": "python", "test_cases": CALLS})),
        ADD,
        NO_ADD,
    ),
    Sample("open-r1's Python copy", intellect(3, {"language": "python", "test_cases": COPY_READS}), SUM, NO_SUM),
    Sample(
        "open-r1's Python copy with a function",
        intellect(4, {"language": "python", "test_cases": COPY_CALLS}),
        ADD,
        NO_ADD,
    ),
    Sample("DeepCoder primeintellect", deepcoder(READS, SUM), SUM, NO_SUM),
    Sample("DeepCoder primeintellect with a function", deepcoder(CALLS, ADD), ADD, NO_ADD),
    Sample("DeepCoder taco", deepcoder({"inputs": ["1 2\n"], "outputs": ["3\n"]}, SUM), SUM, NO_SUM),
    Sample(
        "DeepCoder taco with a function",
        deepcoder({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, ADD),
        ADD,
        NO_ADD,
    ),
    Sample(
        "DeepCoder lcbv5",
        deepcoder(FUNCTIONAL + MORE_FUNCTIONAL, starter_code=TWO_SUM, metadata={"func_name": "twoSum"}),
        FIND,
        NO_FIND,
        solved=False,
    ),
    Sample("DeepCoder lcbv5 with names in the tests", deepcoder(LCB_TESTS), FIND, NO_FIND, solved=False),
    Sample("DeepCoder codeforces", deepcoder(STDIN), SUM, NO_SUM, solved=False),
    Sample("raypoly's own", OWN, ADD, NO_ADD),
]

REFUSED: list[tuple[Row, str]] = [
    (CODEFORCES | {"generated_checker": "#include <testlib.h>\nint main() {}"}, "generated_checker: not Python"),
    (CODEFORCES | {"input_mode": "file"}, "input_mode: file"),
    (CODEFORCES | {"interaction_format": "Ask the judge."}, "interaction_format"),
    (CODEFORCES | {"official_tests": None, "executable": False}, "official_tests"),
    (CODEFORCES | {"official_tests": [{"input": "1 2 ...", "output": "3"}]}, "there are no tests"),
    (CODE_CONTESTS_PLUS | {"checker": '#include "testlib.h"\nint main() {}'}, "checker: C++"),
    (CODE_CONTESTS_PLUS | {"checker": "import sys\nprint(1)\n"}, "checker: a program"),
    ({name: value for name, value in CODE_CONTESTS_PLUS.items() if name != "test_cases"}, "1x to 5x"),
    (CODE_CONTESTS | {"description": "See <image>."}, "<image>"),
    (CODE_CONTESTS | {"input_file": "input.txt"}, "input.txt"),
    (intellect(5, {"language": "cpp", "test_cases": READS}), "cpp"),
    (APPS | {"input_output": ""}, "no tests"),
    (
        {
            "task_id": "BigCodeBench/0",
            "complete_prompt": "import itertools\ndef task_func(numbers):\n",
            "instruct_prompt": "Calculate.",
            "canonical_solution": "    return 0\n",
            "code_prompt": "import itertools\ndef task_func(numbers):\n",
            "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_case_1(self):\n        pass\n",
            "entry_point": "task_func",
            "doc_struct": "{}",
            "libs": "['itertools']",
        },
        "BigCodeBench",
    ),
]
"""Rows that are set aside, and a word of the reason."""
