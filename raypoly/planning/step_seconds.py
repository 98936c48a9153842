"""The time of a step on a GPU, by stage. This is an unmeasured first guess, which `--rehearse` replaces.

Sampling. A decoding step of b sequences reads all weights and every sequence's cache once, and multiplies 2 P b times:
    seconds = max((w P + b c k) / (bandwidth READING), 2 P b / (flops MULTIPLYING)) + LAUNCH
with w the bytes of a weight, c the mean length so far and k the bytes of a token's cache. All sequences are assumed
equally long; prompts are read once for each problem (the engine keeps prefixes).

Gradients. 2 operations a weight and token forward and 4 backward, those of the layers once more where they are computed
again; the head at response tokens, whose logits are computed twice, 8; attention 6 L A (length^2) and its repetition.
    seconds = operations / (flops TRAINING)

Log-probabilities behind several prompts, if the objective needs them: only the forward operations, of every response
behind each of its group's prompts.

AdamW reads and writes 28 bytes a trained weight, and the hash of a weight, for the digest of all, 40.

Hand-over: 4 bytes a weight, through the host copied COPIES times at HOST bytes a second, else read and written once.

Scoring and judging are the programs' and the server's own time: unknown before they run. They hide behind sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.planning.engine_memory import engine_room
from raypoly.planning.gpus import Device, DeviceLayout
from raypoly.planning.learner_memory import is_compiled, trained_weights, width
from raypoly.planning.model_shape import ModelShape
from raypoly.rollouts import scaffolds
from raypoly.rollouts.planned_rows import planned_rows
from raypoly.rollouts.scaffolds.planned_prompts import distinct_prompts

_READING = 0.6
"""Share of the memory's bandwidth that decoding reaches."""
_MULTIPLYING = 0.5
"""Share of the board's peak that large products reach."""
_TRAINING = {False: 0.29, True: 0.45}
"""The learner's share of it, as PyTorch runs its layers, and compiled: measured on an H200 (docs/gpu.md)."""
_LAUNCH = 4e-3
"""Seconds of a decoding step beside reading: launches, and one random draw a sequence with a seed of its own."""
HOST, COPIES = 5e9, 3
"""Bytes a second of a copy from or within the host, and copies of a weight on its way from learner to engine."""
_HASHING = 40
"""Bytes that the hash of a float32 weight reads and writes."""


@dataclass(frozen=True)
class StepSeconds:
    """Seconds by stage."""

    sampling: float
    gradients: float
    update: float
    """AdamW and the digest of the weights."""
    hand_over: float
    crossing: float = 0.0
    """Log-probabilities behind several prompts."""

    @property
    def total(self) -> float:
        """The total without scoring and judging, with the learner after all sampling."""
        return self.sampling + self.crossing + self.gradients + self.update + self.hand_over


def step_seconds(
    config: Config, shape: ModelShape, device: Device, layout: DeviceLayout, response: int
) -> StepSeconds | None:
    """The seconds of a step whose responses have `response` tokens each, with prompts at their limit.

    None if the device's speed or the engine is unknown, or if products are in float32.
    """
    if not device.gpu or device.flops is None or config.model.dtype != "bfloat16":
        return None
    train, objective, scaffold = config.train, objectives.of_run(config), scaffolds.of_run(config)
    each, drafts = distinct_prompts(scaffold, train.rollouts), scaffold.planned_drafts(train.rollouts)
    prompts, rollouts = train.prompts_per_step * each, train.prompts_per_step * planned_rows(config)
    sampled = train.prompts_per_step * (scaffold.planned_attempts(train.rollouts) + drafts)
    sampling = sampling_seconds(config, shape, device, layout, prompts, sampled, response)
    if sampling is None:
        return None
    speed = device.flops * _TRAINING[is_compiled(config, layout)] * layout.ranks
    crossed = each * rollouts if "cross_logprobs" in objective.needs else 0
    trained, parameters = trained_weights(config, shape), shape.parameters
    digested = trained if config.model.lora_rank else parameters + shape.tied * shape.head
    return StepSeconds(
        sampling=sampling,
        gradients=operations(config, shape, prompts, rollouts, response) / speed,
        update=(28 * trained / layout.ranks + _HASHING * digested) / _bandwidth(device),
        hand_over=4 * parameters * (COPIES / HOST if layout.through_host else 2 / _bandwidth(device)),
        crossing=forward_operations(config, shape, prompts, crossed, response) / speed if crossed else 0.0,
    )


def sampling_seconds(
    config: Config, shape: ModelShape, device: Device, layout: DeviceLayout, prompts: int, responses: int, length: int
) -> float | None:
    """Seconds of sampling so many responses in one submission; None if the device or the engine is unknown."""
    space = engine_room(config, shape, device)
    if space is None or config.generator.engine != "vllm" or device.flops is None or config.model.dtype != "bfloat16":
        return None
    share = -(-responses // layout.engines)
    prompt = config.generator.max_prompt_tokens
    at_once = max(1.0, min(share, config.generator.max_sequences, space.tokens / (prompt + length)))
    w, mean = width(config.model.dtype == "bfloat16"), prompt + length / 2
    read = w * shape.parameters + at_once * mean * shape.cache_bytes(w)
    multiplied = 2 * shape.parameters * at_once
    a_step = max(read / _bandwidth(device), multiplied / (device.flops * _MULTIPLYING)) + _LAUNCH
    prefill = 2 * shape.parameters * prompt * prompts / layout.engines / (device.flops * _MULTIPLYING)
    return share * length / at_once * a_step + prefill


def operations(config: Config, shape: ModelShape, prompts: int, rollouts: int, response: int) -> float:
    """Floating-point operations of a step's gradients; a prompt is computed once for a group's responses behind it."""
    times = 8 if config.train.activation_checkpointing == "layers" else 6
    return _operations(config, shape, prompts, rollouts, response, (times, 8))


def forward_operations(config: Config, shape: ModelShape, prompts: int, responses: int, length: int) -> float:
    """Floating-point operations of a forward pass over so many responses."""
    return _operations(config, shape, prompts, responses, length, (2, 2))


def _operations(
    config: Config, shape: ModelShape, prompts: int, responses: int, length: int, times: tuple[int, int]
) -> float:
    """`times`: operations a weight and token, in the layers and in the head."""
    prompt, (in_layers, in_head) = config.generator.max_prompt_tokens, times
    tokens = prompts * prompt + responses * length
    pairs = prompts * prompt**2 + responses * (length**2 + 2 * length * prompt)
    body = in_layers * shape.layers * (shape.layer_matrices * tokens + shape.queries * pairs)
    return float(body + in_head * shape.head * responses * length)


def _bandwidth(device: Device) -> float:
    assert device.bandwidth is not None, "a board whose products are known has a known memory"
    return device.bandwidth * _READING
