"""Answers of mathematics (`comparison="math"`), compared by value: `\\boxed{\\frac12}` is right where 0.5 is.

    plain_verdict(tests, "1,234.50")           # plain numbers are compared here, exactly; None where one is none
    question = math_question(tests, "[1,2)") # else math-verify decides: a program of ours, to be run in a sandbox
    math_verdict(tests, answer, verdict)     # what it printed, as a verdict on the answer

math-verify parses what a model wrote, so it sees it in a confined child alone; its alarms are off, and the child's
limits end what takes too long. It has no LaTeX for some ways of writing a number, which are rewritten before.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

from raypoly.core.errors import SandboxError
from raypoly.core.values import Failure, Problem, TestSuite, Verdict
from raypoly.data.formats.mathematics import brace_depths
from raypoly.verifier.sandbox.outcome import one_line

PACKAGES = ("math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath")
"""math-verify and all that it imports."""
_LONGER, _SMALL = 16, 1 << 12
_SHOWN = 200
_LONGEST_NUMBER = 1000
MISSING = (
    "math-verify, which compares values, is not installed: pip install 'raypoly[math]' on each machine that scores"
)
_PRELUDE = r"""
import importlib.metadata, json, logging, sys
importlib.metadata.version = lambda name: {antlr!r}  # packages' metadata is out of the child's sight
logging.disable()
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Expr, Float, Interval, Rational
from sympy.core.relational import Equality

# without units: there every last letter of g, h, l, m, s, t ... is one, and 5t would be 5
HOW = LatexExtractionConfig(normalization_config=NormalizationConfig(malformed_operators=True, nits=True))

def read(text):
    return parse("\\boxed{" + text + "}", [HOW], parsing_timeout=None)

def is_right(expected, answer):
    return verify(expected, answer, timeout_seconds=None, allow_set_relation_comp=True) and is_close(expected, answer)

# of what verify() calls equal: to six decimals, and an open interval like the two numbers of its ends
def is_close(expected, answer):
    values = [found[0] for found in (expected, answer)]
    if isinstance(values[0], Interval) != isinstance(values[1], Interval):
        return all(found[-1].replace("\\left", "").lstrip()[:1] in "([" for found in (expected, answer))
    if any(isinstance(value, Float) for value in values) and all(getattr(value, "is_number", 0) for value in values):
        one, other = (complex(value.doit()) for value in values)  # a percentage is a product that stays one
        return abs(one - other) <= 2e-6 * max(abs(one), abs(other))
    return True

def shown(answer):
    value = answer[0] if answer else ""
    try:
        value = value.rhs if isinstance(value, Equality) else value
        value = value if isinstance(value, str) else value.doit()
        value = value.expand() if isinstance(value, Expr) else value
        return str(Rational(str(value)) if isinstance(value, Float) else value)[:{most}]
    except Exception:  # no value, such as 1/0 as a float: the answer's own text stands for it
        return ""

for text in ("[1,2)", r"\{1,\frac{1}{2}\}", r"x=3\sqrt{2}^2", r"50\%", r"(-\infty,3]", "x^2+2x+1", "1,234.5"):
    is_right(read("0.5"), read(text))  # the parser learns as it parses, once for all children
"""
_PROGRAM = """
expected, answer = map(read, json.load(sys.stdin))
right = is_right(expected, answer)
print(json.dumps([right, "" if right else shown(answer)]))
"""
MATH_PROGRAM = _PROGRAM.lstrip()

_SAID = re.compile(r"answer(?:\s*[:=]|\s+(?:is|are)\b\s*:?)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?")
_REWRITTEN = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\?\$|\\[()\[\]]", " "),
        (r"−", "-"),
        (r"\\boxed\b", " "),
        (r"(?<=\d)(?:\{,\}|\\[,!;: ]|[ \u00a0\u2009\u202f])(?=\d{3}(?!\d))", ""),
        (r"(?<=\d)[eE]([-+]?\d{1,6})\b", r"\\times 10^{\1}"),
        (r"^\s*(-?\d+)\s+(\d+)/(\d+)\s*$", r"\1\\frac{\2}{\3}"),
        (r"\s*\\?\bpercent\b", r"\\%"),
        (r"(?<=\d)\.0+(?=\\%)", ""),  # a large float's hundredth is not exact to six decimals
    )
)
# words in `\text{...}` are units, unless they say more: `18\text{ or 19}`
_WORDS = re.compile(r"\\(?:text(?:rm|bf|it|sf|tt|normal)?|mbox|hbox|math(?:rm|bf|it)|operatorname)\s*\{([^{}]*)\}")
_UNIT = re.compile(_WORDS.pattern + r"(?:\^\{?[-+]?\d\}?)?")
_SAYS_MORE = re.compile(
    r"(?<![\^\d])(?<!\^[{-])\d|\b(?:or|and|hundred|thousand|[mbtr]+illion|dozen|half|percent)s?\b", re.I
)


@cache
def knows_math() -> bool:
    """Whether math-verify is installed beside raypoly (extra `math`)."""
    return all(find_spec(name) is not None for name in PACKAGES)


def plain_verdict(tests: TestSuite, answer: str) -> Verdict | None:
    """The verdict where both are plain numbers or equal texts, or where nothing else can compare; else None."""
    if len(answer) > _most(tests):
        return _verdict(tests, answer, False, answer)
    expected, got = _bare(tests.source), _bare(answer)
    numbers = [_number(text) for text in (expected, got)]
    if None not in numbers:
        return _verdict(tests, answer, numbers[0] == numbers[1], str(numbers[1]))
    if expected == got or not got or not _is_balanced(got):
        return _verdict(tests, answer, expected == got, got)
    return None


def math_question(tests: TestSuite, answer: str) -> Problem:
    """The run of `MATH_PROGRAM` that compares an answer: trusted code, hostile input."""
    asked = json.dumps([_bare(tests.source), _bare(answer)])
    return Problem("math", "", "", TestSuite("run", asked), prelude=_prelude())


def math_verdict(tests: TestSuite, answer: str, run: Verdict) -> Verdict:
    """The verdict on an answer. Where it broke a limit, that limit's (`timeout`, `memory`, `error`).

    Raises `SandboxError` for words that are not the program's.
    """
    if run.status == "infra":
        return run
    if not run.passed:
        detail = one_line(f"{run.detail}, comparing the answer {answer}")
        return replace(run, tests_passed=0, tests_total=1, detail=detail, failure=None)
    try:
        right, value = json.loads(run.failure.got if run.failure else "")
    except ValueError as error:
        raise SandboxError(f"The comparison of an answer printed no result: {error}.") from None
    return replace(_verdict(tests, answer, right is True, value or answer), cpu_seconds=run.cpu_seconds)


@cache
def _prelude() -> str:
    found = _PRELUDE.replace("{antlr!r}", repr(version("antlr4-python3-runtime")))
    return found.replace("{most}", str(_SHOWN))


def _verdict(tests: TestSuite, answer: str, right: bool, value: str) -> Verdict:
    """`value`: equal for equal answers."""
    if right:
        return Verdict("passed", 1, 1, 0.0)
    said, value, expected = (one_line(text, _SHOWN) for text in (answer, value, tests.source))
    detail = one_line(f"the answer is {said}, expected {expected}")
    return Verdict("wrong", 0, 1, 0.0, detail, failure=Failure(1, "", value, expected))


def _most(tests: TestSuite) -> int:
    """Characters of an answer; a longer one is wrong unread."""
    return _LONGER * len(tests.source) + _SMALL


def _bare(text: str) -> str:
    """The answer alone: what comes after "the answer is", without dollar signs and a sentence's end."""
    text = _SAID.split(text)[-1]
    words = _WORDS.search(text)
    if words is not None:
        says_more = _SAYS_MORE.search(text, words.start()) or not _UNIT.sub("", text).strip()
        text = _WORDS.sub(r" \1 ", text) if says_more else _UNIT.sub(" ", text)
    for pattern, by in _REWRITTEN:
        text = pattern.sub(by, text)
    return " ".join(text.split()).strip("*`").rstrip(".,; ").strip()


def _is_balanced(text: str) -> bool:
    """Whether its braces are: what is not would end the box in which math-verify looks for it."""
    depths = [depth for _, depth in brace_depths(text)] or [0]
    return min(depths) == depths[-1] == 0


def _number(text: str) -> Fraction | None:
    if len(text) > _LONGEST_NUMBER or not text.isascii() or not text[-1:].isdigit() or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text.replace(",", ""))
