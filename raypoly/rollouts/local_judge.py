"""The judge that is a model of one's own, in an engine of its process: `judge.name=local`.

    judge = LocalJudge(JudgeConfig(name="local", model="Qwen/Qwen3-4B-Instruct-2507"))
    judge.label(problem, rollouts, verdicts).ids
    judge.sleep()                                           # its GPU is free until the next question

It asks as `OpenAIJudge` does, with the same prompt, reply, cache and counts. An engine takes the server's place, so
there is no outage: if the engine fails, so does the question, and its process can be replaced.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import JudgeRefused, UsageError
from raypoly.core.gguf_models import GgufModel, teacher_place, with_judge_model
from raypoly.core.seeds import derive
from raypoly.data.templates import encode_texts, load_tokenizer, tokenizer_renderer
from raypoly.rollouts.engines import Sample, SampleRequest, build, engine_of_judge
from raypoly.strategies.judge.openai import OpenAIJudge
from raypoly.strategies.judge.openai.completion_request import Completion
from raypoly.strategies.judge.openai.endpoint import Endpoint
from raypoly.strategies.judge.openai.judge_prompt import Message
from raypoly.strategies.judge.openai.rate_limiter import CircuitBreaker
from raypoly.strategies.judge.openai.token_cost import BudgetLedger, TokenPrices, TokenUsage


@dataclass(frozen=True, eq=False)
class _Asked:
    request: SampleRequest | None
    """None: the engine is to sleep."""
    answer: Future[Any] = field(default_factory=Future)

    @property
    def slot(self) -> int:
        return -1 if self.request is None else self.request.slot


class EngineEndpoint(Endpoint):
    """A model in an engine, which one thread builds and drives; any number of threads may ask."""

    kind = "local"

    def __init__(self, config: JudgeConfig, ledger: BudgetLedger) -> None:
        """Raises `UsageError` for a model that is not there, has no chat template, or is another than `judge.sha256`
        says."""
        config = with_judge_model(config)
        place = teacher_place(config.model)
        self._tokenizer = load_tokenizer(str(place) if place.is_dir() else config.model, "judge.model")
        if not self._tokenizer.chat_template:
            raise UsageError(
                f"judge.model={config.model} has no chat template: name a model that follows instructions."
            )
        # an answer begins with its JSON: thoughts would only use up its tokens
        self._render = tokenizer_renderer(self._tokenizer, {"enable_thinking": False})
        self.model = f"{Path(config.model).name}-{config.sha256[:8]}" if config.sha256 else config.model
        self.name, self.base_url, self.prices = f"The judge {config.model}", "", TokenPrices(0.0, 0.0, 0.0)
        self.breaker = CircuitBreaker(self.name)  # never opened
        self._config, self._room, self._ledger = config, engine_of_judge(config), ledger
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._asked: SimpleQueue[_Asked] = SimpleQueue()
        self._open: dict[int, Future[Any]] = {}
        self._built: Future[Any] = Future()
        threading.Thread(target=self._drive, name="judge-engine", daemon=True).start()
        self._engine = self._built.result()

    @property
    def decoded(self) -> int:
        """The engine's steps so far, which show progress within a long answer."""
        return int(getattr(self._engine, "decoded", 0))

    def complete(self, messages: Sequence[Message], schema: dict[str, Any], answer_tokens: int) -> Completion:
        """Raises `JudgeRefused` for a question that is too long, and what the engine raises."""
        with self._lock:
            (ids,) = encode_texts(self._tokenizer, [self._render(messages)])
        if len(ids) > self._config.max_prompt_tokens:
            raise JudgeRefused(
                f"{self.name} got a question of {len(ids)} tokens, more than judge.max_prompt_tokens="
                f"{self._config.max_prompt_tokens}."
            )
        request = SampleRequest(
            next(self._numbers),
            np.array(ids, np.int32),
            (derive("local judge", *ids),),
            max_tokens=min(answer_tokens, self._room.longest_row - len(ids)),
            greedy=self._config.temperature == 0,
            schema=schema,
        )
        self._ledger.counts.add("calls")
        sample: Sample = self._put(request)
        usage = TokenUsage(len(ids), None, len(sample.tokens))
        self._ledger.settle(0.0, self.prices, usage)
        with self._lock:
            text = str(self._tokenizer.decode(sample.tokens, skip_special_tokens=True))
        return Completion(text, None, sample.finish_reason, usage, {})

    def sleep(self) -> None:
        """Free the GPU once the open questions are answered. The next one wakes the engine."""
        self._put(None)

    def probe(self) -> None:
        """It is there."""

    def close(self) -> None:
        """The engine ends with its process."""

    def _put(self, request: SampleRequest | None) -> Any:
        asked = _Asked(request)
        self._asked.put(asked)
        return asked.answer.result()

    def _drive(self) -> None:
        try:
            engine: Any = build(_folder(self._config.model), self._room, self._config.dtype)
            self._built.set_result(engine)
            awake = True
            while True:
                asked = self._asked.get()
                self._open[asked.slot] = asked.answer
                if asked.request is None:
                    if awake:
                        engine.sleep(keep=True)
                    awake = False
                    self._open.pop(asked.slot).set_result(None)
                    continue
                if not awake:
                    engine.wake()
                awake = True
                for slot, (sample,) in engine.sample([asked.request], self._more):
                    self._open.pop(slot).set_result(sample)
        except BaseException as error:  # noqa: BLE001 - whoever asks gets it
            for answer in (self._built, *self._open.values()):
                if not answer.done():
                    answer.set_exception(error)
            while True:
                self._asked.get().answer.set_exception(error)

    def _more(self, idle: bool) -> list[SampleRequest] | None:
        """`More`; where nothing is asked, an idle engine's submission ends."""
        found = []
        for _ in range(self._asked.qsize()):
            asked = self._asked.get()
            if asked.request is None:
                self._asked.put(asked)
            else:
                self._open[asked.slot] = asked.answer
                found.append(asked.request)
        return found or (None if idle else [])


class LocalJudge(OpenAIJudge):
    """Clusters groups by asking a model of this process; thread-safe."""

    shared = False
    in_engine = True

    def _to_ask(self, config: JudgeConfig, ledger: BudgetLedger, backoff: float) -> Sequence[Endpoint]:
        self._endpoint = EngineEndpoint(config, ledger)
        return [self._endpoint]

    def __repr__(self) -> str:
        return f"LocalJudge({self._endpoint.model} in {self.config.engine}, prompt {self._prompt.version})"

    @property
    def decoded(self) -> int:
        """As `EngineEndpoint.decoded`."""
        return self._endpoint.decoded

    def sleep(self) -> None:
        """As `EngineEndpoint.sleep`."""
        self._endpoint.sleep()


def _folder(name: str) -> Path:
    gguf, place = GgufModel.find(name, "judge.model"), teacher_place(name).absolute()
    if gguf is not None or place.is_dir():
        return place if gguf is None else gguf.folder()
    from huggingface_hub import snapshot_download  # half a second, which a folder does not need

    return Path(snapshot_download(name))
