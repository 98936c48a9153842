"""A row of every trainer's and benchmark's format in its own columns, with a right and a wrong program."""

from __future__ import annotations

import json
from typing import Any

from tests.raypoly.data.source_rows import ADD, FIND, FUNCTIONAL, NO_ADD, NO_FIND, NO_SUM, SUM, Sample, packed

Row = dict[str, Any]
PAIRS = {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"], "fn_name": None}
CASES = [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]
ASSERTS = ["assert add(1, 2) == 3", "assert math.isclose(add(0.5, 5), 5.5)"]
LCB_CASES = [test | {"metadata": {"func_name": "twoSum"}} for test in FUNCTIONAL]


def chat(text: str) -> list[Row]:
    return [{"role": "system", "content": "You write Python."}, {"role": "user", "content": text}]


KODCODE: Row = {
    "version": "v1.0",
    "style": "instruct",
    "subset": "Prefill",
    "question_id": "Prefill_1_I",
    "question": "Add two numbers, and refuse what is none.",
    "solution": ADD,
    "test": "import pytest\nfrom solution import add\n\nBIG = 10**6\n\n"
    "def test_small():\n    assert add(1, 2) == 3\n    assert add(BIG, 1) == pytest.approx(1000001.0000001)\n\n"
    "@pytest.mark.parametrize('a, b, total', [(4, 5, 9), pytest.param(0, 0, 0, id='none')])\n"
    "def test_table(a, b, total):\n    result = add(a, b)\n    assert result == total\n\n"
    "def test_none():\n    with pytest.raises(TypeError, match='unsupported'):\n        add(None, 1)\n"
    "    pytest.raises(TypeError, add, None, 1)\n",
    "test_info": [
        {"function_name": "add", "parameter_list": "(a, b)", "function_declaration": "def add(a, b):", "docstring": ""}
    ],
    "gpt_difficulty": "easy",
}
ACECODE: Row = {
    "id": "oss_1",
    "source": "oss",
    "question": "Write add(a, b), the sum.",
    "test_cases": ASSERTS,
    "inferences": None,
    "context_messages": None,
}
RSTAR: Row = {
    "question_id": "seed_1",
    "question": "Add the numbers of a line. (rStar)",
    "starter_code": "",
    "inputs": json.dumps(PAIRS["inputs"]),
    "outputs": json.dumps(PAIRS["outputs"]),
    "is_synthesized": [0, 1],
    "test_case_type": "stdin",
    "func_name": "",
}
NEMO: Row = {
    "responses_create_params": {"input": chat("Add the numbers of a line. (NeMo)")[1:]},
    "verifier_metadata": {"unit_tests": PAIRS, "problem_id": "1"},
    "hash_id": "nemo-1",
}
EVALPLUS: Row = {
    "task_id": "HumanEval/901",
    "prompt": 'import math\n\n\ndef add(a: float, b: float) -> float:\n    """Add."""\n',
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "contract": "\n    assert type(a) == float\n",
    "base_input": [[1.5, 2.5], [0.1, 0.2]],
    "plus_input": [[-1.0, 0.5]],
    "atol": 0,
}
SHARED = "def similar_elements(one, other):\n  return tuple(set(one) & set(other))\n"
EVALPLUS_MBPP: Row = {
    "task_id": "Mbpp/902",
    "prompt": '"""\nShared items.\nassert similar_elements((3, 4),(4, 5)) == (4,)\n"""\n',
    "entry_point": "similar_elements",
    "canonical_solution": SHARED,
    "contract": "\n  assert isinstance(one, tuple)\n",
    "base_input": [[[3, 4], [4, 5]]],
    "plus_input": [[[], []], [[1, 2, 3], [3, 2]]],
    "atol": 0,
    "assertion": "\nassert similar_elements((3, 4),(4, 5)) == (4,)\n",
}
HUMANEVAL_X: Row = {
    "task_id": "Python/0",
    "prompt": 'import math\n\n\ndef add(a: int, b: int) -> int:\n    """ Add. """\n',
    "declaration": "import math\n\n\ndef add(a: int, b: int) -> int:\n",
    "canonical_solution": "    return a + b\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(add):\n    assert add(1, 2) == 3\n\ncheck(add)\n",
    "example_test": "def check(add):\n    assert add(1, 2) == 3\ncheck(add)\n",
}
MULTIPL_E: Row = {
    "name": "HumanEval_53_add",
    "language": "py",
    "prompt": 'def add(a: int, b: int) -> int:\n    """ Add. """\n',
    "doctests": "transform",
    "original": "HumanEval_53_add.py",
    "prompt_terminology": "reworded",
    "tests": "def check(candidate):\n    assert candidate(1, 2) == 3\n\n"
    "def test_check():\n    check(add)\n\ntest_check()\n",
    "stop_tokens": ["\ndef", "\n#"],
}
CONTEST: Row = {
    "task_id": "2777-two-sum",
    "url": "https://leetcode.com/problems/two-sum",
    "title": "Two Sum",
    "meta": {"questionId": "1", "lang_code": "class Solution:\n    def twoSum(self, nums, target):\n        "},
    "prompt": '"""\nFind two.\n"""\nclass Solution:\n    def twoSum(self, nums, target):\n        ',
    "prompt_sft": "Find two. (contest)\n\nUse this starter code:\n```python\nclass Solution: ...\n```",
    "test": '\nmy_solution = Solution()\n\ntest_input = { "nums": [2,7,11,15], "target": 9 }\n'
    'assert my_solution.twoSum(**test_input) == [0,1]\n\ntest_input = { "nums": [3,2,4], "target": 6 }\n'
    "assert my_solution.twoSum(**test_input) == [1,2]\n",
    "start_time": 1,
}


def open_instruct(truth: object, dataset: object, number: int) -> Row:
    return {"messages": chat(f"Solve it. ({number})")[1:], "ground_truth": truth, "dataset": dataset}


def verl(truth: object, number: int) -> Row:
    model = {"style": "rule", "ground_truth": json.dumps(truth)}
    return {
        "data_source": "code",
        "prompt": chat(f"Solve it. (verl {number})"),
        "ability": "code",
        "reward_model": model,
    }


SKYWORK = {
    "import_prefix": "from typing import *\n",
    "test_code": "def check(candidate):\n    assert candidate(nums = [2,7,11,15], target = 9) == [0,1]\n",
    "entry_point": "Solution().twoSum",
}
SKYRL: Row = {
    "data_source": "livecodebench",
    "prompt": chat("Find two. (SkyRL)"),
    "env_class": "lcb",
    "reward_spec": {"method": "rule", "ground_truth": json.dumps(LCB_CASES)},
    "extra_info": {"index": 0},
}
VERIFIERS: Row = {"prompt": chat("Add. (verifiers)"), "answer": "", "info": {"test_cases": CASES}, "task": "code"}
INTELLECT: Row = {
    "question": "Add the numbers of a line. (INTELLECT-3)",
    "info": json.dumps({"tests": json.dumps(PAIRS), "source": "taco", "starter_code": ""}),
    "avg@8_qwen3_4b": 0.5,
}
SYNTHETIC_2: Row = {
    "problem_id": "pc_1",
    "task_type": "prime_code",
    "prompt": "Add the numbers of a line. (SYNTHETIC-2)",
    "verification_info": json.dumps({"ground_truth": json.dumps(PAIRS)}),
    "metadata": "{}",
}
AREAL: Row = {
    "query_id": "q1",
    "prompt": "Add the numbers of a line. (AReaL)",
    "input_output": json.dumps(PAIRS),
    "language": "PYTHON",
    "task": "code",
}
TRL: Row = {"prompt": chat("Add the numbers of a line. (TRL)"), "solution": SUM, "test_cases": CASES}
CRUXEVAL: Row = {
    "code": "def f(text, n):\n    return text * n",
    "input": "'ab', 2",
    "output": "'abab'",
    "id": "sample_0",
}

TRAINER_SAMPLES = [
    Sample("KodCode", KODCODE, ADD, NO_ADD),
    Sample("AceCode", ACECODE, ADD, NO_ADD, solved=False),
    Sample("rStar-Coder", RSTAR, SUM, NO_SUM, solved=False),
    Sample("SkyRL", SKYRL, FIND, NO_FIND, solved=False),
    Sample("open-instruct", open_instruct(json.dumps(ASSERTS), "code", 1), ADD, NO_ADD, solved=False),
    Sample("open-instruct: list", open_instruct(ASSERTS, ["code"], 2), ADD, NO_ADD, solved=False),
    Sample("open-instruct: stdio", open_instruct(json.dumps(CASES), "code_stdio", 3), SUM, NO_SUM, solved=False),
    Sample("open-instruct: packed", open_instruct([packed(CASES)], ["code_stdio"], 4), SUM, NO_SUM, solved=False),
    Sample("NeMo Gym", NEMO, SUM, NO_SUM, solved=False),
    Sample("verifiers", VERIFIERS, SUM, NO_SUM, solved=False),
    Sample("verifiers: INTELLECT-3", INTELLECT, SUM, NO_SUM, solved=False),
    Sample("verifiable problems: SYNTHETIC-2", SYNTHETIC_2, SUM, NO_SUM, solved=False),
    Sample("verifiable problems: Skywork's LeetCode", verl(SKYWORK, 1), FIND, NO_FIND, solved=False),
    Sample("verifiable problems: Skywork's asserts", verl({"assert_case": ASSERTS}, 2), ADD, NO_ADD, solved=False),
    Sample("verifiable problems: verl's taco", verl(PAIRS, 3), SUM, NO_SUM, solved=False),
    Sample("TRL", TRL, SUM, NO_SUM),
    Sample(
        "prompt and answer: tests", {"prompt": "Add. (TRL)", "answer": json.dumps(CASES)}, SUM, NO_SUM, solved=False
    ),
    Sample("prompt and answer", {"prompt": "What is 2 + 2?", "answer": "4"}, "4", "5", solved=False),
    Sample("question and answer", {"question": "What is 2 * 4?", "answer": 8}, "8", "16", solved=False),
    Sample("AReaL", AREAL, SUM, NO_SUM, solved=False),
    Sample("code execution", CRUXEVAL, "'abab'", "'ab'", solved=False),
    Sample("evalplus", EVALPLUS, ADD + " + 1e-9", NO_ADD),
    Sample("evalplus: MBPP", EVALPLUS_MBPP, SHARED.replace("tuple", "list"), SHARED.replace("&", "|")),
    Sample("HumanEval-X", HUMANEVAL_X, ADD, NO_ADD),
    Sample("HumanEval-X: HumanEvalPack", HUMANEVAL_X | {"task_id": "Python/1", "entry_point": "add"}, ADD, NO_ADD),
    Sample("MultiPL-E", MULTIPL_E, ADD, NO_ADD, solved=False),
    Sample("DeepSeek's contests", CONTEST, FIND, NO_FIND, solved=False),
]
"""Each is called by its format, and what is its own."""

TRAINER_REFUSED: list[tuple[Row, str]] = [
    (HUMANEVAL_X | {"task_id": "CPP/0"}, "task_id: a problem in CPP"),
    (MULTIPL_E | {"language": "rs"}, "language: a problem in rs"),
    (AREAL | {"language": "CPP"}, "language: a problem in CPP"),
    (verl("42", 4), "no tests of programs"),
    (open_instruct("72", "gsm8k", 5), "no tests of programs"),
    (TRL | {"test_cases": []}, "there are no tests"),
    ({"prompt": "Tell me.", "answer": "A long story.\nIt ends."}, "neither tests of programs nor a value"),
    (CRUXEVAL | {"code": "print(1)"}, "does not define the function f"),
    (KODCODE | {"test": "from solution import add\n\ndef test_it(capsys):\n    add(1, 2)\n"}, "the fixture capsys"),
    (KODCODE | {"test": "from solution import add\n\nclass TestAdd:\n    pass\n"}, "a class of tests"),
    (
        KODCODE | {"test": "from solution import add\n\nasync def test_it():\n    assert add(1, 2) == 3\n"},
        "asynchronous",
    ),
    (
        KODCODE | {"test": "from solution import add\n\nif add:\n    def test_it():\n        add(1, 2)\n"},
        "depends on add",
    ),
    (KODCODE | {"test": "from solution import add as plus\n\ndef test_it():\n    plus(1, 2)\n"}, "another name"),
    (ACECODE | {"test_cases": ["assert Stack().push(1) == [1]"]}, "build objects of Stack"),
    (CONTEST | {"test": "s = Solution()\nassert s.one(1) == s.two(1)\n"}, "calls 2 methods"),
    (EVALPLUS | {"base_input": []}, "base_input"),
    (EVALPLUS | {"canonical_solution": "    return ("}, "canonical_solution: not Python"),
]
"""Rows that are set aside, and a word of the reason."""
