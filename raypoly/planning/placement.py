"""Placement of engines and learner, and transport of weights between them.

placement = resolve_placement(config.generator, gpus=1)     # Placement(kind="colocated", transport="ipc", on_gpu=True)
placement.applied(config.generator)                         # the engine's config without `auto`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from raypoly.core.config import GeneratorConfig, TrainConfig
from raypoly.core.errors import UsageError

Kind = Literal["colocated", "split", "cpu"]
Transport = Literal["objects", "ipc", "nccl", "gloo"]

ROUTES: Mapping[Kind, tuple[Transport, ...]] = {
    "colocated": ("ipc", "objects"),
    "split": ("nccl", "gloo", "objects"),
    "cpu": ("objects",),
}
_ON_GPU = ("ipc", "nccl")  # vLLM's own, which need GPUs
REHEARSED: Mapping[Kind, Transport] = {"colocated": "objects", "split": "gloo"}
"""Replace a GPU's on a CPU, to rehearse it."""


@dataclass(frozen=True)
class Placement:
    """A placement that fits the cluster."""

    kind: Kind
    transport: Transport
    on_gpu: bool = False

    @property
    def sleeps(self) -> bool:
        """Whether the engine frees its memory while the learner works."""
        return self.kind == "colocated"

    @property
    def gpu_share(self) -> float:
        """The share of a GPU for the learner, and for each engine."""
        return 0.0 if not self.on_gpu else 0.5 if self.sleeps else 1.0

    def applied(self, config: GeneratorConfig) -> GeneratorConfig:
        return config.model_copy(update={"placement": self.kind, "transport": self.transport})


def engine_name(number: int) -> str:
    """The actor's name. Colocated, engine N is on the GPU of the learner's rank N."""
    return f"generator-e{number}" if number else "generator"


def engine_number(name: str) -> int:
    return int(name.removeprefix("generator").removeprefix("-e") or 0)


ON_CPU = Placement("cpu", "objects")


def without_engines(gpus: int, ranks: int) -> Placement:
    """Placement of a learner alone. Raises `UsageError` where there are too few GPUs."""
    if 0 < gpus < ranks:
        raise UsageError(f"train.ranks={ranks} needs as many GPUs and the cluster has {gpus}: use fewer ranks.")
    return Placement("split" if gpus else "cpu", "objects", on_gpu=gpus > 0)


def needs_gpu(config: GeneratorConfig) -> bool:
    """Whether runs of this config can't start without a GPU."""
    return config.placement in REHEARSED and config.transport not in REHEARSED.values()


def resolve_placement(config: GeneratorConfig, gpus: int, ranks: int = 1, grows: bool = False) -> Placement:
    """The config's placement in a cluster. `grows`: an autoscaler may bring missing GPUs.

    Raises `UsageError` if it does not fit.
    """
    kind: Kind = config.placement if config.placement != "auto" else _fitting(gpus)
    needed = ranks if kind == "colocated" else ranks + config.engines
    if grows and kind != "cpu" and config.transport != "gloo":
        gpus = max(gpus, needed)
    if needs_gpu(config) and gpus == 0:
        raise UsageError(
            f"generator.placement={kind} needs a GPU and the cluster has none: use generator.placement=cpu, or "
            f"generator.transport={REHEARSED[kind]} to rehearse it without one."
        )
    if kind == "colocated" and gpus and config.engines != ranks:
        raise UsageError(
            f"generator.placement=colocated puts one engine beside each rank of the learner ({ranks}), and "
            f"generator.engines={config.engines}: use as many engines as ranks, or generator.placement=split."
        )
    if kind != "cpu" and 0 < gpus < needed:
        raise UsageError(
            f"generator.placement={kind} needs {needed} GPUs ({_shares(kind, ranks, config.engines)}) and the cluster "
            f"has {gpus}: use fewer engines or ranks, or another placement."
        )
    return Placement(kind, _route(config, kind, gpus > 0), on_gpu=kind != "cpu" and gpus > 0)


def refuse_placement(train: TrainConfig, kind: Kind) -> None:
    """Raise `UsageError` where training needs an engine on the learner's device and there is none, or the reverse."""
    if train.offload != "none" and kind != "colocated":
        raise UsageError(
            f"train.offload={train.offload} makes room for an engine on the learner's GPU, where placement {kind} has "
            "none: set train.offload=none or generator.placement=colocated."
        )
    if train.ahead and kind == "colocated":
        raise UsageError(
            "train.ahead=1 samples while the learner works, and with generator.placement=colocated they take turns on "
            "one GPU: set train.ahead=0, or generator.placement=split with a GPU for each."
        )


def _fitting(gpus: int) -> Kind:
    return "cpu" if gpus == 0 else "colocated" if gpus == 1 else "split"


def _shares(kind: Kind, ranks: int, engines: int) -> str:
    return f"one a rank of the learner, {ranks}" + (f"; one an engine, {engines}" if kind == "split" else "")


def _route(config: GeneratorConfig, kind: Kind, gpu: bool) -> Transport:
    if config.transport == "auto":
        return ROUTES[kind][0] if gpu and config.engine == "vllm" else "objects"
    if config.transport not in ROUTES[kind]:
        raise UsageError(
            f"generator.transport={config.transport} does not work with placement {kind}: use "
            f"{' or '.join(ROUTES[kind])}."
        )
    if config.transport in _ON_GPU and not (gpu and config.engine == "vllm"):
        raise UsageError(
            f"generator.transport={config.transport} needs generator.engine=vllm and a GPU: use "
            "generator.transport=objects."
        )
    return config.transport
