"""What works on groups: group stages (`group_stage.py`), judges (`judge/__init__.py`), scaffolds (`scaffold.py`) and
environments (`environment.py`)."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from raypoly.algorithms import objectives
from raypoly.algorithms.objectives import ScoredGroup
from raypoly.core.config import Config, JudgeConfig
from raypoly.core.errors import Away, Infra, JudgeUnavailable, MissingKey, Unknown, UsageError
from raypoly.core.plugins import parse_parameters, recipe_parts
from raypoly.core.values import ASSISTANT, Draft, Group, Labels, Problem, TestSuite, Turn, Verdict
from raypoly.integrations.contract_checks import made_groups as made
from raypoly.integrations.contract_checks.comparing import Untried, need, need_array, need_json, need_same
from raypoly.integrations.contract_checks.contract import Contract, Fault, Inputs
from raypoly.rollouts import environments, scaffolds
from raypoly.rollouts.environments import Conversation, Done, Environment, Observation, ToolResult
from raypoly.rollouts.scaffolds import Ask, Scaffold
from raypoly.rollouts.scaffolds.scaffold import checked_asks, is_final
from raypoly.strategies import judge


def _no_server() -> Fault:
    return Fault(Away("it asks a server, and here is none"))


class StageContract(Contract):
    kind, what, package, seconds = "stage", "a subclass of GroupStage", "pyarrow", 3.0
    hint = "raise Unknown where there is no finding, and Away where a server is away"
    known, declines = recipe_parts("stages.own"), (Away, Unknown, Infra)

    @classmethod
    def is_one(cls, thing: Any) -> bool:
        module = sys.modules.get("raypoly.algorithms.group_stage")  # loaded by every stage, with pyarrow
        return module is not None and isinstance(thing, type) and issubclass(thing, module.GroupStage)

    def build(self, params: Mapping[str, Any]) -> Any:
        name = str(getattr(self.thing, "name", ""))
        need(re.fullmatch(r"[a-z][a-z0-9_]{0,59}", name), f"name={name!r} is none: lower-case letters, digits and _")
        return self.thing(Config.model_validate({"stages": {name: dict(params)}}), objectives.build("grpo"))

    def samples(self, part: Any) -> Inputs:
        for shown, group in made.made_groups():
            read = {name: np.full(group.size, 0.5) for name in part.after if name not in group.findings}
            yield shown, (group.with_findings(**read), made.made_problems()[0])

    def answer(self, part: Any, group: Group, problem: Problem, services: Any = None) -> Any:
        try:
            _ = part.asked_model
        except UsageError as error:
            raise Away(str(error)) from error
        found = part.run(group, problem, _no_server() if services is None else services)
        need(inspect.iscoroutine(found), "run() has to be `async def`")
        return part.encode(asyncio.run(found), part.rows(group))

    def right(self, value: Any, group: Group, problem: Problem) -> None:
        need(hasattr(value, "to_pydict"), "encode() has to give a pyarrow.RecordBatch", value)
        if self.thing.axis == "token":
            wanted = [rollout.length for rollout in group.rollouts]
            for name in value.schema.names:
                found = [len(each) for each in value.column(name).to_pylist()]
                need(found == wanted, f"run() has to give each rollout a number of {name} a token: {wanted}", found)

    def faulty(self, fault: Any, group: Group, problem: Problem) -> Inputs:
        yield "the group's rollouts", (replace(group, rollouts=(fault,) * group.size), problem)
        yield "the group's findings", (replace(group, findings=dict.fromkeys(group.findings, fault)), problem)

    def reordered(self, value: Any, group: Group, problem: Problem) -> Any:
        order = made.turned(group.size)
        labels = made.with_order(group.labels, order, "ids", "degenerate")
        moved = made.with_order(group, order, "rollouts", "draft_of")
        moved = moved.with_findings(score=made.in_order(group.verdicts, order), judge=labels)
        return (moved, problem), value.take(order) if self.thing.axis in ("rollout", "token") else value

    def check_what_it_declares_fits(self) -> None:
        stage, group = self.make(), made.made_group(2)
        need(stage.name not in {it.name for it in fields(ScoredGroup)}, f"name={stage.name!r} is taken: use another")
        axes = ("rollout", "token", "draft", "group")
        need(stage.axis in axes, f"axis={stage.axis!r} has to be one of {', '.join(axes)}")
        need(stage.device in ("free", "learner"), f"device={stage.device!r} has to be free or learner")
        need(isinstance(stage.after, tuple), f"after={stage.after!r} has to be a tuple of names")
        need(set(stage.optional) <= set(stage.columns), f"optional={stage.optional!r} has to name columns")
        need(type(stage.wanted(group)) is bool is type(stage.used), "wanted() and used have to be True or False")

    def check_a_server_that_is_away_gives_no_finding(self) -> None:
        for it in self.asked:
            said, server = f"A server is away, and it gives a finding for {it.shown}: let Away through", _no_server()
            self.let_through(server, (*it.args, server), self.declines, said)

    def check_the_journal_gives_its_finding_back(self) -> None:
        stage = self.make()
        for it in self.answers:
            finding = stage.decode(it.value)
            again = stage.encode(finding, it.value.num_rows)
            need_same(again, it.value, f"decode() does not undo encode(), for {it.shown}")
            need_json(dict(stage.measures(finding, it.args[0])), "What measures() gives")

    def check_the_credit_of_tokens_fits_them(self) -> None:
        stage = self.make()
        need(stage.gives_credit, "it adds nothing to advantages", error=Untried)
        for it in self.answers:
            rollouts = it.args[0].rollouts
            found = stage.token_credit(stage.decode(it.value), rollouts)
            need(len(found) == len(rollouts), f"token_credit() has to give {len(rollouts)} arrays", found)
            for credit, rollout in zip(found, rollouts, strict=True):
                need_array(np.asarray(credit, np.float64), np.float64, rollout.length, "What token_credit() gives")

    def check_several_groups_run_in_one_event_loop(self) -> None:
        stage, pairs = self.make(), [it.args for it in self.answers]

        async def run_all() -> Any:
            return await asyncio.gather(*(stage.run(*pair, _no_server()) for pair in pairs))

        for it, finding in zip(self.answers, asyncio.run(run_all()), strict=True):
            said = f"With several groups in one event loop it mixes up findings: keep none in self, {it.shown}"
            need_same(stage.encode(finding, it.value.num_rows), it.value, said)


class JudgeContract(Contract):
    kind, what, seconds, known = "judge", "a class with label and probe", 20.0, judge.KNOWN
    hint = "raise JudgeRefused where it can't label, and JudgeUnavailable where it is away"
    travels, declines = False, (Away, Unknown, MissingKey)

    @classmethod
    def is_one(cls, thing: Any) -> bool:
        return isinstance(thing, type) and callable(getattr(thing, "label", None))

    def build(self, params: Mapping[str, Any]) -> Any:
        return self.thing(parse_parameters(JudgeConfig, params, "judge", self.thing.__name__))

    def samples(self, part: Any) -> Inputs:
        for shown, group in made.made_groups():
            yield shown, (made.made_problems()[0], group.rollouts, group.verdicts)

    def answer(self, part: Any, *args: Any) -> Any:
        return part.label(*args)

    def right(self, value: Any, problem: Problem, rollouts: Any, verdicts: Any) -> None:
        need(isinstance(value, Labels), "label() has to give Labels", value)
        need(isinstance(value.judge, str) and value.judge, "Labels.judge has to be its name and version", value.judge)
        need_array(value.ids, np.int32, len(rollouts), "Labels.ids")
        need_array(value.degenerate, np.bool_, len(rollouts), "Labels.degenerate")
        need(value.known, "An attempt has no id of 1 or more: raise JudgeRefused where it can't be labelled", value.ids)
        texts = [rollout.text for rollout in rollouts]
        for text, strategy in zip(texts, value.strategies, strict=True):
            need(text or not strategy, "A response without code has to be degenerate", value.degenerate)
            need(strategy == value.strategies[texts.index(text)], "Equal programs get different strategies", value.ids)

    def faulty(self, fault: Any, problem: Any, rollouts: Any, verdicts: Any) -> Inputs:
        yield "a verdict", (problem, rollouts, (fault, *verdicts[1:]))
        yield "a response", (problem, (fault, *rollouts[1:]), verdicts)

    def reordered(self, value: Any, problem: Problem, rollouts: Any, verdicts: Any) -> Any:
        order = made.turned(len(rollouts))
        moved = (problem, made.in_order(rollouts, order), made.in_order(verdicts, order))
        return moved, made.with_order(value, order, "ids", "degenerate")

    def essence(self, value: Any) -> Any:
        """Who shares a strategy: each one's first program."""
        strategies = getattr(value, "strategies", ())
        return [it and 1 + strategies.index(it) for it in strategies] or value

    def check_several_threads_may_ask_at_once(self) -> None:
        part = self.make()
        with ThreadPoolExecutor(4) as pool:
            said = "Asked by four threads at once it errs"
            list(pool.map(lambda it: self.repeat(part, it, said), [*self.answers] * 3))

    def check_a_probe_returns_or_says_that_it_is_away(self) -> None:
        with suppress(JudgeUnavailable):
            found = self.make().probe()
            need(found is None, "probe() has to return None, or raise JudgeUnavailable", found)


class ScaffoldContract(Contract):
    kind, what, base, declines = "scaffold", "a subclass of Scaffold", Scaffold, (UsageError,)
    hint = "raise UsageError for a problem that it can't ask for"
    inputs = ("the problem",)
    known: ClassVar = {**scaffolds.KNOWN, **recipe_parts("scaffold.name")}

    def samples(self, part: Scaffold) -> Inputs:
        for attempts in made.taken_sizes(part.check):
            for problem in (part.own_problems() or made.made_problems())[:2]:
                yield f"{attempts} attempts at {problem.id}", (problem, attempts)

    def answer(self, part: Scaffold, problem: Problem, attempts: int) -> Any:
        """The asks of each round; drafts are made."""
        drafts, rounds = list[Draft](), list[Sequence[Ask]]()
        while not rounds or not is_final(rounds[-1]):
            rounds.append(_asked(part, problem, tuple(drafts), attempts))
            need(len(rounds) < 40, "After 40 rounds it asks for more drafts, and has to ask for attempts at last")
            drafts += [_draft(ask, len(drafts) + place) for ask in rounds[-1] for place in range(ask.count)]
        return rounds

    def right(self, value: Any, problem: Problem, attempts: int) -> None:
        for ask in (ask for asks in value for ask in asks):
            need(made.SECRET not in f"{ask.prompt}{ask.text}", "It shows the hidden tests or the solution", ask.prompt)

    def check_what_it_declares_fits(self) -> None:
        part = self.make()
        for size in made.taken_sizes(part.check):
            for name, least in (("block", 1), ("planned_drafts", 0), ("planned_attempts", 0)):
                found = getattr(part, name)(size)
                said = f"{name}({size}) has to be a whole number from {least}"
                need(type(found) is int and found >= least, said, found)
        for it in self.answers:
            problem, attempts = it.args
            for ask in it.value[-1]:
                said, instead = "too_long() has to give an Ask of the same role", part.too_long(problem, ask)
                need(getattr(instead, "role", "") == ask.role, said, instead)
            methods = part.methods((), attempts) if len(it.value) == 1 else None
            need(methods is None or len(methods) == attempts, f"methods() has to give {attempts}, or None", methods)


_ANSWER = made.SECRET.rpartition("-")[2]


class EnvironmentContract(Contract):
    kind, what, base = "environment", "a subclass of Environment", Environment
    declines = (ValueError, KeyError)  # it may be for problems of one kind, such as those with an answer
    hint = "return Done() where there is nothing to answer"
    inputs = ("the problem",)
    known: ClassVar = environments.KNOWN

    def samples(self, part: Environment) -> Inputs:
        answered = Problem("number", "Guess a number.", "", TestSuite("answer", _ANSWER))
        for problem in (*made.made_problems(), answered):
            problem = replace(problem, public_tests=TestSuite("calls", "shown"))
            for left in (2, 0):
                for text in ("", "```python\nprint(1)\n```", "It is 3.", f"```python\n{made.PROGRAMS[2][0]}\n```"):
                    first = Turn(ASSISTANT, 0, "```python\nx = 1\n```")
                    turns = (first, Turn("user", 5, "Go on."), Turn(ASSISTANT, 9, text))
                    asked = Conversation(turns if left else (Turn(ASSISTANT, 0, text),), left)
                    yield f"{text!r} to {problem.id} with {left} turns left", (problem, asked)

    def answer(self, part: Environment, problem: Problem, asked: Conversation, sandbox: Any = None) -> Any:
        found = part.respond(problem, asked, _MadeSandbox() if sandbox is None else sandbox)
        need(inspect.iscoroutine(found), "respond() has to be `async def`")
        return asyncio.run(found)

    def right(self, value: Any, problem: Problem, asked: Conversation) -> None:
        need(isinstance(value, Observation | Done), "respond() has to give an Observation or Done", value)
        if isinstance(value, Observation):
            fits = isinstance(value.text, str) and value.role in ("user", "tool")
            need(fits, "An Observation has a text, and the role user or tool", value)
            need(_ANSWER not in value.text, "It shows the hidden tests or the solution", value.text)
        else:
            number = value.outcome is None or (isinstance(value.outcome, Real) and not np.isinf(float(value.outcome)))
            need(number, "An outcome is a number, NaN for unknown", value.outcome)

    def check_a_sandbox_that_fails_is_no_answer(self) -> None:
        for it in self.answers:
            sandbox = Fault(Unknown("the sandbox failed"))
            said = f"The sandbox fails, and it answers {it.shown}: let Unknown through"
            self.let_through(sandbox, (*it.args, sandbox), (Unknown,), said)

    def check_several_conversations_are_answered_in_one_event_loop(self) -> None:
        part, pairs = self.make(), [it.args for it in self.answers]

        async def answer_all() -> Any:
            return await asyncio.gather(*(part.respond(*pair, _MadeSandbox()) for pair in pairs))

        for it, got in zip(self.answers, asyncio.run(answer_all()), strict=True):
            need_same(
                got, it.value, f"With several conversations at once it mixes them up: keep none in self, {it.shown}"
            )


class _MadeSandbox:
    """Prints how long a program is; what is tested fails."""

    async def run(self, code: str, stdin: str = "") -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult("ok", f"{len(code)}\n", "", 0.01)

    async def test(self, text: str) -> Verdict | None:
        await asyncio.sleep(0)
        return made.made_verdict("wrong", "for")


def _asked(part: Scaffold, problem: Problem, drafts: tuple[Draft, ...], attempts: int) -> Sequence[Ask]:
    """One round. Raises `UsageError` where the part declines."""
    first = part.ask(problem, drafts, attempts)
    try:
        again = checked_asks(part, problem, drafts, attempts)
    except UsageError as error:
        need(False, str(error))
    need(tuple(first) == again, "ask() gives other asks for the same problem and drafts", again, first)
    need(part.samples or all(ask.text is not None for ask in again), "samples=False, and an ask has no text")
    return again


def _draft(ask: Ask, place: int) -> Draft:
    program = made.PROGRAMS[place % len(made.PROGRAMS)][0]
    text = f"- look at {place}\n- use a loop\n```python\n{program}\n```" if place != 1 else ""
    return Draft(made.made_rollout(place, text), ask.role, ask.parent)
