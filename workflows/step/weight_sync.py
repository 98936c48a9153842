"""Weight sync: the learner's new weights go to every engine, and the proof that they arrived.

Each engine must give the learner's log-probabilities for two questions, since engines are known to keep a stale head
or a stale prefix cache without a word: the tokens of a fixed prompt, computed afresh; and a response sampled after that
prompt, which spans several blocks of the KV cache, where it has any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from raypoly.config import Config
from raypoly.errors import WeightsMismatch
from raypoly.seeds import derive
from raypoly.values import Int32, Problem
from workflows.step.rollouts import encode_prompts
from workflows.step.services import Services

_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest |difference| of one log-probability. Seen: 7.6e-6 in fp32, 0.095 in bf16 (vLLM against transformers)."""
_PROBE_TOKENS = 100
"""Tokens of the prompt that weight updates are verified with: more than three KV blocks of 32."""


class WeightSync:
    """From one learner to one run's engines."""

    def __init__(self, config: Config, services: Services, problems: Sequence[Problem]) -> None:
        """`problems`: whose first prompts make up the fixed one."""
        self._config, self.services, self._problems = config, services, problems
        self._probe: Int32 | None = None

    async def sync(self) -> None:
        """Return when every engine has the learner's weights. Raises `WeightsMismatch` where one has others."""
        generator, learner, config = self.services.generator, self.services.learner, self._config
        await generator.update_weights(learner, learner.version)
        tokens = await self.probe_tokens()
        probed, want_fixed = await asyncio.gather(
            generator.probe(tokens, derive(config.train.seed, "probe")), learner.logprobs(tokens[:1], tokens[1:], 1.0)
        )
        samples = {sample.tokens.tobytes(): sample.tokens for sample, _ in probed.values()}  # one, but for rounding
        logprobs = await asyncio.gather(
            *(learner.logprobs(tokens, response, config.generator.temperature) for response in samples.values())
        )
        want_sampled = dict(zip(samples, logprobs, strict=True))
        for name, (sample, fixed) in probed.items():
            difference = np.abs(sample.logprobs - want_sampled[sample.tokens.tobytes()])
            worst = max(float(np.abs(fixed - want_fixed).max()), float(difference.max()))
            if not worst <= _TOLERANCE[config.model.dtype]:
                raise WeightsMismatch(
                    f"After the update to version {learner.version} the engine {config.generator.engine} ({name}) and "
                    f"the learner differ by {worst:.3g} in a token's log-probability: the engine has stale or wrong "
                    "weights; try generator.engine=transformers and report this."
                )

    async def probe_tokens(self) -> Int32:
        """A fixed prompt: the first training prompts, end to end. Raises as `encode_prompts`."""
        if self._probe is None:
            limit = min(_PROBE_TOKENS, self._config.generator.max_prompt_tokens)
            first = await encode_prompts(self.services.generator, self._config, self._problems[:limit])
            self._probe = np.resize(np.concatenate(first), limit)
        return self._probe
