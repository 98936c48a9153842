"""TRL's side: `GRPOTrainer` as its package has it, told when to do a step, and its update alone.

Given the settings that are fastest here: no gradient checkpointing (its default), no logs, as many rows at once as the
setting says.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.steps.graders import GRADERS, Grader
from benchmarks.steps.setting import Setting
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from raypoly.data.formats import program_of
from raypoly.data.problem_order import EpochOrder
from raypoly.learner.training_rows import TrainingRow
from raypoly.verifier.code_extraction import extract_code
from tests.support.paced_process import Pace
from tests.support.step_tables import MeasuredStep
from workflows.step.stopwatch import Stopwatch

STEPS = 60
"""Whose prompts are laid out; more than are measured."""
DTYPES: Mapping[str, Mapping[str, Any]] = {
    "float32": {"bf16": False, "model_init_kwargs": {"dtype": "float32"}},
    "bfloat16": {"bf16": True, "model_init_kwargs": {"dtype": "float32"}},
    "bfloat16 weights": {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}},
}
"""`bfloat16` is TRL's default and what raypoly's is: products in bfloat16, all else in float32. With `bfloat16 weights`
weights, gradients and moments are rounded too, and small updates are lost."""


def config_of(setting: Setting, folder: str, **changes: Any) -> GRPOConfig:
    """Dr.GRPO's loss: no std, divided by the longest response, no KL; one update a batch: no ratio is clipped."""
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=setting.trl_rows,
        gradient_accumulation_steps=setting.sequences // setting.trl_rows,
        num_generations=setting.rollouts,
        max_completion_length=setting.max_tokens,
        temperature=setting.temperature,
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.0,
        learning_rate=setting.lr,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        max_steps=STEPS,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        use_cpu=True,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **DTYPES[setting.trl_dtype],
        **changes,
    )


class _Trainer(GRPOTrainer):
    """Counts what enters the loss. With `fixed` it neither samples nor scores: that batch is every step's."""

    fixed: Mapping[str, torch.Tensor] | None = None
    rows = tokens = 0
    grad_norm: float | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.watch = Stopwatch(clock=time.monotonic)

    def _generate(self, *arguments: Any, **named: Any) -> Any:
        with self.watch.stage("generate"):
            return super()._generate(*arguments, **named)

    def _calculate_rewards(self, *arguments: Any, **named: Any) -> Any:
        with self.watch.stage("score"):
            return super()._calculate_rewards(*arguments, **named)

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        self.rows += inputs["completion_ids"].size(0)
        self.tokens += int(inputs["completion_mask"].sum())
        return super().compute_loss(model, inputs, *arguments, **named)

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        loss = super().training_step(*arguments, **named)
        if self.fixed is not None and self.state.global_step == 0:
            norms = [parameter.grad.norm() for parameter in self.model.parameters() if parameter.grad is not None]
            self.grad_norm = float(torch.stack(norms).norm())
        return loss

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        if self.fixed is None:
            return super()._generate_and_score_completions(inputs)
        return dict(self.fixed)


class _Paced(TrainerCallback):
    """A step begins at the word and ends when the optimizer has made it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.trainer: _Trainer
        self.rewards: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        self._pace.ready()
        self._wait(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        seconds, trainer = time.perf_counter() - self._begin, self.trainer
        sampled = args.per_device_train_batch_size * args.gradient_accumulation_steps
        reward = float(np.mean(self.rewards)) if self.rewards else None
        stages = {stage: spent for stage, spent in trainer.watch.waterfall().seconds.items() if stage != "total"}
        stages["learn"] = seconds - sum(stages.values())
        norm = trainer.grad_norm if state.global_step == 1 else None
        self._pace.done(MeasuredStep(seconds, sampled, trainer.rows, trainer.tokens, reward, stages, norm))
        trainer.rows = trainer.tokens = 0
        trainer.watch = Stopwatch(clock=time.monotonic)
        self.rewards.clear()
        self._wait(control)

    def _wait(self, control: Any) -> None:
        control.should_training_stop = not self._pace.next()
        self._begin = time.perf_counter()


def step_by_step(setting: Setting, engine: str, grader: str, pace: Pace) -> None:
    """Whole steps: the prompts of raypoly's step of the same number, programs run as `GRADERS` has it."""
    changes: dict[str, Any] = {}
    if engine == "vllm":
        changes = {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_max_model_length": setting.max_prompt_tokens + setting.max_tokens,
        }
    problems = build_problem_set(setting.problems).splits["train"]
    order = EpochOrder(problems, setting.prompts, seed=0)
    rows = [{"prompt": p.prompt, "problem": p.id} for step in range(STEPS) for p in order.batch(step)]
    paced = _Paced(pace)
    with GRADERS[grader](setting.workers) as passed:
        reward = executed(passed, {problem.id: problem for problem in problems}, paced.rewards)
        _train(setting, setting.trl_threads, rows, reward, paced, None, changes)


def updates(setting: Setting, rows: Sequence[TrainingRow], pace: Pace) -> None:
    """Updates on these rows: forward and backward pass, clipping, AdamW."""
    asked = [{"prompt": "-"}] * setting.prompts * STEPS

    def reward(completions: Sequence[str], **named: Any) -> list[float]:
        return [0.0] * len(completions)

    _train(setting, setting.threads, asked, reward, _Paced(pace), batch(rows))


def executed(passed: Grader, problems: Mapping[str, Problem], rewards: list[float]) -> Callable[..., list[float]]:
    """1 where every test passes, else 0; the rewards are kept in `rewards` too."""

    def reward(completions: Sequence[str], problem: Sequence[str], **named: Any) -> list[float]:
        asked = [(problems[name], text) for name, text in zip(problem, completions, strict=True)]
        found = [(p, extract_code(p, text)) for p, text in asked]
        programs = [(p, None if code is None else program_of(p, code)) for p, code in found]
        got = [float(each) for each in passed(programs)]
        rewards.extend(got)
        return got

    return reward


def batch(rows: Sequence[TrainingRow]) -> dict[str, torch.Tensor]:
    """The rows as TRL pads them: prompts on the left, completions on the right."""
    prompts = max(len(row.prompt_tokens) for row in rows)
    longest = max(len(row.tokens) for row in rows)
    out = {
        "prompt_ids": np.ones((len(rows), prompts), np.int64),
        "prompt_mask": np.zeros((len(rows), prompts), np.int64),
        "completion_ids": np.ones((len(rows), longest), np.int64),
        "completion_mask": np.zeros((len(rows), longest), np.int64),
    }
    for place, row in enumerate(rows):
        out["prompt_ids"][place, prompts - len(row.prompt_tokens) :] = row.prompt_tokens
        out["prompt_mask"][place, prompts - len(row.prompt_tokens) :] = 1
        out["completion_ids"][place, : len(row.tokens)] = row.tokens
        out["completion_mask"][place, : len(row.tokens)] = 1
    tensors = {name: torch.from_numpy(array) for name, array in out.items()}
    tensors["advantages"] = torch.tensor([row.advantage for row in rows])
    tensors["num_items_in_batch"] = tensors["completion_mask"].sum()
    return tensors


def _train(
    setting: Setting,
    threads: int,
    asked: list[dict[str, str]],
    reward: Callable[..., list[float]],
    paced: _Paced,
    fixed: Mapping[str, torch.Tensor] | None,
    changes: Mapping[str, Any] | None = None,
) -> None:
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(setting, folder, **(changes or {}))
        trainer = _Trainer(
            model=str(setting.model),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(asked),
            callbacks=[paced],
        )
        trainer.fixed, paced.trainer = fixed, trainer
        trainer.train()
