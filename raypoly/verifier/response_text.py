"""A response read as text: its blocks of code, and what of it is the answer.

    text = answered(response)                     # without thoughts, special tokens and further turns
    blocks = code_blocks(text)                    # fences; without one, elements; without one, runs of lines of code

Nothing is parsed or run. Linear time: a line is read a few times, and no pattern backtracks beyond its line.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from raypoly.data.formats.program_text import BINDING, DEFINITION, IMPORT, ProgramText, first_line

_FENCE = re.compile(r"((?:[ \t]*>)*)([ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_LATE_FENCE = re.compile(r"(?<!`)(```)[ \t]*(?:python|py)3?[ \t]*$", re.IGNORECASE)
_PYTHON_TAG = re.compile(r"(?<![a-z])(?:[ic]?py(?:thon)?|pypy|sage(?:math)?|jupyter)[\d.]*(?![a-z])", re.I)
_NEUTRAL_TAGS = ("", "text", "txt", "plaintext", "code", "solution", "tool_code", "program", "answer")
_ONE_LINE = re.compile(r"[ \t]*```(?:(?:python3?|py)[ \t]+([^`]+)|((?:def|class|from|import)\b[^`]*))```[ \t]*")
_TAG = re.compile(r"\{?\.?[A-Za-z][\w+#.:/-]*[\w+#}]|[A-Za-z]")
_TEXT_QUOTES = re.compile(
    r"(\"\"\"|''')|\"(?:[^\"\\]++|\\.)*+\"|(?<!\w)'(?:[^'\\]++|\\.)*+'|(?<!\S)#"  # or a literal, or a comment
)
_ELEMENT = re.compile(r"\[(/?)PYTHON\]|<(/?)(?:code|pre|python)(?:[ \t][^<>\n]{0,80})?>", re.IGNORECASE)
_ANSWER_TAG = re.compile(
    r"^[ \t]*</?(?:final_?)?(?:answer|solution|output|response|result)>|</(?:answer|solution)>[ \t]*$", re.IGNORECASE
)
_TRANSCRIPT = re.compile(r"\s*(?:>>>|In \[\d+\]:|Traceback \(most)")
_ACTION = re.compile(
    r"(?:if|elif|for|while|with|async|except|match)\b.*:|(?:else|try|finally)[ \t]*:"
    r"|(?:assert|del|raise|return|yield)\b|pass$|[A-Za-z_][\w.]*\("
)
_CONTINUATION = re.compile(r"@\w|[#)\]}]|[rbfu]{0,2}(?:\"\"\"|''')", re.IGNORECASE)
_CODE = (DEFINITION, IMPORT, BINDING, _ACTION, _CONTINUATION)
_INPUT = re.compile(r"\binput\(|\bstdin\b")
_OUTPUT = re.compile(r"\blambda\b|\bprint\(|\bstdout\b")
_PROSE = re.compile(r"(?:[#>*-]+ |\d+\. )?[*_]*[A-Za-z][\w'’]*[*_,:]*(?: [\w'’`*_().,:;-]+){2,}|[^\x00-\x7f]|\*\*\w")
_LABEL = re.compile(r"[A-Z][\w ]{0,60}:[ \t]*")

_THINK = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|analysis)"
_MARK = re.compile(
    rf"(?P<begin><{_THINK}>|(?-i:\[THINK\])|<\|(?:begin_of_|start_)?{_THINK}\|>|◁think▷|<unused94>|<\|im_start\|>think\b"
    r"|<\|channel\|>(?:analysis|commentary)[^<\n]{0,80}<\|message\|>)"
    rf"|(?P<end></{_THINK}>|(?-i:\[/THINK\])|<\|(?:end_of_|end_|/){_THINK}\|>|◁/think▷|<unused95>|<\|im_start\|>answer\b"
    r"|<\|channel\|>final[^<\n]{0,80}(?:<\|constrain\|>[^<\n]{0,80})?<\|message\|>)"
    r"|(?P<token><\|[^|<>\n]{1,60}\|>|<｜[^｜<>\n]{1,60}｜>|</?s>|<(?:eos|bos|pad|EOT|file_sep|end_of_turn|start_of_turn)>"
    r"|(?-i:\[/?INST\]|(?m:^)###? (?:Instruction|Response|Human|User|Assistant):))",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"(?<!`)`{1,2}(?!`)[^`]*+(?P<tick>`*)|\"(?:[^\"\\]++|\\.)*+(?P<double>\"?)"
    r"|(?:(?<!\w)|(?<=\b[rbfuRBFU])|(?<=\b[rbfuRBFU]{2}))'(?:[^'\\]++|\\.)*+(?P<single>'?)"
)
_AROUND = "`\"'*“”‘’«»"
_KEPT_TOKEN = re.compile(r"solution|box|python_tag|answer|code", re.IGNORECASE)
_TURN = re.compile(
    r"end|eo[stm]|return|pad|start|user|system|assistant|human|instruction|response|file_sep|fim|/?INST|/s",
    re.IGNORECASE,
)
_ROLE = re.compile(r"(?:assistant|model)\b[ \t]*", re.IGNORECASE)
_VISIBLE = re.compile(r"\S")
_GOES_ON = re.compile(r"[ \t]*[,.;:!?)]|[ \t]+(?!(?:def|class|import|from|async|return|print|assistant)\b)[a-z]")


def answered(response: str) -> str:
    """The answer with plain line ends: no thoughts (also unfinished ones), no special tokens, no turn after it.

    What stands in a literal, in a comment of code or in quotes is text, as is a mark that a sentence goes on after.
    """
    text = response.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    if text.startswith("analysis"):  # a channel's name, where a server has left out the tokens around it
        text = text.rpartition("assistantfinal")[2]
    return "\n".join(_AnswerReader(text.split("\n")).read()) if _MARK.search(text) else text


def has_thoughts(response: str) -> bool:
    """Whether `answered` leaves a thought out: one with a word in it."""
    marks = [mark for mark in _MARK.finditer(response) if mark.lastgroup != "token"]
    return bool(marks) and _MARK.sub(" ", response).split() != _MARK.sub(" ", answered(response)).split()


def opened_thought(prompt: str) -> str:
    """The mark at a prompt's end that begins a thought, as some chat templates write it; empty for none."""
    marks = [mark for mark in _MARK.finditer(prompt[-100:]) if mark.lastgroup == "begin"]
    found = marks[-1] if marks else None
    return found[0] if found and not prompt[-100:][found.end() :].strip() else ""


def code_blocks(text: str, bodies: bool = False) -> list[Block]:
    """Its blocks of Python, in order; with `bodies` also those that are the body of a function."""
    lines = text.split("\n")
    blocks = _fenced(lines) or _elements(text) or list(_runs(lines, bodies))
    return [block for block in blocks if block.is_program or (bodies and block.is_body)]


@dataclass(frozen=True)
class Block:
    language: str
    lines: Sequence[str]

    @cached_property
    def code(self) -> str:
        first = first_line(self.lines)
        margin = first[: len(first) - len(first.lstrip())]
        inner = [line.removeprefix(margin) if line.startswith(margin) else line.lstrip() for line in self.lines]
        return "\n".join(inner).lstrip("\ufeff").removesuffix("\n") + "\n"

    @cached_property
    def raw(self) -> str:
        """With its indentation, where something in it is less indented than its first line."""
        first = first_line(self.lines)
        margin = first[: len(first) - len(first.lstrip())]
        if margin and not all(line.startswith(margin) for line in self.lines if line.strip()):
            return "\n".join(self.lines).strip("\n") + "\n"
        return self.code

    @cached_property
    def text(self) -> ProgramText:
        return ProgramText(self.code)

    @cached_property
    def is_program(self) -> bool:
        if not self.code.strip() or _TRANSCRIPT.match(self.code):
            return False
        if self.language:
            return self.language == "python"
        marked = any(DEFINITION.match(line) or IMPORT.match(line) for line in self.code.split("\n"))
        return marked or bool(_OUTPUT.search(self.code))

    @property
    def is_indented(self) -> bool:
        return first_line(self.lines)[:1].isspace()

    @cached_property
    def is_body(self) -> bool:
        return self.language in ("", "python") and bool(self.code.strip()) and ProgramText(self.raw).returns


def _fenced(lines: Sequence[str]) -> list[Block]:
    blocks, at = _before_fences(lines)
    end, docstrings = at, True
    while at < len(lines):
        fence = Fence.opened_by(lines[at])
        at += 1
        if fence is None:
            if whole := _ONE_LINE.fullmatch(lines[at - 1]):
                blocks.append(Block("", [whole[1] or whole[2]]))
            continue
        found = fence.read(lines, at, docstrings)
        if found is None:  # what looked like a docstring never ended; from here on fences count wherever they are
            docstrings = False
            found = fence.read(lines, at, docstrings)
        content, at, closed = found or ([], at, True)
        if not fence.language and _PYTHON_TAG.fullmatch(first_line(content).strip()):
            content = content[1:]
        is_code = closed and not any(map(_LABEL.fullmatch, content[-1:]))
        blocks.append(Block(fence.language, content if is_code else without_prose(content)))
        end = at
    if any(block.is_program for block in blocks):  # the last program may stand behind the last fence, without one
        blocks += [block for block in _runs(lines[end:], False) if block.text.bodies or _INPUT.search(block.code)]
    return blocks


def _before_fences(lines: Sequence[str]) -> tuple[list[Block], int]:
    """The block that a response begins in: the prompt opened its fence or its function. And where the rest begins."""
    first_fence, *others = [at for at, line in enumerate(lines) if line.lstrip().startswith("```")] or [0]
    before, first = lines[:first_fence], first_line(lines)
    if len(others) % 2 == 0 and lines[first_fence].strip() == "```":
        block = Block("", before)
        begins = first[0] in " \t" or any(pattern.match(first) for pattern in _CODE)
        return ([block], first_fence + 1) if begins and (block.is_program or block.is_body) else ([], 0)
    body = next(_runs(before, True), None) if first[:1] in " \t" else None
    return ([body], first_fence) if body is not None and body.is_body else ([], 0)


def without_prose(lines: Sequence[str]) -> Sequence[str]:
    """The lines of a block that was never closed, up to prose after the code."""
    quotes = ""
    for at, line in enumerate(lines):
        is_prose = _PROSE.match(line) and not any(pattern.match(line) for pattern in _CODE)
        if not quotes and (is_prose or _ANSWER_TAG.match(line) or _LABEL.fullmatch(line)):
            return lines[:at] if any(map(str.strip, lines[:at])) else lines
        quotes = _quotes_behind(line, quotes)
    return lines[:-1] if lines and set(lines[-1]) in ({"`"}, {"~"}) else lines


@dataclass(frozen=True)
class Fence:
    """An opened fence: how it is closed, and the prefix of its lines."""

    language: str
    quotes: int
    """Depth of its blockquote."""
    indent: int
    mark: str
    first: str = ""
    """Code on the opening line itself."""

    @classmethod
    def opened_by(cls, line: str) -> Fence | None:
        if "```" not in line and "~~~" not in line:
            return None
        if fence := _FENCE.match(line):
            language, first = _tagged(fence.group(4).strip())
            return cls(language, fence.group(1).count(">"), len(fence.group(2).expandtabs(4)), fence.group(3), first)
        late = _LATE_FENCE.search(line)
        # Behind prose, the indent of what follows is anybody's guess: a closing fence counts at any.
        return cls("python", 0, len(line), late.group(1)) if late else None

    def read(self, lines: Sequence[str], at: int, docstrings: bool) -> tuple[list[str], int, bool] | None:
        """The lines up to the closing fence, the position after it, and whether there is one.

        With `docstrings`, a fence within text quotes is text; None if such quotes never end.
        """
        content = [self.first] if self.first else []
        quotes, hidden = "", False
        for place in range(at, len(lines)):
            line = self._inner(lines[place])
            if line is None:
                return content, place, True
            body = line.strip()
            if body.startswith(self.mark) and (behind := self._end(lines[place], line, body, place)) is not None:
                if not quotes:
                    return content, behind, behind > place
                hidden = True
            if docstrings and self.language in ("", "python"):
                quotes = _quotes_behind(line, quotes)
            if not quotes and body.endswith(self.mark) and body.count(self.mark) == 1 and not body.startswith("#"):
                return [*content, line.rstrip()[: -len(self.mark)]], place + 1, True
            content.append(line)
        return None if quotes and hidden else (content, len(lines), False)

    def _inner(self, line: str) -> str | None:
        for _ in range(self.quotes):
            before, marker, line = line.partition(">")
            if before.strip() or not marker:
                return None
            line = line.removeprefix(" ")
        return line

    def _end(self, whole: str, line: str, body: str, place: int) -> int | None:
        """Position after a fence that ends the block, or of one that opens a block of another language."""
        info = body.lstrip(self.mark[0]).strip()
        if info and (self.mark[0] in info or not _FENCE.match(whole)):
            return None
        if info and _is_info(info):
            return place
        spaced = line.expandtabs(4)
        return place + 1 if len(spaced) - len(spaced.lstrip()) < self.indent + 4 else None


def _is_info(info: str) -> bool:
    """Whether it is a tag for a fence to open with, and not what follows a closing one."""
    tag, _, rest = info.partition(" ")
    is_tag = _TAG.fullmatch(tag) is not None
    return (is_tag and (not rest or "=" in rest or _PYTHON_TAG.search(tag) is not None)) or bool(_tagged(info)[1])


def _tagged(info: str) -> tuple[str, str]:
    # (language, code) of the text after an opening fence: a tag, attributes, rarely the first line of code
    if DEFINITION.match(info) or IMPORT.match(info):
        return "", info
    tag, _, rest = info.partition(" ")
    if _PYTHON_TAG.search(tag):
        return "python", rest if DEFINITION.match(rest) or IMPORT.match(rest) else ""
    return "" if tag.lower() in _NEUTRAL_TAGS or "=" in tag else tag.lower(), ""


def _elements(text: str) -> list[Block]:
    # the last element may be unfinished
    blocks = []
    start: int | None = None
    end = len(text)
    for mark in _ELEMENT.finditer(text):
        if not (mark.group(1) or mark.group(2)):
            start = mark.end()
        elif start is not None:
            blocks.append(_element(text[start : mark.start()]))
            start = None
    if start is not None:
        blocks.append(_element(text[start:end]))
    return [block for block in blocks if block.is_program]


def _element(content: str) -> Block:
    text = html.unescape(content) if "&" in content and "</" not in content else content
    return Block("", text.strip("\n").split("\n"))


def _runs(lines: Sequence[str], bodies: bool) -> Iterator[Block]:
    # runs of lines that look like code; prose at the left margin ends one
    run: list[str] = []
    quotes, blank = "", True
    for line in (_ANSWER_TAG.sub("", line) for line in lines):
        inner = line.lstrip() if blank and not run else line  # after a blank line, code may be indented as a whole
        code = any(pattern.match(inner) for pattern in _CODE)
        if run and not quotes and run[0][0] in " \t" and line.strip() and line[0] not in " \t":
            yield Block("", run)  # what follows an indented run at the left margin is no part of it
            run = []
        if code or quotes or (run and (not line.strip() or line[0] in " \t")):
            run.append(line)
            quotes = _quotes_behind(line, quotes)
        elif run:
            yield Block("", run)
            run = []
        blank = not line.strip() or bool(run)
    if run:
        yield Block("", run)


def _quotes_behind(line: str, quotes: str) -> str:
    """Text quotes open behind a line, given those open before it; "" if none."""
    at = 0 if '"""' in line or "'''" in line else len(line)
    while at < len(line):
        if quotes:
            if (end := line.find(quotes, at)) < 0:
                break
            at, quotes = end + 3, ""
            continue
        found = _TEXT_QUOTES.search(line, at)
        if found is None or found[0] == "#":
            break
        at, quotes = found.end(), found[1] or ""
    return quotes


class _AnswerReader:
    """Reads lines up to the end of the answer: prose, fenced blocks, or a thought, to be left out."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._kept: list[str] = []
        self._begun = False  # whether something of the answer is there
        self._thinking = False
        self._ended = False
        self._docstrings = True

    def read(self) -> list[str]:
        at, again = 0, -1
        region = _Region(0)
        while at < len(self._lines) and not self._ended:
            line = self._lines[at]
            if not self._thinking and at >= region.end:
                region = self._region(at)
            rest, turned = self._read(line, region, at)
            if self._thinking or not turned or at == again:
                self._keep(rest)
                at += 1
            else:  # behind a thought a fence may open
                self._lines[at], again = rest, at
            if turned and (region.code or Fence.opened_by(rest) is not None):
                region = _Region(at)
        return self._kept

    def _keep(self, line: str) -> None:
        if not self._thinking or line.strip():
            self._kept.append(line)
            self._begun = self._begun or bool(line.strip())

    def _read(self, line: str, region: _Region, at: int) -> tuple[str, bool]:
        """What of a line is kept, and whether a thought began or ended in it."""
        marks = list(_MARK.finditer(line))
        if not marks:
            return "" if self._thinking else line, False
        parts: list[str] = []
        position, turned, here = 0, False, False
        seen = _first(line, 0)
        hidden = _Hidden(line, region.code and at > region.start)
        for mark in marks:
            if mark.start() < position or hidden.covers(mark):
                continue
            kind = mark.lastgroup
            here = here or (seen < mark.start() and not self._thinking)
            if self._thinking:
                if kind == "end":
                    self._thinking, position, turned = False, mark.end(), True
            elif (not turned and region.keeps(at, mark.start())) or not hidden.counts(mark, self._begun or here):
                continue
            elif kind == "begin":
                if not here and (turned or not hidden.code):
                    parts.append(line[position : mark.start()])
                    self._thinking, turned = True, True
            elif kind == "end":
                self._kept, self._begun, parts = [], False, []
                position, turned, here = mark.end(), True, False
            else:
                parts.append(line[position : mark.start()])
                position = mark.end()
                if (self._begun or here) and _is_turn(mark[0]):
                    self._ended = True
                    return "".join(parts), turned
                role = None if self._begun or here else _ROLE.match(line, position)
                position = role.end() if role else position
            seen = _first(line, position) if seen < position else seen
        return "".join(parts) + ("" if self._thinking else line[position:]), turned

    def _region(self, at: int) -> _Region:
        lines, end = self._lines, at + 1
        fence = Fence.opened_by(lines[at])
        if fence is None:
            while end < len(lines) and Fence.opened_by(lines[end]) is None:
                end += 1
            return _Region(end, at, texts=_closed_texts(lines, at, end))
        found = fence.read(lines, end, self._docstrings)
        if found is None:
            self._docstrings = False
            found = fence.read(lines, end, self._docstrings)
        content, end, closed = found or ([], end, True)
        block = Block(fence.language, content)
        quoted = closed and not (block.is_program or block.is_body)
        return _Region(end, at, True, quoted, _closed_texts(lines, at + 1, end))


@dataclass(frozen=True)
class _Region:
    end: int
    start: int = 0
    code: bool = False
    quoted: bool = False
    """A whole block that is no program."""
    texts: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def keeps(self, at: int, column: int) -> bool:
        start, end = self.texts.get(at, (0, 0))
        return start <= column < end or (self.quoted and self.start < at < self.end - 1)


class _Hidden:
    """The parts of a line in which marks are text."""

    def __init__(self, line: str, code: bool) -> None:
        self.code = code
        self._line = line
        self._spans = [found.span() for found in _QUOTED.finditer(line) if found[found.lastgroup or 0]]
        hashes = (found.start() for found in re.finditer("#", line) if code)
        self._comment = next((at for at in hashes if not self._is_quoted(at)), len(line))

    def covers(self, mark: re.Match[str]) -> bool:
        return self._is_quoted(mark.start()) or mark.start() > self._comment

    def counts(self, mark: re.Match[str], begun: bool) -> bool:
        """Whether it is more than a word that the answer mentions; `begun`: it is not the first of the answer."""
        start, end = mark.span()
        before, behind = self._line[max(0, start - 1) : start], self._line[end : end + 40]
        if self.code or not begun:
            return mark.lastgroup != "token" or not begun or mark[0][1] in "|｜" or _is_last(behind)
        if before and before in _AROUND and behind[:1] and behind[0] in _AROUND:
            return False
        if mark.lastgroup == "token" and mark[0][1] not in "|｜":
            return mark[0] != "<s>" and _is_last(behind)
        return not before or _GOES_ON.match(behind) is None

    def _is_quoted(self, at: int) -> bool:
        place = bisect_right(self._spans, (at, len(self._line))) - 1
        return place >= 0 and at < self._spans[place][1]


def _is_last(behind: str) -> bool:
    return not behind.strip() or _MARK.match(behind.lstrip()) is not None


def _is_turn(token: str) -> bool:
    return _TURN.search(token) is not None and _KEPT_TOKEN.search(token) is None


def _closed_texts(lines: Sequence[str], start: int, end: int) -> Mapping[int, tuple[int, int]]:
    """The part of each line that is within a text in three quotes which goes on over lines and ends."""
    found: dict[int, tuple[int, int]] = {}
    since: dict[int, tuple[int, int]] = {}
    quotes = ""
    for at in range(start, end):
        line = lines[at]
        before, quotes = quotes, _quotes_behind(line, quotes)
        if before and (not quotes or line.count(before) > 1):
            found |= since | {at: (0, len(line) if quotes else line.find(before))}
            since = {}
        elif before:
            since[at] = (0, len(line))
        if quotes and not before:
            since = {at: (line.rfind(quotes), len(line))}
    return found


def _first(line: str, start: int) -> int:
    found = _VISIBLE.search(line, start)
    return found.start() if found else len(line)
