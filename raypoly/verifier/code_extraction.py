"""Find the program in a model's response.

    code = extract_code(problem, response)  # None without a program, or an answer: the verdict is `no_code`

Nothing is parsed or run. Linear time: a line is read at most twice, and no pattern backtracks beyond its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from raypoly.core.values import Problem
from raypoly.verifier.answers import extract_answer

_FENCE = re.compile(r"((?:[ \t]*>)*)([ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_LATE_FENCE = re.compile(r"(?<!`)(```)[ \t]*(?:python|py)3?[ \t]*$", re.IGNORECASE)
_PYTHON_TAG = re.compile(r"(?<![a-z])i?py(?:thon)?[\d.]*(?![a-z])", re.IGNORECASE)
_NEUTRAL_TAGS = ("", "text", "txt", "plaintext", "code", "solution")
_TEXT_QUOTES = re.compile(r'"""|\'\'\'')
_ELEMENT = re.compile(r"\[(/?)PYTHON\]|<(/?)code>", re.IGNORECASE)
_THOUGHT = re.compile(r"^[ \t]*<think(?:ing)?>", re.MULTILINE)
_TRANSCRIPT = re.compile(r"\s*(?:>>>|In \[\d+\]:)")
_DEFINITION = re.compile(r"(?:class|def|async def)[ \t]+(\w+)[ \t]*[(:]")
_IMPORT = re.compile(r"(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?:[(*]|[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:[,;#\\]|$))")
_BINDING = re.compile(r"[A-Za-z_]\w*(?:[.,][ \t]*\w+|\[[^\]]{0,80}\])*[ \t]*(?::[^=]{1,80})?[-+*/|&^%@]?=(?!=)")
_ACTION = re.compile(
    r"(?:if|elif|for|while|with|async|except|match)\b.*:|(?:else|try|finally)[ \t]*:|(?:assert|del|raise|return)\b"
    r"|pass$|[A-Za-z_][\w.]*\("
)
_CONTINUATION = re.compile(r"@\w|[#)\]}]|[rbfu]{0,2}(?:\"\"\"|''')", re.IGNORECASE)
_OUTPUT = re.compile(r"\blambda\b|\bprint\(|\bstdout\b")


def extract_code(problem: Problem, response: str) -> str | None:
    """The program of a response, or its answer (`answers.py`) to tests of kind `answer`; None if there is none.

    For `answer="completion"`: `problem.prefix + response`. For `fenced`: the last block of Python that defines the
    entry point, after earlier blocks that it needs; else the last block of Python. Without a fence, a `[PYTHON]` or
    `<code>` element, or else a run of lines of code, is a block.
    """
    if problem.tests.kind == "answer":
        return extract_answer(_answered(response))
    if problem.answer == "completion":
        return problem.prefix + response if response.strip() else None
    programs = _programs(response)
    if not programs:
        return None
    name = _called(problem)
    place = next((at for at in range(len(programs) - 1, -1, -1) if name in programs[at].names), None)
    return programs[-1].code if place is None else _with_helpers(programs[:place], programs[place], name)


def find_code(response: str) -> str:
    """The last block of Python of a response; the whole where it has none."""
    programs = _programs(response)
    return programs[-1].code if programs else response


def _programs(response: str) -> list[_Block]:
    text = _answered(response)
    lines = text.split("\n")
    return [block for block in _fenced(lines) or _elements(text) or list(_runs(lines)) if block.is_program]


@dataclass(frozen=True)
class _Block:
    """Lines of a response, and their declared language or ""."""

    language: str
    lines: Sequence[str]

    @cached_property
    def code(self) -> str:
        first = next((line for line in self.lines if line.strip()), "")
        margin = first[: len(first) - len(first.lstrip())]
        inner = [line.removeprefix(margin) if line.startswith(margin) else line.lstrip() for line in self.lines]
        return "\n".join(inner).lstrip("\ufeff").removesuffix("\n") + "\n"

    @property
    def is_program(self) -> bool:
        """Declared as Python, or looking like it."""
        if not self.code.strip() or _TRANSCRIPT.match(self.code):
            return False
        if self.language:
            return self.language == "python"
        marked = any(_DEFINITION.match(line) or _IMPORT.match(line) for line in self.code.split("\n"))
        return marked or bool(_OUTPUT.search(self.code))

    @cached_property
    def names(self) -> set[str]:
        """Names bound at top level."""
        return _bound(self.code.split("\n"))

    @property
    def is_library(self) -> bool:
        """Whether it only has definitions, so that it can precede another block."""
        return not any(_ACTION.match(line) for line in self.code.split("\n"))


def _called(problem: Problem) -> str:
    """The first name that the tests look up, or ""."""
    if problem.tests.kind == "operations":
        first = re.search(r'"operations":\s*\[\s*"(\w+)"', problem.tests.source)
        return first.group(1) if first else ""
    return problem.entry_point.partition(".")[0].removesuffix("()")


def _answered(response: str) -> str:
    # the response with plain line ends and without its reasoning, also an unfinished one
    text = response.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    for end in ("</think>", "</thinking>"):
        text = text.rpartition(end)[2]
    unclosed = _THOUGHT.search(text) if "<think" in text else None
    return text[: unclosed.start()] if unclosed else text


def _bound(lines: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for line in lines:
        if not line or line[0] in " \t":  # most lines of a program: none of the patterns matches there
            continue
        if definition := _DEFINITION.match(line):
            found.add(definition.group(1))
        elif _IMPORT.match(line):
            found.update(re.findall(r"\w+", line.partition("import")[2]))
        elif _BINDING.match(line):
            found.update(re.findall(r"\w+", line.partition("=")[0].partition(":")[0]))
    return found


def _with_helpers(earlier: Sequence[_Block], main: _Block, name: str) -> str:
    """`main` after earlier blocks that define names which it, or one of them, reads but does not bind."""
    if not earlier:
        return main.code
    parts = [main.code]
    bound = _bound([line.strip() for line in main.code.split("\n")])
    read = set(re.findall(r"\w+", main.code))
    for block in reversed(earlier):
        needed = name not in block.names and any(word in read and word not in bound for word in block.names)
        if needed and block.is_library:
            parts.append(block.code)
            bound |= block.names
            read.update(re.findall(r"\w+", block.code))
    return "\n".join(reversed(parts))


def _fenced(lines: Sequence[str]) -> list[_Block]:
    blocks = []
    at, docstrings = 0, True
    while at < len(lines):
        fence = _Fence.opened_by(lines[at])
        at += 1
        if fence is None:
            continue
        found = fence.read(lines, at, docstrings)
        if found is None:  # what looked like a docstring never ended; from here on fences count wherever they are
            docstrings = False
            found = fence.read(lines, at, docstrings) or ([], at)
        content, at = found
        blocks.append(_Block(fence.language, content))
    return blocks


@dataclass(frozen=True)
class _Fence:
    """An opened fence: how it is closed, and the prefix of its lines."""

    language: str
    quotes: int
    """Depth of its blockquote."""
    indent: int
    mark: str
    first: str = ""
    """Code on the opening line itself."""

    @classmethod
    def opened_by(cls, line: str) -> _Fence | None:
        if "```" not in line and "~~~" not in line:
            return None
        if fence := _FENCE.match(line):
            language, first = _tagged(fence.group(4).strip())
            return cls(language, fence.group(1).count(">"), len(fence.group(2).expandtabs(4)), fence.group(3), first)
        late = _LATE_FENCE.search(line)
        # Behind prose, the indent of what follows is anybody's guess: a closing fence counts at any.
        return cls("python", 0, len(line), late.group(1)) if late else None

    def read(self, lines: Sequence[str], at: int, docstrings: bool) -> tuple[list[str], int] | None:
        """The lines up to the closing fence, and the position after it.

        With `docstrings`, a fence within text quotes is text; None if such quotes never end.
        """
        content = [self.first] if self.first else []
        quotes, hidden = "", False
        for place in range(at, len(lines)):
            line = self._inner(lines[place])
            if line is None:
                return content, place
            body = line.strip()
            if body.startswith(self.mark) and (behind := self._end(lines[place], line, body, place)) is not None:
                if not quotes:
                    return content, behind
                hidden = True
            if docstrings and self.language in ("", "python"):
                quotes = _quotes_behind(line, quotes)
            if not quotes and body.endswith(self.mark) and body.count(self.mark) == 1 and not body.startswith("#"):
                return [*content, line.rstrip()[: -len(self.mark)]], place + 1
            content.append(line)
        return None if quotes and hidden else (content, len(lines))

    def _inner(self, line: str) -> str | None:
        for _ in range(self.quotes):
            before, marker, line = line.partition(">")
            if before.strip() or not marker:
                return None
            line = line.removeprefix(" ")
        return line

    def _end(self, whole: str, line: str, body: str, place: int) -> int | None:
        """Position after a fence that ends the block, or of one that opens a block of another language."""
        if body.strip(self.mark[0]):
            return place if _FENCE.match(whole) else None
        spaced = line.expandtabs(4)
        return place + 1 if len(spaced) - len(spaced.lstrip()) < self.indent + 4 else None


def _tagged(info: str) -> tuple[str, str]:
    # (language, code) of the text after an opening fence: a tag, attributes, rarely the first line of code
    if _DEFINITION.match(info) or _IMPORT.match(info):
        return "", info
    tag, _, rest = info.partition(" ")
    if _PYTHON_TAG.search(tag):
        return "python", rest if _DEFINITION.match(rest) or _IMPORT.match(rest) else ""
    return "" if tag.lower() in _NEUTRAL_TAGS or "=" in tag else tag.lower(), ""


def _elements(text: str) -> list[_Block]:
    # the last element may be unfinished
    blocks = []
    start: int | None = None
    for mark in _ELEMENT.finditer(text):
        if not (mark.group(1) or mark.group(2)):
            start = mark.end()
        elif start is not None:
            blocks.append(_Block("", text[start : mark.start()].strip("\n").split("\n")))
            start = None
    if start is not None:
        blocks.append(_Block("", text[start:].strip("\n").split("\n")))
    return [block for block in blocks if block.is_program]


def _runs(lines: Sequence[str]) -> Iterator[_Block]:
    # longest runs of lines that look like code; prose at the left margin ends one
    run: list[str] = []
    quotes = ""
    for line in lines:
        code = any(p.match(line) for p in (_DEFINITION, _IMPORT, _BINDING, _ACTION, _CONTINUATION))
        if code or quotes or (run and (not line.strip() or line[0] in " \t")):
            run.append(line)
            quotes = _quotes_behind(line, quotes)
        elif run:
            yield _Block("", run)
            run = []
    if run:
        yield _Block("", run)


def _quotes_behind(line: str, quotes: str) -> str:
    """Text quotes open behind a line, given those open before it; "" if none."""
    if '"""' in line or "'''" in line:
        for found in _TEXT_QUOTES.findall(line):
            quotes = found if not quotes else "" if quotes == found else quotes
    return quotes
