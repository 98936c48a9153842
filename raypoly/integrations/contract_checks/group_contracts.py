"""What works on groups: group stages (`group_stage.py`), judges (`judge/__init__.py`) and scaffolds (`scaffold.py`)."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from raypoly.algorithms import objectives
from raypoly.algorithms.objectives import ScoredGroup
from raypoly.core.config import Config, JudgeConfig
from raypoly.core.errors import Away, Infra, JudgeUnavailable, MissingKey, Unknown, UsageError
from raypoly.core.plugins import parse_parameters, recipe_parts
from raypoly.core.values import Draft, Group, Labels, Problem
from raypoly.integrations.contract_checks import contract as trials
from raypoly.integrations.contract_checks import made_groups as made
from raypoly.integrations.contract_checks.comparing import same
from raypoly.integrations.contract_checks.contract import Check, Contract, Fault, Input, Trial, need, need_json
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds import Ask, Scaffold
from raypoly.rollouts.scaffolds.scaffold import checked_asks, is_final
from raypoly.strategies import judge

_NO_SERVER = Away("it asks a server, and here is none")


class StageContract(Contract):
    kind, key, what, package, seconds = "stage", "stages.own", "a subclass of GroupStage", "pyarrow", 3.0
    hint = "raise Unknown where there is no finding, and Away where a server is away"
    known, declines = recipe_parts("stages.own"), (Away, Unknown, Infra)

    def is_one(self, thing: Any) -> bool:
        module = sys.modules.get("raypoly.algorithms.group_stage")  # loaded by every stage, with pyarrow
        return module is not None and isinstance(thing, type) and issubclass(thing, module.GroupStage)

    def build(self, thing: Any, params: Mapping[str, Any]) -> Any:
        name = str(getattr(thing, "name", ""))
        need(re.fullmatch(r"[a-z][a-z0-9_]{0,59}", name), f"name={name!r} is none: lower-case letters, digits and _")
        return thing(Config.model_validate({"stages": {name: dict(params)}}), objectives.build("grpo"))

    def samples(self, part: Any) -> Iterator[Input]:
        for shown, group in made.made_groups():
            read = {name: np.full(group.size, 0.5) for name in part.after if name not in group.findings}
            yield Input(shown, (group.with_findings(**read), made.made_problems()[0]))

    def answer(self, part: Any, group: Group, problem: Problem, services: Any = None) -> Any:
        try:
            _ = part.asked_model
        except UsageError as error:
            raise Away(str(error)) from error
        found = part.run(group, problem, Fault(_NO_SERVER, []) if services is None else services)
        need(inspect.iscoroutine(found), "run() has to be `async def`")
        return part.encode(asyncio.run(found), part.rows(group))

    def right(self, value: Any, group: Group, problem: Problem) -> None:
        need(hasattr(value, "to_pydict"), "encode() has to give a pyarrow.RecordBatch", value)

    def faulty(self, fault: Any, group: Group, problem: Problem) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "the group's rollouts", (replace(group, rollouts=(fault,) * group.size), problem)
        yield "the group's findings", (replace(group, findings=dict.fromkeys(group.findings, fault)), problem)

    def reordered(self, part: Any, value: Any, group: Group, problem: Problem) -> Any:
        rows = value.take(made.turned(group.size)) if part.axis == "rollout" else value
        return (made.reordered_group(group), problem), rows


def _lets_away_through(trial: Trial) -> None:
    for it in trial.asked:
        used: list[str] = []
        try:
            value = trial.contract.answer(trial.make(), *it.sample.args, Fault(_NO_SERVER, used))
        except trial.contract.declines:
            continue
        need(not used, f"A server is away, and it gives a finding for {it.sample.shown}: let Away through", value)


def _stage_declares(trial: Trial) -> None:
    stage = trial.make()
    need(stage.name not in {spec.name for spec in fields(ScoredGroup)}, f"name={stage.name!r} is taken: use another")
    need(stage.axis in ("rollout", "draft", "group"), f"axis={stage.axis!r} has to be rollout, draft or group")
    need(stage.device in ("free", "learner"), f"device={stage.device!r} has to be free or learner")
    need(isinstance(stage.after, tuple), f"after={stage.after!r} has to be a tuple of names")
    need(set(stage.optional) <= set(stage.columns), f"optional={stage.optional!r} has to name columns")
    group = made.made_group(2)
    need(type(stage.wanted(group)) is bool is type(stage.used), "wanted() and used have to be True or False")


def _is_kept(trial: Trial) -> None:
    import pyarrow as pa

    stage = trial.make()
    for it in trial.answers:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, it.value.schema) as writer:
            writer.write_batch(it.value)
        finding = stage.decode(pa.ipc.open_stream(sink.getvalue()).read_next_batch())
        again, numbers = stage.encode(finding, it.value.num_rows), dict(stage.measures(finding))
        need(same(again, it.plain), f"decode() does not undo encode(), for {it.sample.shown}", again, it.value)
        need_json(numbers, "What measures() gives")


def _works_together(trial: Trial) -> None:
    stage, pairs = trial.make(), [it.sample.args for it in trial.answers]

    async def run_all() -> Any:
        return await asyncio.gather(*(stage.run(*pair, Fault(_NO_SERVER, [])) for pair in pairs))

    for it, finding in zip(trial.answers, asyncio.run(run_all()), strict=True):
        said = f"With several groups in one event loop it mixes up findings: keep none in self, {it.sample.shown}"
        need(same(stage.encode(finding, it.value.num_rows), it.plain), said, finding, it.value)


StageContract.own = (
    Check("what it declares fits", _stage_declares),
    Check("a server that is away gives no finding", _lets_away_through),
    Check("the journal gives its finding back", _is_kept),
    Check("several groups run in one event loop", _works_together),
)


class JudgeContract(Contract):
    kind, key, what, seconds = "judge", "judge.name", "a class with label and probe", 20.0
    hint = "raise JudgeRefused where it can't label, and JudgeUnavailable where it is away"
    known, travels, declines = judge.KNOWN, False, (Away, Unknown, MissingKey)

    def is_one(self, thing: Any) -> bool:
        return isinstance(thing, type) and callable(getattr(thing, "label", None))

    def build(self, thing: Any, params: Mapping[str, Any]) -> Any:
        return thing(parse_parameters(JudgeConfig, params, "judge", thing.__name__))

    def samples(self, part: Any) -> Iterator[Input]:
        for shown, group in made.made_groups():
            yield Input(shown, (made.made_problems()[0], group.rollouts, group.verdicts))

    def answer(self, part: Any, *args: Any) -> Any:
        return part.label(*args)

    def right(self, value: Any, problem: Problem, rollouts: Any, verdicts: Any) -> None:
        need(isinstance(value, Labels), "label() has to give Labels", value)
        need(isinstance(value.judge, str) and value.judge, "Labels.judge has to be its name and version", value.judge)
        trials.need_array(value.ids, np.int32, len(rollouts), "Labels.ids")
        trials.need_array(value.degenerate, np.bool_, len(rollouts), "Labels.degenerate")
        need(value.known, "An attempt has no id of 1 or more: raise JudgeRefused where it can't be labelled", value.ids)
        texts = [rollout.text for rollout in rollouts]
        for text, strategy in zip(texts, value.strategies, strict=True):
            need(text or not strategy, "A response without code has to be degenerate", value.degenerate)
            need(strategy == value.strategies[texts.index(text)], "Equal programs get different strategies", value.ids)

    def faulty(self, fault: Fault, problem: Any, rollouts: Any, verdicts: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "a verdict", (problem, rollouts, (fault, *verdicts[1:]))
        yield "a response", (problem, (fault, *rollouts[1:]), verdicts)

    def reordered(self, part: Any, value: Any, problem: Problem, *rows: Any) -> Any:
        order = made.turned(len(rows[0]))
        moved = tuple(tuple(each[i] for i in order) for each in rows)
        return (problem, *moved), replace(value, ids=value.ids[order], degenerate=value.degenerate[order])

    def essence(self, value: Any) -> Any:
        """Who shares a strategy: ids by first occurrence."""
        first: dict[int, int] = {}
        return [it and first.setdefault(it, len(first) + 1) for it in getattr(value, "strategies", ())] or value


def _works_in_threads(trial: Trial) -> None:
    part, asked = trial.make(), [*trial.answers] * 3
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda it: trial.ask(part, it.sample), asked))
    for it, again in zip(asked, found, strict=True):
        got = again.error or again.value
        need(same(it.plain, got), f"Asked by four threads at once it errs, for {it.sample.shown}", got, it.value)


def _is_probed(trial: Trial) -> None:
    try:
        found = trial.make().probe()
    except JudgeUnavailable:
        return
    need(found is None, "probe() has to return None, or raise JudgeUnavailable", found)


JudgeContract.own = (
    Check("several threads may ask at once", _works_in_threads),
    Check("a probe returns, or says that it is away", _is_probed),
)


class Declined(UsageError):
    """A scaffold does not take a problem."""


class ScaffoldContract(Contract):
    kind, key, what, declines = "scaffold", "scaffold.name", "a subclass of Scaffold", (Declined,)
    hint = "raise UsageError for a problem that it can't ask for"
    known: ClassVar = {**scaffolds.KNOWN, **recipe_parts("scaffold.name")}

    def is_one(self, thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, Scaffold)

    def samples(self, part: Scaffold) -> Iterator[Input]:
        for attempts in made.taken_sizes(part.check):
            for problem in (part.own_problems() or made.made_problems())[:2]:
                yield Input(f"{attempts} attempts at {problem.id}", (problem, attempts))

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

    def faulty(self, fault: Fault, problem: Problem, attempts: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        yield "the problem", (fault, attempts)


def _asked(part: Scaffold, problem: Problem, drafts: tuple[Draft, ...], attempts: int) -> Sequence[Ask]:
    try:
        first = part.ask(problem, drafts, attempts)
    except UsageError as error:
        raise Declined(str(error)) from error
    try:
        again = checked_asks(part, problem, drafts, attempts)
    except UsageError as error:
        need(False, str(error))
    need(tuple(first) == again, "ask() gives other asks for the same problem and drafts", again, first)
    need(part.samples or all(ask.text is not None for ask in again), "samples=False, and an ask has no text")
    return again


def _draft(ask: Ask, place: int) -> Draft:
    program, *outcome = made.PROGRAMS[place % len(made.PROGRAMS)]
    rollout = made.made_rollout(
        place, f"- look at {place}\n- use a loop\n```python\n{program}\n```" if place != 1 else ""
    )
    return Draft(rollout, ask.role, ask.parent, made.made_verdict(*outcome) if ask.score else None)  # type: ignore[arg-type]


def _scaffold_declares(trial: Trial) -> None:
    part = trial.make()
    for size in made.taken_sizes(part.check):
        for name, least in (("block", 1), ("planned_drafts", 0), ("planned_attempts", 0)):
            found = getattr(part, name)(size)
            need(type(found) is int and found >= least, f"{name}({size}) has to be a whole number from {least}", found)
    for it in trial.answers:
        problem, attempts = it.sample.args
        for ask in it.value[-1]:
            instead = part.too_long(problem, ask)
            need(getattr(instead, "role", "") == ask.role, "too_long() has to give an Ask of the same role", instead)
        methods = part.methods((), attempts) if len(it.value) == 1 else None
        need(methods is None or len(methods) == attempts, f"methods() has to give {attempts}, or None", methods)


ScaffoldContract.own = (Check("what it declares fits", _scaffold_declares),)
