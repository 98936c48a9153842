"""What the text of a program says about itself, line by line. Nothing is parsed or run.

    text = ProgramText("class Solution:\\n    def f(self, n):\\n        ...\\n")
    text.names, text.bodies, text.stubs     # {"Solution"}, set(), {("Solution",), ("Solution", "f")}

Also of code that is cut short or no Python at all, in linear time: no pattern backtracks beyond its line.
"""

from __future__ import annotations

import builtins
import keyword
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from raypoly.core.values import Problem

DEFINITION = re.compile(r"(?:class|def|async def)[ \t]+(\w+)[ \t]*[(:\[]")
IMPORT = re.compile(r"(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(?:[(*]|[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:[,;#\\]|$))")
BINDING = re.compile(r"\*?[A-Za-z_]\w*(?:[.,][ \t]*\*?\w+|\[[^\]]{0,80}\])*,?[ \t]*(?::[^=]{1,80})?[-+*/|&^%@]?=(?!=)")
Key = tuple[str, ...]
"""A definition by its scopes: `("Solution", "f")`."""

_LEXEME = re.compile(
    r"#[^\n]*"
    r"|(?:\b([rbfuRBFU]{1,2}))?(?:"
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'(?:[^'\\\n]++|\\.)*+'?)",
    re.DOTALL,
)
_FIELD = re.compile(r"\{([^{}:!\n]*)")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SCOPE = re.compile(r"(?:async[ \t]+)?(def|class)[ \t]+(\w+)")
_TOP = re.compile(r"(?:async[ \t]+def|def|class|import|from)\b|@\w")
_METHOD = re.compile(r"\A(?:@[^\n]*\n)*(?:async[ \t]+)?def[ \t]+\w+\(\s*(?:self|cls)\b|\A@(?:static|class)method\b")
_CLAUSE = re.compile(r"(?:elif|else|except|finally|case)\b")
_GUARDED = re.compile(
    rf"(?:try|if[ \t]+(?!__name__)[^\n]*):\s*?\n[ \t]+(?:@|{DEFINITION.pattern}|{IMPORT.pattern}|{BINDING.pattern})"
)
_SETTING = re.compile(r"(?:sys\.)?setrecursionlimit\b|(?:threading\.)?stack_size\b")
_MODULE = re.compile(r"\bfrom[ \t]+[\w.]+(?=[ \t]+import\b)")
_GLOBALS = re.compile(r"\b(?:global|nonlocal)[ \t]+([^\n;]+)")
_PLACES = re.compile(r"\[[^\]]*\]?")
_TARGET = re.compile(r"(?<![\w.])\w+(?![\w.]|[ \t]*[\[.])")
_RETURN = re.compile(r"(?:return|yield)\b")
_TRIVIAL = re.compile(r'(?:(?:pass\b|\.\.\.|""|raise[ \t]+NotImplemented\w*+[^;\n]*+)[ \t;\n]*+)*+')
_LOCAL = re.compile(
    r"\bfor[ \t]+([^\n:]{1,200}?)[ \t]+in\b|\blambda\b([^\n:]{0,200}):|\bdef[ \t]+\w+[ \t]*\(([^)]{0,400})"
    r"|\bas[ \t]+(\w+)|(\w+)[ \t]*:="
)
_GIVEN = frozenset((*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "__name__", "__file__"))


@dataclass(frozen=True)
class Statement:
    """A statement at top level, and the lines from it to the next."""

    kind: str
    """`definition` (also an import), `binding`, `setting` (of recursion), `nothing` (a stub, a text) or `action`."""
    lines: Sequence[str]
    bare: Sequence[str]

    @cached_property
    def names(self) -> frozenset[str]:
        if IMPORT.match(self.bare[0]):
            return frozenset(_NAME.findall("\n".join(self.bare).partition("import")[2]))
        nested = self.kind == "action" or _GUARDED.match("\n".join(self.bare))
        return frozenset(_bound([line.strip() for line in self.bare] if nested else self.bare))

    @cached_property
    def missing(self) -> frozenset[str]:
        """Names that it reads and binds nowhere, built-in ones apart."""
        text = _MODULE.sub("", "\n".join(self.bare))
        local = _bound([line.strip() for line in self.bare])
        local.difference_update(*(_NAME.findall(found[1]) for found in _GLOBALS.finditer(text)))
        for found in _LOCAL.finditer(text):
            local.update(_NAME.findall(" ".join(filter(None, found.groups()))))
        return frozenset(set(_NAME.findall(text)) - local - _GIVEN)


class ProgramText:
    def __init__(self, code: str) -> None:
        self.code = code

    @cached_property
    def bare(self) -> Sequence[str]:
        """Its lines without comments and literals; of an f-string the names in its fields are left."""
        return _LEXEME.sub(_blank, self.code).split("\n")

    @property
    def uncommented(self) -> Sequence[str]:
        return _LEXEME.sub(lambda found: "" if found[0].startswith("#") else found[0], self.code).split("\n")

    @cached_property
    def statements(self) -> Sequence[Statement]:
        starts, depth, decorated = [0], 0, False
        for at, line in enumerate(self.bare):
            if not line:
                continue
            top = line[0] not in " \t)]},." and (depth == 0 or _TOP.match(line)) and not _CLAUSE.match(line)
            if top:
                depth = 0
                if not decorated and any(map(str.strip, self.bare[starts[-1] : at])):
                    starts.append(at)
                decorated = line[0] == "@"
            depth = max(0, depth + _depth(line))
        lines, ends = self.code.split("\n"), [*starts[1:], len(self.bare)]
        return [
            Statement(_kind(self.bare[start:end]), lines[start:end], self.bare[start:end])
            for start, end in zip(starts, ends, strict=True)
        ]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for each in self.statements if each.kind != "action" for name in each.names)

    @cached_property
    def missing(self) -> frozenset[str]:
        """Names that its statements read and none of them binds."""
        read = {name for each in self.statements for name in each.missing}
        return frozenset(read.difference(*(each.names for each in self.statements)))

    @property
    def acts(self) -> bool:
        return any(each.kind == "action" for each in self.statements)

    @property
    def bodies(self) -> frozenset[Key]:
        """Definitions with more in them than a stub: `pass`, `...`, a text, a comment, `raise NotImplementedError`."""
        return self._definitions[0]

    @property
    def stubs(self) -> frozenset[Key]:
        return self._definitions[1]

    @property
    def returns(self) -> bool:
        """Whether it is the body of a function: it has a `return` or `yield` of no function."""
        return self._definitions[2]

    @cached_property
    def _definitions(self) -> tuple[frozenset[Key], frozenset[Key], bool]:
        known: list[_Scope] = []
        scopes: list[_Scope] = []
        depth, returns = 0, False
        header: int | None = None  # brackets open in a definition's head
        for line in self.bare:
            text = line.strip()
            if not text:
                continue
            if header is None and (depth == 0 or _TOP.match(line)):
                depth, indent = 0, _width(line)
                while scopes and scopes[-1].indent >= indent:
                    scopes.pop()
                if found := _SCOPE.match(text):
                    scopes.append(_Scope(indent, (*(scopes[-1].key if scopes else ()), found[2]), found[1] == "def"))
                    known.append(scopes[-1])
                    header, text = 0, text[found.end() :]
                elif _RETURN.match(text) and not any(scope.is_function for scope in scopes):
                    returns = True
            if header is not None:
                header, text = _behind_head(text, header)
            if header is None:
                depth = max(0, depth + _depth(text))
                if text and not _TRIVIAL.fullmatch(text):
                    _mark(scopes)
        bodies = frozenset(scope.key for scope in known if scope.has_body)
        return bodies, frozenset(scope.key for scope in known) - bodies, returns


@dataclass
class _Scope:
    indent: int
    key: Key
    is_function: bool
    has_body: bool = False


def _mark(scopes: Sequence[_Scope]) -> None:
    for scope in reversed(scopes):
        if scope.has_body:
            break
        scope.has_body = True


def _behind_head(text: str, depth: int) -> tuple[int | None, str]:
    """What follows the colon of a definition's head; while there is none, how many brackets are open."""
    for at, sign in enumerate(text):
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth = max(0, depth - 1)
        elif sign == ":" and not depth:
            return None, text[at + 1 :].strip()
    return depth, ""


def _blank(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("#"):
        return ""
    fields = ""
    if found[1] and "f" in found[1].lower():
        fields = f"({' '.join(_NAME.findall(' '.join(_FIELD.findall(text))))})"
    return '""' + fields + "\n" * text.count("\n")


def _width(line: str) -> int:
    spaced = line.expandtabs(8)
    return len(spaced) - len(spaced.lstrip())


def _depth(line: str) -> int:
    return sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))


def _kind(bare: Sequence[str]) -> str:
    text = "\n".join(bare).strip()
    if text.startswith("@") or IMPORT.match(text.partition("\n")[0]) or DEFINITION.match(text) or _GUARDED.match(text):
        return "definition"
    if _TRIVIAL.fullmatch(text):
        return "nothing"
    if _SETTING.match(text):
        return "setting"
    return "binding" if BINDING.match(text) else "action"


def _bound(lines: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for line in lines:
        if not line or line[0] in " \t":  # most lines of a program: none of the patterns matches there
            continue
        if definition := DEFINITION.match(line):
            found.add(definition.group(1))
        elif IMPORT.match(line):
            found.update(re.findall(r"\w+", line.partition("import")[2]))
        elif BINDING.match(line):
            found.update(_TARGET.findall(_PLACES.sub("[", line.partition("=")[0]).partition(":")[0]))
    return found


def first_line(lines: Iterable[str]) -> str:
    return next(filter(str.strip, lines), "")


def signature_of(starter: str, entry_point: str) -> str:
    """The prefix that a body continues: code to be completed, if it ends in the head of what is called; else ""."""
    lines = starter.rstrip().split("\n")
    while lines and (lines[-1].strip() in ("", "pass", "...") or lines[-1].lstrip().startswith("#")):
        lines.pop()
    heads = [found[2] for line in lines if (found := _SCOPE.match(line.lstrip()))]
    text = "\n".join(lines).rstrip()
    is_head = heads[-1:] == [entry_point.rpartition(".")[2]] and text.endswith((":", '"""', "'''"))
    return f"{text}\n" if is_head else ""


def program_of(problem: Problem, code: str) -> str:
    """The program of a fenced answer: a body under the problem's prefix, methods in their class, else `code` itself.

    A body may be indented as it will be, dedented, or without its first line's indentation. An answer that is a
    completion is taken as it is: `extract_code` has put the prefix there.
    """
    top, name = called(problem)
    if problem.answer == "completion" or not (problem.prefix or name):
        return code
    if problem.prefix and is_body(code, top, name):
        return _under_head(problem.prefix, name or top, code)
    text = ProgramText(textwrap.dedent(code))
    return _in_class(text, top, name) if name and top not in text.names and (name,) in text.bodies else code


def is_body(code: str, top: str, name: str = "") -> bool:
    """Whether it is what belongs under the head of the function `top`, or of the method `name` of the class `top`."""
    text = ProgramText(textwrap.dedent(code))
    if first_line(text.code.split("\n"))[:1].isspace():  # something follows at the left margin
        return True
    return (top,) not in text.bodies and (text.returns or (top not in text.names and (name,) not in text.bodies))


def called(problem: Problem) -> tuple[str, str]:
    """What the tests look up, and its method; empty where there is none."""
    if problem.tests.kind == "operations":
        first = re.search(r'"operations":\s*\[\s*"(\w+)"', problem.tests.source)
        return first.group(1) if first else "", ""
    top, _, name = problem.entry_point.partition(".")
    return top.removesuffix("()"), name


def _under_head(prefix: str, name: str, code: str) -> str:
    head = prefix.rstrip().split("\n")
    at = next((n for n, line in enumerate(head) if (found := _SCOPE.match(line.lstrip())) and found[2] == name), 0)
    below = " " * _width(head[at]) + "    "
    depth: int | None = 0
    while depth is not None and at < len(head):
        depth, _ = _behind_head(head[at], depth)
        at += 1
    below = next((_margin(line) for line in head[at:] if line.strip()), below)
    return "\n".join(head) + "\n" + _indented(code, below)


def _indented(code: str, margin: str) -> str:
    """A body at `margin`; what follows it at the left margin stays there."""
    lines = code.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    own = _margin(lines[first])
    inner = list(takewhile(lambda line: not line.strip() or line[0] in " \t", lines[first + 1 :]))
    widths = [_width(line) for line in inner if line.strip()]
    if not own and widths and (min(widths) < widths[0] or not ProgramText(lines[first]).bare[0].rstrip().endswith(":")):
        own = next(_margin(line) for line in inner if line.strip() and _width(line) == min(widths))
        lines[first] = own + lines[first]  # it was stripped
    if not own:
        return textwrap.indent(code, margin)
    end = first + 1 + len(inner)
    moved = [margin + line.removeprefix(own) if line.startswith(own) else line for line in lines[first:end]]
    return "\n".join([*moved, *lines[end:]])


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _in_class(text: ProgramText, top: str, name: str) -> str:
    """Methods in a class of their own, after what is no method; a plain function as it is."""
    inner: list[str] = []
    outer: list[str] = []
    names: set[str] = set()
    for each in text.statements:
        is_method = _METHOD.search("\n".join(each.bare)) is not None
        names.update(each.names if is_method else ())
        (inner if is_method else outer).append("\n".join(each.lines))
    if name not in names:
        return text.code
    return "\n".join([*outer, f"class {top}:", textwrap.indent("\n".join(inner), "    ")])
