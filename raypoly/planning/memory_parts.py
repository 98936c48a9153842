"""Parts of a device's memory, and the phases of a step in which each is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from raypoly.planning.free_resources import GIB

Phase = Literal["sampling", "logits", "layers", "AdamW", "hand-over"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""`logits`: the end of a micro-batch's forward pass. `layers`: its backward pass."""
ALWAYS = frozenset(PHASES)
LOGITS: frozenset[Phase] = frozenset({"logits"})
LAYERS: frozenset[Phase] = frozenset({"layers"})
GRADIENTS = LOGITS | LAYERS
ADAMW: frozenset[Phase] = frozenset({"AdamW"})
HAND_OVER: frozenset[Phase] = frozenset({"hand-over"})
LEARNING = GRADIENTS | ADAMW
SAMPLING = ALWAYS - LEARNING


@dataclass(frozen=True)
class MemoryPart:
    name: str
    bytes: int | None
    """None: unknown."""
    phases: frozenset[Phase] = ALWAYS
    keys: tuple[str, ...] = ()
    """The config keys that change it."""


@dataclass(frozen=True)
class DeviceMemory:
    """All that one device holds."""

    where: str
    """`the GPU`, `the learner's GPU` ..."""
    parts: tuple[MemoryPart, ...]

    def total(self, phase: Phase) -> int:
        """Known bytes."""
        return sum(part.bytes or 0 for part in self.parts if phase in part.phases)

    @property
    def peak(self) -> Phase:
        return max(PHASES, key=self.total)

    @property
    def needed(self) -> int:
        """Known bytes at the peak."""
        return self.total(self.peak)

    @property
    def unknown(self) -> Sequence[str]:
        return [part.name for part in self.parts if part.bytes is None]

    def largest(self, phase: Phase) -> MemoryPart:
        """The largest part in a phase, among those that a key changes if there are any."""
        held = [part for part in self.parts if phase in part.phases and part.bytes]
        return max([part for part in held if part.keys] or held, key=lambda part: part.bytes or 0)


def format_bytes(count: int | None) -> str:
    """`62.3 GiB`, `3.4 MiB`, `unknown`."""
    if count is None:
        return "unknown"
    return f"{count / GIB:.1f} GiB" if count >= GIB // 10 else f"{count / (1 << 20):.1f} MiB"
