"""The engine's device memory, by part, and its room for sequences.

vLLM on a GPU takes `generator.gpu_memory_fraction` of it: weights, its largest batch, CUDA graphs, and the KV cache in
all that is left. On a CPU the cache is `generator.memory_gib`. The engine of transformers makes room as it decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.planning.free_resources import GIB
from raypoly.planning.gpus import Device, DeviceLayout
from raypoly.planning.learner_memory import CONTEXT, width
from raypoly.planning.memory_parts import ALWAYS, SAMPLING, MemoryPart, format_bytes
from raypoly.planning.model_shape import ModelShape

# Tokens of vLLM's largest batch, as `raypoly.rollouts.engines.vllm_engine` sets it; at least one whole sequence.
_VLLM_BATCH = 8192
_GRAPHS = GIB  # vLLM's CUDA graphs and workspaces. An estimate.
_ASLEEP = 2 * GIB  # context, graphs and workspaces of an engine asleep. An estimate.


@dataclass(frozen=True)
class EngineRoom:
    """The engine's room for sequences."""

    tokens: int
    """Of the KV cache."""
    longest: int
    """Tokens of a sequence at its limits."""
    wanted: int
    """Sequences that are decoded at once if there is room."""

    @property
    def sequences(self) -> float:
        return min(float(self.wanted), self.tokens / self.longest)


def engine_room(config: Config, shape: ModelShape, device: Device) -> EngineRoom | None:
    """None where the engine is not one of raypoly's own."""
    generator = config.generator
    longest = generator.max_prompt_tokens + generator.max_tokens
    rollouts = config.train.prompts_per_step * config.train.rollouts
    wanted = min(generator.max_sequences, -(-rollouts // generator.engines))
    if generator.engine == "transformers":
        return EngineRoom(wanted * longest, longest, wanted)
    if generator.engine != "vllm":
        return None
    cache = _vllm_cache(config, shape, device)
    return EngineRoom(max(0, cache) // _token_bytes(config, shape), longest, wanted)


def engine_parts(config: Config, shape: ModelShape, device: Device, layout: DeviceLayout) -> Iterator[MemoryPart]:
    """Raises `UsageError` where the engine can't hold its own weights, or not one whole sequence."""
    generator, gpu = config.generator, device.gpu
    phases = SAMPLING if layout.kind == "colocated" else ALWAYS
    weights = _weights(config, shape)
    space = engine_room(config, shape, device)
    if space is None:
        yield MemoryPart(f"engine {generator.engine}", None, phases)
        return
    share = ("generator.gpu_memory_fraction",) if gpu and generator.engine == "vllm" else ()
    yield MemoryPart("engine: weights", weights, phases)
    if generator.engine == "vllm":
        if gpu:
            yield MemoryPart("engine: largest batch and CUDA graphs", _vllm_work(config, shape), phases)
        else:
            packed = width(config.model.dtype == "bfloat16") * shape.tied
            yield MemoryPart("engine: its own head", (4 + packed) * shape.head, phases)
        _check_room(config, shape, device, space)
        cache = _vllm_cache(config, shape, device)
        yield MemoryPart("engine: KV cache", cache, phases, share or ("generator.memory_gib",))
    else:
        cache = space.tokens * _token_bytes(config, shape)
        # a layer's cache is copied whenever it grows
        cache += cache // shape.layers + 2 * 8 * space.wanted * shape.vocabulary
        yield MemoryPart("engine: KV cache of a batch", cache, phases, ("generator.max_sequences",))
        if gpu:
            yield MemoryPart("CUDA context and fragments of the engine", CONTEXT, phases)
    if layout.kind == "colocated":
        yield MemoryPart("engine asleep", _ASLEEP, ALWAYS - SAMPLING)


def _check_room(config: Config, shape: ModelShape, device: Device, space: EngineRoom) -> None:
    if space.tokens >= space.longest:
        return
    generator = config.generator
    one = space.longest * _token_bytes(config, shape)
    if not device.gpu:
        raise UsageError(
            f"The engine's KV cache, generator.memory_gib={generator.memory_gib:g}, can't hold one sequence of "
            f"{space.longest} tokens ({format_bytes(one)}): raise it, or lower generator.max_tokens."
        )
    rest = _weights(config, shape) + _vllm_work(config, shape)
    needed = (rest + one) / device.memory
    way = f"set it to {needed + 0.02:.2f} or more" if needed < 0.95 else "take a larger GPU or a smaller model"
    fraction = generator.gpu_memory_fraction
    raise UsageError(
        f"The engine's KV cache does not fit: generator.gpu_memory_fraction={fraction:g} of {device.name} is "
        f"{format_bytes(round(fraction * device.memory))}, its weights and largest batch take {format_bytes(rest)}, "
        f"and one sequence of {space.longest} tokens {format_bytes(one)}: {way}, or lower generator.max_tokens."
    )


def _weights(config: Config, shape: ModelShape) -> int:
    return width(config.model.dtype == "bfloat16") * shape.parameters


def _token_bytes(config: Config, shape: ModelShape) -> int:
    return shape.cache_bytes(width(config.model.dtype == "bfloat16"))


def _vllm_work(config: Config, shape: ModelShape) -> int:
    # The largest batch: the MLP's three arrays and the stream twice. For all sequences: logits, their copy after
    # temperature, and the counts for penalties that vLLM always keeps (`PenaltiesState.output_bin_counts`).
    generator = config.generator
    tokens = max(_VLLM_BATCH, generator.max_prompt_tokens + generator.max_tokens)
    w = width(config.model.dtype == "bfloat16")
    batch = tokens * w * (3 * shape.intermediate + 2 * shape.hidden)
    return batch + 3 * 4 * generator.max_sequences * shape.vocabulary + _GRAPHS


def _vllm_cache(config: Config, shape: ModelShape, device: Device) -> int:
    """Below zero where nothing is left."""
    if not device.gpu:
        return max(1, round(config.generator.memory_gib)) * GIB
    taken = round(config.generator.gpu_memory_fraction * device.memory)
    return taken - _weights(config, shape) - _vllm_work(config, shape)
