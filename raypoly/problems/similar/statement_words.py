"""A problem's statement as words that stay when it is copied, set anew, or its variables are renamed.

    statement_of(problem).words        # ("given", "array", "of", "integers", "return", "indices", ...)

Taken away: markup, the frame of a prompt, headings, examples, constraints, code, articles, and the names of variables.
Names are known from signatures (else from `name = value`), from code spans, and by their look (`maxSum`, `nums[i]`,
`[start, end]`, one letter).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from raypoly.problems.similar.markup import plain
from raypoly.problems.similar.prompt_frames import unframed
from raypoly.problems.similar.sections import statement

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


@dataclass(frozen=True)
class StatementWords:
    """What is compared of a problem's text."""

    words: tuple[str, ...]
    """Without names of variables."""
    all_words: tuple[str, ...]
    """With those that are words of a language: `preorder` may be both."""

    @property
    def digest(self) -> str:
        """SHA-256 of the words, hex."""
        return hashlib.sha256(" ".join(self.words).encode(errors="surrogatepass")).hexdigest()


def statement_of(prompt: str) -> StatementWords:
    """The statement within a prompt; without a word where there is none. Takes any text."""
    it = plain(prompt)
    code = "\n".join(it.code)
    docstrings = "\n".join(_DOCTEST.sub("", first or second) for first, second in _DOCSTRING.findall(code))
    outside = unframed(it.text)
    if not _WORD.search(f"{outside}{docstrings}") and not _CODE_LINE.search(code):
        outside = unframed(code)
    text = _APOSTROPHE.sub("", f"{outside}\n{docstrings}")
    variables = set(_variables(code, text, it.spans))
    tokens = [token for token in _TOKEN.findall(statement(_CODE_LINE.sub("", text))) if not _is_name(token)]
    return StatementWords(
        tuple(_words(token for token in tokens if token not in variables)), tuple(_words(iter(tokens)))
    )


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
