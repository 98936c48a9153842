"""The proof that an engine has the learner's weights: both give the same log-probabilities.

Two questions, since engines are known to keep a stale head or a stale prefix cache without a word: the tokens of a
fixed prompt, computed afresh; and a response sampled after that prompt, which spans several blocks of the KV cache,
where it has any.
"""

from __future__ import annotations

import asyncio

import numpy as np

from actors.generator import Generator
from raypoly.config import Config
from raypoly.errors import WeightsMismatch
from raypoly.seeds import derive
from raypoly.values import Int32
from workflows.step.learner_session import LearnerSession

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""Largest |difference| of one log-probability. Seen: 7.6e-6 in fp32, 0.095 in bf16 (vLLM against transformers)."""


async def verify_weights(generator: Generator, learning: LearnerSession, tokens: Int32, config: Config) -> None:
    """Raise `WeightsMismatch` where the log-probabilities of any engine are not the learner's."""
    probed, want_fixed = await asyncio.gather(
        generator.probe(tokens, derive(config.train.seed, "probe")), learning.logprobs(tokens[:1], tokens[1:], 1.0)
    )
    samples = {sample.tokens.tobytes(): sample.tokens for sample, _ in probed.values()}  # one, but for rounding
    logprobs = await asyncio.gather(
        *(learning.logprobs(tokens, response, config.generator.temperature) for response in samples.values())
    )
    want_sampled = dict(zip(samples, logprobs, strict=True))
    for name, (sample, fixed) in probed.items():
        difference = np.abs(sample.logprobs - want_sampled[sample.tokens.tobytes()])
        worst = max(float(np.abs(fixed - want_fixed).max()), float(difference.max()))
        if not worst <= TOLERANCE[config.model.dtype]:
            raise WeightsMismatch(
                f"After the update to version {learning.version} the engine {config.generator.engine} ({name}) and "
                f"the learner differ by {worst:.3g} in a token's log-probability: the engine has stale or wrong "
                "weights; try generator.engine=transformers and report this."
            )
