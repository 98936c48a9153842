"""Conversations: rollouts of several turns, each of which an environment answers.

    conversations = Conversations(config, environment, generator, score, template, keep)
    async for number, rollouts in conversations.sample(openings, known): ...     # an opening's, when all are done

A rollout goes on as soon as its own observation is there (`generator.turns=free`), while the engine samples others; or
turn by turn with all others (`ordered`), each turn one submission in a fixed order, so that batches, and with them
rounding, repeat. A turn and its answer are kept before the next is asked, and a known one is never asked again: an
ordered turn that is not known whole is sampled whole, and what is known of it dropped.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from numbers import Real
from typing import Any

import numpy as np

from actors.engine_actor import Feed
from actors.generator import Generator
from actors.model_files import Observed
from actors.scorer_pool import ScorerPool
from raypoly.core.config import Config, EnvironmentSection
from raypoly.core.errors import BrokenTests, IsolationMissing, RaypolyError, SandboxError, Unknown
from raypoly.core.seeds import derive
from raypoly.core.text import as_utf8
from raypoly.core.values import ASSISTANT, FinishReason, Int32, Problem, Rollout, TestSuite, Turn, Verdict
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.environments import (
    Conversation,
    Done,
    Environment,
    Observation,
    ToolResult,
)
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from raypoly.verifier.code_extraction import program_in

Score = Callable[[Problem, str | None], Awaitable[Verdict]]
"""The verdict of a program, by the sandboxes."""
Keep = Callable[["Opening", int, Rollout], Awaitable[None]]
"""Keeps a rollout so far, by its opening and place: its last turn is new."""


@dataclass(frozen=True)
class Opening:
    """What one or more conversations begin after."""

    request: SampleRequest
    problem: Problem
    slot: int
    places: tuple[int, ...]
    """Of its rollouts in their group."""
    converses: bool = True
    """False: its responses are drafts, of one turn."""
    drafts: int = 0
    """Of its group, before it."""


@dataclass
class _Talk:
    """One rollout, as far as it has come."""

    number: int
    """Of its opening."""
    opening: Opening
    index: int
    """Among its opening's."""
    rollout: Rollout | None = None

    @property
    def place(self) -> int:
        return self.opening.places[self.index]

    @property
    def turns(self) -> int:
        """The policy's, so far."""
        return 0 if self.rollout is None else len(self.rollout.own_turns)

    @property
    def done(self) -> bool:
        return self.rollout is not None and (not self.opening.converses or self.rollout.turns[-1].role == ASSISTANT)

    def request(self, slot: int, turn: int, most_tokens: int) -> SampleRequest:
        """What its turn of this number is sampled after, from 0."""
        asked, seed = self.opening.request, self.opening.request.seeds[self.index]
        if turn == 0 or self.rollout is None:
            return replace(asked, slot=slot, seeds=(seed,))
        before = _start(self.rollout, turn)
        written = int(np.count_nonzero(_mask(self.rollout)[:before]))
        return replace(
            asked,
            slot=slot,
            prompt_tokens=np.concatenate([asked.prompt_tokens, self.rollout.tokens[:before]]),
            seeds=(derive(seed, "turn", turn),),
            max_tokens=asked.limit(most_tokens) - written,
        )


@dataclass
class Tools:
    """`EnvironmentServices` of one answer."""

    problem: Problem
    score: Score
    seconds: float = 0.0

    async def run(self, code: str, stdin: str = "") -> ToolResult:
        tests = TestSuite("run", as_utf8(stdin))
        asked = replace(self.problem, tests=tests, public_tests=None, solution="", reference_seconds=None)
        verdict = await self._verdict(replace(asked, id=f"{self.problem.id} (tool)"), code)
        status: Any = "ok" if verdict.status == "passed" else verdict.status
        status = status if status in ("ok", "timeout", "memory") else "error"
        output = "" if verdict.failure is None else verdict.failure.got
        return ToolResult(status, output, "" if status == "ok" else verdict.detail, verdict.cpu_seconds)

    async def test(self, text: str) -> Verdict | None:
        if self.problem.public_tests is None:
            return None
        shown = replace(self.problem, id=f"{self.problem.id} (public tests)", tests=self.problem.public_tests)
        return await self._verdict(shown, program_in(shown, text))

    async def _verdict(self, problem: Problem, code: str | None) -> Verdict:
        verdict = await self.score(problem, code)
        self.seconds += verdict.cpu_seconds
        if verdict.status == "infra":
            raise Unknown(f"the sandbox could not run a program for {problem.id}: {verdict.detail}")
        return verdict


@dataclass
class Conversations:
    config: Config
    environment: Environment
    generator: Generator
    score: Score
    template: ObservationTemplate
    keep: Keep | None = None
    """None where nothing is kept before all is there."""
    again: Callable[[int], None] = lambda turns: None
    """Told how many turns an earlier start had sampled, or was at, which this one samples again."""

    async def sample(
        self, openings: Sequence[Opening], known: Mapping[int, Mapping[int, Rollout]]
    ) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        """(the opening's number, its rollouts) as all of them are done. `known`: rollouts so far by slot and place."""
        parts = [
            [
                _Talk(number, opening, index, known.get(opening.slot, {}).get(place) if opening.converses else None)
                for index, place in enumerate(opening.places)
            ]
            for number, opening in enumerate(openings)
        ]
        talks = list(chain.from_iterable(parts))
        pending = [sum(not talk.done for talk in part) for part in parts]
        for number, left in enumerate(pending):
            if not left:
                yield number, _rollouts(parts[number])
        free = self.config.generator.turns == "free" and await self.generator.takes_more()
        self.again(_asked_twice(talks, free))
        async for talk in self._free(talks) if free else self._ordered(openings, talks):
            pending[talk.number] -= 1
            if not pending[talk.number]:
                yield talk.number, _rollouts(parts[talk.number])

    async def _free(self, talks: Sequence[_Talk]) -> AsyncIterator[_Talk]:
        """Conversations as they are done."""
        open_ = {slot: talk for slot, talk in enumerate(talks) if not talk.done}
        if not open_:
            return
        feed, ended = Feed(), asyncio.Queue[_Talk | BaseException]()
        most = self.config.generator.max_tokens
        answering: set[asyncio.Task[None]] = set()

        async def answer(slot: int, sampled: Rollout) -> None:
            try:
                talk = open_[slot]
                await self._advance(talk, sampled)
                if talk.done:
                    ended.put_nowait(talk)
                else:
                    feed.put_nowait(talk.request(slot, talk.turns, most))
            except Exception as error:  # noqa: BLE001 - the reader raises it
                ended.put_nowait(error)

        async def pump() -> None:
            try:
                requests = [talk.request(slot, talk.turns, most) for slot, talk in open_.items()]
                async for slot, (rollout,) in self.generator.sample(requests, feed):
                    task = asyncio.create_task(answer(slot, rollout))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
            except Exception as error:  # noqa: BLE001 - the reader raises it
                ended.put_nowait(error)

        pumping = asyncio.create_task(pump())
        try:
            for _ in range(len(open_)):
                found = await ended.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
            feed.put_nowait(None)
            await pumping
        finally:
            for task in (pumping, *answering):
                task.cancel()

    async def _ordered(self, openings: Sequence[Opening], talks: Sequence[_Talk]) -> AsyncIterator[_Talk]:
        for turn in count():
            new = [talk for talk in talks if not talk.done and talk.turns == turn]
            if new:
                taking_part = [talk for talk in talks if talk.turns > turn or (talk.turns == turn and not talk.done)]
                answers: list[asyncio.Task[None]] = []
                try:
                    async for talk, sampled in self._turn(turn, openings, taking_part, new):
                        answers.append(asyncio.create_task(self._advance(talk, sampled)))
                    await asyncio.gather(*answers)
                finally:
                    for each in answers:
                        each.cancel()
                for talk in new:
                    if talk.done:
                        yield talk
            elif all(talk.done for talk in talks):
                return

    async def _turn(
        self, turn: int, openings: Sequence[Opening], taking_part: Sequence[_Talk], new: Sequence[_Talk]
    ) -> AsyncIterator[tuple[_Talk, Rollout]]:
        """Sample one turn of all who take part, and return what is new of it. The first turn's requests are those of a
        run without turns."""
        wanted = set(map(id, new))
        by_slot: dict[int, list[_Talk]] = {}
        if turn == 0:
            for talk in taking_part:
                by_slot.setdefault(talk.opening.request.slot, []).append(talk)
            requests = [opening.request for opening in openings]
        else:
            by_slot = {slot: [talk] for slot, talk in enumerate(taking_part)}
            most = self.config.generator.max_tokens
            requests = [talk.request(slot, turn, most) for slot, (talk,) in by_slot.items()]
        async for slot, rollouts in self.generator.sample(requests):
            for talk, rollout in zip(by_slot[slot], rollouts, strict=True):
                if id(talk) in wanted:
                    yield talk, rollout

    async def _advance(self, talk: _Talk, sampled: Rollout) -> None:
        """Add a sampled turn and the observation that answers it, and keep both."""
        if not talk.opening.converses:
            talk.rollout = sampled
            return
        rollout = with_turn(talk.rollout, sampled, talk.opening.request)
        limit = talk.opening.request.limit(self.config.generator.max_tokens)
        if sampled.finish_reason == "stop":
            rollout = await self._answered(talk.opening.problem, rollout, limit - rollout.length)
        rollout = with_last_program(talk.opening.problem, rollout)
        if self.keep is not None:
            await self.keep(talk.opening, talk.place, rollout)
        talk.rollout = rollout

    async def _answered(self, problem: Problem, rollout: Rollout, tokens_left: int) -> Rollout:
        settings = self.config.environment
        reads = self.environment.reads_tool_calls
        calls = await self.generator.tool_calls(_responses(rollout)) if reads else ()
        found, seconds = await answer_turn(self.environment, settings, problem, rollout.turns, self.score, calls)
        if isinstance(found, Observation) and tokens_left < 1:
            found = "length"
        if not isinstance(found, Observation):
            return ended_by(rollout, found, seconds)
        before, after = self.template.around(problem, found.role)
        repeated = problem.prompt if self.template.repeats(problem) else ""
        last, limit = int(rollout.tokens[-1]), settings.max_observation_tokens
        added = await self.generator.continuation(Observed(found.text, before, after, last, limit, repeated))
        size = len(added.tokens)
        turn = Turn(found.role, len(rollout.tokens), added.text, "length" if added.cut else "stop", seconds)
        return replace(
            rollout,
            tokens=np.concatenate([rollout.tokens, added.tokens]),
            logprobs=np.concatenate([rollout.logprobs, np.full(size, np.nan, np.float32)]),
            mask=np.concatenate([_mask(rollout), np.zeros(size, np.bool_)]),
            turns=(*rollout.turns, turn),
        )


async def answer_turn(
    environment: Environment,
    settings: EnvironmentSection,
    problem: Problem,
    turns: tuple[Turn, ...],
    score: Score,
    calls: Sequence[Sequence[Mapping[str, Any]]] = (),
) -> tuple[Observation | Done | FinishReason, float]:
    """What the environment answers to the last of these turns, or the limit that ends the conversation there; and CPU
    seconds of tools."""
    own = sum(turn.role == ASSISTANT for turn in turns)
    asked = Conversation(turns, settings.max_turns - own, tuple(map(tuple, calls)))
    tools = Tools(problem, score)
    try:
        found = await environment.respond(problem, asked, tools)
    except Unknown:
        return "unknown", tools.seconds
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the run's own
        what = f"environment.name={settings.name} let a CancelledError through on problem {problem.id}: catch it there."
        raise RaypolyError(what) from error
    except RaypolyError:
        raise
    except Exception as error:
        error.add_note(f"raised by environment.name={settings.name} on problem {problem.id}; what was sampled is kept")
        raise
    if wrong := _wrong_answer(found):
        raise RaypolyError(f"environment.name={settings.name} answered problem {problem.id} with {wrong}.")
    if isinstance(found, Done):
        return found, tools.seconds
    if not asked.turns_left:
        return "turns", tools.seconds
    spent = tools.seconds + sum(turn.seconds for turn in turns)
    return "tool_seconds" if spent > settings.max_tool_seconds else found, tools.seconds


def _fits_float(number: float) -> bool:
    try:
        return not math.isinf(number)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _wrong_answer(found: Any) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if isinstance(found, Done):
        number = found.outcome is None or isinstance(found.outcome, Real)
        fits = number and _fits_float(found.outcome or 0.0)
        return "" if fits else f"the outcome {found.outcome!r}, where a number is due, NaN for unknown"
    if not isinstance(found, Observation):
        return f"{type(found).__name__}: respond() returns an Observation or Done"
    if found.role not in ("user", "tool"):
        return f"an Observation of the role {found.role!r}, where user or tool is due"
    return "" if isinstance(found.text, str) else f"an Observation of {type(found.text).__name__} in place of a text"


def ended_by(rollout: Rollout, found: Done | FinishReason, seconds: float) -> Rollout:
    """The conversation, done by its environment or a limit. `seconds`: of tools for its last turn."""
    rollout = replace(rollout, turns=(*rollout.turns[:-1], replace(rollout.turns[-1], seconds=seconds)))
    if isinstance(found, Done):
        return replace(rollout, outcome=None if found.outcome is None else float(found.outcome))
    return replace(rollout, finish_reason=found, outcome=float("nan") if found == "unknown" else None)


def scored_by(scorers: ScorerPool) -> Score:
    """Verdicts of the run's scorers; `infra` where they fail for good."""

    async def score(problem: Problem, code: str | None) -> Verdict:
        try:
            return (await scorers.score(problem, [code]))[0]
        except IsolationMissing:
            raise
        except (BrokenTests, SandboxError) as error:
            return Verdict("infra", 0, 0, 0.0, " ".join(str(error).split()))

    return score


def _rollouts(talks: Sequence[_Talk]) -> tuple[Rollout, ...]:
    return tuple(talk.rollout for talk in talks if talk.rollout is not None)


def _asked_twice(talks: Sequence[_Talk], free: bool) -> int:
    """Turns that were in flight, and ordered ones that are known but sampled once more with their batch. A first turn
    of which nothing is known is not counted: nobody can say that it was asked."""
    unfinished = [talk.turns for talk in talks if not talk.done]
    dropped = 0 if free else sum(max(0, talk.turns - min(unfinished, default=talk.turns)) for talk in talks)
    return dropped + sum(turns > 0 for turns in unfinished)


def _mask(rollout: Rollout) -> Any:
    return np.ones(len(rollout.tokens), np.bool_) if rollout.mask is None else rollout.mask


def _responses(rollout: Rollout) -> list[tuple[Int32, Int32]]:
    """The policy's turns, each with all that came before it."""
    ends = [*(turn.start for turn in rollout.turns[1:]), len(rollout.tokens)]
    own = [(turn.start, end) for turn, end in zip(rollout.turns, ends, strict=True) if turn.role == ASSISTANT]
    before, tokens = rollout.prompt_tokens, rollout.tokens
    return [(np.concatenate([before, tokens[:start]]), tokens[start:end]) for start, end in own]


def _start(rollout: Rollout, turn: int) -> int:
    """Where the policy's turn of this number begins; the end where it is still to come."""
    starts = [each.start for each in rollout.own_turns]
    return starts[turn] if turn < len(starts) else len(rollout.tokens)


def with_turn(rollout: Rollout | None, sampled: Rollout, opening: SampleRequest) -> Rollout:
    """The conversation with one more turn of the policy."""
    turn = Turn(ASSISTANT, 0 if rollout is None else len(rollout.tokens), sampled.text, sampled.finish_reason)
    if rollout is None:
        return replace(sampled, mask=np.ones(len(sampled.tokens), np.bool_), turns=(turn,))
    return replace(
        rollout,
        tokens=np.concatenate([rollout.tokens, sampled.tokens]),
        logprobs=np.concatenate([rollout.logprobs, sampled.logprobs]),
        mask=np.concatenate([_mask(rollout), np.ones(len(sampled.tokens), np.bool_)]),
        text=sampled.text,
        finish_reason=sampled.finish_reason,
        turns=(*rollout.turns, turn),
        weight_version=min(rollout.weight_version, sampled.weight_version),
        newer_from=_newer_from(rollout, sampled),
    )


def _newer_from(rollout: Rollout, sampled: Rollout) -> int | None:
    if sampled.weight_version < rollout.weight_version:  # killed before their update was kept: all counts as older
        return None
    if rollout.newer_from is not None:
        return rollout.newer_from
    if sampled.weight_version > rollout.weight_version:
        return len(rollout.tokens)
    return None if sampled.newer_from is None else len(rollout.tokens) + sampled.newer_from


def with_last_program(problem: Problem, rollout: Rollout) -> Rollout:
    """With the text of the last turn that has a program, where the conversation is done."""
    if rollout.turns[-1].role != ASSISTANT:
        return rollout
    texts = [turn.text for turn in rollout.own_turns]
    text = next((text for text in reversed(texts) if program_in(problem, text) is not None), texts[-1])
    return replace(rollout, text=text)
