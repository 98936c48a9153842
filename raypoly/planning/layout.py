"""Where engine and learner stand: on this machine's CPU, together on one GPU, or each on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raypoly.config import Config
from raypoly.planning.gpus import Device

Kind = Literal["cpu", "shared", "colocated", "split"]


@dataclass(frozen=True)
class Layout:
    """`shared`: engine and learner keep their memory on one GPU; `colocated`: the engine sleeps while the learner
    works; `split`: GPUs of their own."""

    kind: Kind
    ranks: int = 1
    """Of the learner; each holds its share of weights, gradients and moments."""
    engines: int = 1
    through_host: bool = True
    """Whether new weights reach the engines through the host's memory."""

    @property
    def gpus(self) -> int:
        """GPUs that a run takes."""
        if self.kind == "cpu":
            return 0
        return self.ranks + self.engines if self.kind == "split" else max(self.ranks, self.engines)


def layout_of(config: Config, device: Device) -> Layout:
    """What the config asks for on such a device. Raises `UsageError` where there are too few of it."""
    return Layout("shared" if device.gpu else "cpu")
