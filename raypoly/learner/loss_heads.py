"""A loss's head: a module trained beside the policy that reads the mean of each prompt's last hidden states.

head = make_head(loss, hidden_size, seed)                           # None for a loss without one
head_S = run_head(head, prompt_means(hidden_SH, segments))    # a number a response
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import Module

from raypoly.algorithms.losses.loss import Loss
from raypoly.core.errors import UsageError
from raypoly.learner.packing import Segments

PREFIX = "loss_head."
"""Starts the names of the head's weights in a checkpoint and a digest."""


def make_head(loss: Loss, hidden_size: int, seed: int) -> Module | None:
    """The loss's head on the host; None for a loss without one.

    The same seed draws the same weights on every device. There is no dropout, since a step must be repeatable. Raises
    `UsageError` if the loss's `needs` lacks `prompt_hidden`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = loss.head(hidden_size)
    if head is None:
        return None
    if "prompt_hidden" not in loss.needs:
        raise UsageError(
            f"The loss {type(loss).__name__} has a head, which reads `prompt_hidden`: its `needs` must name it."
        )
    return head.eval()


def named_weights(head: Module | None) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The head's parameters by their names in a checkpoint; none without a head."""
    if head is not None:
        yield from ((f"{PREFIX}{name}", parameter) for name, parameter in head.named_parameters())


def run_head(head: Module, prompt_hidden_SH: Tensor) -> Tensor:
    """The head's output: a copy, not a view, since FSDP puts hooks on it."""
    output: Tensor = head(prompt_hidden_SH)
    return output.clone()


def prompt_means(hidden_SH: Tensor, segments: Segments) -> Tensor:
    """The mean over each response's prompt, [responses, H], in the order of the responses, with gradient."""
    starts = list(accumulate(segments.lengths, initial=0))
    prompts = [i for i, prompt in enumerate(segments.prompts) if prompt is None]
    exact = torch.promote_types(hidden_SH.dtype, torch.float32)
    mean_PH = torch.stack([hidden_SH[starts[i] : starts[i + 1]].mean(0, dtype=exact) for i in prompts])
    place = {segment: i for i, segment in enumerate(prompts)}
    read_by = [place[prompt] for prompt in segments.prompts if prompt is not None]
    return mean_PH.index_select(0, torch.tensor(read_by, device=mean_PH.device))
