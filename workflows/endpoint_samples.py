"""Samples from an OpenAI-compatible server in place of an engine.

    endpoint = ModelEndpoint(config, plain=False, note=print)
    await endpoint.check()                                     # one small request; raises `UsageError`
    work = EndpointSamples(endpoint, scorers, skipped, seeds)

Limits, retries and breaker are those of the judge's endpoint. Requests go out from threads of this process, which alone
holds the key. While the server is away all wait, and one of them probes: an outage never becomes a response. A problem
is set aside if the server refuses it, filters a response, or gives none though it answers others. Tokens are not known.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from actors.scorer_pool import ScorerPool
from raypoly.analysis.evaluation.evaluation_config import ModelEvaluationConfig, environment_of
from raypoly.core.endpoint_config import EndpointConfig, check_address
from raypoly.core.errors import Away, JudgeRefused, PausedTooLong, UsageError
from raypoly.core.seeds import derive
from raypoly.core.text import as_utf8, duration, shortened
from raypoly.core.values import ASSISTANT, FinishReason, Group, Problem, Rollout, Turn, Verdict
from raypoly.data.preparing.candidates import Candidate
from raypoly.rollouts.environments import Observation
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from raypoly.strategies.judge.judge_keys import read_first_key
from raypoly.strategies.judge.openai.completion_request import Completion, RequestFault
from raypoly.strategies.judge.openai.endpoint import PROBE, PROBE_TOKENS, Endpoint, EndpointWords
from workflows.prepare.problem_chunks import SeedsOf
from workflows.step.conversations import answer_turn, ended_by, scored_by, with_last_program
from workflows.step.stages.built_in import score_group
from workflows.step.training_group import SkippedGroups

FIRST_WAIT = 1.0
"""Seconds before the first probe of a server that is away."""
_LONGEST_WAIT = 60.0
_MOST_FAILURES = 3  # failures of one request, each followed by an answered probe, after which it is given up
Ask = Callable[[Endpoint], Completion]

_WORDS = EndpointWords(
    "The endpoint's model",
    "endpoint.timeout",
    "--endpoint and --name",
    "prompts.template, generator.temperature, generator.max_tokens and endpoint.extra",
)
_REFUSED = -1  # weight version of a refused response; its text is the reason
_SEEDS = 1 << 31  # servers take seeds below this
_CHARACTERS = 4  # of an observation for each of its tokens, which only the server could count


class WaitingEndpoint:
    """A server that is waited for while it is away. A request that fails while probes are answered is given up."""

    def __init__(
        self,
        endpoint: Endpoint,
        config: EndpointConfig,
        pause_key: str,
        probe: Ask,
        note: Callable[[str], None],
        first_wait: float = FIRST_WAIT,
    ) -> None:
        """`pause_key`: key of `config.max_pause`, for messages. `probe`: a small request."""
        self._endpoint, self._config, self._pause_key, self._probe = endpoint, config, pause_key, probe
        self._note, self._first_wait = note, first_wait
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="endpoint")
        self._back = asyncio.Event()
        self._back.set()

    async def ask(self, call: Ask) -> Completion:
        """The answer, after any outage. Raises `JudgeRefused` where none will come, and `PausedTooLong`."""
        failures = 0
        while True:
            await self._back.wait()
            try:
                return await self.once(call)
            except Away as error:
                if self._back.is_set():
                    await self._pause(error)
                await self._back.wait()
                fault = _fault_of(error)
                failures += fault is not None
                if fault is not None and failures == _MOST_FAILURES:
                    raise JudgeRefused(f"{self._endpoint.name} {fault.reason}, though it answers others.") from None

    async def once(self, call: Ask) -> Completion:
        """The answer to one try. Raises `Away` and `JudgeRefused`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, self._endpoint)

    def close(self) -> None:
        self._endpoint.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _pause(self, error: Away) -> None:
        self._back.clear()
        self._note(f"paused: {error}")
        limit = self._config.max_pause
        since, wait = time.monotonic(), self._first_wait
        while True:
            paused = time.monotonic() - since
            if limit is not None and paused >= limit:
                raise PausedTooLong(
                    f"{error} It stayed away for {self._pause_key}={limit:g} s; everything is committed, resume with "
                    "the same command."
                )
            await asyncio.sleep(wait if limit is None else min(wait, limit - paused))
            wait = min(2 * wait, _LONGEST_WAIT)
            try:
                await self.once(self._probe)
            except Away as still:
                error = still
                continue
            except JudgeRefused:
                pass  # it answers
            break
        self._note(f"the endpoint answers again after {duration(time.monotonic() - since)}")
        self._back.set()


def _fault_of(error: Away) -> RequestFault | None:
    # None: it was not sent, as another had found the server away; or a limit or key, which time or a person mends.
    fault = error.__context__
    return fault if isinstance(fault, RequestFault) and fault.kind == "transient" else None


class ModelEndpoint:
    """A model's server, with a request for each prompt and seed."""

    def __init__(
        self, config: ModelEvaluationConfig, plain: bool, note: Callable[[str], None], first_wait: float = FIRST_WAIT
    ) -> None:
        """`plain`: prompts are texts, not messages. Raises `UsageError` for a bad address or key."""
        self._config, self._plain = config, plain
        judge, url = config.judge_of_a_run, config.endpoint.url or ""
        check_address("--endpoint", url, "endpoint.api_key_env", judge.api_key_env is not None)
        key = read_first_key(judge, "endpoint.api_key_env")
        # Without a seed responses are drawn all the same. At another temperature they would be another measurement,
        # but 1 is what a server takes where none is said.
        optional = {"seed"} | ({"temperature"} if judge.temperature == 1 else set())
        endpoint = Endpoint(url, judge.model, key, judge, words=_WORDS, optional=optional)
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

    async def respond(self, prompt: str, seed: int, most_tokens: int | None = None) -> Completion:
        """The response, after any outage. Raises `JudgeRefused` in the server's words without its address."""
        try:
            answer = await self._server.ask(self._call(prompt, seed, most_tokens or self.most_tokens))
        except JudgeRefused as error:
            raise JudgeRefused(str(error).replace(self._name, "the endpoint")) from None
        if answer.finish_reason == "content_filter":
            raise JudgeRefused("the endpoint filtered its answer (finish_reason content_filter).")
        return answer

    @property
    def most_tokens(self) -> int:
        """Of a rollout."""
        return self._config.generator.max_tokens

    def prompt_after(self, prompt: str, answer: str, observation: str, around: tuple[str, str]) -> str:
        """The prompt of the next turn. `around`: the texts around an observation where prompts are no messages."""
        if self._plain:
            return f"{prompt}{answer}{around[0]}{observation}{around[1]}"
        said = {"assistant": answer, "user": observation}
        more = [{"role": role, "content": content} for role, content in said.items()]
        return json.dumps([*json.loads(prompt), *more])

    def close(self) -> None:
        self._server.close()

    def _call(self, prompt: str, seed: int, tokens: int) -> Ask:
        fields = self._config.endpoint.extra_fields
        if self._seeded:
            fields["seed"] = seed % _SEEDS
        asked: Any = prompt if self._plain else json.loads(prompt)
        return lambda endpoint: endpoint.respond(asked, tokens, **fields)


class EndpointSamples:
    """Responses of one round, a request each."""

    def __init__(
        self,
        endpoint: ModelEndpoint,
        scorers: ScorerPool,
        skipped: SkippedGroups,
        seeds: SeedsOf,
        config: ModelEvaluationConfig,
    ) -> None:
        self._endpoint, self._scorers, self._skipped, self._seeds = endpoint, scorers, skipped, seeds
        self._settings, self._environment = config.environment, environment_of(config)

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
        problem = it.problem
        ask = self._conversation if self._settings.converses else self._rollout
        return slot, tuple(await asyncio.gather(*(ask(problem, seed) for seed in self._seeds(it.id))))

    async def _conversation(self, problem: Problem, seed: int) -> Rollout:
        """A rollout of several turns, which are messages; a prompt of text goes on as text."""
        template = ObservationTemplate.of_section(self._settings, None)
        asked, turns, score = problem, tuple[Turn, ...](), scored_by(self._scorers)
        left = self._endpoint.most_tokens
        while True:
            rollout, used = await self._sampled(asked, derive(seed, "turn", len(turns)) if turns else seed, left)
            left -= used
            if rollout.weight_version == _REFUSED:
                return rollout
            turns = (*turns, Turn(ASSISTANT, 0, rollout.text, rollout.finish_reason))
            rollout = replace(rollout, seed=seed, turns=turns)
            if rollout.finish_reason != "stop":
                return with_last_program(problem, rollout)
            found, seconds = await answer_turn(self._environment, self._settings, problem, turns, score)
            if isinstance(found, Observation) and left < 1:
                found = "length"
            if not isinstance(found, Observation):
                return with_last_program(problem, ended_by(rollout, found, seconds))
            text = shortened(as_utf8(found.text), _CHARACTERS * self._settings.max_observation_tokens)
            turns = (*turns, Turn("user", 0, text, "stop" if text == found.text else "length", seconds))
            around = template.around(problem, "user")
            asked = replace(problem, prompt=self._endpoint.prompt_after(asked.prompt, rollout.text, text, around))

    async def _rollout(self, problem: Problem, seed: int) -> Rollout:
        return (await self._sampled(problem, seed, self._endpoint.most_tokens))[0]

    async def _sampled(self, problem: Problem, seed: int, most_tokens: int) -> tuple[Rollout, int]:
        """A response, and its tokens; 0 where the server does not count them."""
        try:
            answer = await self._endpoint.respond(problem.prompt, seed, most_tokens)
        except JudgeRefused as why:
            return Rollout.of_text(str(why), seed=seed, weight_version=_REFUSED), 0
        reason: FinishReason = "length" if answer.finish_reason == "length" else "stop"
        used = 0 if answer.usage is None else answer.usage.completion
        return Rollout.of_text(answer.text, reason, seed), used
