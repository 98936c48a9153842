"""Engines: what samples responses. vLLM and transformers behind one interface; the generator actor owns one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raypoly.config import GeneratorConfig
from raypoly.engines.transfer import Parcel
from raypoly.errors import UsageError
from raypoly.plugins import load_plugin
from raypoly.values import FinishReason, Float32, Int32

KNOWN: Mapping[str, str] = {
    "vllm": "raypoly.engines.vllm_engine:VllmEngine",
    "transformers": "raypoly.engines.transformers_engine:TransformersEngine",
}

Weights = Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
"""float32 arrays by their transformers names."""


@dataclass(frozen=True)
class SampleRequest:
    """A prompt and one seed a response: a group, or those of its responses that share a prompt."""

    slot: int
    """By which the answer is known; the group's own where its responses share one prompt."""
    prompt_tokens: Int32
    seeds: tuple[int, ...]
    _: KW_ONLY
    max_tokens: int | None = None
    """Of a response, where it is fewer than `generator.max_tokens`."""
    greedy: bool = False
    """Whether the likeliest token is taken each time, whatever the seed."""

    def limit(self, tokens: int) -> int:
        """Tokens of a response at most, for an engine whose own limit is `tokens`."""
        return tokens if self.max_tokens is None else min(tokens, self.max_tokens)


@dataclass(frozen=True)
class Sample:
    """One response: tokens (end of sequence included where sampled) and their log-probabilities after temperature."""

    tokens: Int32
    logprobs: Float32
    finish_reason: FinishReason


class Engine(Protocol):
    """Built as `Class(model_path, config, dtype)`. One that has `probe_tokens` answers probes of that length."""

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, list[Sample]]]:
        """(slot, samples in the order of the seeds), groups as they finish.

        The requests are submitted whole and in order, so that batch composition, and with it rounding, repeats.
        """
        ...

    def update_weights(self, weights: Weights) -> None:
        """Take these weights; nothing computed under the old ones (prefix cache) is used again."""
        ...

    def prompt_logprobs(self, tokens: Int32) -> Float32:
        """float32 [T-1]: log-probabilities, before temperature, of tokens[1:] each after all before it."""
        ...


class Sleeper(Protocol):
    """An engine that can share a GPU with the learner (placement `colocated`)."""

    def sleep(self) -> None:
        """Give back the memory of weights and cache. New weights wake the engine up; until then it raises `Asleep`."""
        ...


class Taker(Protocol):
    """An engine that takes weights by a transport other than Ray's objects."""

    def connect(self, info: Mapping[str, Any]) -> None:
        """Meet the sender that said `info`; for transports that need it."""
        ...

    def receive(self, parcel: Parcel) -> None:
        """As `update_weights`, with the weights that the parcel announces.

        Raises `WeightsMismatch` where others come, `TransferBroken` where the sender is gone.
        """
        ...


class Asleep(RuntimeError):
    """Something was asked of a sleeping engine."""

    def __init__(self, engine: str) -> None:
        super().__init__(f"the engine {engine} sleeps and has no weights: new weights come before anything is sampled")


def build(model_path: Path, config: GeneratorConfig, dtype: str) -> Engine:
    """The engine that the config names, with the model loaded.

    Raises `UsageError` where it lacks what its placement or transport needs.
    """
    kind = load_plugin(config.engine, KNOWN, "generator.engine")
    _check_able(kind, config)
    engine: Engine = kind(model_path, config, dtype)
    return engine


def _check_able(kind: Any, config: GeneratorConfig) -> None:
    if config.placement == "colocated" and not hasattr(kind, "sleep"):
        raise UsageError(
            f"generator.engine={config.engine} has no sleep(), which generator.placement=colocated needs: "
            "add it (raypoly.engines.Sleeper), or use another placement."
        )
    if config.transport not in ("auto", "objects") and not hasattr(kind, "receive"):
        raise UsageError(
            f"generator.engine={config.engine} has no receive(), which generator.transport={config.transport} needs: "
            "add it (raypoly.engines.Taker), or use objects."
        )
