"""What several objectives count in a group's strategies.

Degenerate rollouts are no strategy: they make nobody more diverse, and have no diversity themselves.
"""

from __future__ import annotations

import numpy as np

from raypoly.values import Bool, Float64, Int32


def share_elsewhere(labels: Int32, degenerate: Bool) -> Float64:
    """Of the N - 1 other rollouts, the share that have another strategy, float64 [N]; 0 where N = 1."""
    valid = ~degenerate
    other = (labels[:, None] != labels[None, :]) & valid[:, None] & valid[None, :]
    out: Float64 = other.sum(axis=1) / max(len(labels) - 1, 1)
    return out


def cluster_sizes(labels: Int32, degenerate: Bool) -> Float64:
    """How many rollouts have a rollout's strategy, itself among them, float64 [N]; 1 for a degenerate one."""
    same = (labels[:, None] == labels[None, :]) & ~degenerate[:, None] & ~degenerate[None, :]
    out: Float64 = np.maximum(same.sum(axis=1), 1).astype(np.float64)
    return out
