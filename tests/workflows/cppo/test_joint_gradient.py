"""CPPO's joint update, from sampled groups to the gradient of a real model in float64: it is the plans' part and the
attempts' part, and a region of weight zero has none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors

from raypoly.algorithms.losses import Loss, Tokens, of_run
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import Rollout
from raypoly.learner import policy_learner
from raypoly.learner.checkpoint_state import OPTIMIZER
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts.engines import SampleRequest
from tests.support.random_model import random_model
from tests.support.random_rows import NORMALISERS, random_rows
from tests.support.sample_groups import make_group
from tests.support.timed_run import close_run
from tests.support.timed_services import timed_program
from tests.support.virtual_clock import run_virtual
from tests.workflows.cppo.test_gate import OWN
from tests.workflows.step.virtual_run import SMALL, Recorded, Recorder, Sampler, open_virtual
from workflows.startup.run_parts import NamedParts
from workflows.step.advantages import AdvantageEstimator
from workflows.step.training_group import TrainingGroup
from workflows.train import Training

GRADIENT = ("train.betas=[0,0.999]", "train.max_grad_norm=1e9", "train.lr=0.001")
"""With these AdamW's first moment is the gradient itself."""
PLAN = 7
"""The first token of a plan's prompt."""

Key = tuple[bytes, bytes]


@dataclass(frozen=True)
class Update:
    """What the learner did in a step."""

    gradient: dict[str, torch.Tensor]
    """By parameter."""
    of_tokens: dict[Key, torch.Tensor]
    """Of each row, by prompt and response: the gradient of its tokens' log-probabilities."""
    plans: frozenset[Key]
    stats: UpdateStats
    normalisers: Normalisers


class ModelRecorder(Recorder):
    """A learner's actor over a real model in float64."""

    def __init__(self, learner: PolicyLearner) -> None:
        super().__init__()
        self.learner, self.rows = learner, list[TrainingRow]()

    async def begin(self, step: int, normalisers: Normalisers) -> None:
        self.normalisers = normalisers
        self.learner.begin(step, normalisers)

    async def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        self.rows += rows
        self.learner.accumulate(rows)

    async def apply(self) -> UpdateStats:
        self.stats = self.learner.apply()
        return self.stats

    async def digest(self) -> str:
        return self.learner.digest()


class WordSampler(Sampler):
    """Tokens are the model's words; half of the programs pass, by their seeds. The engine is off by some noise."""

    learner: PolicyLearner

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        async for slot, rollouts in super().sample(requests):
            yield slot, tuple(map(self._worded, rollouts))

    def _worded(self, rollout: Rollout) -> Rollout:
        rng = np.random.default_rng(rollout.seed)
        tokens = rng.integers(PLAN + 1, 200, rng.integers(2, 7)).astype(np.int32)
        logp = self.learner.logprobs(rollout.prompt_tokens, tokens, 1.0)
        off = rng.normal(0.0, 0.3, len(tokens)).astype(np.float32)
        text = timed_program(2.0 if rng.random() < 0.5 else 0.01, 1.0, str(rollout.seed))
        return replace(rollout, tokens=tokens, logprobs=logp + off, text=text)


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Update]]:
    """The same step of three runs: `joint`, `attempts` alone, `plans` alone."""
    weights = {"joint": (), "attempts": ("objective.plan_weight=0",), "plans": ("objective.solver_weight=0",)}
    model = random_model(tmp_path_factory.mktemp("model"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(policy_learner, "load_model", partial(in_float64, policy_learner.load_model))
        yield {name: update(tmp_path_factory.mktemp(name), model, own) for name, own in weights.items()}


def in_float64(read: Callable[..., Any], *given: Any) -> Any:
    """The model, with PyTorch's norm in place of transformers', which goes through float32."""
    model = read(*given)
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "Qwen3RMSNorm":
            norm = torch.nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon)
            norm.weight = module.weight
            model.set_submodule(name, norm)
    return model.double()


def learner_of(model: Path, config: Config) -> PolicyLearner:
    """A policy that has left its reference, at version 0."""
    one = PolicyLearner(model, config.train, of_run(config), 1.0)
    one.begin(0, NORMALISERS)
    one.accumulate(random_rows())
    one.apply()
    one.version = 0
    return one


def update(folder: Path, model: Path, weights: Sequence[str]) -> Update:
    """One step of a run, through program, gate, scorer, objective and loss."""
    overrides = [*OWN, *GRADIENT, *weights]
    learner = learner_of(model, load(None, [*SMALL, *overrides], str))
    seen, total = list[torch.Tensor](), Loss.total

    def noted(self: Loss, tokens: Tokens) -> torch.Tensor:
        tokens.logp_T.retain_grad()
        seen.append(tokens.logp_T)
        return total(self, tokens)

    class Session(Recorded):
        def made(self) -> Recorder:
            return ModelRecorder(learner)

    async def step() -> ModelRecorder:
        opened = await open_virtual(folder, {"p1"}, overrides, learning=Session)
        services: Any = opened.services
        services.generator = generator = WordSampler({"p1"}, shared=True)
        generator.learner = learner
        await Training(opened).step(0)
        await close_run(opened)
        found: ModelRecorder = services.learner.recorder
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Loss, "total", noted)
        done = run_virtual(step())
    moments = load_safetensors(learner.save()[OPTIMIZER])
    gradients = torch.cat([logp_T.grad for logp_T in seen if logp_T.grad is not None])
    keys = [(row.prompt_tokens.tobytes(), row.tokens.tobytes()) for row in done.rows]
    return Update(
        {name.partition("|")[0]: moment for name, moment in moments.items() if name.endswith("|exp_avg")},
        dict(zip(keys, gradients.split([len(row.tokens) for row in done.rows]), strict=True)),
        frozenset(key for key, row in zip(keys, done.rows, strict=True) if row.prompt_tokens[0] == PLAN),
        done.stats,
        done.normalisers,
    )


def test_the_joint_gradient_is_that_of_plans_and_that_of_attempts(updates: dict[str, Update]) -> None:
    joint, attempts, plans = (updates[name] for name in ("joint", "attempts", "plans"))
    measured = joint.stats.measured
    assert measured.kl_reference > 1e-3
    assert min(measured.ratio_clipped_low, measured.ratio_clipped_high) > 0
    assert joint.normalisers == attempts.normalisers == plans.normalisers
    assert joint.normalisers.rollouts == 6, "N + M planned rows, whichever of them there are"
    for name, gradient in joint.gradient.items():
        assert gradient.dtype == torch.float64
        parts = plans.gradient[name] + attempts.gradient[name]
        torch.testing.assert_close(gradient, parts, rtol=0, atol=1e-10)
    for part in (plans, attempts):
        assert part.gradient.keys() == joint.gradient.keys()
        assert max(float(gradient.abs().max()) for gradient in part.gradient.values()) > 1e-3


def test_a_region_of_weight_zero_gives_no_token_a_gradient_and_leaves_the_others_theirs(
    updates: dict[str, Update],
) -> None:
    joint, attempts, plans = (updates[name] for name in ("joint", "attempts", "plans"))
    assert (len(joint.of_tokens), len(joint.plans)) == (24, 8), "4 problems of 2 plans and 4 attempts"
    assert plans.of_tokens.keys() == joint.plans, "attempts do not reach the loss, nor its KL term"
    assert attempts.of_tokens.keys() == joint.of_tokens.keys() - joint.plans
    for part in (plans, attempts):
        for row, gradient in part.of_tokens.items():
            torch.testing.assert_close(gradient, joint.of_tokens[row], rtol=0, atol=1e-10)
            assert gradient.any()


@pytest.mark.parametrize("size", [4, 0])
def test_drafts_that_differ_from_zero_by_rounding_alone_teach_nothing(size: int) -> None:
    """Seven equal plans gave CPPO advantages of 1e-10. A planner that is trained alone has no attempts."""
    config = load(
        None, ["objective.name=cppo", "scaffold.name=tuple", "loss.name=clipped_surrogate"], lambda text: None
    )
    parts = NamedParts.build(config)
    estimator = AdvantageEstimator(parts.objective, parts.scaffold, parts.rewards)
    group, zeros = make_group(0, 0, size), np.zeros(size)
    for of_drafts, silent in ((1.1e-10, True), (0.1, False)):
        trained = TrainingGroup(group, zeros, zeros, draft_advantages=np.full(2, of_drafts))
        assert estimator.silent(trained) is silent
