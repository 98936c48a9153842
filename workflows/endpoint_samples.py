"""Samples of a model behind an OpenAI-compatible server, in place of an engine's.

    endpoint = ModelEndpoint(config, plain=False, note=print)
    await endpoint.check()                                     # one small request; raises `UsageError`
    work = EndpointSamples(endpoint, scorers, skipped, seeds)

The server's limits, retries and breaker are those of the judge's endpoint. While it is away, all requests wait; an
outage never becomes a response. A response that was cut off ends by `length`. Tokens are not known, so a rollout has
none. Requests go out from threads of this process, which alone holds the key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from actors.scorer_pool import ScorerPool
from raypoly.errors import Away, JudgeRefused, PausedTooLong, UsageError
from raypoly.evaluating import ModelEvaluationConfig
from raypoly.evaluating.evaluation_prompts import messages_of
from raypoly.judge.judge_usage import JudgeCounters
from raypoly.judge.openai.completion_request import Completion
from raypoly.judge.openai.endpoint import Endpoint, EndpointWords, read_first_key
from raypoly.judge.openai.token_cost import BudgetLedger
from raypoly.preparing.candidates import Candidate
from raypoly.values import FinishReason, Group, Rollout, Verdict
from workflows.prepare.problem_chunks import SeedsOf
from workflows.step.skipped_groups import SkippedGroups
from workflows.step.stages.score_stage import score_group

_WORDS = EndpointWords(
    "The endpoint's model",
    "endpoint.timeout",
    "--endpoint and --name",
    "prompts.template, generator.max_tokens and endpoint.extra",
)
_REFUSED = -1
"""The weight version of a response that the server refused to give. It is no response: its problem is set aside."""
_SEEDS = 1 << 31
"""Servers take seeds below this."""
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
"""Seconds between probes of a server that is away."""
_NOTHING = np.zeros(0, np.int32)


class ModelEndpoint:
    """The server: requests in threads, and the pause while it is away."""

    def __init__(
        self, config: ModelEvaluationConfig, plain: bool, note: Callable[[str], None], first_wait: float = _FIRST_WAIT
    ) -> None:
        """`plain`: prompts are texts to be continued, not messages. Raises `UsageError` for a bad address or key."""
        self._config, self._plain, self._note, self._first_wait = config, plain, note, first_wait
        judge, url = config.judge_of_a_run, config.endpoint.url or ""
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"--endpoint {url} is no http(s) address.")
        key = read_first_key(judge, "endpoint.api_key_env")
        ledger, counts = BudgetLedger(), JudgeCounters()
        self._endpoint = Endpoint(url, judge.model, key, None, judge, ledger, counts, words=_WORDS)
        self._threads = ThreadPoolExecutor(config.endpoint.concurrency, thread_name_prefix="endpoint")
        self._extra = {name: value for name, value in config.endpoint.extra.items() if value is not None}
        self._seeded = "seed" not in config.endpoint.extra
        self._back = asyncio.Event()
        self._back.set()

    async def check(self) -> None:
        """Ask for a few tokens, with every field of a request. Raises `UsageError` where none come."""
        first = "def f(x):" if self._plain else '[{"role": "user", "content": "Answer with the word ok."}]'
        try:
            await self._ask(first, 0, 16)
        except (Away, JudgeRefused) as error:
            raise UsageError(f"{error} See --endpoint and endpoint.api_key_env.") from error

    async def respond(self, prompt: str, seed: int) -> Completion:
        """The server's response, after any outage. Raises `JudgeRefused` where it will never give one."""
        while True:
            await self._back.wait()
            try:
                return await self._ask(prompt, seed, self._config.generator.max_tokens)
            except Away as error:
                if self._back.is_set():
                    await self._pause(error, prompt, seed)

    def close(self) -> None:
        self._endpoint.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, prompt: str, seed: int, tokens: int) -> Completion:
        fields: dict[str, Any] = {"extra_body": self._extra} if self._extra else {}
        if self._seeded:
            fields["seed"] = seed % _SEEDS
        asked: Any = prompt if self._plain else messages_of(prompt)
        call = partial(self._endpoint.respond, asked, tokens, **fields)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _pause(self, error: Away, prompt: str, seed: int) -> None:
        """Wait until the server answers again. Raises `PausedTooLong`."""
        self._back.clear()
        self._note(f"paused: {error}")
        limit = self._config.endpoint.max_pause
        since, wait = time.monotonic(), self._first_wait
        while True:
            paused = time.monotonic() - since
            if limit is not None and paused >= limit:
                raise PausedTooLong(
                    f"{error} It stayed away for endpoint.max_pause={limit:g} s; everything is committed, resume with "
                    "the same command."
                )
            await asyncio.sleep(wait if limit is None else min(wait, limit - paused))
            wait = min(2 * wait, _LONGEST_WAIT)
            try:
                await self._ask(prompt, seed, 1)
            except Away as still:
                error = still
                continue
            except JudgeRefused:
                pass  # it answers; what it says of this prompt is found out by who asked
            break
        self._note(f"the endpoint answers again after {time.monotonic() - since:,.0f} s")
        self._back.set()


class EndpointSamples:
    """The responses of one round, each by a request of its own."""

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
        if any(rollout.weight_version == _REFUSED for rollout in group.rollouts):
            return tuple(Verdict("infra", 0, 0, 0.0, "the endpoint refused to answer") for _ in group.rollouts)
        return await score_group(group, candidate.problem, self._scorers, self._skipped, group.step)

    async def _group(self, slot: int, it: Candidate) -> tuple[int, tuple[Rollout, ...]]:
        prompt = it.problem.prompt
        rollouts = await asyncio.gather(*(self._rollout(prompt, seed) for seed in self._seeds(it.id)))
        return slot, tuple(rollouts)

    async def _rollout(self, prompt: str, seed: int) -> Rollout:
        logprobs = np.zeros(0, np.float32)
        try:
            answer = await self._endpoint.respond(prompt, seed)
        except JudgeRefused:
            return Rollout(_NOTHING, _NOTHING, logprobs, "", "stop", seed, _REFUSED)
        reason: FinishReason = "length" if answer.finish_reason == "length" else "stop"
        return Rollout(_NOTHING, _NOTHING, logprobs, answer.text, reason, seed, 0)
