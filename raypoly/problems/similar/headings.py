"""Headings of problem statements by what stands below them."""

from __future__ import annotations

import unicodedata
from typing import Literal

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


def key(heading: str) -> str:
    """Its letters alone, in small: `### Example 2` is `example`."""
    text = unicodedata.normalize("NFKC", heading).casefold()
    return " ".join("".join(c if unicodedata.category(c)[0] in "LM" else " " for c in text).split())


KINDS: dict[str, Kind] = {
    key(phrase): kind
    for kind, table in _TABLE.items()
    for line in table.strip().split("\n")
    for phrase in line.split("|")
}
