"""What the learner's benchmark measures within so much memory, by the formulas of `raypoly train --dry-run`.

    plans = plan_within(78 * GIB, QWEN3_4B, {600: rows}, ("eager", "compiled"), DeviceLayout("split"))
    print(describe(plans, 78 * GIB))

Of the settings that fit, a plan has those that cost least work. If the whole model fits with none, the plans have fewer
layers of the same shape.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from transformers import Qwen3Config

from benchmarks import plain  # noqa: F401  (a stand-in for pydantic, before raypoly asks for it)
from raypoly.core.config import Config, GeneratorConfig, ModelConfig, TrainConfig
from raypoly.core.errors import UsageError
from raypoly.core.text import format_bytes
from raypoly.learner.compiled_layers import Recomputing
from raypoly.learner.packing import Packer, pack
from raypoly.learner.training_rows import TrainingRow
from raypoly.planning.devices import DeviceLayout
from raypoly.planning.learner_memory import DeviceMemory, learner_parts
from raypoly.planning.model_shape import ModelShape, from_config

Layers = Literal["eager", "compiled"]
KINDS: tuple[Recomputing, ...] = get_args(Recomputing)
BUDGETS = range(1024, 16_385, 1024)
MODEL = ModelConfig.model_validate({"dtype": "bfloat16"})
_SPARE = 0.03
"""Share of the memory that a plan leaves free, for what the formulas miss."""
_WORK = {"off": 1.0, "products": 1.1, "layers": 4 / 3}
"""Of a token, with what is computed again; a forward pass is a third of it. A guess for `products`."""
_MICRO_BATCH = 800
"""Tokens that take as long as adding a micro-batch's gradients to those before: 20 bytes a weight, beside 6 operations
a weight and token, at some 250 operations for each byte."""
_SPEED, _START = 3e14, {"eager": 30, "compiled": 90}
"""To reckon minutes: operations a second, a third of an H100's bf16 peak, and seconds until a learner is ready."""


@dataclass(frozen=True)
class LearnerPlan:
    """One measured update."""

    layers: Layers
    response_tokens: int
    """Of a response, in the mean."""
    rows: Sequence[TrainingRow]
    model: Qwen3Config
    train: TrainConfig
    memory: DeviceMemory
    micro_batches: int
    work: float
    """In tokens of which nothing is computed again."""

    @property
    def name(self) -> str:
        return f"{self.layers} {self.response_tokens}"


def plan_within(
    memory: int,
    model: Qwen3Config,
    loads: Mapping[int, Sequence[TrainingRow]],
    layers: Sequence[Layers],
    layout: DeviceLayout,
    logits_mib: int,
    kinds: Sequence[Recomputing] = KINDS,
    budgets: Sequence[int] = BUDGETS,
) -> list[LearnerPlan]:
    """A plan for each of `layers` and each of `loads`, rows by their mean response. All have as many layers.

    Raises `UsageError` if no budget holds the longest row, or one layer does not fit.
    """
    longest = max(row.length for rows in loads.values() for row in rows)
    if longest > max(budgets):
        raise UsageError(f"--token-budget has to be {longest} or more, the tokens of the longest row.")
    cuts = {
        (response, budget): _cut(rows, budget)
        for response, rows in loads.items()
        for budget in budgets
        if budget >= max(row.length for row in rows)
    }

    def cheapest(response: int, way: Layers, shape: Qwen3Config) -> LearnerPlan | None:
        fitting = []
        for kind in kinds:
            for budget in (budget for of, budget in cuts if of == response):
                count, tokens = cuts[response, budget]
                train = {"lr": 1e-6, "token_budget": budget, "logits_mib": logits_mib, "compile": way == "compiled"}
                config = TrainConfig.model_validate({**train, "activation_checkpointing": kind})
                held = _memory(shape, config, loads[response], layout)
                if held.needed <= (1 - _SPARE) * memory:
                    work = tokens * _WORK[kind] + count * _MICRO_BATCH
                    fitting.append(LearnerPlan(way, response, loads[response], shape, config, held, count, work))
        return min(fitting, key=lambda plan: plan.work, default=None)

    for count in range(model.num_hidden_layers, 0, -1):
        shape = first_layers(model, count)
        plans = [cheapest(response, way, shape) for way in layers for response in loads]
        if all(plans):
            return [plan for plan in plans if plan is not None]
    raise UsageError(f"Not one layer of this shape can be trained within {format_bytes(memory)}: give --gib more.")


def first_layers(model: Qwen3Config, count: int) -> Qwen3Config:
    """The model with its first `count` layers."""
    cut = copy.deepcopy(model)
    cut.num_hidden_layers, cut.layer_types = count, model.layer_types[:count]
    return cut


def micro_batches(rows: Sequence[TrainingRow], budget: int) -> Iterator[Sequence[TrainingRow]]:
    """As the learner makes them."""
    packer = Packer(budget)
    yield from packer.add(rows)
    yield from packer.flush()


def _cut(rows: Sequence[TrainingRow], budget: int) -> tuple[int, int]:
    """Micro-batches, and the tokens that they compute: a prompt once in each."""
    sizes = [pack(batch).input_ids.shape[1] for batch in micro_batches(rows, budget)]
    return len(sizes), sum(sizes)


def _memory(model: Qwen3Config, train: TrainConfig, rows: Sequence[TrainingRow], layout: DeviceLayout) -> DeviceMemory:
    longest = {
        "max_prompt_tokens": max(len(row.prompt_tokens) for row in rows),
        "max_tokens": max(len(row.tokens) for row in rows),
    }
    limits = GeneratorConfig.model_validate(longest)
    config = Config.model_validate({"train": train, "model": MODEL, "generator": limits})
    return DeviceMemory("here", tuple(learner_parts(config, _shape(model), layout)))


def describe(plans: Sequence[LearnerPlan], memory: int, whole: Qwen3Config) -> str:
    """What is measured, and each part's memory in the phase that needs most, a column for each plan."""
    return "\n".join([*_settings(plans, whole), "", *_table(plans, memory)])


def minutes(plans: Sequence[LearnerPlan]) -> float:
    """Reckoned, on an H100, with a gradient's check for each learner and a model's files."""
    operations = sum(6 * _shape(plan.model).parameters * plan.work for plan in plans)
    return (120 + operations / _SPEED + sum(_START[plan.layers] for plan in plans)) / 60


def _shape(model: Qwen3Config) -> ModelShape:
    shape = from_config(model.to_dict())
    assert shape is not None, "Qwen3 is known"
    return shape


def _settings(plans: Sequence[LearnerPlan], whole: Qwen3Config) -> Iterator[str]:
    count, of = plans[0].model.num_hidden_layers, whole.num_hidden_layers
    yield f"layers: {count} of {of}" + ("" if count == of else ", and utilisation is that of these and the head")
    for plan in plans:
        prompts = len({row.prompt_tokens.tobytes() for row in plan.rows})
        yield (
            f"{plan.name}: {len(plan.rows)} responses to {prompts} prompts, token_budget={plan.train.token_budget}, "
            f"activation_checkpointing={plan.train.activation_checkpointing}: {plan.micro_batches} micro-batches"
        )


def _table(plans: Sequence[LearnerPlan], memory: int) -> Iterator[str]:
    rows = {"memory": [plan.name for plan in plans], "largest phase": [plan.memory.peak for plan in plans]}
    for name in dict.fromkeys(part.name for plan in plans for part in plan.memory.parts):
        held = [_held(plan.memory, name) for plan in plans]
        if any(held):
            rows[name] = [format_bytes(count) for count in held]
    rows["together"] = [format_bytes(plan.memory.needed) for plan in plans]
    rows["of"] = [format_bytes(memory)] * len(plans)
    for name, cells in rows.items():
        yield f"{name:34}" + "".join(f"{cell:>14}" for cell in cells)


def _held(memory: DeviceMemory, name: str) -> int:
    """Bytes of the part of that name in the largest phase."""
    return sum(part.bytes or 0 for part in memory.parts if part.name == name and memory.peak in part.phases)
