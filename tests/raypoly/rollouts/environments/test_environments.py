"""The environments that ship, with a real sandbox: repairs, and Python as a tool that hostile programs can't hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import Unknown, UsageError
from raypoly.core.settings import load
from raypoly.core.values import ASSISTANT, Problem, TestSuite, Turn, Verdict
from raypoly.integrations.contract_checks import check
from raypoly.rollouts import environments
from raypoly.rollouts.environments import Conversation, Done, Observation
from raypoly.verifier.sandbox import Sandbox
from raypoly.verifier.sandbox.script_run import MOST_SHOWN
from workflows.step.conversations import Tools

PUBLIC = TestSuite("calls", json.dumps([{"args": [[1, 2]], "expected": 3}]))
PROBLEM = Problem("add", "Add.", "f", TestSuite("calls", json.dumps([{"args": [[5]], "expected": 5}])))
SHOWN = replace(PROBLEM, public_tests=PUBLIC, prelude="from math import *")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    limits = ScorerConfig(cpu_seconds_per_test=1.0, cpu_seconds_per_program=1.0, memory_mib=256)
    with Sandbox(limits) as one:
        yield one


def tools(sandbox: Sandbox) -> Tools:
    async def score(problem: Problem, code: str | None) -> Verdict:
        return sandbox.score(problem, code)

    return Tools(SHOWN, score)


def fenced(code: str) -> str:
    return f"Let me see.\n```python\n{code}\n```\n"


def talk(*texts: str, left: int = 1, calls: tuple[Any, ...] = ()) -> Conversation:
    turns: list[Turn] = []
    for text in texts:
        turns += [Turn("user", 0, "...")] * bool(turns) + [Turn(ASSISTANT, 0, text)]
    return Conversation(tuple(turns), left, calls)


def answer(sandbox: Sandbox, name: str, asked: Conversation, *keys: str) -> Observation | Done:
    environment = environments.of_run(load(None, [f"environment.name={name}", *keys], str))
    return asyncio.run(environment.respond(SHOWN, asked, tools(sandbox)))


def said(sandbox: Sandbox, code: str, *earlier: str) -> str:
    found = answer(sandbox, "python", talk(*map(fenced, (*earlier, code))))
    assert isinstance(found, Observation)
    return found.text


def test_a_block_prints_into_the_conversation_with_the_value_of_its_last_line(sandbox: Sandbox) -> None:
    assert said(sandbox, "x = 3\nprint(x + 1)\nx * 2") == "4\n6"
    assert said(sandbox, "x = 3") == "(no output)"
    assert said(sandbox, "print('before')\n1 / 0") == "before\n(error: ZeroDivisionError: division by zero)"
    assert "SyntaxError" in said(sandbox, "def f(:")
    assert said(sandbox, "floor(2.5)") == "2", "the problem's prelude is there"


def test_names_go_on_from_block_to_block_and_earlier_ones_print_nothing(sandbox: Sandbox) -> None:
    assert said(sandbox, "y + 1", "y = 4\nprint('seen')", "raise ValueError") == "5"
    fresh = answer(sandbox, "python", talk(fenced("y = 4"), fenced("y + 1")), "environment.state=fresh")
    assert isinstance(fresh, Observation)
    assert "NameError" in fresh.text


def test_a_block_that_ended_its_process_does_not_end_those_after_it(sandbox: Sandbox) -> None:
    assert said(sandbox, "y + 1", "y = 4", "import sys\nsys.exit()") == "5"
    assert said(sandbox, "y + 1", "y = 4", "raise KeyboardInterrupt") == "5"
    ended = [fenced("y = 4"), fenced("while True: pass"), fenced("y + 1")]
    asked = talk(*ended)
    turns = [replace(it, text="(timeout: more than 1 s of CPU)") if n == 3 else it for n, it in enumerate(asked.turns)]
    found = answer(sandbox, "python", replace(asked, turns=tuple(turns)))
    assert found == Observation("5")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("while True: pass", "(timeout: more than 1 s of CPU)"),
        ("while True: print('x' * 1_000_000)", "(error: it printed more than"),
        ("x = [0] * 10**9", "(memory: "),
        ("import socket\nsocket.create_connection(('127.0.0.1', 80), 1)", "(error: "),
        ("import os\nfor _ in range(200):\n    os.fork()", "(error: "),
        ("import os\nos._exit(3)", "(error: "),
        ("import os\nos.kill(os.getppid(), 9)", "(error: "),
        ("open('/etc/shadow').read()", "(error: "),
    ],
)
def test_a_hostile_block_gets_an_answer_that_says_so_and_the_sandbox_goes_on(
    sandbox: Sandbox, code: str, shown: str
) -> None:
    assert shown in said(sandbox, code)
    assert sandbox.score(PROBLEM, "def f(xs): return sum(xs)").passed, "no verdict elsewhere changes"
    assert not sandbox.score(PROBLEM, "def f(xs): return 0").passed


def test_a_long_output_is_shortened_in_the_middle(sandbox: Sandbox) -> None:
    text = said(sandbox, "print('a' * 50_000 + 'end')")
    assert len(text) < MOST_SHOWN + 50
    assert text.startswith("aaa")
    assert text.endswith("end")


def test_a_turn_without_a_block_ends_it_and_a_call_runs_without_one(sandbox: Sandbox) -> None:
    assert answer(sandbox, "python", talk("It is 3.")) == Done()
    assert answer(sandbox, "python", talk("<think>```python\n1\n```</think>It is 3.")) == Done()
    assert answer(sandbox, "python", talk(fenced("1"), left=0)) == Observation("")
    call = {"name": "python", "arguments": {"code": "6 * 7"}}
    assert answer(sandbox, "python", talk("", calls=((call,),))) == Observation("42", "tool")


def test_a_wrong_program_gets_its_first_public_failure_until_one_passes(sandbox: Sandbox) -> None:
    wrong = answer(sandbox, "repair", talk(fenced("def f(xs): return 7")))
    assert isinstance(wrong, Observation)
    assert "Input: f([1, 2])\nExpected: 3\nGot: 7" in wrong.text
    assert "5" not in wrong.text, "the hidden test"
    assert answer(sandbox, "repair", talk(fenced("def f(xs): return sum(xs)"))) == Done()
    status = answer(sandbox, "repair", talk(fenced("def f(xs): return 7")), "environment.show=status")
    assert isinstance(status, Observation)
    assert "It ended with: wrong." in status.text
    assert "[1, 2]" not in status.text


def test_a_sandbox_that_fails_is_unknown(sandbox: Sandbox) -> None:
    async def fails(problem: Problem, code: str | None) -> Verdict:
        return Verdict("infra", 0, 0, 0.0, "the disk is full")

    for name in ("repair", "python"):
        environment = environments.of_run(load(None, [f"environment.name={name}"], str))
        with pytest.raises(Unknown, match="the disk is full"):
            asyncio.run(environment.respond(SHOWN, talk(fenced("1")), Tools(SHOWN, fails)))


@pytest.mark.parametrize("name", environments.KNOWN)
def test_the_environments_keep_their_contract(name: str) -> None:
    check(name, kind="environment")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["environment.name=pyton"], r"environment\.name='pyton' is unknown; did you mean 'python'\?"),
        (["environment.name=repair", "environment.state=kept"], r"environment\.state='kept' does not fit repair"),
        (["environment.name=repair", "environment.max_turns=0"], r"environment\.max_turns"),
        (["credit.turns=last"], r"credit\.turns=last is for rollouts of several turns"),
        (
            ["environment.name=repair", "scaffold.name=given", "scaffold.rows=x", "objective.name=supervised"],
            "answers turns, and scaffold.name=given samples none",
        ),
        (
            ["environment.name=repair", "environment.max_observation_tokens=4000"],
            r"12408 of observations \(environment\.max_turns, environment\.max_observation_tokens\) = 12600\)",
        ),
        (
            ["environment.name=repair", "credit.turns=last", "objective.name=flowrl", "loss.name=flowrl"],
            "fits one a response",
        ),
    ],
)
def test_each_mistake_is_a_sentence_before_anything_starts(overrides: list[str], told: str, tmp_path: Any) -> None:
    from raypoly.planning.preflight import check_config

    with pytest.raises(UsageError, match=told):
        check_config(load(None, overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()
