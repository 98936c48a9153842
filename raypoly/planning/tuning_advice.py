"""What to turn so that a config fits: each is tried on the config itself, and told with what it comes to.

    enough(config, need, device)   ->  "train.activation_checkpointing=products needs 97.1 GiB."

`need` is the bytes that a config needs on the device. Turns that change no number of the training come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.planning.gpus import Device
from raypoly.planning.memory_parts import size

Need = Callable[[Config], int]
Turn = tuple[str, Config]
"""In words, as it is written on the command line, and the config with it."""

_LOGITS_MIB = 256
_LORA_RANK = 32


def enough(config: Config, need: Need, device: Device) -> str:
    """One or two sentences: the single turns that are enough, else all of them together, else what remains."""
    single = [
        f"{words} needs {size(needed)}"
        for words, changed in turns(config)
        if (needed := _needed(need, changed)) is not None and needed <= device.memory
    ]
    if single:
        return f"What is enough: {'; or '.join(single)}."
    words, changed = _together(config, need, device)
    needed = _needed(need, changed)
    if words and needed is not None and needed <= device.memory:
        return f"What is enough: {' '.join(words)} needs {size(needed)}."
    tried = f"Even with {' '.join(words)} it would be {size(needed)}: " if words and needed else ""
    return f"{tried}take a device with more memory, several of them, or a smaller model."


def turns(config: Config) -> Iterator[Turn]:
    """Those that the config leaves, from the one that costs least."""
    train = config.train
    if train.logits_mib > _LOGITS_MIB:
        yield _turn(config, "train", "logits_mib", _LOGITS_MIB)
    for kind in {"off": ("products", "layers"), "products": ("layers",)}.get(train.activation_checkpointing, ()):
        yield _turn(config, "train", "activation_checkpointing", kind)
    longest = config.generator.max_prompt_tokens + config.generator.max_tokens
    if train.token_budget > longest:
        yield _turn(config, "train", "token_budget", max(longest, train.token_budget // 2))
        if train.token_budget // 2 > longest:
            yield _turn(config, "train", "token_budget", longest)
    fraction = config.generator.gpu_memory_fraction
    for lower in (0.4, 0.3, 0.2):
        if lower < fraction:
            yield _turn(config, "generator", "gpu_memory_fraction", lower)
    if config.model.lora_rank is None:
        yield _turn(config, "model", "lora_rank", _LORA_RANK)


def _together(config: Config, need: Need, device: Device) -> tuple[list[str], Config]:
    """Turn after turn, the last of each key, until it fits."""
    chosen: dict[str, str] = {}
    changed, needed = config, need(config)
    while needed > device.memory:
        better = ((words, turned, _needed(need, turned)) for words, turned in turns(changed))
        found = next(((words, turned, less) for words, turned, less in better if less and less < needed), None)
        if found is None:
            break
        words, changed, needed = found
        chosen[words.partition("=")[0]] = words
    return list(chosen.values()), changed


def _turn(config: Config, section: str, key: str, value: object) -> Turn:
    changed = getattr(config, section).model_copy(update={key: value})
    return f"{section}.{key}={value}", config.model_copy(update={section: changed})


def _needed(need: Need, config: Config) -> int | None:
    """None where the engine would have no room."""
    try:
        return need(config)
    except UsageError:
        return None
