"""A problem's statement as words that stay the same when it is copied, laid out anew, or its variables are renamed.

    words_of_prompt(problem.prompt).words   # ("given", "array", "of", "integers", "return", "indices", ...)

    cut_sections("Add two numbers.\\n\\nBeispiel 1:\\n\\nEingabe: 1, 2\\n")       # "Add two numbers."

Taken away: markup, the frame of a prompt, headings, examples, constraints, code, articles, and the names of variables.
Names are known from signatures (else from `name = value`), from code spans, and by their look (`maxSum`, `nums[i]`,
`[start, end]`, one letter). Headings are known in the languages in which data sets of problems appear.
"""

from __future__ import annotations

import html
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from raypoly.data.formats.row_fields import ANSWER, READ_AND_PRINT

_FRAMES = (
    ANSWER,
    READ_AND_PRINT,
    "Complete this code:",
    "Your code should pass these tests:",
    # LeetCodeDataset
    "Please complete the following python code precisely:",
    "You are an expert Python programmer.",
    "You will be given a question (problem specification) and will generate a correct Python program that matches the"
    " specification and passes all tests.",
    "### Format: You will use the following starter code to write the solution to the problem and enclose your code"
    " within delimiters.",
    "### Question:",
    "### Answer: (use the provided format with backticks)",
    "English description is not available for the problem. Please switch to Chinese.",
    # DeepCoder, and prompts in the manner of LiveCodeBench
    "### Format: Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on"
    " the sample inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it"
    " reads the inputs, runs the algorithm and writes output to STDOUT.",
    # PrimeIntellect
    "Solve the following coding problem using the programming language python:",
    "The input will be stdin and you should print your solution to stdout",
    "Now solve the problem and return the code.",
    # evalplus and MBPP
    "You are an expert Python programmer, and here is your task:",
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:",
)
# Sentences that data sets and loaders put around a statement to make a prompt of it.
_FRAME = re.compile(
    "|".join(r"\s+".join(map(re.escape, frame.split())) for frame in sorted(_FRAMES, key=len, reverse=True)),
    re.IGNORECASE,
)
_BLOCKS = "p|br|div|li|ul|ol|pre|h[1-6]|table|tr|td|th|hr|section|blockquote|center|tbody|thead"
_INLINE = "sup|sub|code|strong|b|em|i|u|span|font|img|a|var|tt|small|big|kbd|s"
_ATTRIBUTES = r"""(?:\s+[\w:-]+(?:\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s<>"']+)))*\s*/?"""
_BLOCK = re.compile(rf"</?(?:{_BLOCKS}){_ATTRIBUTES}>", re.IGNORECASE)
_CODE_SPAN = re.compile(r"<(code|var|tt|kbd)>([^<>]{1,80})</\1>", re.IGNORECASE)
_TAG = re.compile(rf"</?(?:{_INLINE}){_ATTRIBUTES}>|<!--.{{0,2000}}?-->", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)|~~~[^\n~]*\n(.*?)(?:~~~|\Z)", re.DOTALL)
_TICKS = re.compile(r"`([^`\n]{1,80})`")
_MATH = re.compile(r"\${1,3}([^$\n]{1,200})\${1,3}")
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\s]{1,500}\)")
_POWER = re.compile(r"(?<=\w)(?: ?\^ ?|\*\*|(?<=\d) \*\* (?=\d))[{(]?(-?\w+)[})]?")
_COMMAND = re.compile(r"\\(?:[a-zA-Z]+|[^a-zA-Z\s])")
_SIGNATURE = re.compile(r"\bdef\s+\w+\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_PARAMETER = re.compile(r"(?:^|,)\s*\*{0,2}([^\W\d]\w*)\s*(?=[:=,]|$)")
_DOCSTRING = re.compile(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', re.DOTALL)
_DOCTEST = re.compile(r"^[ \t]*>>>.*(?:\n(?![ \t]*>>>|[ \t]*$).*)*", re.MULTILINE)
_CODE_LINE = re.compile(
    r"^[ \t]*(?:class\s+\w+\b.*:|(?:async )?def\s+\w+\s*\(.*|from [\w.]+ import .*|import [\w., ]+)$", re.MULTILINE
)
_ASSIGNED = re.compile(r"(?:^|[,:;(])\s*([^\W\d]\w*)\s*=(?!=)", re.MULTILINE)
_INDEXED = re.compile(r"\b([^\W\d]\w*)(?=\[|\.(?:length|size|val)\b)")
_LISTED = re.compile(r"\[\s*([^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)+)\s*\]")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_LOOKS = re.compile(r"[a-z]+[A-Z]\w*|[^\W\d_]\w*_\w+|[^\W\d_]+\d+\w*|[^\W\d_]")
_COEFFICIENT = re.compile(r"(\d+)(?!(?:st|nd|rd|th)$)[^\W\d]+")
_IDEOGRAMS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_TOKEN = re.compile(rf"[{_IDEOGRAMS}]|[^\W{_IDEOGRAMS}]+")
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_WORD = re.compile(r"[^\W\d_]")
_ARTICLES = frozenset({"a", "an", "the"})


_LONGEST_HEADING = 60
_DATA = re.compile(r"""\s*(?:[-+]?\d|["'\[({]|[^\W\d]\w*\s*=(?!=))""")
_LITERAL = re.compile(r"\[[^\[\]\n\d]*\d[^\[\]\n]*\]")
_LONG_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_FOR_EXAMPLE = re.compile(
    r"\b(?:for\s+example|for\s+instance|e\.g\.)[^)]{0,600}?(?:[.!?](?=\s|$)|\)|\Z)", re.IGNORECASE
)
_SHORTEST = 4  # words. Where less is left, the text is laid out in another way, and all of it is the statement.

State = Literal["kept", "example", "constraints"]
Kind = Literal["example", "within", "constraints", "note", "statement"]
"""`within` is a part of an example, or what is said of input and output in general; a `note` belongs where it is."""

_TABLE: dict[Kind, str] = {
    "example": """
        example|examples|sample|samples|sample input|sample output|sample test|sample tests|sample case|sample cases
        sample test case|sample test cases|example input|example output|demo|test case|test cases|sample inputs
        beispiel|beispiele|beispieleingabe|beispielausgabe|exemple|exemples|ejemplo|ejemplos|exemplo|exemplos|esempio
        esempi|пример|примеры|приклад|приклади|przykład|przykłady|voorbeeld|voorbeelden|örnek|örnekler|ví dụ|contoh
        示例|样例|样例输入|样例输出|输入样例|输出样例|输入输出样例|例|例子|範例|範例輸入|範例輸出
        入力例|出力例|サンプル|예제|예시|예제 입력|예제 출력|مثال|उदाहरण|ตัวอย่าง""",
    "within": """
        input|output|explanation|expected output|expected|returns|inputs|outputs
        eingabe|ausgabe|erklärung|erläuterung|entrée|sortie|explication|entrada|salida|saída|explicación|explicação
        input data|output data|ingresso|uscita|spiegazione|входные данные|выходные данные|ввод|вывод
        пояснение|объяснение
        вхідні дані|вихідні дані|пояснення|wejście|wyjście|wyjaśnienie|invoer|uitvoer|uitleg|girdi|çıktı|açıklama
        输入|输出|解释|说明|輸入|輸出|解釋|說明|入力|出力|説明|입력|출력|설명
        đầu vào|đầu ra|giải thích|masukan|keluaran""",
    "constraints": """
        constraints|constraint|limits|limitations|time limit|memory limit|scoring|subtasks|data range|bounds
        expected time complexity|expected auxiliary space|expected space complexity
        einschränkungen|nebenbedingungen|beschränkungen|contraintes|restricciones|limitaciones|restrições|vincoli
        ограничения|обмеження|ograniczenia|beperkingen|kısıtlar|kısıtlamalar|ràng buộc|batasan
        提示|约束|约束条件|数据范围|限制|数据范围与提示|限制條件|制約|제한|제한 사항|제약 조건|제약""",
    "note": """
        note|notes|hint|hints|remark|follow up|followup|hinweis|hinweise|anmerkung|remarque|nota|notas
        примечание|примечания|примітка|uwaga|opmerking|进阶|注意|備考|注|참고""",
    "statement": """
        problem|problem statement|problem description|statement|description|task|task description|question|your task
        input format|output format|input specification|output specification|instructions|the problem|overview
        aufgabe|aufgabenstellung|beschreibung|énoncé|problème|description du problème|enunciado|descripción|descrição
        problema|descrizione|условие|задача|описание|формат ввода|формат вывода|умова|treść|zadanie|opdracht
        题目描述|题目|描述|问题描述|输入格式|输出格式|題目描述|問題文|問題|문제|문제 설명""",
}


def heading_key(heading: str) -> str:
    """Its letters alone, in small: `### Example 2` is `example`."""
    text = unicodedata.normalize("NFKC", heading).casefold()
    return " ".join("".join(c if unicodedata.category(c)[0] in "LM" else " " for c in text).split())


KINDS: dict[str, Kind] = {
    heading_key(phrase): kind
    for kind, table in _TABLE.items()
    for line in table.strip().split("\n")
    for phrase in line.split("|")
}


def cut_sections(text: str) -> str:
    kept = list(_kept(text))
    if sum(len(_LONG_WORD.findall(line)) for line in kept) < _SHORTEST:
        kept = text.split("\n")
    return _FOR_EXAMPLE.sub(" ", _LITERAL.sub(" ", "\n".join(kept))).strip()


def _kept(text: str) -> Iterator[str]:
    state: State = "kept"
    for line in text.split("\n"):
        kind, rest = _heading(line)
        if kind in ("example", "constraints"):
            state = "example" if kind == "example" else "constraints"
        elif kind == "statement":
            state = "kept"
        elif kind == "within" and state != "example":
            state = "example" if _DATA.match(rest) else "kept"
        if state == "kept":
            yield rest if kind else line


def _heading(line: str) -> tuple[str, str]:
    """The kind of heading that a line is or starts with, and what stands behind it; no kind for any other line."""
    head, _, rest = re.sub("[：﹕]", ":", line).partition(":")
    if len(head) > _LONGEST_HEADING:
        return "", line
    kind = KINDS.get(heading_key(head), "")
    return kind, rest if kind else line


@dataclass(frozen=True)
class StatementWords:
    words: tuple[str, ...]
    """Without names of variables."""
    all_words: tuple[str, ...]
    """With those that are words of a language: `preorder` may be both."""


def words_of_prompt(prompt: str) -> StatementWords:
    """The statement's words, none where there is no statement. Takes any text."""
    text, spans, blocks = strip_markup(prompt)
    code = "\n".join(blocks)
    docstrings = "\n".join(_DOCTEST.sub("", first or second) for first, second in _DOCSTRING.findall(code))
    outside = _FRAME.sub(" ", text)
    if not _WORD.search(f"{outside}{docstrings}") and not _CODE_LINE.search(code):
        outside = _FRAME.sub(" ", code)
    text = _APOSTROPHE.sub("", f"{outside}\n{docstrings}")
    variables = set(_variables(code, text, spans))
    tokens = [token for token in _TOKEN.findall(cut_sections(_CODE_LINE.sub("", text))) if not _is_name(token)]
    return StatementWords(
        tuple(_words(token for token in tokens if token not in variables)), tuple(_words(iter(tokens)))
    )


def strip_markup(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """(Text in lines, spans, fenced blocks of code, which are no part of the text) of HTML, Markdown or LaTeX.

    A span was set as code or mathematics within a line: mostly names of variables. Tags that no browser knows (`i <n`)
    are text. Powers lose their mark (`10^5`, `10**5`, `10<sup>5</sup>` and `10⁵` are `105`): some data sets lost it.
    """
    text = _BLOCK.sub("\n", _CODE_SPAN.sub(r"`\2`", text))
    text = html.unescape(_TAG.sub("", text))
    text = unicodedata.normalize("NFKC", _TAG.sub("", _BLOCK.sub("\n", text)))
    text = "".join(c for c in text.replace("\r", "\n") if c.isascii() or unicodedata.category(c) != "Cf")
    code = tuple(first or second for first, second in _FENCE.findall(text))
    text = _FENCE.sub("\n", text)
    spans = (*_TICKS.findall(text), *_MATH.findall(text))
    text = _MATH.sub(r" \1 ", _LINK.sub(r"\1", text.replace("`", "")))
    return _COMMAND.sub(" ", _POWER.sub(r"\1", text)), spans, code


def _words(tokens: Iterator[str]) -> Iterator[str]:
    for token in tokens:
        token = _COEFFICIENT.sub(r"\1", token)
        for word in token.casefold().split("_"):
            if word and word not in _ARTICLES:
                yield sys.intern(word)  # statements share most of theirs


def _is_name(token: str) -> bool:
    """By its look, whatever the text says of it; an ideogram is a word."""
    return bool(_LOOKS.fullmatch(token)) and not re.match(f"[{_IDEOGRAMS}]", token)


def _variables(code: str, text: str, spans: tuple[str, ...]) -> Iterator[str]:
    parameters = [name for found in _SIGNATURE.findall(f"{code}\n{text}") for name in _PARAMETER.findall(found)]
    yield from parameters or _ASSIGNED.findall(text)
    for span in spans:
        yield from _IDENTIFIER.findall(span) if not re.search(r"\w\s+\w", span) else ()
    yield from _INDEXED.findall(text)
    for names in _LISTED.findall(text):
        yield from _IDENTIFIER.findall(names)
