"""What the learner holds on its device, by part.

Of P weights, of which T are trained (all, or adapters alone), over R ranks:

    weights      4 P / R    float32 masters                 moments     8 T / R    AdamW's two, float32
    gradients    4 T / R    float32                         reference   4 P / R    where the loss has a KL term, or asks

so 16 bytes a weight where all are trained on one rank. Beside them, while gradients are computed: activations of a
micro-batch (`raypoly.planning.activations`), weights rounded to bfloat16 (those of every layer where autograd keeps
them, of one where they are computed again), a chunk's logits, and the head's gradient before it is added.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from raypoly import losses
from raypoly.config import Config
from raypoly.planning.activations import Activations
from raypoly.planning.device_layout import DeviceLayout
from raypoly.planning.memory_parts import ADAMW, ALWAYS, GRADIENTS, HAND_OVER, LAYERS, LEARNING, LOGITS, MemoryPart
from raypoly.planning.model_shape import ModelShape
from raypoly.policy.logprobs import tokens_of_chunk

CONTEXT = 3 << 29
"""1.5 GiB of a process on a GPU: the context, libraries' workspaces, and what the allocator can't use. An estimate."""


def learner_parts(config: Config, shape: ModelShape, layout: DeviceLayout) -> Iterator[MemoryPart]:
    """Of the rank that holds most."""
    yield from _state(config, shape, layout)
    yield from _micro_batch(config, shape, layout)
    if layout.ranks > 1:
        yield MemoryPart("layers gathered from all ranks", 8 * shape.layer_parameters + 4 * shape.head, LEARNING)
    if layout.kind != "cpu":
        yield MemoryPart("learner: CUDA context, fragments", CONTEXT)


def _state(config: Config, shape: ModelShape, layout: DeviceLayout) -> Iterator[MemoryPart]:
    """What stays from step to step; gradients do until the next step begins, or an engine that slept is woken."""
    trained, ranks, lora = trained_weights(config, shape), layout.ranks, config.model.lora_rank
    adapters = trained if lora else 0
    keys = () if lora else ("model.lora_rank",)
    yield MemoryPart("weights (float32 masters)", _share(4 * (shape.parameters + adapters), ranks))
    held = LEARNING if layout.kind == "colocated" else ALWAYS
    yield MemoryPart("gradients", _share(4 * trained, ranks), held, keys)
    yield MemoryPart("AdamW's moments", _share(8 * trained, ranks), keys=keys)
    if "reference" in losses.of_run(config).needs:
        key = "loss.kl_coefficient" if losses.of_run(config).config.kl_coefficient else "loss.name"
        yield MemoryPart("frozen reference", _share(4 * shape.parameters, ranks), keys=(key,))
    head = head_weights(config, shape)
    if head:
        yield MemoryPart("the loss's head, trained", _share(16 * head, ranks), keys=("loss.name",))
    if layout.kind == "cpu":
        yield MemoryPart("AdamW's temporaries", 4 * trained, ADAMW, keys)
    if lora:
        yield MemoryPart("merged weights", 4 * shape.layers * shape.layer_matrices, HAND_OVER)


def _micro_batch(config: Config, shape: ModelShape, layout: DeviceLayout) -> Iterator[MemoryPart]:
    train, bf16 = config.train, config.model.dtype == "bfloat16"
    kind, generator = train.activation_checkpointing, config.generator
    longest = generator.max_prompt_tokens + generator.max_tokens
    each = Activations(shape, bf16, kind, longest if layout.kind == "cpu" else None, train.compile)
    budget = ("train.token_budget",)
    keys = budget if kind == "layers" else (*budget, "train.activation_checkpointing")
    yield MemoryPart("activations", train.token_budget * each.kept, GRADIENTS, keys)
    yield MemoryPart("activations at the head", train.token_budget * each.at_the_head, LOGITS, budget)
    yield MemoryPart("activations of a layer at work", train.token_budget * each.at_a_layer, LAYERS, budget)
    if bf16:
        every = kind == "off"
        matrices = 2 * shape.layer_matrices * (shape.layers if every else 1)
        yield MemoryPart(
            "weights rounded to bfloat16", matrices, GRADIENTS if every else LAYERS, keys[1:] if every else ()
        )
        yield MemoryPart("the head rounded", (2 if layout.kind != "cpu" else 6) * shape.head, LOGITS)
    arrays = 3 if "entropy" in losses.of_run(config).needs else 2
    chunk = 4 * shape.vocabulary * min(train.token_budget, tokens_of_chunk(shape.vocabulary, train.logits_mib))
    yield MemoryPart("a chunk's logits", arrays * chunk, LOGITS, ("train.logits_mib",))
    if not config.model.lora_rank:  # a tied head's waits for the embedding's
        yield MemoryPart("the head's own gradient", 4 * shape.head, GRADIENTS if shape.tied else LOGITS)


def trained_weights(config: Config, shape: ModelShape) -> int:
    """All, or those of the adapters."""
    return shape.adapters(config.model.lora_rank) if config.model.lora_rank else shape.parameters


def head_weights(config: Config, shape: ModelShape) -> int:
    """Those that the loss trains beside the policy."""
    with torch.device("meta"):
        head = losses.of_run(config).head(shape.hidden)
    return 0 if head is None else sum(parameter.numel() for parameter in head.parameters())


def checkpoint_bytes(config: Config, shape: ModelShape) -> int:
    """Weights and moments in float32, or the adapters' alone, and the loss's head; a tied head of the model is written
    under both of its names."""
    trained = trained_weights(config, shape) + head_weights(config, shape)
    twice = shape.head if shape.tied and not config.model.lora_rank else 0
    return 12 * trained + 4 * twice


def _share(count: int, ranks: int) -> int:
    return -(-count // ranks)
