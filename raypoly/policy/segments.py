"""How rows lie in a packed batch, and which part of it each sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(eq=False)  # frozen ones are taken apart by torch.compile, which then compiles for each number of segments
class Segments:
    """G segments of a packed batch, and what each sees; never changed."""

    lengths: tuple[int, ...]
    prompts: tuple[int | None, ...]
    """For a response: which segment is its prompt."""
    starts: Tensor
    """int32 [G + 1]: where each segment starts, and the end."""
    seen: Tensor
    """int64: the places in S that the segments see, one segment behind the other."""
    seen_starts: Tensor
    """int32 [G + 1]: where each segment's part of `seen` starts, and the end."""

    @classmethod
    def of(cls, lengths: Sequence[int], prompts: Sequence[int | None]) -> Segments:
        """Segments of these lengths, one behind the other; each prompt comes before its responses."""
        ends = list(accumulate(lengths, initial=0))
        places = [torch.arange(start, end) for start, end in pairwise(ends)]
        seen = [
            own if prompt is None else torch.cat([places[prompt], own])
            for own, prompt in zip(places, prompts, strict=True)
        ]
        seen_ends = list(accumulate((len(part) for part in seen), initial=0))
        return cls(
            lengths=tuple(lengths),
            prompts=tuple(prompts),
            starts=torch.tensor(ends, dtype=torch.int32),
            seen=torch.cat(seen),
            seen_starts=torch.tensor(seen_ends, dtype=torch.int32),
        )

    def to(self, device: torch.device) -> Segments:
        tensors = {name: getattr(self, name).to(device) for name in ("starts", "seen", "seen_starts")}
        return replace(self, **tensors)
