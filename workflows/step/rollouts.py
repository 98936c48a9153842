"""Rollout submission: from a step's problems to groups of rollouts, each in the journal before anything else sees it.

    submission = RolloutSubmission(config, objective, generator, commit, tasks, step, journal.step(step).groups, watch)
    futures = submission.groups(problems)              # a future a problem, filled as groups finish

A submission is always whole and in slot order, so that batch composition, and with it rounding, repeats; what the
journal holds already is not taken again. Where it holds all, nothing is submitted.

Rollouts of a group share its problem's prompt, unless the objective gives them others (`Objective.prompts`): then each
distinct prompt is a request of its own, behind the one before it, and the group is there when all of them are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from actors.generator import Generator
from raypoly.config import Config
from raypoly.engines import SampleRequest
from raypoly.errors import UsageError
from raypoly.objectives import Objective
from raypoly.objectives.objective_hooks import prompts_of
from raypoly.seeds import derive
from raypoly.store.step_records import Generated, Record
from raypoly.values import Group, Int32, Problem, Rollout
from workflows.step.stopwatch import Stopwatch


async def encode_prompts(
    generator: Generator, config: Config, problems: Sequence[Problem], prompts: Sequence[str] = ()
) -> list[Int32]:
    """The tokens of each problem's prompt, int32 [P], or of the `prompts` that the objective has for them.

    Raises `UsageError` where one is longer than the config allows.
    """
    encoded = await generator.encode(prompts or [problem.prompt for problem in problems])
    limit = config.generator.max_prompt_tokens
    added = f" with what objective.name={config.objective.name} adds to it" if prompts else ""
    for problem, tokens in zip(problems, encoded, strict=True):
        if not 0 < len(tokens) <= limit:
            raise UsageError(
                f"The prompt of {problem.id} has {len(tokens)} tokens{added}, generator.max_prompt_tokens is "
                f"{limit}: raise it, or set problems.over_long to drop or cut."
            )
    return encoded


@dataclass(frozen=True)
class RolloutSubmission:
    """One step's submissions to the generator."""

    config: Config
    objective: Objective
    generator: Generator
    commit: Callable[[Record], Awaitable[None]]
    tasks: asyncio.TaskGroup
    step: int
    known: Mapping[int, Group]
    """The step's groups in the journal, by slot."""
    watch: Stopwatch

    def groups(self, problems: Sequence[Problem], first: int = 0, attempt: int = 0) -> list[asyncio.Future[Group]]:
        """One submission, in the slots from `first` on; `attempt` is its number within the step."""
        sampled = {first + i: asyncio.get_running_loop().create_future() for i in range(len(problems))}
        there = {slot: self.known[slot] for slot in sampled if slot in self.known}
        for slot, group in there.items():
            sampled[slot].set_result(group)

        async def submit() -> None:
            if len(there) < len(problems):
                await self._generate(problems, sampled, first, attempt)
            if not self.config.train.refill:  # else more may follow
                await self.generator.rest()

        self.tasks.create_task(submit())
        return list(sampled.values())

    async def _generate(
        self, problems: Sequence[Problem], sampled: Mapping[int, asyncio.Future[Group]], first: int, attempt: int
    ) -> None:
        """Fill the futures that are not filled yet."""
        pieces = [piece for i, problem in enumerate(problems) for piece in self._pieces(problem, first + i)]
        own = [piece.prompt for piece in pieces] if any(p.prompt != p.problem.prompt for p in pieces) else []
        tokens = await encode_prompts(self.generator, self.config, [piece.problem for piece in pieces], own)
        # a piece is known to the generator by its number: the slot where every group is one piece
        pairs = enumerate(zip(pieces, tokens, strict=True), first)
        requests = [self._request(number, *pair, attempt) for number, pair in pairs]
        size = self.config.train.rollouts
        found: dict[int, dict[int, Rollout]] = {first + i: {} for i in range(len(problems))}
        with self.watch.stage("generate"):
            async for number, rollouts in self.generator.sample(requests):
                piece = pieces[number - first]
                whole = found[piece.slot]
                whole.update(zip(piece.places, rollouts, strict=True))
                if len(whole) < size:
                    continue
                self.watch.done("generate")
                if piece.slot not in self.known:
                    group = Group(self.step, piece.slot, piece.problem.id, tuple(whole[i] for i in range(size)))
                    self.tasks.create_task(self._keep(group, sampled[piece.slot]))

    async def _keep(self, group: Group, sampled: asyncio.Future[Group]) -> None:
        await self.commit(Generated(group))
        sampled.set_result(group)

    def _pieces(self, problem: Problem, slot: int) -> list[_Piece]:
        """The group's rollouts by their prompt, in the order in which they first have it."""
        places: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts_of(self.objective, problem.prompt, self.config.train.rollouts)):
            places.setdefault(prompt, []).append(i)
        return [_Piece(slot, problem, prompt, tuple(own)) for prompt, own in places.items()]

    def _request(self, number: int, piece: _Piece, prompt_tokens: Int32, attempt: int) -> SampleRequest:
        """Seeds depend on nothing but the place in the run."""
        place = (self.step, piece.slot, piece.problem.id, attempt)
        seed = self.config.train.seed
        return SampleRequest(number, prompt_tokens, tuple(derive(seed, "sample", *place, i) for i in piece.places))


@dataclass(frozen=True)
class _Piece:
    """Rollouts of one group that share a prompt."""

    slot: int
    problem: Problem
    prompt: str
    places: tuple[int, ...]
    """Of its rollouts, in the group."""
