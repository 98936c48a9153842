"""The learning rate of each step. No torch here."""

from __future__ import annotations

import math

from raypoly.core.config import Shape


def learning_rate(step: int, peak: float, shape: Shape, warmup: int, begin: int, end: int) -> float:
    """The rate of `step`, counted from 0: `peak`, times a rise over `warmup` steps, times a decay from step `begin`
    towards zero at step `end`, which is later unless the shape is `constant`. With x = (step - begin) / (end - begin):

    rise     min(1, (step + 1) / warmup)
    linear   1 - x
    cosine   (1 + cos(pi x)) / 2            (arXiv:1608.03983, equation 5, without restarts)

    Step end - 1 is the last to decay. Later steps have its rate, which is above zero.
    """
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if shape == "constant":
        return peak * rise
    past, span = max(0, min(step, end - 1) - begin), end - begin
    decay = 1 - past / span if shape == "linear" else 0.5 * (1 + math.cos(math.pi * past / span))
    return peak * rise * decay
