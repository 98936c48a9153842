"""Responses as models write them: forms, and small problems to be answered in each.

for form in FORMS:
    for sample in SAMPLES:
        if sample.kind in form.kinds:
            right = form.response(sample, sample.right, sample.wrong)    # must pass
            wrong = form.response(sample, sample.wrong, sample.right)    # must not: its draft alone is right
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.core.values import Problem
from raypoly.data.formats import problem_of

FUNCTION, METHOD, SCRIPT, COMPLETION = KINDS = ("function", "method", "stdin", "completion")
_PLACE = re.compile(r"«(\w+)(?:\|([^»]*))?»")


@dataclass(frozen=True)
class Answer:
    helper: str
    main: str
    body: str = ""
    """For a completion: what follows the prompt."""

    @property
    def code(self) -> str:
        return f"{self.helper}\n\n\n{self.main}"


@dataclass(frozen=True)
class Sample:
    name: str
    kind: str
    row: Mapping[str, Any]
    right: Answer
    wrong: Answer
    demo: str
    stub: str

    @property
    def problem(self) -> Problem:
        return problem_of(self.row)


@dataclass(frozen=True)
class Form:
    name: str
    template: str
    """`«code»`, `«helper»`, `«main»`, `«body»` of the answer, `«draft»` of the other one, `«quote»`, `«demo»`,
    `«stub»`; behind a bar what each line begins with."""
    kinds: Sequence[str] = KINDS

    def response(self, sample: Sample, answer: Answer, draft: Answer) -> str:
        parts = {
            "code": answer.code,
            "helper": answer.helper,
            "main": answer.main,
            "body": answer.body,
            "dedented": "\n".join(line.removeprefix("    ") for line in answer.body.split("\n")),
            "stripped": answer.body.strip(),
            "quote": answer.main.split("\n")[-1].strip(),
            "draft": draft.code,
            "demo": sample.demo,
            "stub": sample.stub,
            "methods": answer.main.partition("\n")[2],
            "inner": "\n".join(line.removeprefix("    ") for line in answer.main.split("\n")[1:]),
            "below": "\n".join(answer.main.split("\n")[2:]),
            "escaped": answer.code.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        }

        def fill(found: re.Match[str]) -> str:
            begin = found[2] or ""
            return "\n".join((begin + line).rstrip() for line in parts[found[1]].split("\n"))

        text = _PLACE.sub(fill, self.template)
        return text.replace("\n", "\r\n") if "carriage returns" in self.name else text


def _function(name: str, cases: Sequence[tuple[list[Any], Any]], right: Answer, wrong: Answer, call: str) -> Sample:
    tests = {"kind": "calls", "cases": [{"args": args, "expected": expected} for args, expected in cases]}
    row = {"id": name, "prompt": "p", "entry_point": name, "tests": tests}
    head = re.search(rf"def {name}\(.*:", right.main)
    assert head is not None
    return Sample(name, FUNCTION, row, right, wrong, f"print({call})", f"{head[0]}\n    # your code here\n    pass")


def _method(name: str, cases: Sequence[tuple[list[Any], Any]], right: Answer, wrong: Answer, call: str) -> Sample:
    head = re.search(rf"    def {name}\(.*:", right.main)
    assert head is not None
    starter = f"class Solution:\n{head[0]}\n        "
    tests = [
        {"input": "\n".join(map(json.dumps, args)), "output": json.dumps(expected), "testtype": "functional"}
        for args, expected in cases
    ]
    row = {
        "question_id": name,
        "question_content": "q",
        "starter_code": starter,
        "public_test_cases": json.dumps(tests),
        "private_test_cases": "[]",
        "metadata": json.dumps({"func_name": name}),
    }
    return Sample(
        name, METHOD, row, right, wrong, f"sol = Solution()\nprint(sol.{call})", f"{starter.rstrip()}\n        pass"
    )


def _script(name: str, cases: Sequence[tuple[str, str]], right: Answer, wrong: Answer, demo: str, stub: str) -> Sample:
    tests = {"kind": "stdin", "cases": [{"input": given, "output": output} for given, output in cases]}
    return Sample(name, SCRIPT, {"id": name, "prompt": "p", "tests": tests}, right, wrong, demo, stub)


def _completion(name: str, prompt: str, checks: str, right: Answer, wrong: Answer, call: str) -> Sample:
    row = {
        "task_id": f"T/{name}",
        "prompt": prompt,
        "entry_point": name,
        "canonical_solution": right.body,
        "test": checks,
    }
    return Sample(name, COMPLETION, row, right, wrong, f"print({call})", f"{prompt.rstrip()}\n    pass")


_EVENS_PROMPT = '''from typing import List


def evens(xs: List[int]) -> List[int]:
    """ Keep the even numbers.
    >>> evens([1, 2])
    [2]
    """
'''
_LONGEST_PROMPT = '''def longest(words):
    """Return the first of the longest words, or None.

    >>> longest(["a", "bb"])
    'bb'
    """
'''
SAMPLES: Sequence[Sample] = (
    _function(
        "square_sum",
        [([[1, 2, 3]], 14), ([[]], 0), ([[-4]], 16)],
        Answer("def square(n):\n    return n * n", "def square_sum(ns):\n    return sum(square(n) for n in ns)"),
        Answer("def square(n):\n    return n + n", "def square_sum(ns):\n    return sum(square(n) for n in ns)"),
        "square_sum([1, 2, 3])",
    ),
    _function(
        "count_vowels",
        [(["banana"], 3), (["xyz"], 0), (["AEIOU"], 5)],
        Answer(
            'VOWELS = set("aeiou")',
            'def count_vowels(text):\n    """Count them."""\n    return sum(c.lower() in VOWELS for c in text)',
        ),
        Answer(
            'VOWELS = set("aeio")',
            'def count_vowels(text):\n    """Count them."""\n    return sum(c.lower() in VOWELS for c in text)',
        ),
        'count_vowels("banana")',
    ),
    _method(
        "maxProfit",
        [([[7, 1, 5, 3, 6, 4]], 5), ([[7, 6, 4]], 0)],
        Answer(
            "def gains(prices):\n    low = prices[0]\n    for price in prices:\n        low = min(low, price)\n"
            "        yield price - low",
            "class Solution:\n    def maxProfit(self, prices: List[int]) -> int:\n        return max(gains(prices))",
        ),
        Answer(
            "def gains(prices):\n    low = prices[0]\n    for price in prices:\n        yield price - low",
            "class Solution:\n    def maxProfit(self, prices: List[int]) -> int:\n        return max(gains(prices))",
        ),
        "maxProfit([7, 1, 5])",
    ),
    _method(
        "isPalindrome",
        [([121], True), ([10], False), ([-121], False)],
        Answer(
            "def digits(n):\n    return str(n)",
            "class Solution:\n    def isPalindrome(self, x: int):\n        s = digits(x)\n        return s == s[::-1]",
        ),
        Answer(
            "def digits(n):\n    return str(abs(n))",
            "class Solution:\n    def isPalindrome(self, x: int):\n        s = digits(x)\n        return s == s[::-1]",
        ),
        "isPalindrome(121)",
    ),
    _script(
        "squares",
        [("3\n", "9\n"), ("5\n", "25\n")],
        Answer("def solve(n):\n    return n * n", "if __name__ == '__main__':\n    print(solve(int(input())))"),
        Answer("def solve(n):\n    return n + n", "if __name__ == '__main__':\n    print(solve(int(input())))"),
        "print(solve(4))  # 16",
        "def solve(n):\n    # your code here\n    pass\n\nprint(solve(int(input())))",
    ),
    _script(
        "total",
        [("3\n1 2 3\n", "6\n"), ("1\n5\n", "5\n")],
        Answer(
            "import sys\n\n\ndef main():\n    data = sys.stdin.read().split()\n    n = int(data[0])\n"
            "    print(sum(map(int, data[1:n + 1])))",
            "main()",
        ),
        Answer(
            "import sys\n\n\ndef main():\n    data = sys.stdin.read().split()\n    n = int(data[0])\n"
            "    print(sum(map(int, data[1:n])))",
            "main()",
        ),
        'import io\nsys.stdin = io.StringIO("3\\n1 2 3\\n")\nmain()',
        "def main():\n    # read the input, print the answer\n    ...",
    ),
    _script(
        "pairs",
        [("2\n1 2\n4 3\n", "1 2\n3 4\n"), ("1\n9 8\n", "8 9\n")],
        Answer(
            "def order(a, b):\n    return (a, b) if a < b else (b, a)",
            "for _ in range(int(input())):\n    a, b = map(int, input().split())\n    print(*order(a, b))",
        ),
        Answer(
            "def order(a, b):\n    return (a, b)",
            "for _ in range(int(input())):\n    a, b = map(int, input().split())\n    print(*order(a, b))",
        ),
        "assert order(4, 3) == (3, 4)\nprint(order(4, 3))",
        "def order(a, b):\n    raise NotImplementedError",
    ),
    _script(
        "doubled",
        [("3\n", "6\n"), ("-5\n", "-10\n")],
        Answer("n, *_ = map(int, input().split())", "print(n * 2)"),
        Answer("n, *_ = map(int, input().split())", "print(n + 2)"),
        "n = 4\nprint(n * 2)  # 8",
        "n = ...\nprint(...)",
    ),
    _completion(
        "evens",
        _EVENS_PROMPT,
        "def check(candidate):\n    assert candidate([1, 2, 3, 4]) == [2, 4]\n    assert candidate([]) == []\n",
        Answer(
            "def is_even(x):\n    return x % 2 == 0",
            "def evens(xs):\n    return [x for x in xs if is_even(x)]",
            "    return [x for x in xs if x % 2 == 0]",
        ),
        Answer(
            "def is_even(x):\n    return x % 2 == 1",
            "def evens(xs):\n    return [x for x in xs if is_even(x)]",
            "    return [x for x in xs if x % 2 == 1]",
        ),
        "evens([1, 2])",
    ),
    _completion(
        "longest",
        _LONGEST_PROMPT,
        "def check(candidate):\n    assert candidate(['a', 'bb', 'cc']) == 'bb'\n    assert candidate([]) is None\n",
        Answer(
            "def size(word):\n    return len(word)",
            "def longest(words):\n    return max(words, key=size, default=None)",
            "    best = None\n    for word in words:\n        if best is None or len(word) > len(best):\n"
            "            best = word\n    return best",
        ),
        Answer(
            "def size(word):\n    return -len(word)",
            "def longest(words):\n    return max(words, key=size, default=None)",
            "    best = None\n    for word in words:\n        if best is None or len(word) >= len(best):\n"
            "            best = word\n    return best",
        ),
        "longest(['a', 'bb'])",
    ),
)  # fmt: skip

_FENCED = "```python\n«code»\n```"
_DRAFT = "```python\n«draft»\n```"
_R1 = "Okay, let me think. First idea:\n\n```python\n«draft»\n```\n\nWait, that's wrong: it can't be \"right\"."
_BODY = (COMPLETION,)
FORMS: Sequence[Form] = tuple(
    Form(name, template, *kinds)
    for name, template, *kinds in (
        # one block, as instruction models write it
        ("fence", _FENCED),
        (
            "prose around",
            f"Here is the solution:\n\n{_FENCED}\n\n### Explanation\n\n1. It loops once.\n2. Time is `O(n)`.",
        ),
        ("tag py", "```py\n«code»\n```"),
        ("tag Python3", "```Python3\n«code»\n```"),
        ("no tag", "Sure!\n\n```\n«code»\n```\n"),
        ("tag with title", '```python title="solution.py"\n«code»\n```'),
        ("tag with a file", "```python:solution.py\n«code»\n```"),
        ("tag on the first line", "```\npython\n«code»\n```"),
        ("tildes", "~~~python\n«code»\n~~~"),
        ("four backticks", "````python\n«code»\n````"),
        ("carriage returns", f"Here:\n\n{_FENCED}\n\nDone.\n"),
        ("fence behind prose", "The code is: ```python\n«code»\n```"),
        ("end glued to code", "```python\n«code»```"),
        ("text behind the end", "```python\n«code»\n``` That is all."),
        ("boxed", "\\boxed{\n```python\n«code»\n```\n}"),
        ("numbered list", "1. Write this:\n\n   ```python\n«code|   »\n   ```\n2. Run it."),
        ("bullet", "- ```python\n«code|  »\n  ```\n- That is all."),
        ("blockquote", "> ```python\n«code|> »\n> ```\n\nAs asked."),
        ("heading and rule", f"## Solution\n\n---\n\n{_FENCED}\n\n---\n**Complexity:** *O(n)*"),
        ("details", f"<details>\n<summary>Solution</summary>\n\n{_FENCED}\n\n</details>"),
        ("shell first", f"```bash\npip install numpy\n```\n\n{_FENCED}\n\n```bash\npython solution.py\n```"),
        ("other language behind", f"{_FENCED}\n\nIn C++:\n```cpp\nint main() {{ return 0; }}\n```"),
        # a demonstration, asserts, samples, quotes behind it
        ("demo behind", f"{_FENCED}\n\nExample usage:\n\n```python\n«demo»\n```"),
        ("demo and its output", f"{_FENCED}\n\nUsage:\n```python\n«demo»\n```\nOutput:\n```\n16\n```"),
        ("sample without tags", f"{_FENCED}\nFor the input\n```\n3\n```\nit prints\n```\n9\n```"),
        ("asserts behind", f"{_FENCED}\n\nTests:\n```python\nassert 1 + 1 == 2\nassert str(2) == '2'\n```"),
        ("test function behind", f"{_FENCED}\n```python\ndef test_it():\n    assert True\n\ntest_it()\n```"),
        (
            "line quoted behind",
            f"{_FENCED}\n\n**Explanation.** The key line is\n```python\n«quote»\n```\nand it is fast.",
        ),
        ("return quoted behind", f"{_FENCED}\n\nThe key line is\n```python\nreturn n * n\n```\n"),
        ("quoted twice", f"{_FENCED}\nFirst\n```python\n«quote»\n```\nthen again\n```\n«quote»\n```"),
        ("session behind", f"{_FENCED}\n\n```python\n>>> 1 + 1\n2\n```"),
        (
            "input tip behind",
            f"{_FENCED}\n\nFor speed:\n```python\nimport sys\ninput = sys.stdin.readline\n```",
            (SCRIPT,),
        ),
        ("reading shown behind", f"{_FENCED}\n\nInput is read like\n```python\nrows = input().split()\n```", (SCRIPT,)),
        ("definition quoted behind", f"{_FENCED}\nThe main part:\n```python\n«main»\n```", KINDS[:2]),
        (
            "traceback behind",
            f"{_FENCED}\nIt was\n```\nTraceback (most recent call last):\n    print(f(1))\nEOFError: no line\n```",
        ),
        (
            "tip to read a file behind",
            "```python\nfrom sys import stdin\n«code»\n```\nOr:\n```python\nimport sys\nsys.stdin = open('a')\n```",
            (SCRIPT,),
        ),
        # stubs
        ("stub before", f"The skeleton:\n```python\n«stub»\n```\nFilled in:\n{_FENCED}"),
        ("stub behind", f"{_FENCED}\nNote that the skeleton\n```python\n«stub»\n```\nwas kept."),
        ("stub and demo behind", f"{_FENCED}\n```python\n«stub»\n```\n```python\n«demo»\n```"),
        ("comment block behind", f"{_FENCED}\n```python\n# nothing else is needed\n```"),
        ("ellipsis behind", f"{_FENCED}\n```python\n...\n```"),
        # several blocks
        ("helper and main", "Helper:\n```python\n«helper»\n```\nMain:\n```python\n«main»\n```"),
        ("helper, main, demo", "```python\n«helper»\n```\n```python\n«main»\n```\nTry:\n```python\n«demo»\n```"),
        ("main, then helper", "```python\n«main»\n```\nwhere\n```python\n«helper»\n```"),
        ("only the helper changes", f"{_DRAFT}\nOnly this changes:\n```python\n«helper»\n```", KINDS[:2]),
        (
            "setting and helper, then main",
            "```python\nimport sys\nsys.setrecursionlimit(10**6)\n\n«helper»\n```\n```python\n«main»\n```",
            (FUNCTION, SCRIPT),
        ),
        ("imports apart", f"```python\nimport math\n```\n{_FENCED}"),
        ("draft, then final", f"First try:\n{_DRAFT}\nThat is wrong. Final:\n{_FENCED}"),
        ("draft, final, demo", f"{_DRAFT}\nBetter:\n{_FENCED}\n```python\n«demo»\n```"),
        ("in an if, then demo", "```python\nif True:\n«code|    »\n```\n```python\n«demo»\n```", KINDS[:2]),
        (
            "helper in a try",
            "```python\ntry:\n«helper|    »\nfinally:\n    pass\n```\n```python\n«main»\n```",
            KINDS[:2],
        ),
        ("draft, final, quote", f"{_DRAFT}\nBetter:\n{_FENCED}\nHere\n```python\n«quote»\n```\nis what counts."),
        ("two approaches", f"### Approach 1\n{_DRAFT}\n### Approach 2 (optimal)\n{_FENCED}\n\nUse the second."),
        ("draft never closed", f"```python\n«draft»\n\nHmm, wait. Again:\n\n{_FENCED}"),
        (
            "step by step, then whole",
            f"Step 1:\n```python\n«helper»\n```\nStep 2:\n```python\n«main»\n```\nWhole:\n{_FENCED}",
        ),
        ("the same twice", f"{_FENCED}\n\nSo the final answer is\n\n{_FENCED}"),
        # thoughts: DeepSeek-R1, Qwen3, QwQ, Magistral, EXAONE, Sky-T1, Kimi, gpt-oss
        ("think", f"<think>\n{_R1}\n</think>\n\n{_FENCED}"),
        ("think without its start", f"{_R1}\n</think>\n\n{_FENCED}"),
        ("think without its start, glued", f"{_R1}</think>{_FENCED}"),
        ("empty think", f"<think>\n\n</think>\n\n{_FENCED}"),
        ("think mentions its end", f"<think>I close with `</think>`.\n{_DRAFT}\n</think>\n{_FENCED}"),
        ("think with an open fence", f"<think>\n```python\n«draft»\nthat's wrong</think>\n{_FENCED}"),
        ("thinking", f"<thinking>\n{_DRAFT}\n</thinking>\n{_FENCED}"),
        ("thought", f"<thought>\n{_DRAFT}\n</thought>\n\n{_FENCED}"),
        ("reasoning and answer", f"<reasoning>\n{_DRAFT}\n</reasoning>\n<answer>\n{_FENCED}\n</answer>"),
        ("[THINK]", f"[THINK]{_DRAFT}[/THINK]{_FENCED}"),
        (
            "begin_of_thought",
            f"<|begin_of_thought|>\n{_R1}\n<|end_of_thought|>\n<|begin_of_solution|>\n{_FENCED}\n<|end_of_solution|>",
        ),
        ("kimi", f"◁think▷{_R1}◁/think▷{_FENCED}"),
        (
            "harmony",
            f"<|channel|>analysis<|message|>{_R1}<|end|>"
            f"<|start|>assistant<|channel|>final<|message|>{_FENCED}<|return|>",
        ),
        ("harmony with a constraint", "<|channel|>final <|constrain|>python<|message|>«code»<|return|>"),
        ("harmony without tokens", f"analysisWe need code. {_DRAFT}assistantfinal{_FENCED}"),
        ("think between", f"{_DRAFT}\n<think>\nIs it right? No.\n</think>\n{_FENCED}"),
        ("think explained behind", f"{_FENCED}\nThe text may contain `</think>`, or </think>, which is kept."),
        ("think in a comment", "```python\n# what follows </think> is the answer, not <think>\n«code»\n```"),
        ("think in a text", 'X = "<think>a</think>"\nY = """\n</think>\n<|im_end|>\n"""\n«code»'),
        (
            "think in a fenced text",
            '```python\nX = r"<think>.*?</think>|<\\|im_end\\|>"\nY = """\n</think>\n<|im_end|>\n"""\n«code»\n```',
        ),
        # special tokens
        ("closed, then <|im_end|>", f"{_FENCED}<|im_end|>"),
        ("closed, then </s>", f"{_FENCED}</s>"),
        ("unclosed, then <|endoftext|>", "```python\n«code»\n<|endoftext|>"),
        ("unclosed, <|eot_id|> glued", "```python\n«code»<|eot_id|>"),
        ("unfenced, <|endoftext|> glued", "«code»<|endoftext|>"),
        ("unfenced, <|end_of_text|>", "«code»\n<|end_of_text|>"),
        ("unfenced, </s> glued", "«code»</s>"),
        ("DeepSeek's end", f"{_FENCED}<｜end▁of▁sentence｜>"),
        ("Gemma's end", "```python\n«code»\n```<end_of_turn>\n<eos>"),
        ("Llama's header", f"<|start_header_id|>assistant<|end_header_id|>\n\n{_FENCED}<|eot_id|>"),
        ("ChatML's header", f"<|im_start|>assistant\n{_FENCED}<|im_end|>"),
        ("Mistral's header", f"[/INST] {_FENCED}</s>"),
        (
            "a next turn",
            f"{_FENCED}<|im_end|>\n<|im_start|>user\nAgain?<|im_end|>\n<|im_start|>assistant\n{_DRAFT}<|im_end|>",
        ),
        ("a next instruction", f"{_FENCED}\n\n### Instruction:\nAgain.\n\n### Response:\n{_DRAFT}"),
        ("a next document", "«code»<|endoftext|>import os\n\n«draft»"),
        # cut off, unclosed, unfenced
        ("unclosed", "Here:\n\n```python\n«code»"),
        ("unclosed, then prose", "```python\n«code»\n\nThis program runs in linear time."),
        ("end cut", "```python\n«code»\n``"),
        ("fence opened by the prompt", "«code»\n```\n\nThis is what was asked."),
        ("prompt's fence, then demo", "«code»\n```\nUsage:\n```python\n«demo»\n```\n"),
        ("explanation cut off", f"{_FENCED}\n\nIt works because the"),
        ("demo cut off", f"{_FENCED}\n\nExample:\n```python\n«demo»"),
        ("unfenced", "«code»\n"),
        ("unfenced behind prose", "Sure, this works:\n\n«code»"),
        ("unfenced, prose behind", "«code»\n\nThis solution takes linear time."),
        ("unclosed, lower-case prose", "```python\n«code»\n\nthis runs in linear time."),
        ("unclosed, Chinese prose", "```python\n«code»\n\n这个程序很快。"),
        ("unclosed, a label", "```python\n«code»\n\nExplanation:\nIt loops once."),
        ("output in the code's fence", "```python\n«code»\n\nOutput:\n```\n9\n```"),
        ("unclosed, in <answer>", "<answer>\n```python\n«code»\n</answer>"),
        ("draft, then unfenced", f"{_DRAFT}\nThat is wrong. Final:\n\n«code»\n"),
        ("unfenced, indented", "The program:\n\n«code|    »\n\nThat is all."),
        # elements
        ("<answer>", "<answer>\n«code»\n</answer>"),
        ("<answer> around a fence", f"<answer>{_FENCED}</answer>"),
        ("[PYTHON]", "[PYTHON]\n«code»\n[/PYTHON]"),
        ("<code>", "It is\n<code>«code»</code>\nas asked."),
        ("<pre><code>", '<p>Here:</p>\n<pre><code class="language-python">«escaped»\n</code></pre>\n<p>Done.</p>'),
        ("<python>", "<python>\n«code»\n</python>"),
        # parts of a class
        ("methods alone", "```python\n«helper»\n\n«inner»\n```", (METHOD,)),
        ("methods alone, indented", "```python\n«helper»\n```\n```python\n«methods»\n```", (METHOD,)),
        # bodies, as base models complete HumanEval
        ("body", "«body»\n", _BODY),
        ("body, then a definition", "«body»\n\n\ndef other(xs):\n    return [x for x in xs if x]\n", _BODY),
        ("body, then prose", "«body»\n\nThis function takes linear time.\n", _BODY),
        (
            "body, then tests",
            '«body»\n\n\nif __name__ == "__main__":\n    import doctest\n    doctest.testmod()\n',
            _BODY,
        ),
        ("body, then a comment", "«body»\n\n# Test\n«demo»\n", _BODY),
        ("body and token", "«body»<|endoftext|>", _BODY),
        ("body, dedented", "«dedented»", _BODY),
        ("body, stripped", "«stripped»", _BODY),
        ("body behind prose", "The body is:\n\n«body»\n", _BODY),
        ("body fenced", "```python\n«body»\n```", _BODY),
        ("body fenced without a tag", "```\n«body»\n```\nDone.", _BODY),
        ("body fenced, dedented", "Add this:\n```python\n«dedented»\n```", _BODY),
        ("body fenced, stripped", "```python\n«stripped»\n```", _BODY),
        ("body fenced, then a definition", "```python\n«body»\n\n\ndef other(xs):\n    return xs\n```", _BODY),
        ("body fenced, then demo", "```python\n«body»\n```\nUse:\n```python\n«demo»\n```", _BODY),
        ("body, then demo fenced", "«body»\n\nExample:\n```python\n«demo»\n```\n", _BODY),
        ("body, then whole fenced", "«body»\n\nAs a whole:\n```python\n«code»\n```\n", _BODY),
        ("body in a thought", "<think>\n```python\n«draft»\n```\n</think>\n```python\n«body»\n```", _BODY),
        ("whole, body quoted behind", f"{_FENCED}\nThe body is\n```python\n«body»\n```", _BODY),
        ("prompt repeated", "```python\n«stub»\n```\n```python\n«code»\n```", _BODY),
    )
)
