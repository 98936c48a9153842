"""Ray's resources for the learner, the engines and the driver.

On GPUs all engines and ranks of a run are in one placement group, so a run has all of its GPUs or none. A colocated
pair, a rank of the learner and its engine, shares one bundle of it, and so one GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors import ray_internals
from actors.calls import result, told
from raypoly.core.config import Config
from raypoly.planning.placement import Placement, resolve_placement, without_engines
from workflows.startup.ray_cluster import ACTOR_CPUS, joins_cluster

_MODEL_SHARE = 0.1  # share of a GPU for the actor of a stage's model, by Ray's count
_OWN_CORE_SECONDS = 2.0


@dataclass(frozen=True)
class ActorResources:
    placement: Placement
    gpus: int
    """Of the cluster."""
    group: PlacementGroup | None = None
    """Of the engines and ranks; None where they may be anywhere."""
    ranks: int = 1
    """Of the learner: they have the group's first bundles."""
    engine_cpus: float = ACTOR_CPUS
    cpus: float = 0.0
    """CPUs that scorers can't have."""
    models: int = 0
    """Actors of models of stages and of the judge, on the GPU of the learner's first rank. Each has a part of every
    GPU's share."""

    def rank(self, index: int) -> dict[str, Any]:
        return self._options(ACTOR_CPUS, index)

    def engine(self, index: int) -> dict[str, Any]:
        return self._options(self.engine_cpus, index if self.placement.sleeps else self.ranks + index)

    @property
    def stage_model(self) -> dict[str, Any]:
        """Ray's options for the actor of such a model. Bundles have no CPU for it."""
        if not self.placement.on_gpu:
            return replace(self, group=None).rank(0)
        return {**self._options(0.0, 0), "num_gpus": _MODEL_SHARE}

    def _options(self, cpus: float, bundle: int) -> dict[str, Any]:
        options: dict[str, Any] = {"num_cpus": cpus}
        if self.placement.gpu_share:
            options["num_gpus"] = self.placement.gpu_share * (1 - _MODEL_SHARE * self.models)
        elif self.gpus:  # an actor that asked for no GPU may see all of them
            options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}
        if self.group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=self.group, placement_group_bundle_index=bundle
            )
        return options


async def reserve_resources(
    config: Config, note: Callable[[str], None], samples: bool = True, models: int = 0
) -> ActorResources:
    """Reserve a run's resources, which may have to wait for others or an autoscaler. `samples`: with engines; `models`:
    how many models stages and judge ask. Ray frees them when this driver disconnects. Raises `UsageError` if the
    cluster will never have them."""
    gpus, ranks, shared = int(ray.cluster_resources().get("GPU", 0)), config.train.ranks, joins_cluster()
    if samples:
        placement = resolve_placement(config.generator, gpus, ranks, shared and ray_internals.autoscales())
    else:
        placement = without_engines(gpus, ranks)
    engines = config.generator.engines if samples else 0
    if placement.kind == "cpu" and config.generator.placement == "auto" and config.model.path is not None and shared:
        note(
            "No GPU is up in this cluster: engine and learner run on CPUs. If an autoscaler is to bring GPUs, set "
            "generator.placement=colocated or split."
        )
    core = await _own_core() if shared else 0.0
    if not (placement.on_gpu or placement.sleeps):
        return ActorResources(placement, gpus, cpus=core, models=models)
    engine_cpus = _engine_cpus(config) if placement.on_gpu and shared else ACTOR_CPUS
    rank, engine = {"CPU": ACTOR_CPUS}, {"CPU": engine_cpus}
    pairs = [{"CPU": ACTOR_CPUS + engine_cpus}] * max(ranks, engines)  # as many of each on GPUs
    bundles = pairs if placement.sleeps else [rank] * ranks + [engine] * engines
    if placement.on_gpu:
        bundles = [bundle | {"GPU": 1.0} for bundle in bundles]
    # without GPUs all pairs are on one machine, whose memory they share
    group = placement_group(bundles, strategy="PACK" if placement.on_gpu else "STRICT_PACK")
    await _until_ready(group, len(bundles), placement, note)
    cpus = core + sum(bundle["CPU"] for bundle in bundles)
    return ActorResources(placement, gpus, group, ranks, engine_cpus, cpus, models)


async def _until_ready(group: PlacementGroup, size: int, placement: Placement, note: Callable[[str], None]) -> None:
    cpus = f"{max(bundle['CPU'] for bundle in group.bundle_specs):g} CPUs"

    def lacks() -> str:
        there, free = ray.cluster_resources(), ray.available_resources()
        kind = "GPU" if placement.on_gpu and free.get("GPU", 0.0) < size else "CPU"
        beside = f", each on a node with {cpus} free" if kind == "CPU" else ""
        wanted = f"{size} free GPUs{beside}" if placement.on_gpu else f"a node with {size} x {cpus}"
        grows = ": an autoscaler may bring more" if ray_internals.autoscales() else ""
        return (
            f"Waiting for {wanted} (generator.placement={placement.kind}): of {there.get(kind, 0.0):g} {kind}s in the "
            f"cluster {free.get(kind, 0.0):g} are free{grows}. `ray status` shows who has them."
        )

    await told(result(group.ready()), lacks, note)


def _engine_cpus(config: Config) -> float:
    """CPUs of an engine: its part of `scorer.spare_gpu_node`, at most half of a GPU node's."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
    if not nodes:
        return ACTOR_CPUS
    spare = min(config.scorer.spare_gpu_node, *(float(node.get("CPU", 0)) / 2 for node in nodes))
    on_one = min(config.generator.engines, int(max(node["GPU"] for node in nodes)))
    return max(ACTOR_CPUS, round(spare / on_one, 1))


async def _own_core() -> float:
    """Keep a core of the driver's node free of scorers, if other nodes have some. Returns how many are kept."""
    here = ray.get_runtime_context().get_node_id()
    cpus = {node["NodeID"]: float(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    if cpus.get(here, 0.0) < 2 or sum(cpus.values()) < cpus[here] + 1:
        return 0.0
    group = placement_group([{"CPU": 1.0}], bundle_label_selector=[{"ray.io/node-id": here}])
    ready = asyncio.ensure_future(result(group.ready()))
    if (await asyncio.wait([ready], timeout=_OWN_CORE_SECONDS))[0]:
        return 1.0
    ready.cancel()
    remove_placement_group(group)  # as it waits it would be demand, for which an autoscaler starts a node
    return 0.0
