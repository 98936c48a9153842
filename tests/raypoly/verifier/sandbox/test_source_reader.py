"""Programs that can't be compiled have no process of their own, and the verdict that they would have in one."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, TestSuite
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox, source_reader
from raypoly.verifier.sandbox.channel import Child
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.sandbox import READ_AHEAD_WINDOW
from raypoly.verifier.sandbox.source_reader import SourceReader
from raypoly.verifier.sandbox.zygote_client import Forker
from tests.support.program_files import descendants
from tests.support.small_problems import calls, check

KINDS = {
    "calls": calls(([1, 2], 3), ([5, 5], 10)),
    "cases of a check": check("def check(candidate):\n    assert candidate(1, 2) == 3"),
    "a check of its own": check(
        "def check(candidate):\n    for a in range(3):\n        assert candidate(a, 2) == a + 2"
    ),
    "script": Problem(
        "p", "", "", TestSuite("stdin", json.dumps([{"input": "1 2", "output": "3"}, {"input": "5 5", "output": "10"}]))
    ),
}
TEXTS = {
    "no colon": "def f(a, b) return a",
    "indentation": "def f(a, b):\nreturn a",
    "tabs": "def f(a, b):\n\tif a:\n        return b",
    "return outside": "return 1",
    "break outside": "break",
    "nonlocal": "def f(a, b):\n nonlocal a",
    "null byte": "\0",
    "lone surrogate": "x = '\ud800'",
    "unknown name of a character": "x = '\\N{no such}'",
    "many brackets": "(" * 300,
    "deep": "x = " + "-" * 100_000 + "1",
    "long": "x = 1" + " + 1" * 100_000,
    "a number too long for functions": "x = 1" + "0" * 5_000,
    "a number too long for scripts": "x = 1" + "0" * 60_000,
    "a doubtful escape": "x = '\\d'\ndef f(a, b): return a + b",
    "right": "def f(a, b): return a + b",
    "right as a script": "print(sum(map(int, input().split())))",
    "wrong": "def f(a, b): return a",
    "compiles another": "compile('def', '<candidate>', 'exec')",
    "empty": "",
}


@pytest.fixture(scope="module")
def reading() -> Iterator[Sandbox]:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def plain() -> Iterator[Sandbox]:
    """Each program in a process of its own."""
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        yield sandbox


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_is_the_one_that_a_process_of_its_own_gives(
    reading: Sandbox, plain: Sandbox, monkeypatch: pytest.MonkeyPatch, kind: str, text: str
) -> None:
    problem, code = KINDS[kind], TEXTS[text]
    reading.score(ADD, BAD)  # so that the next is read ahead
    got = reading.score(problem, code)
    monkeypatch.setattr(SourceReader, "refusal", lambda reader, code: None)
    want = plain.score(problem, code)
    assert _without_time(got) == _without_time(want)


def _without_time(verdict: object) -> dict[str, object]:
    return {**vars(verdict), "cpu_seconds": None}


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """All that are forked."""
    found: list[Child] = []
    fork = Forker.fork

    def kept(*arguments: object) -> Child:
        found.append(fork(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(Forker, "fork", kept)
    return found


ADD, BAD, GOOD = KINDS["calls"], "def f(a, b) return a", "def f(a, b): return a + b"


def test_nothing_is_forked_for_a_program_that_can_not_be_compiled(reading: Sandbox, children: list[Child]) -> None:
    reading.score(ADD, BAD)
    reading.score(ADD, BAD)
    children.clear()
    verdicts = [reading.score(ADD, f"{BAD} # {number}") for number in range(20)]
    assert {verdict.status for verdict in verdicts} == {"error"}
    assert all(0 <= verdict.cpu_seconds < 0.1 for verdict in verdicts)
    assert sum(verdict.cpu_seconds for verdict in verdicts) > 0
    assert children == []


def test_where_programs_compile_none_is_read_ahead(reading: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(READ_AHEAD_WINDOW):
        reading.score(ADD, GOOD)
    asked = []
    refusal = SourceReader.refusal
    monkeypatch.setattr(SourceReader, "refusal", lambda reader, code: asked.append(code) or refusal(reader, code))
    for code in (BAD, *[GOOD] * 30, BAD, GOOD, BAD):
        reading.score(ADD, code)
    assert asked == [*[GOOD] * READ_AHEAD_WINDOW, GOOD, BAD]


def test_a_reader_is_replaced_when_it_has_read_its_share(
    children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_reader, "PROGRAMS", 5)
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        sandbox.score(ADD, BAD)
        assert {sandbox.score(ADD, BAD).status for _ in range(4)} == {"error"}
        children.clear()
        assert {sandbox.score(ADD, BAD).status for _ in range(10)} == {"error"}
        assert len(children) == 2


def test_a_reader_that_dies_takes_no_verdict_along() -> None:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        sandbox.score(ADD, BAD)
        others = set(descendants(sandbox.zygote_pid))
        sandbox.score(ADD, BAD)
        for _ in range(3):
            (reader,) = set(descendants(sandbox.zygote_pid)) - others
            os.kill(reader, signal.SIGKILL)
            assert "SyntaxError" in sandbox.score(ADD, BAD).detail
            assert sandbox.score(ADD, GOOD).status == "passed"


def test_evidence_does_not_depend_on_what_was_read_before() -> None:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        others = set(descendants(sandbox.zygote_pid))
        alone = sandbox.score(ADD, GOOD).evidence
        assert alone is not None
        assert alone.canonical
        unreadable = sandbox.score(ADD, f"def f(a, b): return b + {' + '.join(['a'] * 900)}")
        assert unreadable.evidence is not None
        assert not unreadable.evidence.canonical
        assert sandbox.score(ADD, GOOD).evidence == alone
        (reader,) = set(descendants(sandbox.zygote_pid)) - others
        os.kill(reader, signal.SIGKILL)
        assert sandbox.score(ADD, GOOD).evidence == alone


def test_code_that_takes_long_to_compile_is_left_to_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_reader, "SECONDS", 0.02)
    monkeypatch.setattr(source_reader, "LONGEST", 1 << 20)
    slow = "\n".join(f"def f{number}(a, b): return a + b" for number in range(12_000))
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        sandbox.score(ADD, BAD)
        others = set(descendants(sandbox.zygote_pid))
        sandbox.score(ADD, BAD)
        (first,) = set(descendants(sandbox.zygote_pid)) - others
        verdict = sandbox.score(ADD, f"{slow}\n{BAD}")
        assert (verdict.status, "SyntaxError" in verdict.detail) == ("error", True)
        assert sandbox.score(ADD, f"{slow}\n{GOOD}").status == "passed"
        monkeypatch.setattr(source_reader, "SECONDS", 1.0)
        sandbox.score(ADD, BAD)
        (second,) = set(descendants(sandbox.zygote_pid)) - others
        assert second != first


def test_code_that_is_very_long_is_not_read_ahead(reading: Sandbox, children: list[Child]) -> None:
    reading.score(ADD, BAD)
    reading.score(ADD, BAD)
    children.clear()
    verdict = reading.score(ADD, "x = 1" + "0" * 10**6)
    assert (verdict.status, "Exceeds the limit (50000 digits)" in verdict.detail) == ("error", True)
    assert len(children) == 1


def test_what_a_reader_says_can_only_be_that_a_program_does_not_compile(
    children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        sandbox.score(ADD, BAD)
        sandbox.score(ADD, BAD)
        reader = children[-1]
        for said in (("ok", 3, None, None), ("ready",), ("syntax",), ("over", "steps", 1), "syntax"):
            monkeypatch.setattr(reader, "receive", lambda said=said: plain_data.encode(said))
            assert sandbox.score(ADD, GOOD).status == "passed"
