"""Log-probabilities of responses behind each of several prompts, without gradients.

    crossed(prompts, responses, Dealer(8192), ONE, forward)      # float32 [P, T] for each response

Rows go prompt by prompt, so that neighbours share it, in micro-batches as for training; several ranks compute one part
each of every round of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from raypoly.policy.rank_partition import RankPartitioner
from raypoly.policy.ranks import Ranks
from raypoly.policy.training_rows import TrainingRow
from raypoly.values import Float32, Int32


def crossed(
    prompts: Sequence[Int32],
    responses: Sequence[Int32],
    dealer: RankPartitioner,
    ranks: Ranks,
    forward: Callable[[Sequence[TrainingRow]], Float32],
) -> tuple[Float32, ...]:
    """Float32 [P, T] for each response of T tokens; none on other ranks than the first, whose parts it has.

    `forward` gives the float32 log-probabilities of these rows' response tokens, one row behind the other; all ranks
    call it together, also with no rows.
    """
    rows = [
        TrainingRow(prompt, tokens, np.zeros(len(tokens), np.float32), 0.0, 0)
        for prompt in prompts
        for tokens in responses
        if len(tokens)
    ]
    rounds = [forward(part) for batches in (dealer.add(rows), dealer.flush()) for part in batches]
    parts = ranks.gather(rounds)
    if ranks.rank:
        return ()
    flat = np.concatenate([part for dealt in zip(*parts, strict=True) for part in dealt] or [np.zeros(0, np.float32)])
    lengths = [len(tokens) for tokens in responses]
    by_prompt = [np.split(behind, np.cumsum(lengths)[:-1]) for behind in flat.reshape(len(prompts), sum(lengths))]
    return tuple(np.stack(behind_each) for behind_each in zip(*by_prompt, strict=True))
