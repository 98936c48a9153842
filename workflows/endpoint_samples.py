"""Samples from an OpenAI-compatible server in place of an engine.

    endpoint = ModelEndpoint(config, plain=False, note=print)
    await endpoint.check()                                     # one small request; raises `UsageError`
    work = EndpointSamples(endpoint, scorers, skipped, seeds)

Limits, retries and breaker are those of the judge's endpoint. An outage never becomes a response. A problem is set
aside if the server refuses it, filters a response, or gives none though it answers others. Tokens are not known.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np

from actors.scorer_pool import ScorerPool
from raypoly.analysis.evaluation import ModelEvaluationConfig
from raypoly.analysis.evaluation.evaluation_prompts import messages_of
from raypoly.core.endpoint_config import refuse_login
from raypoly.core.errors import Away, JudgeRefused, UsageError
from raypoly.core.values import FinishReason, Group, Rollout, Verdict
from raypoly.data.preparing.candidates import Candidate
from raypoly.strategies.judge.judge_keys import read_first_key
from raypoly.strategies.judge.openai.completion_request import Completion
from raypoly.strategies.judge.openai.endpoint import PROBE, PROBE_TOKENS, Endpoint, EndpointWords
from workflows.prepare.problem_chunks import SeedsOf
from workflows.step.stages.built_in import score_group
from workflows.step.training_group import SkippedGroups
from workflows.waiting_endpoint import FIRST_WAIT, Ask, WaitingEndpoint

_WORDS = EndpointWords(
    "The endpoint's model",
    "endpoint.timeout",
    "--endpoint and --name",
    "prompts.template, generator.max_tokens and endpoint.extra",
)
_REFUSED = -1  # weight version of a refused response; its text is the reason
_SEEDS = 1 << 31  # servers take seeds below this
_NOTHING = np.zeros(0, np.int32)


class ModelEndpoint:
    """A model's server, with a request for each prompt and seed."""

    def __init__(
        self, config: ModelEvaluationConfig, plain: bool, note: Callable[[str], None], first_wait: float = FIRST_WAIT
    ) -> None:
        """`plain`: prompts are texts, not messages. Raises `UsageError` for a bad address or key."""
        self._config, self._plain = config, plain
        judge, url = config.judge_of_a_run, config.endpoint.url or ""
        refuse_login("--endpoint", url, "endpoint.api_key_env")
        if not re.match(r"https?://[^/\s]", url):
            raise UsageError(f"--endpoint {url} is no http(s) address.")
        key = read_first_key(judge, "endpoint.api_key_env")
        endpoint = Endpoint(url, judge.model, key, judge, words=_WORDS)
        self._name, self._seeded = endpoint.name, "seed" not in config.endpoint.extra
        first = "def f(x):" if plain else json.dumps(PROBE)
        self._probe = self._call(first, 0, PROBE_TOKENS)
        self._server = WaitingEndpoint(endpoint, config.endpoint, "endpoint.max_pause", self._probe, note, first_wait)

    async def check(self) -> None:
        """Ask for a few tokens, with every field of a request. Raises `UsageError`."""
        try:
            await self._server.once(self._probe)
        except (Away, JudgeRefused) as error:
            raise UsageError(f"{error} See --endpoint and endpoint.api_key_env.") from error

    async def respond(self, prompt: str, seed: int) -> Completion:
        """The response, after any outage. Raises `JudgeRefused` in the server's words without its address."""
        try:
            answer = await self._server.ask(self._call(prompt, seed, self._config.generator.max_tokens))
        except JudgeRefused as error:
            raise JudgeRefused(str(error).replace(self._name, "the endpoint")) from None
        if answer.finish_reason == "content_filter":
            raise JudgeRefused("the endpoint filtered its answer (finish_reason content_filter).")
        return answer

    def close(self) -> None:
        self._server.close()

    def _call(self, prompt: str, seed: int, tokens: int) -> Ask:
        fields = self._config.endpoint.extra_fields
        if self._seeded:
            fields["seed"] = seed % _SEEDS
        asked: Any = prompt if self._plain else messages_of(prompt)
        return lambda endpoint: endpoint.respond(asked, tokens, **fields)


class EndpointSamples:
    """Responses of one round, a request each."""

    def __init__(self, endpoint: ModelEndpoint, scorers: ScorerPool, skipped: SkippedGroups, seeds: SeedsOf) -> None:
        self._endpoint, self._scorers, self._skipped, self._seeds = endpoint, scorers, skipped, seeds

    async def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        running = [asyncio.create_task(self._group(slot, it)) for slot, it in enumerate(chunk)]
        try:
            for group in asyncio.as_completed(running):
                yield await group
        finally:
            for task in running:
                task.cancel()

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        refused = [rollout.text for rollout in group.rollouts if rollout.weight_version == _REFUSED]
        if refused:
            return tuple(Verdict("infra", 0, 0, 0.0, refused[0]) for _ in group.rollouts)
        return await score_group(group, candidate.problem, self._scorers, self._skipped, group.step)

    async def _group(self, slot: int, it: Candidate) -> tuple[int, tuple[Rollout, ...]]:
        prompt = it.problem.prompt
        rollouts = await asyncio.gather(*(self._rollout(prompt, seed) for seed in self._seeds(it.id)))
        return slot, tuple(rollouts)

    async def _rollout(self, prompt: str, seed: int) -> Rollout:
        logprobs = np.zeros(0, np.float32)
        try:
            answer = await self._endpoint.respond(prompt, seed)
        except JudgeRefused as why:
            return Rollout(_NOTHING, _NOTHING, logprobs, str(why), "stop", seed, _REFUSED)
        reason: FinishReason = "length" if answer.finish_reason == "length" else "stop"
        return Rollout(_NOTHING, _NOTHING, logprobs, answer.text, reason, seed, 0)
