import json
import time
from dataclasses import replace

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import program_of
from raypoly.verifier import LocalPool
from raypoly.verifier.code_extraction import extract_code
from tests.support.response_forms import FORMS, SAMPLES

TESTS = TestSuite("calls", "[]")
SOLUTION = Problem("p", "", "Solution().twoSum", TESTS)
FUNCTION = Problem("p", "", "add", TESTS)
STDIN = Problem("p", "", "", TestSuite("stdin", "[]"))
OPERATIONS = Problem(
    "p", "", "", TestSuite("operations", json.dumps([{"operations": ["LRUCache", "put"], "args": [[2], [1, 1]]}]))
)
CLASS = "class Solution:\n    def twoSum(self): return 1\n"
OTHER = "class Solution: pass\n"
ADD = "def add(a, b):\n    return a + b\n"
ECHO = "n = int(input())\nprint(n)\n"
NODE = "class Node:\n    pass\n"
USER = "class Solution:\n    def twoSum(self): return Node()\n"
DOCUMENTED = '''class Solution:
    def twoSum(self):
        """Like this:

        ```
        Solution().twoSum()
        ```
        """
        return 1
'''
MODULE = f'"""\n```python\nf(1)\n```\n"""\n{CLASS}'


def indented(code: str, margin: str) -> str:
    return "".join(margin + line if line.strip() else line for line in code.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"~~~\n{CLASS}~~~\nIt uses `x`.", CLASS),
        (f"  ```python\n{CLASS}  ```", CLASS),
        (f"```python\n{CLASS}```\nOutput:\n```text\n1\n```", CLASS),
        (f"```python\n{OTHER}```\nAgain, cut off:\n```python\n{CLASS}", CLASS),
        ("```python\n", None),
        ("```", None),
    ],
)
def test_the_last_fenced_block_that_defines_what_is_called_is_the_program(response: str, code: str | None) -> None:
    assert extract_code(SOLUTION, response) == code


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"```{{.python .numberLines}}\n{CLASS}```", CLASS),
        (f'```title="x"\n{CLASS}```', CLASS),
        (f"```python {CLASS}```", CLASS),
        (f"```{CLASS}```", CLASS),
        ('````python\nclass Solution:\n    "```"\n````', 'class Solution:\n    "```"\n'),
        (f"10. ```python\n{indented(CLASS, '    ')}    ```", CLASS),
        (f"\t```python\n{indented(CLASS, chr(9))}\t```", CLASS),
        (f"> > ```python\n{indented(CLASS, '>> ')}> > ```", CLASS),
        (f"> ```python\n{indented(CLASS, '> ')}The quote ended.", CLASS),
        (f"```python\n{DOCUMENTED}```\nIt has `O(1)` cost.", DOCUMENTED),
        (f"```python\n{MODULE}```\nDone.", MODULE),
        (f'```python\n{CLASS}# a stray """\n```\nDone.\n', f'{CLASS}# a stray """\n'),
        (f"\ufeff```python\n\ufeff{CLASS}```", CLASS),
        (f"```python\nclass Node: pass\n\n{CLASS}```", f"class Node: pass\n\n{CLASS}"),
        (f"```markdown\nSee:\n```python\n{CLASS}```\n```\nThat is all.", CLASS),
    ],
)
def test_fences_are_read_however_they_are_written(response: str, code: str) -> None:
    assert extract_code(SOLUTION, response) == code


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"\ufeff{CLASS}", CLASS),
        (f"from typing import *\n\n{CLASS}", f"from typing import *\n\n{CLASS}"),
        (f"MOD = 10**9 + 7\n\n{CLASS}", f"MOD = 10**9 + 7\n\n{CLASS}"),
        (f"@cache\n{ADD}\n{CLASS}", f"@cache\n{ADD}\n{CLASS}"),
        (f"[PYTHON]\n{CLASS}", CLASS),
        (f"[PYTHON]\n```python\n{CLASS}```\n[/PYTHON]", CLASS),
        (f"Use a <code>dict</code>:\n\n{CLASS}", CLASS),
    ],
)
def test_bare_code_is_found_in_elements_and_between_prose(response: str, code: str) -> None:
    found = extract_code(SOLUTION, response)
    assert found is not None
    assert found.rstrip("\n") == code.rstrip("\n")


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"```python\n{CLASS}```\n<think>Or rather\n```python\n{OTHER}```", CLASS),
        (f"<think>a</think><think>\n{OTHER}</think>\n{CLASS}", CLASS),
    ],
)
def test_reasoning_is_no_answer_even_where_it_was_cut_off(response: str, code: str) -> None:
    assert extract_code(SOLUTION, response) == code


@pytest.mark.parametrize(
    "response",
    [
        "I can't solve this.",
        "",
        " \n\n",
        "```\n```",
        "```json\n{}\n```",
        '```\n{"a": [1, 2]}\n```',
        "```bash\npython solution.py\n```",
        "```sh\nX=1\n```\nand\n```console\n$ ls\n```",
        "```\nFirst sort the array, then return the pair (see above).\n```",
        "```python\n>>> Solution().twoSum()\n1\n```",
        "```pycon\n>>> 1\n1\n```",
        ">>> Solution().twoSum()\n1\n",
        "For each element: check whether the rest is there. Return (i, j).",
        "The answer = 5",
        "Define class Solution: and import what you need.",
        f"```json\n{{}}\n```\n{CLASS}",
    ],
)
def test_where_there_is_no_program_none_is_made_up(response: str) -> None:
    assert extract_code(SOLUTION, response) is None


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (f"```python\n{NODE}```\nThen:\n```python\n{USER}```", f"{NODE}\n{USER}"),
        (f"```python\nimport math\n```\n```python\n{NODE}```\n```python\n{USER}```", f"{NODE}\n{USER}"),
        (f"```python\nfrom m import Node\n```\n```python\n{USER}```", f"from m import Node\n\n{USER}"),
        (f"```python\n{NODE}```\n```python\n{NODE}{USER}```", f"{NODE}{USER}"),
        (f"```python\n{NODE}print(Node())\n```\n```python\n{USER}```", f"{NODE}{USER}"),
        (f"```python\n{NODE}{OTHER}```\n```python\n{USER}```", f"{NODE}{USER}"),
        (f"```python\nclass Base: pass\n```\n```python\nclass Node(Base): pass\n```\n```python\n{USER}```",
         f"class Base: pass\n\nclass Node(Base): pass\n\n{USER}"),
    ],
)  # fmt: skip
def test_helpers_in_earlier_blocks_come_along_where_they_are_needed(response: str, code: str) -> None:
    assert extract_code(SOLUTION, response) == code


@pytest.mark.parametrize(
    ("problem", "response", "code"),
    [
        (FUNCTION, f"```python\n{ADD}```\n```python\nprint(add(1, 2))\n```", ADD),
        (FUNCTION, "```\nadd = lambda a, b: a + b\n```\n```python\nadd(1, 2)\n```", "add = lambda a, b: a + b\n"),
        (FUNCTION, f"Here:\n{ADD}", ADD),
        (STDIN, f"```python\n{ECHO}```\nInput:\n```\n3\n```\n", ECHO),
        (STDIN, f"```\n{ECHO}```", ECHO),
        (STDIN, f"```python\n{ADD}```\n```python\n{ECHO}```", ECHO),
        (STDIN, f"Read it and print it:\n\n{ECHO}\nThat prints it.", f"{ECHO}\n"),
        (STDIN, "```\n3\n1 2 3\n```", None),
        (OPERATIONS, "```python\nclass LRUCache:\n    pass\n```\n```python\nc = LRUCache(2)\n```",
         "class LRUCache:\n    pass\n"),
    ],
)  # fmt: skip
def test_the_program_is_chosen_by_what_the_tests_call(problem: Problem, response: str, code: str | None) -> None:
    found = extract_code(problem, response)
    assert (found and found.rstrip("\n")) == (code and code.rstrip("\n"))


@pytest.mark.parametrize(
    "part",
    [
        "```\n", "```python\n", "~~~\n```\n", "```python\n'''\n```\n", '"""\n', "> ", "> ```python\n", " ", "\t", "`",
        "~", "``` ", "```python ", "<code>", "[PYTHON]</code>", "</think>", "<think>", "a.", "a,", "x[", "x: ", "\n",
        "(", "import a, ", "from ", "class ", "def f(", "1. ", "- ", " \n", "@a\n", "=", "#", "a", "if:", "lambda ",
        ">", "\r", "<|im_end|>", "# </think>\n", "x<|a|>\n", "```python\nreturn {}\n```\n", "pass;",
        "\\\"", "```python\nclass A{}:\n```\n", "```python\nimport a{}\nb{}()\n```\n",
    ],
)  # fmt: skip
def test_a_text_made_to_be_slow_is_read_to_its_end(part: str) -> None:
    """Quadratic time would be minutes."""
    start = time.process_time()
    text = "".join(part.replace("{}", str(number)) for number in range((1 << 17) // len(part)))
    last = f"\n</think>\n```python\n{CLASS}```"
    assert extract_code(SOLUTION, text + last) == CLASS
    extract_code(SOLUTION, text)
    extract_code(SOLUTION, f"```python\n{text}")
    assert time.process_time() - start < 20


def test_a_completion_continues_its_prefix() -> None:
    problem = Problem("p", "", "f", TESTS, answer="completion", prefix="def f(n):\n")
    assert extract_code(problem, " return n") == "def f(n):\n return n"
    assert extract_code(problem, " \n") is None


def test_forms_of_answers_pass_where_right_and_fail_where_wrong() -> None:
    tried = [
        (form, sample, is_right, form.response(sample, *pair))
        for form in FORMS
        for sample in SAMPLES[::2]
        if sample.kind in form.kinds
        for is_right, pair in ((True, (sample.right, sample.wrong)), (False, (sample.wrong, sample.right)))
    ]
    problems = {sample.name: sample.problem for sample in SAMPLES}
    found = [(problems[sample.name], extract_code(problems[sample.name], text)) for _, sample, _, text in tried]
    with LocalPool(ScorerConfig(workers=2)) as pool:
        verdicts = pool.score((problem, None if code is None else program_of(problem, code)) for problem, code in found)
        passed = [verdict.passed for verdict in verdicts]
    assert [
        (form.name, sample.name, is_right)
        for (form, sample, is_right, _), got in zip(tried, passed, strict=True)
        if got != is_right
    ] == []


PY = "```python\n{}\n```\n"
NOTHING_READ = "def main():\n    print('Hello')\n\nmain()\n"


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        (["print('Helo')", "print('Hello')"], 1),
        ([NOTHING_READ, "assert True"], 0),
        ([ECHO, "import subprocess\nprint(subprocess.run(['x'], input='3', stdin=None))"], 0),
        ([ECHO, "import io, sys\nsys.stdin = io.StringIO('3')\nprint(input())"], 0),
        ([ECHO, "def main():\n    n = int(input())\n    ...\n"], 0),
        (["def f(n):\n    return n\nprint(f(int(input())))", "def f(n):\n    pass\nprint(f(int(input())))"], 0),
        (["def f(n):\n    pass\nprint(f(int(input())))", "def f(n):\n    return n\nprint(f(int(input())))"], 1),
        ([ECHO, ECHO + "print('debug')"], 1),
        ([ECHO + "print('debug')", ECHO], 1),
        (["import math\nprint(math.sqrt(int(input())))", "n = int(input())\nprint(math.sqrt(n))"], 1),
        ([ECHO, "def main():\n    print(int(input()) * 2)\nreturned = main()"], 1),
    ],
)
def test_of_several_programs_the_last_that_reads_and_prints_counts(blocks: list[str], kept: int) -> None:
    code = extract_code(STDIN, "".join(map(PY.format, blocks)))
    assert code is not None
    assert code.strip() == blocks[kept].strip()


USED = "def f(n):\n    return {}\n"
ASKED = "\n\nprint(f(input()))\n"
DOUBLE = "def add(a, b):\n    return f(a)\n"


@pytest.mark.parametrize(
    ("problem", "blocks", "code"),
    [
        (STDIN, [USED.format("n") + ASKED, USED.format("2 * n")], USED.format("2 * n") + ASKED),
        (FUNCTION, [USED.format("n") + DOUBLE, USED.format("2 * n")], USED.format("2 * n") + DOUBLE),
        (FUNCTION, [DOUBLE, "def add[T](a, b):\n    return a\n"], "def add[T](a, b):\n    return a\n"),
        (SOLUTION, [CLASS, "def twoSum():\n    return 2\n"], "def twoSum():\n    return 2\n"),
        (SOLUTION, [CLASS, "def twoSum():\n    return Solution().twoSum()\n"], CLASS),
        (replace(FUNCTION, prefix="def add(a, b):\n"), [ADD, "    return a - b\n"], "return a - b\n"),
    ],
)  # fmt: skip
def test_what_a_later_block_gives_anew_replaces_what_was_there(problem: Problem, blocks: list[str], code: str) -> None:
    found = extract_code(problem, "".join(map(PY.format, blocks)))
    assert found is not None
    assert list(filter(str.strip, found.split("\n"))) == list(filter(str.strip, code.split("\n")))


@pytest.mark.parametrize("tag", ["pypy3", "tool_code", "jupyter", "program", "PyPy 3"])
def test_a_tag_that_means_python_is_one(tag: str) -> None:
    assert extract_code(STDIN, f"```{tag}\n{ECHO}```") == ECHO


def test_a_program_within_one_line_is_one() -> None:
    assert extract_code(STDIN, "```python print(int(input()) ** 2)```") == "print(int(input()) ** 2)\n"


@pytest.mark.parametrize(
    "stub",
    ["...", "pass", '"""Add."""', "# to do", "raise NotImplementedError('x')", '"""Add.\n\n    Or."""\n    pass'],
)
def test_a_stub_replaces_no_body(stub: str) -> None:
    assert extract_code(FUNCTION, f"```python\n{ADD}```\n" + PY.format(f"def add(a, b):\n    {stub}")) == ADD


@pytest.mark.parametrize(
    "begin", ["<think>", "[THINK]", "<|begin_of_thought|>", "<reasoning>", "<|channel|>analysis<|message|>"]
)
def test_an_unfinished_thought_holds_no_answer(begin: str) -> None:
    assert extract_code(FUNCTION, f"{begin}\n{PY.format(ADD)}Hmm") is None
