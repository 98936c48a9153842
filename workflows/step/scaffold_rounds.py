"""The rounds of a scaffold for a submission's groups: drafts round by round, then the attempts.

    rounds = ScaffoldRounds(scaffold, generator, config, attempts, place, seed, keep)
    async for group in rounds.run({0: problem, 1: problem}, known={}, finished=set()):
        group.rollouts, group.drafts

A round is one ordered submission of all groups that have not ended, drafts of some and attempts of others, so that
batches, and with them rounding, repeat. Its drafts are committed before the next round's prompts are made. A round that
is known whole is not submitted; of one submitted again, what is known is dropped.

Sampled text ends no run: where a prompt made from drafts is too long, the scaffold says what is asked instead
(`Scaffold.too_long`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from actors.generator import Generator
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.values import Draft, Group, Int32, Problem, Rollout
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.scaffolds import Ask, Scaffold
from raypoly.rollouts.scaffolds.scaffold import checked_asks, is_final
from raypoly.verifier.response_text import opened_thought
from workflows.step.conversations import Conversations, Opening


async def check_given(generator: Generator, config: Config, problems: Sequence[Problem], scaffold: Scaffold) -> None:
    """Raise `UsageError` for a given response that is longer than allowed."""
    if scaffold.samples:
        return
    for problem in problems:
        asks = checked_asks(scaffold, problem, (), config.train.rollouts)
        for response in await generator.encode_responses([ask.text for ask in asks if ask.text]):
            _check_response(config, problem, response)


async def encode_prompts(generator: Generator, config: Config, problems: Sequence[Problem]) -> list[Int32]:
    """Tokens of each prompt, int32 [P]. Raises `UsageError` where one is longer than allowed."""
    encoded = await generator.encode([problem.prompt for problem in problems])
    for problem, tokens in zip(problems, encoded, strict=True):
        _check_length(config, problem, problem.prompt, tokens)
    return encoded


@dataclass(frozen=True)
class ScaffoldRounds:
    scaffold: Scaffold
    generator: Generator
    config: Config
    attempts: int
    step: int
    """Whose weights sample."""
    seed: Callable[[int, Problem, tuple[int | str, ...]], int]
    """By slot, problem and place: (i,) for attempt i, ("draft", round, j) for a draft."""
    keep: Callable[[int, int, Sequence[Draft]], Awaitable[None]]
    greedy: bool = False
    conversations: Conversations | None = None
    """What the attempts go on as; None: they have one turn."""
    known_turns: Mapping[int, Mapping[int, Rollout]] = field(default_factory=dict)
    """Attempts so far by slot and place, from the journal."""

    async def run(
        self,
        problems: Mapping[int, Problem],
        known: Mapping[int, Sequence[Sequence[Draft]]],
        finished: Collection[int],
    ) -> AsyncIterator[Group]:
        """Groups as they end, without attempts where the scaffold solves nothing. `known`:
        drafts of a slot by round, from the journal. `finished`: slots whose attempts are in the journal too; they are
        sampled again only along with others, and not returned.

        Raises `UsageError` as `checked_asks` does, and for a prompt of the problem itself that is too long.
        """
        drafts: dict[int, list[Draft]] = {slot: [] for slot in problems}
        open_ = dict(problems)
        for number in count():
            if not open_:
                return
            asked = {slot: checked_asks(self.scaffold, it, drafts[slot], self.attempts) for slot, it in open_.items()}
            final = {slot for slot, asks in asked.items() if is_final(asks)}
            there = {slot: known[slot][number] for slot in open_ if number < len(known.get(slot, ()))}
            # one that is missing has all of the round sampled again: batches, and with them rounding, repeat
            missing = [slot for slot in open_ if slot not in there and not (slot in final and slot in finished)]
            keeping: dict[int, asyncio.Task[Sequence[Draft]]] = {}
            try:
                async for slot, rollouts in self._sampled(number, open_ if missing else {}, asked, drafts):
                    if slot in final:
                        if slot not in finished:
                            of_drafts, draft_of = tuple(drafts[slot]), _draft_of(asked[slot])
                            yield Group(
                                self.step, slot, problems[slot].id, rollouts, drafts=of_drafts, draft_of=draft_of
                            )
                    elif slot not in there:
                        made = _drafts(asked[slot], rollouts)
                        keeping[slot] = asyncio.ensure_future(self._kept(slot, number, made))
                for slot in open_.keys() - final:
                    drafts[slot] += there[slot] if slot in there else await keeping[slot]
            finally:
                for task in keeping.values():
                    task.cancel()
            open_ = {slot: problem for slot, problem in open_.items() if slot not in final}

    async def _kept(self, slot: int, number: int, drafts: Sequence[Draft]) -> Sequence[Draft]:
        """The drafts, committed."""
        await self.keep(slot, number, drafts)
        return drafts

    async def _sampled(
        self,
        number: int,
        problems: Mapping[int, Problem],
        asked: Mapping[int, Sequence[Ask]],
        drafts: Mapping[int, Sequence[Draft]],
    ) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        asks = {slot: self._places(number, slot, asked[slot], problem) for slot, problem in problems.items()}
        await self._encode_prompts(problems, asks, drafts)
        await self._encode_given(problems, asks)
        pieces = [piece for slot in problems for piece in _pieces(slot, asks[slot])]
        # a piece is known to the generator by its number: the slot where every group is one piece
        first = min(problems, default=0)
        requests = [
            SampleRequest(
                first + i,
                piece[0].tokens,
                tuple(place.seed for place in piece),
                max_tokens=piece[0].ask.max_tokens,
                greedy=self.greedy,
            )
            for i, piece in enumerate(pieces)
        ]
        found = {slot: _given(places, self.step) for slot, places in asks.items()}
        for slot in [slot for slot, own in found.items() if len(own) == len(asks[slot])]:
            yield slot, _in_order(found[slot])
        if not requests:
            return
        async for request, rollouts in self._answers(requests, pieces, asked, problems, drafts):
            piece = pieces[request - first]
            slot = piece[0].slot
            found[slot].update({place.number: each for place, each in zip(piece, rollouts, strict=True)})
            if len(found[slot]) == len(asks[slot]):
                yield slot, _in_order(found[slot])

    async def _answers(
        self,
        requests: Sequence[SampleRequest],
        pieces: Sequence[Sequence[_Place]],
        asked: Mapping[int, Sequence[Ask]],
        problems: Mapping[int, Problem],
        drafts: Mapping[int, Sequence[Draft]],
    ) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        """(the request's slot, its rollouts), each a conversation where it is an attempt."""
        if self.conversations is None:
            async for found in self.generator.sample(requests):
                yield found
            return
        openings = []
        for request, piece in zip(requests, pieces, strict=True):
            slot, places = piece[0].slot, tuple(place.number for place in piece)
            final = is_final(asked[slot])
            openings.append(Opening(request, problems[slot], slot, places, final, len(drafts[slot])))
        async for number, rollouts in self.conversations.sample(openings, self.known_turns):
            yield requests[number].slot, rollouts

    def _places(self, number: int, slot: int, asks: Sequence[Ask], problem: Problem) -> list[_Place]:
        final = is_final(asks)
        places = [ask for ask in asks for _ in range(ask.count)]
        return [
            _Place(slot, i, ask, self.seed(slot, problem, (i,) if final else ("draft", number, i)))
            for i, ask in enumerate(places)
        ]

    async def _encode_prompts(
        self,
        problems: Mapping[int, Problem],
        places: Mapping[int, list[_Place]],
        drafts: Mapping[int, Sequence[Draft]],
    ) -> None:
        by_prompt: dict[tuple[int, str], list[_Place]] = {}
        for slot, own in places.items():
            for place in own:
                by_prompt.setdefault((slot, place.ask.prompt), []).append(place)
        encoded = await self.generator.encode([prompt for _, prompt in by_prompt]) if by_prompt else []
        again: dict[int, list[_Place]] = {}
        for ((slot, prompt), found), tokens in zip(by_prompt.items(), encoded, strict=True):
            fits = 0 < len(tokens) <= self.config.generator.max_prompt_tokens
            if not fits and drafts[slot] and prompt != problems[slot].prompt:
                for place in found:
                    place.ask = self.scaffold.too_long(problems[slot], place.ask)
                    again.setdefault(slot, []).append(place)
                continue
            _check_length(self.config, problems[slot], prompt, tokens)
            for place in found:
                place.tokens = tokens
        if again:
            await self._encode_prompts(problems, again, drafts)

    async def _encode_given(self, problems: Mapping[int, Problem], places: Mapping[int, list[_Place]]) -> None:
        """Set the tokens of given responses."""
        texts = [place for own in places.values() for place in own if place.ask.text]
        if texts:
            responses = await self.generator.encode_responses([place.ask.text or "" for place in texts])
            for place, response in zip(texts, responses, strict=True):
                _check_response(self.config, problems[place.slot], response)
                place.response = response


@dataclass
class _Place:
    """One rollout that is asked for."""

    slot: int
    number: int
    ask: Ask
    seed: int
    tokens: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    response: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))
    """Of a given response."""


def _pieces(slot: int, places: Sequence[_Place]) -> list[list[_Place]]:
    """The group's requests, by prompt and limit."""
    found: dict[tuple[str, int | None], list[_Place]] = {}
    for place in places:
        if place.ask.text is None:
            found.setdefault((place.ask.prompt, place.ask.max_tokens), []).append(place)
    return list(found.values())


def _given(places: Sequence[_Place], version: int) -> dict[int, Rollout]:
    """Rollouts that need no sampling, by number: given responses."""
    found: dict[int, Rollout] = {}
    for place in places:
        if place.ask.text is not None:
            unknown = np.full(len(place.response), np.nan, np.float32)
            found[place.number] = Rollout(
                place.tokens, place.response, unknown, place.ask.text, "stop", place.seed, version
            )
    return found


def _in_order(found: Mapping[int, Rollout]) -> tuple[Rollout, ...]:
    return tuple(found[i] for i in range(len(found)))


def _drafts(asks: Sequence[Ask], rollouts: Sequence[Rollout]) -> list[Draft]:
    owners = [ask for ask in asks for _ in range(ask.count)]
    return [
        Draft(_from_mark(ask, rollout), ask.role, ask.parent) for ask, rollout in zip(owners, rollouts, strict=True)
    ]


def _from_mark(ask: Ask, rollout: Rollout) -> Rollout:
    # A thought that the prompt has opened begins in the text too: cut before its end, it would read as the answer.
    opened = "" if rollout.given else opened_thought(ask.prompt)
    return replace(rollout, text=f"{opened}\n{rollout.text}") if opened else rollout


def _draft_of(asks: Sequence[Ask]) -> Int32:
    """int32 [N]: index of each attempt's draft; -1 for none."""
    parents = [ask.parent for ask in asks for _ in range(ask.count)]
    return np.array([-1 if parent is None else parent for parent in parents], np.int32)


def _check_length(config: Config, problem: Problem, prompt: str, tokens: Int32) -> None:
    limit = config.generator.max_prompt_tokens
    if not 0 < len(tokens) <= limit:
        added = "" if prompt == problem.prompt else " with what its scaffold adds to it"
        raise UsageError(
            f"The prompt of {problem.id} has {len(tokens)} tokens{added}, generator.max_prompt_tokens is "
            f"{limit}: raise it, or set problems.over_long to drop or cut."
        )


def _check_response(config: Config, problem: Problem, tokens: Int32) -> None:
    limit = config.generator.max_tokens
    if len(tokens) > limit:
        raise UsageError(
            f"A response to {problem.id} that is given, not sampled, has {len(tokens)} tokens with its end, "
            f"generator.max_tokens is {limit}: raise it, or take the response out."
        )
