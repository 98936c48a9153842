"""Parts of a device's memory and the phases of a step in which each is held, and the learner's parts.

For P weights, of which T are trained (all, or only adapters), over R ranks:

    weights      4 P / R    float32 masters                 moments     8 T / R    AdamW's two, float32
    gradients    4 T / R    float32                         reference   4 P / R    if the loss has a KL term, or asks

so 16 bytes a weight if all are trained on one rank. Beside a colocated engine `train.offload` keeps moments on the
host, but for the bucket at work, and with `all` also weights and reference while the engine is awake. While gradients
are computed there are also a micro-batch's activations, weights rounded to bfloat16, a chunk's logits, and the head's
gradient before it is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from raypoly.algorithms import losses
from raypoly.algorithms.losses import Loss
from raypoly.core.config import Config, Offloaded
from raypoly.learner.logit_chunks import chunk_on, tokens_of_chunk
from raypoly.planning.devices import DeviceLayout
from raypoly.planning.model_shape import ModelShape

Phase = Literal["sampling", "logits", "layers", "AdamW", "hand-over", "judging"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""`logits`: the end of a micro-batch's forward pass. `layers`: its backward pass. `judging`: a judge's engine is awake
and the policy's asleep."""
ALWAYS = frozenset(PHASES)
LOGITS: frozenset[Phase] = frozenset({"logits"})
LAYERS: frozenset[Phase] = frozenset({"layers"})
GRADIENTS = LOGITS | LAYERS
HAND_OVER: frozenset[Phase] = frozenset({"hand-over"})
LEARNING: frozenset[Phase] = GRADIENTS | {"AdamW"}
JUDGING: frozenset[Phase] = frozenset({"judging"})
SAMPLING = ALWAYS - LEARNING - JUDGING


@dataclass(frozen=True)
class MemoryPart:
    name: str
    bytes: int | None
    """None: unknown."""
    phases: frozenset[Phase] = ALWAYS
    keys: tuple[str, ...] = ()
    """The config keys that change it."""


@dataclass(frozen=True)
class DeviceMemory:
    """All that one device holds."""

    where: str
    """`the GPU`, `the learner's GPU` ..."""
    parts: tuple[MemoryPart, ...]

    def total(self, phase: Phase) -> int:
        """Known bytes."""
        return sum(part.bytes or 0 for part in self.parts if phase in part.phases)

    @property
    def phases(self) -> Sequence[Phase]:
        """`judging` only where a part is held in it alone."""
        judged = any(part.phases == JUDGING for part in self.parts)
        return [phase for phase in PHASES if judged or phase not in JUDGING]

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=self.total)

    @property
    def needed(self) -> int:
        """Known bytes at the peak."""
        return self.total(self.peak)

    @property
    def unknown(self) -> Sequence[str]:
        return [part.name for part in self.parts if part.bytes is None]

    def largest(self, phase: Phase) -> MemoryPart:
        """The largest part in a phase, among those that a key changes if there are any."""
        held = [part for part in self.parts if phase in part.phases and part.bytes]
        return max([part for part in held if part.keys] or held, key=lambda part: part.bytes or 0)


@dataclass(frozen=True)
class Activations:
    """Bytes a token that a forward pass keeps for its backward pass, by `train.activation_checkpointing`.

    With H the width of the residual stream (float32, 4 bytes), A and K those of all queries and keys, I the MLP's, and
    w the bytes of a product's factor (2 under autocast to bfloat16, 4 without), a layer of Qwen2, Qwen3 or Llama keeps

        two norms            their input and what they divided, in float32          2 x 8 H
        inputs of products   q, k, v, gate and up: autocast rounds one each, 5 w H; in float32 two, shared, 2 w H
        norms of q and k     (Qwen3) what comes in as float32, and normalised at w   (4 + w) (A + K)
        attention            q, k, v as they enter, and what comes out               2 w (A + K)
        MLP                  gate, its activation, up, and their product             4 w I

    A CPU's kernel adds keys and values repeated for all heads, the output again, and a mask as wide as the longest row,
    w (2 (A - K) + A + longest).

    `products` keeps a layer's input, 4 H, and the results of its products and attention, w (2 A + 2 K + 2 H + 2 I);
    `layers` its input alone. Both hold all of the above for the one layer that is computed again.

    Compiled, a layer keeps its input and middle, 8 H, q and k before their norms (Qwen3), w (A + K), attention's
    inputs and output, 2 w (A + K), both additions to the stream, 2 w H, gate and up, 2 w I; without `products` also
    the factors, w (2 H + I).
    """

    shape: ModelShape
    bf16: bool
    kind: Literal["off", "products", "layers"]
    cpu_longest: int | None = None
    """Tokens of the longest row on a CPU; None on a GPU."""
    compiled: bool = False

    @property
    def layer(self) -> int:
        """Of one layer, without recomputation."""
        H, A, K, w = self.shape.hidden, self.shape.queries, self.shape.keys, width(self.bf16)
        norms = 16 * H
        inputs = (5 if self.bf16 else 2) * w * H
        head_norms = (4 + w) * (A + K) if self.shape.head_norm else 0
        return norms + inputs + head_norms + self._attention + 4 * w * self.shape.intermediate

    @property
    def _attention(self) -> int:
        A, K, w = self.shape.queries, self.shape.keys, width(self.bf16)
        more = 0 if self.cpu_longest is None else w * (2 * (A - K) + A + self.cpu_longest)
        return 2 * w * (A + K) + more

    @property
    def kept(self) -> int:
        """Of all layers, when the backward pass begins."""
        shape, w = self.shape, width(self.bf16)
        if self.compiled and self.kind != "layers":
            return shape.layers * self._compiled_layer(self.kind)
        if self.kind == "off":
            return shape.layers * self.layer
        products = 2 * w * (shape.queries + shape.keys + shape.hidden + shape.intermediate)
        return shape.layers * (4 * shape.hidden + (products if self.kind == "products" else 0))

    def _compiled_layer(self, kind: str) -> int:
        H, w = self.shape.hidden, width(self.bf16)
        head_norms = w * (self.shape.queries + self.shape.keys) if self.shape.head_norm else 0
        multiplied = 0 if kind == "products" else self._multiplied
        return 8 * H + head_norms + self._attention + 2 * w * (H + self.shape.intermediate) + multiplied

    @property
    def _multiplied(self) -> int:
        return width(self.bf16) * (2 * self.shape.hidden + self.shape.intermediate)

    @property
    def at_the_head(self) -> int:
        """In addition while logits exist: the last norm, the head's input, and their gradients."""
        return 20 * self.shape.hidden

    @property
    def at_a_layer(self) -> int:
        """In addition in a layer's backward pass."""
        # What is computed again, and gradients: two as wide as the MLP and two as the stream. With `products` two
        # results as wide as the MLP, and attention's, are there already.
        w, intermediate = width(self.bf16), self.shape.intermediate
        again = {"off": 0, "products": self.layer - w * (2 * intermediate + self.shape.queries), "layers": self.layer}
        if self.compiled:
            whole = self._compiled_layer("off") - 4 * self.shape.hidden
            again = {"off": 0, "products": self._multiplied, "layers": whole}
        return again[self.kind] + 2 * w * intermediate + 8 * self.shape.hidden


def width(bf16: bool) -> int:
    """Bytes of a product's factor."""
    return 2 if bf16 else 4


_BUCKET = 1 << 28  # `raypoly.learner.offload.BUCKET`, which would import torch here
CONTEXT = 3 << 29
"""1.5 GiB of a process on a GPU: context, workspaces, and what the allocator can't use. An estimate."""


def is_compiled(config: Config, layout: DeviceLayout) -> bool:
    chosen = config.train.compile
    return layout.kind != "cpu" and config.model.dtype == "bfloat16" if chosen is None else chosen


def learner_parts(config: Config, shape: ModelShape, layout: DeviceLayout) -> Iterator[MemoryPart]:
    """The parts of the rank with the most memory."""
    yield from _state(config, shape, layout)
    yield from _micro_batch(config, shape, layout)
    if layout.ranks > 1:
        yield MemoryPart("layers gathered from all ranks", 8 * shape.layer_parameters + 4 * shape.head, LEARNING)
    if layout.kind != "cpu":
        yield MemoryPart("learner: CUDA context, fragments", CONTEXT)


def _state(config: Config, shape: ModelShape, layout: DeviceLayout) -> Iterator[MemoryPart]:
    """What stays between steps."""
    # Gradients stay until the next step begins; where an engine sleeps, only until it wakes.
    trained, ranks, lora = trained_weights(config, shape), layout.ranks, config.model.lora_rank
    adapters = trained if lora else 0
    keys = () if lora else ("model.lora_rank",)
    offload = offloaded(config, layout)
    weights = ALWAYS - SAMPLING if offload == "all" else ALWAYS
    yield MemoryPart("weights (float32 masters)", _share(4 * (shape.parameters + adapters), ranks), weights)
    held = LEARNING if layout.kind == "colocated" else ALWAYS
    yield MemoryPart("gradients", _share(4 * trained, ranks), held, keys)
    if offload == "none":
        yield MemoryPart("AdamW's moments", _share(8 * trained, ranks), keys=keys)
    else:
        largest = 0 if lora else shape.head
        bucket = min(8 * trained, 12 * largest + 2 * (_BUCKET + 8 * shape.hidden * shape.intermediate))
        yield MemoryPart("moments of the bucket at work", _share(bucket, ranks), frozenset({"AdamW"}))
        yield MemoryPart("a weight or moment that is copied", 4 * shape.head, SAMPLING)
    loss = losses.of_run(config)
    if keeps_reference(config):
        own = (name for name in ("kl_coefficient", "kl_in_reward") if getattr(loss.config, name))
        key = f"loss.{next(own, 'name')}"
        yield MemoryPart("frozen reference", _share(4 * shape.parameters, ranks), weights, (key,))
    head = head_weights(config, shape)
    if head:
        yield MemoryPart("the loss's head, trained", _share(16 * head, ranks), keys=("loss.name",))
    if (ranks > 1 or offload == "all") and not layout.through_host:
        copied = shape.parameters + (shape.head if shape.tied else 0)  # a tied head is copied as well
        yield MemoryPart("whole weights for the engine", width(config.model.dtype == "bfloat16") * copied, HAND_OVER)
    elif ranks > 1:
        yield MemoryPart("a whole weight on its way to the host", 4 * shape.head, HAND_OVER)
    if lora and offload != "all":
        yield MemoryPart("merged weights", 4 * shape.layers * shape.layer_matrices, HAND_OVER)


def _micro_batch(config: Config, shape: ModelShape, layout: DeviceLayout) -> Iterator[MemoryPart]:
    train, bf16 = config.train, config.model.dtype == "bfloat16"
    kind, generator = train.activation_checkpointing, config.generator
    longest = generator.longest_row
    each = Activations(shape, bf16, kind, longest if layout.kind == "cpu" else None, is_compiled(config, layout))
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
    mib = chunk_on(layout.kind, train.logits_mib)
    chunk = 4 * shape.vocabulary * min(train.token_budget, tokens_of_chunk(shape.vocabulary, mib))
    yield MemoryPart("a chunk's logits", arrays * chunk, LOGITS, ("train.logits_mib",))
    if not config.model.lora_rank:  # a tied head's waits for the embedding's
        yield MemoryPart("the head's own gradient", 4 * shape.head, GRADIENTS if shape.tied else LOGITS)


def offloaded(config: Config, layout: DeviceLayout) -> Offloaded:
    """What leaves the learner's device: nothing where no engine shares it."""
    return config.train.offload if layout.kind == "colocated" else "none"


def page_locked_bytes(config: Config, shape: ModelShape, layout: DeviceLayout) -> int:
    """Of the host, for what all ranks of the learner keep there."""
    kind, trained = offloaded(config, layout), trained_weights(config, shape) + head_weights(config, shape)
    frozen = shape.parameters * (keeps_reference(config) + bool(config.model.lora_rank))
    return 0 if kind == "none" else 8 * trained + (4 * (trained + frozen) if kind == "all" else 0)


def keeps_reference(config: Config) -> bool:
    loss = losses.of_run(config)
    return "reference" in loss.needs or loss.config.kl_in_reward > 0


def trained_weights(config: Config, shape: ModelShape) -> int:
    """Number of trained weights: all, or the adapters'."""
    return shape.adapters(config.model.lora_rank) if config.model.lora_rank else shape.parameters


def head_weights(config: Config, shape: ModelShape) -> int:
    loss = losses.of_run(config)
    if type(loss).head is Loss.head:
        return 0
    import torch  # takes two seconds, which most losses' plans do without

    with torch.device("meta"):
        head = loss.head(shape.hidden)
    return 0 if head is None else sum(parameter.numel() for parameter in head.parameters())


def checkpoint_bytes(config: Config, shape: ModelShape) -> int:
    """Weights and moments in float32, or the adapters' alone, and the loss's head."""
    # A tied head of the model is written under both of its names.
    trained = trained_weights(config, shape) + head_weights(config, shape)
    twice = shape.head if shape.tied and not config.model.lora_rank else 0
    return 12 * trained + 4 * twice


def model_bytes(config: Config, shape: ModelShape) -> int:
    """The finished model's files. Writing them takes no more memory than one whole weight."""
    return width(config.run.model_dtype == "bfloat16") * shape.parameters


def _share(count: int, ranks: int) -> int:
    return -(-count // ranks)
