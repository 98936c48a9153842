"""Questions to teacher and judge. Every answer is kept: none is paid for twice.

    questions = PlanQuestions(config.plans, chat, store, note)
    outcomes = await questions.outcomes(problems)

An answer is an object of the folder, named by what was asked of whom. A killed command asks only what has no answer.
While a server is away the questions wait. A refusal is a result, and so is an answer that can't be used after it was
asked for once more. A question that a server never answers though it answers others is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from raypoly.core.endpoint_config import EndpointConfig
from raypoly.core.errors import JudgeRefused
from raypoly.core.values import Problem
from raypoly.data.templates import ChatTemplate
from raypoly.recipes.cppo.known_plans import JudgedPlan
from raypoly.recipes.cppo.plan_config import PlansConfig
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.recipes.cppo.plan_proposals import (
    NOT_JUDGED,
    PROPOSALS_SCHEMA,
    VERDICTS_SCHEMA,
    MethodVerdict,
    PlanOutcome,
    faults,
    judge_messages,
    proposal_messages,
    read_proposals,
    read_verdicts,
    rewordings,
    without_breaches,
)
from raypoly.rollouts import scaffolds
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal
from raypoly.strategies.judge.judge_keys import read_first_key
from raypoly.strategies.judge.openai.endpoint import PROBE, PROBE_TOKENS, Endpoint, EndpointWords
from raypoly.strategies.judge.openai.judge_prompt import Message, repair_messages
from raypoly.strategies.judge.openai.judge_reply import InvalidAnswer
from workflows.endpoint_samples import FIRST_WAIT, WaitingEndpoint

T = TypeVar("T")


class _NoAnswer(Exception):
    """`refused` or `unreadable`."""


@dataclass(frozen=True)
class _Answer:
    text: str
    refused: bool = False
    cut: bool = False

    def read(self, reader: Callable[[str], T]) -> T:
        """Raises `InvalidAnswer`."""
        if self.cut:
            raise InvalidAnswer("it was cut off: say it in fewer words")
        return reader(self.text)


class _Asked:
    def __init__(
        self,
        role: str,
        config: EndpointConfig,
        temperature: float | None,
        note: Callable[[str], None],
        first_wait: float,
    ) -> None:
        """`role`: `teacher` or `judge`. Raises `MissingKey`."""
        self.role, self.name, self._extra = role, config.name or "", config.extra_fields
        judge = config.as_judge(temperature)
        words = EndpointWords(
            f"The {role}",
            f"plans.{role}.timeout",
            f"plans.{role}.url and plans.{role}.name",
            f"plans.{role}.name, plans.{role}.extra and plans.answer_tokens",
        )
        self._endpoint = Endpoint(
            config.url or "",
            self.name,
            read_first_key(judge, f"plans.{role}.api_key_env"),
            judge,
            backoff=first_wait / 2,
            words=words,
        )
        self._server = WaitingEndpoint(
            self._endpoint,
            config,
            f"plans.{role}.max_pause",
            lambda endpoint: endpoint.respond(PROBE, PROBE_TOKENS, **self._extra),
            note,
            first_wait,
        )

    async def answer(self, messages: Sequence[Message], schema: dict[str, Any], tokens: int) -> _Answer:
        """Waits out any outage. Raises `PausedTooLong`."""
        form = {"type": "json_schema", "json_schema": {"name": "methods", "strict": True, "schema": schema}}
        try:
            completion = await self._server.ask(
                lambda endpoint: endpoint.respond(messages, tokens, response_format=form, **self._extra)
            )
        except JudgeRefused:
            return _Answer("", refused=True)
        refused = bool(completion.refusal) or completion.finish_reason == "content_filter"
        return _Answer(completion.text, refused, completion.finish_reason == "length")

    def close(self) -> None:
        self._server.close()


class PlanQuestions:
    def __init__(
        self,
        config: PlansConfig,
        chat: ChatTemplate | None,
        store: Store,
        note: Callable[[str], None],
        first_wait: float = FIRST_WAIT,
    ) -> None:
        """`first_wait`: seconds before a server that is away is asked again."""
        self._config, self._store = config, store
        self._planner = scaffolds.build("tuple", chat, methods=config.methods)
        self._teacher = _Asked("teacher", config.teacher, config.temperature, note, first_wait)
        self._judge = _Asked("judge", config.judge, 0.0, note, first_wait)

    def close(self) -> None:
        self._teacher.close()
        self._judge.close()

    async def outcomes(
        self, problems: Sequence[Problem], done: Callable[[PlanOutcome], None] = lambda outcome: None
    ) -> list[PlanOutcome]:
        """In the order of the problems; `done` is called as each is known. Raises `PausedTooLong`."""
        limit = self._config.teacher.concurrency + self._config.judge.concurrency
        return await _each([(it, self._outcome) for it in problems], limit, done)

    async def _outcome(self, problem: Problem) -> PlanOutcome:
        config = self._config
        (asked,) = self._planner.ask(problem, (), config.methods)
        count = config.proposals
        try:
            proposed = await self._known(
                self._teacher,
                proposal_messages(problem, count),
                PROPOSALS_SCHEMA,
                lambda text: read_proposals(text, count),
            )
        except _NoAnswer as why:
            return PlanOutcome(problem.id, asked.prompt, unanswered=f"teacher {why}")
        sound, left_out = without_breaches(proposed)
        if len(sound) < config.methods:
            left_out[NOT_JUDGED] = len(sound)
            return PlanOutcome(problem.id, asked.prompt, len(proposed), left_out=left_out)
        try:
            verdicts = await self._verdicts(problem, sound)
        except _NoAnswer as why:
            left_out[NOT_JUDGED] = len(sound)
            return PlanOutcome(problem.id, asked.prompt, len(proposed), left_out=left_out, unanswered=f"judge {why}")
        found = faults(verdicts)
        kept = tuple(method for method, fault in zip(sound, found, strict=True) if fault is None)
        left_out.update(Counter(fault for fault in found if fault is not None))
        again = tuple(rewordings(sound, verdicts))
        return PlanOutcome(problem.id, asked.prompt, len(proposed), kept, again, left_out)

    async def judged(
        self, written: Sequence[tuple[Problem, str]], done: Callable[[JudgedPlan], None] = lambda plan: None
    ) -> list[JudgedPlan]:
        """The judge's labels of planners' plans that keep the contract, in order. Raises `PausedTooLong`."""
        asked = [(it, partial(self._judged, plan=plan)) for it, plan in written]
        return await _each(asked, self._config.judge.concurrency, done)

    async def _judged(self, problem: Problem, plan: str) -> JudgedPlan:
        methods = read_plan(plan, self._config.methods).methods
        try:
            valid: bool | None = not any(faults(await self._verdicts(problem, methods)))
        except _NoAnswer:
            valid = None
        return JudgedPlan(problem.id, plan, valid)

    async def _verdicts(self, problem: Problem, methods: Sequence[str]) -> list[MethodVerdict]:
        """Raises `_NoAnswer`."""
        return await self._known(
            self._judge,
            judge_messages(problem, methods),
            VERDICTS_SCHEMA,
            lambda text: read_verdicts(text, len(methods)),
        )

    async def _known(
        self, asked: _Asked, messages: Sequence[Message], schema: dict[str, Any], read: Callable[[str], T]
    ) -> T:
        """The answer as `read` takes it, asked for once more if it can't. Raises `_NoAnswer`."""
        for _ in range(2):
            answer = await self._kept(asked, messages, schema)
            if answer.refused:
                raise _NoAnswer("refused")
            try:
                return answer.read(read)
            except InvalidAnswer as fault:
                messages = repair_messages(messages, answer.text, str(fault), about="")
        raise _NoAnswer("unreadable")

    async def _kept(self, asked: _Asked, messages: Sequence[Message], schema: dict[str, Any]) -> _Answer:
        # The server's answer is committed before it is used.
        said = json.dumps([asked.role, asked.name, messages, self._config.answer_tokens])
        key = f"plans/{asked.role}-{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"
        if await asyncio.to_thread(self._store.exists, key):
            return _Answer(**unseal(await asyncio.to_thread(self._store.read, key), self._store.place(key)))
        answer = await asked.answer(messages, schema, self._config.answer_tokens)
        await asyncio.to_thread(self._store.commit, key, seal(asdict(answer)))
        return answer


async def _each(
    asked: Sequence[tuple[Problem, Callable[[Problem], Awaitable[T]]]], limit: int, done: Callable[[T], None]
) -> list[T]:
    # In order, `limit` at once.
    at_once = asyncio.Semaphore(limit)

    async def one(problem: Problem, ask: Callable[[Problem], Awaitable[T]]) -> T:
        async with at_once:
            found = await ask(problem)
        done(found)
        return found

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(*each)) for each in asked]
    return [task.result() for task in running]
