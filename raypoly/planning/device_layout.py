"""Where engines and learner stand, by `raypoly.placement`: on the CPU, together on GPUs, or each on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raypoly.config import Config
from raypoly.placement import resolve_placement
from raypoly.planning.gpus import Device

Kind = Literal["cpu", "colocated", "split"]


@dataclass(frozen=True)
class DeviceLayout:
    """`colocated`: each engine sleeps while the rank beside it works; `split`: GPUs of their own."""

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
        return self.ranks + self.engines if self.kind == "split" else self.ranks


def layout_of(config: Config, device: Device) -> DeviceLayout:
    """What the config asks for on this machine, or on as many boards as it takes where one is only named.

    Raises `UsageError` where there are too few.
    """
    ranks, engines = config.train.ranks, config.generator.engines
    gpus = 0 if not device.gpu else device.count or _taken(config)
    found = resolve_placement(config.generator, gpus, ranks)
    kind: Kind = found.kind if found.on_gpu else "cpu"
    return DeviceLayout(kind, ranks, engines, through_host=found.transport not in ("ipc", "nccl"))


def _taken(config: Config) -> int:
    ranks, engines, placement = config.train.ranks, config.generator.engines, config.generator.placement
    return ranks if placement == "colocated" or (placement == "auto" and ranks == engines == 1) else ranks + engines
