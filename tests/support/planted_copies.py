"""Copies of a problem as other data sets have them. Each kind changes the text and keeps the task.

copy = planted("html", prompt, random.Random(0))
"""

from __future__ import annotations

import html
import keyword
import random
import re
from collections.abc import Callable

Change = Callable[[str, random.Random], str]

NAMES = """arr values items data seq a b c p q t u z text phrase goal limit first second table matrix2 my_list inputs
    the_root node1 listA listB maxSize x y graphEdges pts weights costs budget idx low_value high_value"""
HEADINGS = {
    "de": {"Example": "Beispiel", "Input": "Eingabe", "Output": "Ausgabe", "Explanation": "Erklärung",
           "Constraints": "Einschränkungen", "Note": "Hinweis"},
    "fr": {"Example": "Exemple", "Input": "Entrée", "Output": "Sortie", "Explanation": "Explication",
           "Constraints": "Contraintes", "Note": "Remarque"},
    "es": {"Example": "Ejemplo", "Input": "Entrada", "Output": "Salida", "Explanation": "Explicación",
           "Constraints": "Restricciones", "Note": "Nota"},
    "ru": {"Example": "Пример", "Input": "Входные данные", "Output": "Выходные данные", "Explanation": "Пояснение",
           "Constraints": "Ограничения", "Note": "Примечание"},
    "zh": {"Example": "示例", "Input": "输入", "Output": "输出", "Explanation": "解释",
           "Constraints": "提示", "Note": "注意"},
    "ja": {"Example": "例", "Input": "入力", "Output": "出力", "Explanation": "説明",
           "Constraints": "制約", "Note": "備考"},
    "ko": {"Example": "예제", "Input": "입력", "Output": "출력", "Explanation": "설명", "Constraints": "제약 조건",
           "Note": "참고"},
}  # fmt: skip
_SIGNATURE = re.compile(r"def\s+\w+\s*\(([^)]*)\)")
_EXAMPLE = re.compile(
    r"^(?:Input|Output|Explanation): ?.*(?:\n(?!\s*$|Example|Constraints|Input|Output).*)*", re.MULTILINE
)


def parameters(prompt: str) -> list[str]:
    """Parameter names in the signature of the code to complete, without `self`."""
    found = _SIGNATURE.search(prompt)
    names = re.findall(r"(?:^|,)\s*(\w+)\s*(?=[:,=]|$)", found[1]) if found else []
    return [name for name in names if name != "self" and not keyword.iskeyword(name)]


def rename_parameters(prompt: str, rng: random.Random) -> str:
    """Rename every parameter in the statement, the examples and the code."""
    old = parameters(prompt)
    words = set(re.findall(r"\w+", prompt)) - {"a"}
    new = dict(zip(old, rng.sample([name for name in NAMES.split() if name not in words], len(old)), strict=True))
    return re.sub(r"(?<!['’\d])[^\W\d]\w*", lambda found: new.get(found[0], found[0]), prompt)


def change_numbers(prompt: str, rng: random.Random) -> str:
    """Change the numbers in the examples, and shuffle the letters of their strings."""

    def changed(found: re.Match[str]) -> str:
        text = re.sub(r"\d+", lambda _: str(rng.randrange(1000)), found[0])
        return re.sub(r'"[^"\n]*"', lambda s: '"' + "".join(rng.sample(s[0][1:-1], len(s[0]) - 2)) + '"', text)

    return _EXAMPLE.sub(changed, prompt)


def convert_to_html(prompt: str, rng: random.Random) -> str:
    """Write the text as a web page: paragraphs, code spans, entities."""
    text, fence, code = prompt.partition("```")
    text = html.escape(text, quote=rng.random() < 0.5).replace(" \n", "&nbsp;\n")
    for name in parameters(prompt):
        text = re.sub(rf"\b{re.escape(name)}\b(?!=)", f"<code>{name}</code>", text)
    text = re.sub(
        r"^(Example \d+:|Constraints:|Note:)", r'<strong class="example">\1</strong>', text, flags=re.MULTILINE
    )
    text = re.sub(r"^(Input|Output|Explanation):", r"<b>\1:</b>", text, flags=re.MULTILINE)
    between = rng.choice(["</p>\n<p>", "<br/>", "<br>\n", '</div><div style="margin: 0">'])
    return f"<p>{text.replace(chr(10), between)}</p>\n{fence}{code}"


def change_whitespace(prompt: str, rng: random.Random) -> str:
    """Break lines elsewhere, and put other white space between words."""
    text, fence, code = prompt.partition("```")
    lines = []
    for line in text.split("\n"):
        between = rng.choice([" ", "  ", "\t", "\xa0", " \u200b", "\u2003"])
        words = line.split(" ")
        heading = re.match(r"(?:Example|Constraints|Input|Output|Explanation|Note)\b", line)
        for number in range(rng.randrange(6, 14), len(words), 14) if not heading else ():
            words[number] = "\n" + words[number]
        lines.append(rng.choice(["", "  ", "\t"]) + between.join(words))
    return rng.choice(["\n", "\r\n", "\n\n"]).join(lines) + f"\n{fence}{code}"


def translate_headings(prompt: str, rng: random.Random) -> str:
    """Translate the headings, and set some of them as Markdown."""
    table = HEADINGS[rng.choice(sorted(HEADINGS))]
    before, after, colon = rng.choice([("", "", ":"), ("**", "**", ":"), ("### ", "", ""), ("", "", "：")])
    prompt = re.sub(
        r"^(Example)( \d+)?:\s*$|^(Constraints):\s*$",
        lambda m: f"{before}{table[m[1] or m[3]]}{m[2] or ''}{colon}{after}",
        prompt,
        flags=re.MULTILINE,
    )
    return re.sub(r"^(Input|Output|Explanation|Note):", lambda m: f"{table[m[1]]}:", prompt, flags=re.MULTILINE)


def change_everything(prompt: str, rng: random.Random) -> str:
    """Make all changes at once."""
    for change in (rename_parameters, change_numbers, translate_headings, change_whitespace, convert_to_html):
        prompt = change(prompt, rng)
    return prompt


KINDS: dict[str, Change] = {
    "renamed variables": rename_parameters,
    "changed numbers": change_numbers,
    "HTML": convert_to_html,
    "whitespace": change_whitespace,
    "translated headings": translate_headings,
    "all of it": change_everything,
}
