"""Engines (rollout workers), which sample responses: vLLM and transformers behind one interface."""

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
"""Float32 arrays by transformers' names."""


@dataclass(frozen=True)
class SampleRequest:
    """A prompt with a seed for each response: a group, or its responses that share a prompt."""

    slot: int
    """The group's slot if its responses share one prompt."""
    prompt_tokens: Int32
    seeds: tuple[int, ...]
    _: KW_ONLY
    max_tokens: int | None = None
    """A limit below `generator.max_tokens`."""
    greedy: bool = False
    """Take the likeliest token each time, and ignore the seed."""

    def limit(self, tokens: int) -> int:
        return tokens if self.max_tokens is None else min(tokens, self.max_tokens)


@dataclass(frozen=True)
class Sample:
    """One response: tokens (with a sampled end of sequence) and their log-probabilities after temperature."""

    tokens: Int32
    logprobs: Float32
    finish_reason: FinishReason


class Engine(Protocol):
    """Built as `Class(model_path, config, dtype)`. `probe_tokens`, if there, limits the responses of probes."""

    def sample(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[int, list[Sample]]]:
        """(slot, samples in the order of the seeds), groups as they finish. Requests are submitted together and in
        order, so that batches, and with them rounding, repeat."""
        ...

    def update_weights(self, weights: Weights) -> None:
        """Load these weights. Nothing computed under the old ones (prefix cache) is used again."""
        ...

    def prompt_logprobs(self, tokens: Int32) -> Float32:
        """float32 [T-1]: log-probabilities, before temperature, of each token but the first."""
        ...


class SleepingEngine(Protocol):
    """An engine that can share a GPU with the learner (`colocated`)."""

    def sleep(self) -> None:
        """Free the memory of weights and cache until new weights come; calls before that raise `Asleep`."""
        ...


class ReceivingEngine(Protocol):
    """An engine that gets weights by a transport other than Ray's objects."""

    def connect(self, info: Mapping[str, Any]) -> None:
        """Connect to the sender; `info` is from its `listen`."""
        ...

    def receive(self, parcel: Parcel) -> None:
        """Load a parcel's weights. Raises `WeightsMismatch` if others arrive, `TransferBroken` if the sender is
        gone."""
        ...


class HashingEngine(Protocol):
    """An engine that can prove its weights. Without that a run only watches log-probabilities, which tell small updates
    from none no better than rounding does."""

    def weight_hashes(self) -> Mapping[str, str]:
        """`raypoly.learner.weight_hash` of each weight in use, in the engine's dtype, by transformers' names; tied
        weights by all of theirs. Asked after an update only."""
        ...


class Asleep(RuntimeError):
    def __init__(self, engine: str) -> None:
        super().__init__(f"the engine {engine} sleeps and has no weights: new weights come before anything is sampled")


def build(model_path: Path, config: GeneratorConfig, dtype: str) -> Engine:
    """The config's engine, with the model loaded. Raises `UsageError` if it lacks a method that its placement or
    transport needs, or refuses `generator.engine_args`."""
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
    """Token ids that end a response, by generation config, model config or tokenizer."""
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
