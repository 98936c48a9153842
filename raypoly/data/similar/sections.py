r"""The part of a text that says what the problem is: headings, examples and constraints are cut off.

    cut_sections("Add two numbers.\n\nBeispiel 1:\n\nEingabe: 1, 2\n")       # "Add two numbers."

Headings are known in the languages in which data sets of problems appear.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

_LONGEST_HEADING = 60
_DATA = re.compile(r"""\s*(?:[-+]?\d|["'\[({]|[^\W\d]\w*\s*=(?!=))""")
_LITERAL = re.compile(r"\[[^\[\]\n\d]*\d[^\[\]\n]*\]")
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
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
    if sum(len(_WORD.findall(line)) for line in kept) < _SHORTEST:
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
