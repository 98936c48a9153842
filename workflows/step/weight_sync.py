"""Weight sync: the learner's new weights go to every engine, which proves them (`actors/weight_delivery.py`).

Both then compute the log-probabilities of a fixed prompt, and of a response sampled after it. That covers what no hash
sees, such as a stale prefix cache or other kernels. But rounding moves single tokens further than an update does, so
the difference is measured, and never stops a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from actors.learner import LearnerActor
from raypoly.core.config import Config
from raypoly.core.seeds import derive
from raypoly.core.values import Float32, Int32, Problem
from workflows.step.scaffold_rounds import encode_prompts
from workflows.step.services import Services

# Mean |difference| of a log-probability that gives a note. With the right weights vLLM and transformers were 7.6e-6
# apart at most in fp32 on a CPU, 0.0016 in the mean on an H200, whose attention multiplies in TF32, and 0.025 in bf16,
# where single tokens reach 0.52 (135M weights).
_WORRYING = {"float32": 0.02, "bfloat16": 0.1}
_PROBE_TOKENS = 120  # of the fixed prompt: almost four KV blocks of 32, so that a short response reaches the fifth


@dataclass(frozen=True)
class ProbeDifference:
    """|engine - learner| of the probe's log-probabilities; the largest of the engines."""

    mean: float
    q99: float

    def row(self) -> dict[str, float | None]:
        """For the step's row; null for a number that is not finite."""
        numbers = {"probe_mean": self.mean, "probe_q99": self.q99}
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


class WeightSync:
    def __init__(
        self, config: Config, services: Services, problems: Sequence[Problem], note: Callable[[str], None]
    ) -> None:
        self._config, self.services, self._problems, self._note = config, services, problems, note
        self._probe: Int32 | None = None
        self._worried = self._unproved = False
        self.difference = ProbeDifference(math.nan, math.nan)
        """After the last sync."""

    async def sync(self) -> None:
        """Return when every engine has the learner's weights. Raises `WeightsMismatch`."""
        generator, learner = self.services.generator, self.services.learner
        if not generator.samples:
            return
        await generator.update_weights(learner, learner.version)
        if not generator.proved and not self._unproved:
            self._unproved = True
            self._note(
                f"The engine {self._engine} has no weight_hashes(): nothing proves that it gets the learner's weights, "
                "and log-probabilities give a warning at most."
            )
        await self._measure()

    async def _measure(self) -> None:
        generator, learner, config = self.services.generator, self.services.learner, self._config
        tokens = await self.probe_tokens()
        # One after the other: on the same cores, their threads wait for each other and take many times as long.
        probed = await generator.probe(tokens, derive(config.train.seed, "probe"))
        want_fixed = await learner.ask("update", LearnerActor.logprobs, tokens[:1], tokens[1:], 1.0)
        samples = {sample.tokens.tobytes(): sample.tokens for sample, _ in probed.values()}  # one, but for rounding
        heat = config.generator.temperature
        logprobs = [await learner.ask("update", LearnerActor.logprobs, tokens, each, heat) for each in samples.values()]
        want_sampled = dict(zip(samples, logprobs, strict=True))
        found = {
            name: _difference(sample.logprobs - want_sampled[sample.tokens.tobytes()], fixed - want_fixed)
            for name, (sample, fixed) in probed.items()
        }
        self.difference = ProbeDifference(*np.max([(each.mean, each.q99) for each in found.values()], axis=0).tolist())
        worried = not self.difference.mean <= _WORRYING[config.model.dtype]
        if worried and not self._worried:
            name = max(found, key=lambda name: found[name].mean)
            self._note(
                f"After the update to version {learner.version} the engine {self._engine} ({name}) and the learner "
                f"differ by {self.difference.mean:.3g} in the mean log-probability of a token, far more than rounding "
                "does: compare with generator.engine=transformers."
            )
        self._worried = worried

    @property
    def _engine(self) -> str:
        return self._config.generator.engine

    async def probe_tokens(self) -> Int32:
        """The first training prompts, end to end. Raises as `encode_prompts`."""
        if self._probe is None:
            limit = min(_PROBE_TOKENS, self._config.generator.max_prompt_tokens)
            first = await encode_prompts(self.services.generator, self._config, self._problems[:limit])
            self._probe = np.resize(np.concatenate(first), limit)
        return self._probe


def _difference(sampled: Float32, fixed: Float32) -> ProbeDifference:
    apart = np.abs(np.concatenate([sampled, fixed]))
    return ProbeDifference(float(apart.mean()), float(np.quantile(apart, 0.99)))
