"""Engines (rollout workers), which sample responses: vLLM and transformers behind one interface."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raypoly.core.config import GeneratorConfig, JudgeConfig
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import FinishReason, Float32, Int32
from raypoly.rollouts.engines.transfer import Parcel

KNOWN: Mapping[str, str] = {
    "vllm": "raypoly.rollouts.engines.vllm_engine:VllmEngine",
    "transformers": "raypoly.rollouts.engines.transformers_engine:TransformersEngine",
}

_OURS = "no key, since raypoly relies on its value"
_ROW = "generator.max_prompt_tokens and generator.max_tokens, and environment's limits"
OWN_ARGUMENTS: Mapping[str, str] = {
    "model": "model.path",
    "dtype": "model.dtype",
    "max_model_len": _ROW,
    "max_num_batched_tokens": _ROW,
    "max_num_seqs": "generator.max_sequences",
    "gpu_memory_utilization": "generator.gpu_memory_fraction",
    "enable_sleep_mode": "generator.placement",
    "weight_transfer_config": "generator.transport",
    **dict.fromkeys(("hf_overrides", "logprobs_mode", "generation_config", "enable_prefix_caching"), _OURS),
    **dict.fromkeys(("block_size", "disable_log_stats", "enforce_eager", "enable_chunked_prefill", "seed"), _OURS),
}
"""The arguments that `VllmEngine` sets, and the keys that decide them."""
_REFUSED: Mapping[str, str] = {
    **OWN_ARGUMENTS,
    "load_format": "model.path",
    "quantization": "model.dtype: engine and learner have the same weights",
    **dict.fromkeys(
        ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"), "generator.engines: each has one GPU"
    ),
}

_JUDGE_ANSWER = 2048  # tokens without `judge.max_answer_tokens`; one that is longer has what its question leaves
CPU_BLOCK = 32
"""Tokens of a block of vLLM's KV cache on a CPU."""

Weights = Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]
"""Float32 arrays by transformers' names."""


def cpu_cache_bytes(config: GeneratorConfig, token_bytes: int) -> int:
    """Size of vLLM's KV cache on a CPU; `token_bytes`: keys and values of one token, in all layers.

    Room for all sequences twice, so that a prompt stays for the rollouts that follow; at most `generator.memory_gib`.
    """
    blocks = 1 + -(-config.longest_row // CPU_BLOCK)
    return min(round(config.memory_gib * 2**30), 2 * config.max_sequences * blocks * CPU_BLOCK * token_bytes)


def engine_of_judge(judge: JudgeConfig) -> GeneratorConfig:
    """The config of a local judge's engine."""
    return GeneratorConfig(
        engine=judge.engine,
        placement="colocated",  # so that it can sleep
        transport="objects",
        temperature=judge.temperature or 1.0,
        max_prompt_tokens=judge.max_prompt_tokens,
        max_tokens=judge.max_answer_tokens or _JUDGE_ANSWER,
        max_sequences=judge.concurrency,
        threads=judge.threads,
        memory_gib=judge.memory_gib,
        gpu_memory_fraction=judge.gpu_memory_fraction,
    )


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
    schema: Mapping[str, Any] | None = None
    """A JSON schema that vLLM holds the response to; another engine may not."""

    def limit(self, tokens: int) -> int:
        return tokens if self.max_tokens is None else min(tokens, self.max_tokens)


More = Callable[[bool], Sequence[SampleRequest] | None]
"""Requests that came meanwhile; None: no more will. `True` waits for some."""


@dataclass(frozen=True)
class Sample:
    """One response: tokens (with a sampled end of sequence) and their log-probabilities after temperature."""

    tokens: Int32
    logprobs: Float32
    finish_reason: FinishReason
    weight_version: int | None = None
    """Of its first token's weights; None where the engine does not know."""
    newer_from: int | None = None
    """The first token by newer weights, which came while it was sampled."""


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


class FullEngine(Engine, Protocol):
    """What an engine may have too: `sleep` to be `colocated` (a judge's has `wake` too), `connect` and `receive` for
    weights that are no Ray objects, `weight_hashes` to prove its weights. Without that a run only watches
    log-probabilities, which tell small updates from none no better than rounding does. `takes_more`: its `sample` has a
    parameter `more` (`More`), for conversations that go on while others are sampled, and for a judge; without that
    conversations go on turn by turn. `set_weight_version`: new weights may come in a call of `more`, and its samples
    say by which ones they are; without that they come between submissions."""

    takes_more: bool

    def sleep(self, keep: bool = False) -> None:
        """Free the device's memory of weights and cache until new weights come; calls before that raise `Asleep`.
        `keep`: the host keeps the weights, until `wake`."""
        ...

    def wake(self) -> None:
        """Go on after `sleep(keep=True)`."""
        ...

    def connect(self, info: Mapping[str, Any]) -> None:
        """Connect to the sender; `info` is from its `listen`."""
        ...

    def receive(self, parcel: Parcel) -> None:
        """Load a parcel's weights. Raises `WeightsMismatch` if others arrive, `TransferBroken` without a sender."""
        ...

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
            "add it (raypoly.rollouts.engines.FullEngine), or use another placement."
        )
    if config.transport not in ("auto", "objects") and not hasattr(kind, "receive"):
        raise UsageError(
            f"generator.engine={config.engine} has no receive(), which generator.transport={config.transport} needs: "
            "add it (raypoly.rollouts.engines.FullEngine), or use objects."
        )


def check_engine_args(config: GeneratorConfig) -> None:
    """Raise `UsageError` for an argument that raypoly sets, that vLLM lacks, or that the engine can't get."""
    if config.engine_args and config.engine != "vllm":
        raise UsageError(
            f"generator.engine_args={config.engine_args} are for vLLM, and generator.engine={config.engine}: "
            "leave them out, or set generator.engine=vllm."
        )
    for name in config.engine_args:
        if name in _REFUSED:
            raise UsageError(f"generator.engine_args.{name} can't be given: it is decided by {_REFUSED[name]}.")
        if (known := vllm_arguments()) and name not in known:
            near = get_close_matches(name, known - _REFUSED.keys(), n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            raise UsageError(f"generator.engine_args.{name} is no argument of the EngineArgs of vLLM{hint}")


@cache
def vllm_arguments() -> frozenset[str]:
    """Fields of EngineArgs in vLLM's source; empty where there is no vLLM."""
    found = importlib.util.find_spec("vllm")
    source = None if found is None or found.origin is None else Path(found.origin).parent / "engine" / "arg_utils.py"
    if source is None or not source.is_file():
        return frozenset()
    classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    fields = [item for node in classes if node.name == "EngineArgs" for item in node.body]
    return frozenset(it.target.id for it in fields if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name))
