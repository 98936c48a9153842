"""Find the program in a model's response.

    code = extract_code(problem, response)  # None without a program, or an answer: the verdict is `no_code`

The last complete answer counts. `response_text.py` finds the blocks; here one is chosen, with the helpers that it uses.
Nothing is parsed or run. A response's last 200 blocks are looked at, which bounds the time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from raypoly.core.values import Problem
from raypoly.data.formats.program_text import IMPORT, ProgramText, Statement, called, first_line, is_body, program_of
from raypoly.verifier.answers import extract_answer
from raypoly.verifier.response_text import Block, answered, code_blocks, without_prose

_MOST = 200
_READS = re.compile(
    r"\binput\s*\(|\(\s*input\s*[,)]|(?:\bsys\.|(?<![\w.]))(?:__)?stdin(?:__)?\b(?!\s*=(?!=))"
    r"|\bopen\s*\(\s*0|\bos\.(?:read|fdopen)\b|\bfileinput\b"
)
_FEEDS = re.compile(
    r"\bstdin\s*=\s*(?:io\.)?(?:StringIO|BytesIO|TextIOWrapper)\(|\binput\s*=\s*(?:iter\(\s*\[|lambda\b[^:\n]{0,80}:\s*\"\")"
    r"|\bpatch(?:\.object)?\(|\bmonkeypatch\b"
)
_READS_ITSELF = re.compile(r"\bstdin(?:\.buffer)?\.(?:read|buffer)|\bos\.read\b|\bopen\s*\(")
_WRITES = re.compile(r"\bprint\b|\bstdout\b|\bos\.write\b|\.write(?:lines)?\s*\(")
_ALIAS = re.compile(r"[^\n=]*=[ \t]*(?:lambda\b|[\w.]*\bstdin[\w.]*\s*\Z)")
_IMPORTED = re.compile(r"^[ \t]*from[ \t][^\n;]*", re.MULTILINE)


def extract_code(problem: Problem, response: str) -> str | None:
    """The program of a response, or its answer (`answers.py`) to tests of kind `answer`; None if there is none.

    For `answer="completion"`: `problem.prefix + response`, unless that has a fence or the whole function. Else a block
    of Python. A function's or class's: the last that defines what is called, with more than a stub. A program's: the
    last that reads standard input and prints, with the definitions that it uses from other blocks; without one, the
    last that prints on its own. Else the last block. Under a prefix, a body counts where nothing defines the function.
    """
    if problem.tests.kind == "answer":
        return extract_answer(answered(response))
    if problem.answer == "completion":
        return _completed(problem, response) if response.strip() else None
    return _chosen(problem, answered(response))


def program_in(problem: Problem, response: str) -> str | None:
    """The program of a response as it is run: `extract_code`, under its head or in its class (`program_of`)."""
    code = extract_code(problem, response)
    return None if code is None else program_of(problem, code)


def find_code(response: str) -> str:
    """The last block of Python of a response; the whole where it has none."""
    blocks = code_blocks(answered(response))
    return blocks[-1].code if blocks else response


def _completed(problem: Problem, response: str) -> str:
    text = answered(response)
    first = first_line(text.split("\n"))
    whole = not first[:1].isspace() and (problem.entry_point,) in ProgramText(text).bodies
    if not whole and "```" not in text:
        return problem.prefix + "\n".join(without_prose(text.split("\n")) if first[:1].isspace() else [text])
    fenced = replace(problem, answer="fenced")
    code = _chosen(fenced, text)
    return problem.prefix + text if code is None else program_of(fenced, code)


def _chosen(problem: Problem, text: str) -> str | None:
    blocks = code_blocks(text, bool(problem.prefix))[-_MOST:]
    top, name = called(problem)
    if len(blocks) < 2:
        return _whole(blocks[0], bool(problem.prefix), top, name) if blocks else None
    if problem.tests.kind == "stdin":
        return _Blocks(blocks, _prints_what_it_reads).script()
    found = _Blocks(blocks, lambda text: _defines(text, top, name))
    at = found.last_of(lambda each: each in found.own)
    # a method by itself, or a function in its place, and not one that calls it
    bare = found.last_of(lambda each: (name,) in (it := found.texts[each]).bodies and top not in it.missing)
    if bare is not None and (at is None or bare > at):
        at = bare
    if problem.prefix:
        # after the whole function, a line that is not indented quotes it
        later = [blocks[n] for n in found.kept if at is None or (n > at and blocks[n].is_indented)]
        bodies = [block for block in later if block.is_body]
        if bodies and is_body(bodies[-1].raw, top, name):
            first = first_line(text.split("\n"))
            goes_on = first[:1].isspace() and first in blocks[0].lines
            return bodies[0 if goes_on else -1].raw  # what a completion writes after its body is something else
    if at is None:
        at = found.last_of(lambda each: top in found.texts[each].names)
    return blocks[-1].code if at is None else found.assembled(at)


def _whole(block: Block, prefix: bool, top: str, name: str) -> str:
    return block.raw if prefix and is_body(block.raw, top, name) else block.code


def _defines(text: ProgramText, top: str, name: str) -> bool:
    """Whether it defines what is called, with more than a stub."""
    if top not in text.names:
        return False
    known = text.bodies | text.stubs
    if (top,) not in known:
        own = [each for each in text.statements if top in each.names and each.kind == "binding"]
        return any("lambda" in (value := _bare([each]).partition("=")[2]) or not _uses(value, top) for each in own)
    if not name or (top, name) in known:
        return ((top, name) if name else (top,)) in text.bodies
    inherited = rf"^class[ \t]+{top}[ \t]*\([ \t]*(?!object\b)\w|^[ \t]+{name}[ \t]*="
    return re.search(inherited, "\n".join(text.bare), re.MULTILINE) is not None


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _bare(statements: Iterable[Statement]) -> str:
    return "\n".join(line for each in statements for line in each.bare)


def _reads(statements: Sequence[Statement]) -> bool:
    if _READS.search(_IMPORTED.sub("", _bare(statements))):
        return True
    return any("/dev/stdin" in line or "/dev/fd/0" in line for each in statements for line in each.lines)


def _writes(statements: Sequence[Statement]) -> bool:
    return _WRITES.search(_IMPORTED.sub("", _bare(statements))) is not None


def _acts(text: ProgramText) -> bool:
    called = "|".join(["print", *(key[0] for key in text.bodies if len(key) == 1)])
    acting = re.compile(rf"(?<![\w.])(?:{called})\(")
    return text.acts or any(each.kind == "binding" and acting.search(_bare([each])) for each in text.statements)


def _prints_what_it_reads(text: ProgramText) -> bool:
    return _acts(text) and not text.returns and _reads(text.statements) and _writes(text.statements)


def _is_lent(each: Statement) -> bool:
    """Whether it can stand in another program: a definition, or a value that is not read from standard input."""
    if each.kind == "binding":
        return not _reads([each]) or _ALIAS.match(_bare([each])) is not None
    return each.kind in ("definition", "setting")


class _Blocks:
    def __init__(self, blocks: Sequence[Block], is_answer: Callable[[ProgramText], bool]) -> None:
        self.texts = [block.text for block in blocks]
        self.own: set[int] = set()
        """Answers by themselves, or but for a definition."""
        self.kept: list[int] = []
        """Those that neither quote an earlier one nor leave a body of it out."""
        self._homes: dict[str, list[int]] = defaultdict(list)
        """Blocks that define a name."""
        bodies: set[tuple[str, ...]] = set()
        quoted = "\n"
        for at, text in enumerate(self.texts):
            lines = [line.strip() for line in text.uncommented if line.strip()]
            is_stub = any(key in bodies for key in text.stubs if not key[-1].startswith("__"))
            bodies |= text.bodies
            if is_stub:
                continue
            whole = is_answer(text)
            if not whole or any(name in self._homes for name in text.missing):
                parts = "\n".join(lines).split("\n...\n")
                if all(f"\n{part}\n" in quoted for part in parts):
                    continue
            if whole:
                self.own.add(at)
            quoted += "\n".join([*lines, "", ""])
            self.kept.append(at)
            for name in text.names:
                self._homes[name].append(at)

    def last_of(self, wanted: Callable[[int], bool]) -> int | None:
        return next((at for at in reversed(self.kept) if wanted(at)), None)

    def script(self) -> str:
        tried = [_Script(self, at, *self._taken(at)) for at in self.kept]
        for wanted in (lambda it: it.is_whole, lambda it: it.prints, lambda it: it.acts, lambda it: True):
            if (found := next((each for each in reversed(tried) if wanted(each)), None)) is not None:
                return self._joined(found.at, found.taken)
        return self.texts[-1].code

    def assembled(self, at: int) -> str:
        return self._joined(at, self._taken(at)[0])

    def _joined(self, at: int, taken: Mapping[int, set[int]]) -> str:
        parts = []
        for home in sorted(taken):
            each = self.texts[home].statements
            lent = sorted(taken[home])
            whole = len(lent) == len(each)
            parts.append(self.texts[home].code if whole else "\n".join(line for n in lent for line in each[n].lines))
        return "\n".join([*parts, self._revised(at)])

    def _revised(self, at: int) -> str:
        """A block with the functions, classes and CONSTANTS that a later one, of definitions alone, gives anew."""
        own = self.texts[at].statements
        lines = [each.lines for each in own]
        for later in (n for n in self.kept if n > at and n not in self.own):
            text = self.texts[later]
            if text.acts or text.returns:
                continue
            for each in text.statements:
                for name in (name for name in each.names if (name,) in text.bodies or name.isupper()):
                    places = [n for n, it in enumerate(own) if it.kind == each.kind and name in it.names]
                    if places:
                        lines[places[-1]] = each.lines
        return "\n".join(line for each in lines for line in each)

    def _taken(self, at: int) -> tuple[dict[int, set[int]], bool]:
        """Statements of other blocks that a block needs, and whether it needs one that can't be had."""
        taken: dict[int, set[int]] = defaultdict(set)
        wanted, seen, short = sorted(self.texts[at].missing), set(self.texts[at].names), False
        # An answer lends what it imports only to a block that uses a function or value of it, such as a new main part.
        near = {self._home(name, at) for name in wanted if self._is_defined(name, at)}
        while wanted:
            if (name := wanted.pop()) in seen or name not in self._homes:
                continue
            seen.add(name)
            home = self._home(name, at)
            if home is None:
                short = True
                continue
            if home in self.own and home not in near:
                continue
            statements = self.texts[home].statements
            whole = home not in self.own and (not _acts(self.texts[home]) or self._is_section(home))
            lent = {n for n, each in enumerate(statements) if whole or (name in each.names and _is_lent(each))}
            lent = {n for n in lent if not statements[n].names or statements[n].names - self.texts[at].names}
            short = short or not lent
            lent |= {n for n, each in enumerate(statements) if lent and each.kind == "setting"}
            for n in sorted(lent - taken[home]):
                wanted += sorted(statements[n].missing)
                seen.update(statements[n].names if whole else ())
            taken[home] |= lent
        return {home: lent for home, lent in taken.items() if lent}, short

    def _is_defined(self, name: str, at: int) -> bool:
        home = self._home(name, at) if name in self._homes else None
        statements = self.texts[home].statements if home is not None else ()
        return any(name in each.names and not IMPORT.match(each.bare[0]) for each in statements)

    def _is_section(self, at: int) -> bool:
        statements = self.texts[at].statements
        return _reads(statements) and not _writes(statements)

    def _home(self, name: str, at: int) -> int | None:
        """The nearest block before `at` that defines a name, else the last after it."""
        homes = [home for home in self._homes[name] if home != at]
        before = [home for home in homes if home < at]
        return before[-1] if before else homes[-1] if homes else None


class _Script:
    def __init__(self, blocks: _Blocks, at: int, taken: Mapping[int, set[int]], short: bool) -> None:
        self.at, self.taken = at, taken
        text = blocks.texts[at]
        used = [blocks.texts[home].statements[n] for home in taken for n in taken[home]]
        both = [*used, *text.statements]
        main = _bare(text.statements)
        feeds = _FEEDS.search(main) is not None and _READS_ITSELF.search(main) is None
        self.acts = _acts(text) and not (text.returns or short or feeds)
        self.is_whole = self.acts and _reads(both) and _writes(both)
        leans = any(_acts(blocks.texts[home]) and _writes(blocks.texts[home].statements) for home in taken)
        self.prints = self.acts and _writes(both) and not leans
