"""Log-probabilities of responses behind each of several prompts, without gradients.

    compute_cross_logprobs(prompts, responses, RankPartitioner(8192), ONE, forward)    # float32 [P, T] a response

Rows are ordered by prompt, so that neighbours share one, and form micro-batches as in training. Each rank computes its
part of every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from raypoly.core.values import Float32, Int32
from raypoly.learner.packing import RankPartitioner
from raypoly.learner.ranks import Ranks
from raypoly.learner.training_rows import TrainingRow


def compute_cross_logprobs(
    prompts: Sequence[Int32],
    responses: Sequence[Int32],
    partition: RankPartitioner,
    ranks: Ranks,
    forward: Callable[[Sequence[TrainingRow]], Float32],
) -> tuple[Float32, ...]:
    """Log-probabilities, float32 [P, T], for each response of T tokens. Other ranks than the first return ().

    `forward` gives the float32 log-probabilities of its rows' response tokens, concatenated. All ranks call it
    together, also without rows.
    """
    rows = [
        TrainingRow(prompt, tokens, np.zeros(len(tokens), np.float32), 0.0, 0)
        for prompt in prompts
        for tokens in responses
        if len(tokens)
    ]
    rounds = [forward(part) for batches in (partition.add(rows), partition.flush()) for part in batches]
    parts = ranks.gather(rounds)
    if ranks.rank:
        return ()
    flat = np.concatenate([part for dealt in zip(*parts, strict=True) for part in dealt] or [np.zeros(0, np.float32)])
    lengths = [len(tokens) for tokens in responses]
    by_prompt = [np.split(behind, np.cumsum(lengths)[:-1]) for behind in flat.reshape(len(prompts), sum(lengths))]
    return tuple(np.stack(behind_each) for behind_each in zip(*by_prompt, strict=True))
