"""Memory of each device of a run, by part, and whether it is enough.

    plan_memory(config, shape, device, layout)
    check_memory(config, shape, device, layout)     # `UsageError`: the part that is too much, and what to turn

vLLM on a GPU takes `generator.gpu_memory_fraction` of it: weights, its largest batch, CUDA graphs, and the KV cache in
all that is left. On a CPU the cache is `cpu_cache_bytes`. The engine of transformers makes room as it decodes.
A colocated engine counts while it samples and takes new weights, since it sleeps else. A part that is unknown is left
out of sums, which then are "at least".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from raypoly.algorithms import objectives
from raypoly.algorithms.group_stage import own_stages
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.text import format_bytes
from raypoly.planning.devices import GIB, Device, DeviceLayout
from raypoly.planning.learner_memory import (
    ALWAYS,
    CONTEXT,
    HAND_OVER,
    JUDGING,
    SAMPLING,
    DeviceMemory,
    MemoryPart,
    checkpoint_bytes,
    learner_parts,
    page_locked_bytes,
    trained_weights,
    width,
)
from raypoly.planning.model_shape import ModelShape, shape_of, teacher_folder
from raypoly.planning.preflight import BASE_MEMORY, ENGINE_MEMORY, MATHS_MEMORY, WORKER_MEMORY, asks_judge
from raypoly.rollouts.engines import cpu_cache_bytes, engine_of_judge
from raypoly.strategies.judge import in_engine

_ACTIVITY = {
    "sampling": "while responses are sampled",
    "logits": "while logits are computed",
    "layers": "while gradients are computed",
    "AdamW": "while AdamW steps",
    "hand-over": "while new weights go to the engine",
    "judging": "while groups are judged",
}

Need = Callable[[Config], int]
ConfigChange = tuple[str, Config]
"""An override as it is written on the command line, and the config with it."""

_LOGITS_MIB = 256
_LORA_RANK = 32
# Tokens of vLLM's largest batch, as `raypoly.rollouts.engines.vllm_engine` sets it; at least one whole sequence.
_VLLM_BATCH = 8192
_GRAPHS = GIB  # vLLM's CUDA graphs and workspaces. An estimate.
_ASLEEP = 2 * GIB  # context, graphs and workspaces of an engine asleep. An estimate.


def plan_memory(
    config: Config, shape: ModelShape, device: Device, layout: DeviceLayout, maths: bool = False
) -> Sequence[DeviceMemory]:
    """`maths`: there are answers of mathematics. Raises `UsageError` where the engine has no room for one sequence."""
    models = (*_stage_models(config, layout), *_teacher(config, device, layout), *_judge(config, device, layout))
    learner = (*learner_parts(config, shape, layout), *models)
    engine = tuple(engine_parts(config, shape, device, layout))
    if layout.kind == "split":
        return [DeviceMemory("the learner's GPU", learner), DeviceMemory("the engine's GPU", engine)]
    if layout.kind == "cpu":
        return [DeviceMemory("memory", (*learner, *engine, *_others(config, maths)))]
    return [DeviceMemory("the GPU", (*learner, *engine))]


def host_memory(config: Config, shape: ModelShape, layout: DeviceLayout, maths: bool = False) -> DeviceMemory:
    """The host's share of a run whose learner is on a GPU. New weights through the host are there twice: as the learner
    gives them and as Ray carries them. `maths`: as `plan_memory`."""
    moments = 8 * trained_weights(config, shape)
    locked = page_locked_bytes(config, shape, layout)
    on_their_way = [MemoryPart("weights on their way to the engine", 8 * shape.parameters, HAND_OVER)]
    parts = (
        MemoryPart("a checkpoint's copy", checkpoint_bytes(config, shape)),
        MemoryPart("its moments, where it is read back", moments),
        *([MemoryPart("what is offloaded", locked)] if locked else []),
        *(on_their_way if layout.through_host else []),
        *(_judge_asleep(config) if layout.kind == "colocated" else []),
        *_others(config, maths),
    )
    return DeviceMemory("the host", parts)


def check_memory(config: Config, shape: ModelShape, device: Device, layout: DeviceLayout) -> None:
    """Raise `UsageError` for the first device that can't hold its parts."""
    for place, holding in enumerate(plan_memory(config, shape, device, layout)):
        if holding.needed <= device.memory:
            continue
        phase = holding.peak
        largest = holding.largest(phase)

        def need(changed: Config, place: int = place) -> int:
            return plan_memory(changed, shape, device, layout)[place].needed

        elsewhere = "" if device.gpu else " (`--dry-run --gpu NAME` plans for a GPU that is not here.)"
        raise UsageError(
            f"This does not fit: {holding.where} ({device.name}) has {format_bytes(device.memory)}, and "
            f"{format_bytes(holding.needed)} are needed {_ACTIVITY[phase]}, of which {format_bytes(largest.bytes)} are "
            f"{largest.name}. {_advise(config, need, device)}{elsewhere}"
        )


def _stage_models(config: Config, layout: DeviceLayout) -> Iterator[MemoryPart]:
    # In float32, each an actor of its own beside the learner's first rank, which stays.
    for stage in own_stages(config, objectives.of_run(config)):
        try:
            model = stage.asked_model if stage.used else None
        except UsageError:  # it is not there yet, as that of an experiment's arm: its size is unknown
            yield MemoryPart(f"the {stage.name}'s model", None)
            continue
        if model is not None:
            shape = shape_of(str(model.folder))
            context = 0 if layout.kind == "cpu" else CONTEXT
            yield MemoryPart(f"the {stage.name}'s model", None if shape is None else 4 * shape.parameters + context)


def _teacher(config: Config, device: Device, layout: DeviceLayout) -> Iterator[MemoryPart]:
    # An actor of its own beside the learner's first rank, which stays.
    distill = config.distill
    if distill.teacher is None or distill.server:
        return
    if distill.placement == "engine" and layout.kind != "cpu":
        share = round(distill.gpu_memory_fraction * device.memory)
        yield MemoryPart("the teacher's engine", share, keys=("distill.gpu_memory_fraction",))
        return
    shape = shape_of(str(teacher_folder(distill.teacher) or distill.teacher))
    each = width((distill.dtype or config.model.dtype) == "bfloat16")
    context = 0 if layout.kind == "cpu" else CONTEXT
    size = None if shape is None else each * shape.parameters + context
    yield MemoryPart("the teacher", size, keys=("distill.dtype",))


def _judge(config: Config, device: Device, layout: DeviceLayout) -> Iterator[MemoryPart]:
    # Beside the learner's first rank; colocated, it sleeps but in its turn.
    if not (in_engine(config.judge) and asks_judge(config)):
        return
    awake = JUDGING if layout.kind == "colocated" else ALWAYS
    judge, shape = with_judge_as_policy(config), shape_of(config.judge.model)
    if shape is None:
        yield MemoryPart("judge's engine", None, awake)
        return
    try:
        for part in engine_parts(judge, shape, device, layout):
            phases = awake if part.phases in (SAMPLING, ALWAYS) else ALWAYS - JUDGING
            keys = tuple(key.replace("generator.", "judge.") for key in part.keys)
            yield replace(part, name=f"judge's {part.name}", phases=phases, keys=keys)
        if layout.kind == "cpu":
            yield MemoryPart("judge's engine: libraries", round(ENGINE_MEMORY * GIB))
    except UsageError as error:
        said = str(error).replace("generator.max_tokens", "judge.max_prompt_tokens").replace("generator.", "judge.")
        raise UsageError(said.replace("The engine", "The judge's engine")) from error


def _judge_asleep(config: Config) -> Iterator[MemoryPart]:
    shape = shape_of(config.judge.model) if in_engine(config.judge) and asks_judge(config) else None
    if shape is not None:
        yield MemoryPart("the judge's weights, asleep", _weights(with_judge_as_policy(config), shape))


def with_judge_as_policy(config: Config) -> Config:
    """The config of a run whose engine is the judge's: a group is a rollout for each vote."""
    model = config.model.model_copy(update={"dtype": config.judge.dtype})
    train = config.train.model_copy(update={"rollouts": config.judge.votes})
    return config.model_copy(update={"generator": engine_of_judge(config.judge), "model": model, "train": train})


def _others(config: Config, maths: bool) -> tuple[MemoryPart, ...]:
    # As `raypoly.planning.preflight` counts it, which has not read the problems.
    workers = config.scorer.workers * (WORKER_MEMORY + maths * MATHS_MEMORY + config.scorer.memory_mib / 1024)
    return (
        MemoryPart("Ray, driver, libraries", round(BASE_MEMORY * GIB)),
        MemoryPart("scorers", round(workers * GIB), ALWAYS, ("scorer.workers", "scorer.memory_mib")),
    )


def _advise(config: Config, need: Need, device: Device) -> str:
    """Each change of a key that is enough alone; without one that keeps the model as it is, all of them together too;
    else what remains of `need` bytes."""
    single = [
        f"{words} needs {format_bytes(needed)}"
        for words, changed in _changes(config)
        if (needed := _needed(need, changed)) is not None and needed <= device.memory
    ]
    if any(not words.startswith("model.") for words in single):
        return f"What is enough: {'; or '.join(single)}."
    chosen, needed = _together(config, need, device)
    if chosen and needed <= device.memory:
        together = f"{' '.join(chosen)} needs {format_bytes(needed)}"
        return f"What is enough: {'; or '.join(dict.fromkeys([together, *single]))}."
    tried = f"Even with {' '.join(chosen)} it would be {format_bytes(needed)}: " if chosen else ""
    return f"{tried}take a device with more memory, several of them, or a smaller model."


def _changes(config: Config) -> Iterator[ConfigChange]:
    # From the change that costs least; first those that change no result.
    train = config.train
    if train.logits_mib > _LOGITS_MIB:
        yield _change(config, "train", "logits_mib", _LOGITS_MIB)
    for kind in {"off": ("products", "layers"), "products": ("layers",)}.get(train.activation_checkpointing, ()):
        yield _change(config, "train", "activation_checkpointing", kind)
    if config.generator.placement in ("auto", "colocated"):
        for kind in {"none": ("optimizer", "all"), "optimizer": ("all",)}.get(train.offload, ()):
            yield _change(config, "train", "offload", kind)
    longest = config.generator.longest_row
    if train.token_budget > longest:
        yield _change(config, "train", "token_budget", max(longest, train.token_budget // 2))
        if train.token_budget // 2 > longest:
            yield _change(config, "train", "token_budget", longest)
    fraction = config.generator.gpu_memory_fraction
    for lower in (0.4, 0.3, 0.2):
        if lower < fraction:
            yield _change(config, "generator", "gpu_memory_fraction", lower)
    if config.model.lora_rank is None:
        yield _change(config, "model", "lora_rank", _LORA_RANK)


def _together(config: Config, need: Need, device: Device) -> tuple[Sequence[str], int]:
    """Make one change after the other until it fits. Returns the last change of each key, and the bytes then needed."""
    chosen: dict[str, str] = {}
    needed = need(config)
    # After each change that helps, the list of changes begins anew: it depends on the config.
    while needed > device.memory:
        for words, changed in _changes(config):
            less = _needed(need, changed)
            if less is not None and less < needed:
                config, needed = changed, less
                chosen[words.partition("=")[0]] = words
                break
        else:
            break
    return list(chosen.values()), needed


def _change(config: Config, section: str, key: str, value: object) -> ConfigChange:
    changed = getattr(config, section).model_copy(update={key: value})
    return f"{section}.{key}={value}", config.model_copy(update={section: changed})


def _needed(need: Need, config: Config) -> int | None:
    """None where the engine would have no room."""
    try:
        return need(config)
    except UsageError:
        return None


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
    longest = generator.longest_row
    rollouts = config.train.prompts_per_step * config.train.rollouts
    wanted = min(generator.max_sequences, -(-rollouts // generator.engines))
    if generator.engine == "transformers":
        # a batch is as wide as its longest prompt and its longest response
        width = longest + (generator.max_tokens if config.environment.converses else 0)
        return EngineRoom(wanted * width, longest, wanted)
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
    tokens = max(_VLLM_BATCH, generator.longest_row)
    w = width(config.model.dtype == "bfloat16")
    batch = tokens * w * (3 * shape.intermediate + 2 * shape.hidden)
    return batch + 3 * 4 * generator.max_sequences * shape.vocabulary + _GRAPHS


def _vllm_cache(config: Config, shape: ModelShape, device: Device) -> int:
    """Below zero where nothing is left."""
    if not device.gpu:
        return cpu_cache_bytes(config.generator, _token_bytes(config, shape))
    taken = round(config.generator.gpu_memory_fraction * device.memory)
    return taken - _weights(config, shape) - _vllm_work(config, shape)
