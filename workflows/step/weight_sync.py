"""Weight sync: the learner's new weights go to every engine, which proves them (`actors/weight_delivery.py`).

Engine and learner then compute the same log-probabilities: of a fixed prompt, and of a response sampled after it; both
span several blocks of the KV cache, where it has any. That covers what no hash sees, such as a stale prefix cache or
other kernels. But rounding moves single tokens further than an update does, so it is measured, and never stops a run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from raypoly.core.config import Config
from raypoly.core.seeds import derive
from raypoly.core.values import Float32, Int32, Problem
from workflows.step.scaffold_rounds import encode_prompts
from workflows.step.services import Services

_WORRYING = {"float32": 0.02, "bfloat16": 0.1}
"""Mean |difference| of a log-probability above which a note is made. With the right weights vLLM and transformers were
7.6e-6 apart at most in fp32 on a CPU, and 0.0016 in the mean on an H200, whose attention multiplies in TF32; in bf16
0.025 in the mean, while single tokens reach 0.52 (a model of 135M weights)."""
_PROBE_TOKENS = 120
"""Tokens of the fixed prompt: almost four KV blocks of 32, so that a short response reaches the fifth."""


@dataclass(frozen=True)
class ProbeDifference:
    """|engine - learner| over the probe's log-probabilities; of several engines the largest."""

    mean: float
    q99: float
    """The 0.99 quantile."""

    def row(self) -> dict[str, float | None]:
        """For the step's row of metrics; null for a number that is not finite."""
        numbers = {"probe_mean": self.mean, "probe_q99": self.q99}
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


class WeightSync:
    """From one learner to one run's engines."""

    def __init__(
        self, config: Config, services: Services, problems: Sequence[Problem], note: Callable[[str], None]
    ) -> None:
        """`problems`: whose first prompts make up the fixed one."""
        self._config, self.services, self._problems, self._note = config, services, problems, note
        self._probe: Int32 | None = None
        self._worried = self._unproved = False
        self.difference = ProbeDifference(math.nan, math.nan)
        """After the last sync; NaN before the first."""

    async def sync(self) -> None:
        """Return when every engine, if there are any, has the learner's weights. Raises `WeightsMismatch` where one has
        others."""
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
        """Set `difference`. Makes a note each time that its mean becomes worrying."""
        generator, learner, config = self.services.generator, self.services.learner, self._config
        tokens = await self.probe_tokens()
        # One after the other: on the same cores, their threads wait for each other and take many times as long.
        probed = await generator.probe(tokens, derive(config.train.seed, "probe"))
        want_fixed = await learner.logprobs(tokens[:1], tokens[1:], 1.0)
        samples = {sample.tokens.tobytes(): sample.tokens for sample, _ in probed.values()}  # one, but for rounding
        logprobs = await asyncio.gather(
            *(learner.logprobs(tokens, response, config.generator.temperature) for response in samples.values())
        )
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
        """A fixed prompt: the first training prompts, end to end. Raises as `encode_prompts`."""
        if self._probe is None:
            limit = min(_PROBE_TOKENS, self._config.generator.max_prompt_tokens)
            first = await encode_prompts(self.services.generator, self._config, self._problems[:limit])
            self._probe = np.resize(np.concatenate(first), limit)
        return self._probe


def _difference(sampled: Float32, fixed: Float32) -> ProbeDifference:
    apart = np.abs(np.concatenate([sampled, fixed]))
    return ProbeDifference(float(apart.mean()), float(np.quantile(apart, 0.99)))
