"""Engines (rollout workers): they sample responses. vLLM and transformers behind one interface; an actor owns each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import FinishReason, Float32, Int32
from raypoly.rollouts.engines.transfer import Parcel
from raypoly.rollouts.engines.vllm_arguments import check_engine_args

KNOWN: Mapping[str, str] = {
    "vllm": "raypoly.rollouts.engines.vllm_engine:VllmEngine",
    "transformers": "raypoly.rollouts.engines.transformers_engine:TransformersEngine",
}

Weights = Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
"""float32 arrays by their transformers names."""


@dataclass(frozen=True)
class SampleRequest:
    """A prompt and one seed for each response: a group, or its responses that share a prompt."""

    slot: int
    """Identifies the request's samples; the group's slot if its responses share one prompt."""
    prompt_tokens: Int32
    seeds: tuple[int, ...]
    _: KW_ONLY
    max_tokens: int | None = None
    """The limit of a response if it is below `generator.max_tokens`."""
    greedy: bool = False
    """Whether to take the likeliest token each time, and ignore the seed."""

    def limit(self, tokens: int) -> int:
        """The most tokens of a response, for an engine whose own limit is `tokens`."""
        return tokens if self.max_tokens is None else min(tokens, self.max_tokens)


@dataclass(frozen=True)
class Sample:
    """One response: tokens (with a sampled end of sequence) and their log-probabilities after temperature."""

    tokens: Int32
    logprobs: Float32
    finish_reason: FinishReason


class Engine(Protocol):
    """Built as `Class(model_path, config, dtype)`. One that has `probe_tokens` answers probes of that length."""

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, list[Sample]]]:
        """(slot, samples in the order of the seeds), groups as they finish.

        The requests are submitted together and in order, so that batches, and so rounding, are repeatable.
        """
        ...

    def update_weights(self, weights: Weights) -> None:
        """Load these weights. Nothing computed under the old ones (prefix cache) is used again."""
        ...

    def prompt_logprobs(self, tokens: Int32) -> Float32:
        """float32 [T-1]: log-probabilities, before temperature, of each token but the first."""
        ...


class SleepingEngine(Protocol):
    """An engine that can share a GPU with the learner (placement `colocated`)."""

    def sleep(self) -> None:
        """Free the memory of weights and cache. New weights wake the engine; until then it raises `Asleep`."""
        ...


class ReceivingEngine(Protocol):
    """An engine that receives weights by a transport other than Ray's objects."""

    def connect(self, info: Mapping[str, Any]) -> None:
        """Connect to the sender whose `listen` returned `info`."""
        ...

    def receive(self, parcel: Parcel) -> None:
        """As `update_weights`, with the parcel's weights.

        Raises `WeightsMismatch` if other weights arrive, `TransferBroken` if the sender is gone.
        """
        ...


class HashingEngine(Protocol):
    """An engine that can prove which weights it has. Without it a run only watches log-probabilities, which tell small
    updates of the weights from none no better than rounding does."""

    def weight_hashes(self) -> Mapping[str, str]:
        """`raypoly.learner.weight_hash.weight_hash` of each weight in use, in the engine's dtype, by transformers'
        names. Tied weights have all of their names, as in `update_weights`. Asked after an update only."""
        ...


class Asleep(RuntimeError):
    """A sleeping engine was called."""

    def __init__(self, engine: str) -> None:
        super().__init__(f"the engine {engine} sleeps and has no weights: new weights come before anything is sampled")


def build(model_path: Path, config: GeneratorConfig, dtype: str) -> Engine:
    """The config's engine, with the model loaded.

    Raises `UsageError` if it lacks a method that its placement or transport needs, or refuses `generator.engine_args`.
    """
    check_engine_args(config)
    kind = load_plugin(config.engine, KNOWN, "generator.engine")
    _check_able(kind, config)
    try:
        engine: Engine = kind(model_path, config, dtype)
    except (TypeError, ValueError) as error:
        if not config.engine_args:
            raise
        said = " ".join(str(error).split()).partition(" [type=")[0][:300]  # pydantic adds all arguments
        raise UsageError(f"vLLM does not start with generator.engine_args={config.engine_args}: {said}") from error
    return engine


def end_tokens(model_path: Path) -> list[int]:
    """Every token id that ends a response, by generation config, model config or tokenizer."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig  # takes seconds to import

    sources = [
        AutoConfig.from_pretrained(model_path).eos_token_id,
        AutoTokenizer.from_pretrained(model_path).eos_token_id,
    ]
    if (model_path / "generation_config.json").exists():
        sources.append(GenerationConfig.from_pretrained(model_path).eos_token_id)
    return sorted({token for ids in sources for token in ([ids] if isinstance(ids, int) else ids or [])})


def _check_able(kind: Any, config: GeneratorConfig) -> None:
    if config.placement == "colocated" and not hasattr(kind, "sleep"):
        raise UsageError(
            f"generator.engine={config.engine} has no sleep(), which generator.placement=colocated needs: "
            "add it (raypoly.rollouts.engines.SleepingEngine), or use another placement."
        )
    if config.transport not in ("auto", "objects") and not hasattr(kind, "receive"):
        raise UsageError(
            f"generator.engine={config.engine} has no receive(), which generator.transport={config.transport} needs: "
            "add it (raypoly.rollouts.engines.ReceivingEngine), or use objects."
        )
