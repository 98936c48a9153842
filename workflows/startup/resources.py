"""Ray's resources for the learner and the engines, by their placement.

    resources = reserve_resources(config)
    Generator(config, model_path, resources.options, context, resources.placement)

A colocated pair, a rank of the learner and its engine, shares one bundle of a placement group, and so one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raypoly.config import Config
from raypoly.errors import RaypolyError
from raypoly.placement import Placement, resolve_placement
from workflows.startup.ray_cluster import ACTOR_CPUS

WAIT_SECONDS = 300.0
"""How long to wait for a busy cluster to give the bundles of a colocated run."""


@dataclass(frozen=True)
class ActorResources:
    """The reserved resources of the policy's actors."""

    placement: Placement
    gpus: int
    """How many GPUs the cluster has."""
    group: Any = None
    """The placement group; None if no actors are colocated."""

    def options(self, index: int) -> dict[str, Any]:
        """Ray's options for the engine, and for the learner's rank, with this index."""
        options: dict[str, Any] = {"num_cpus": ACTOR_CPUS}
        if self.placement.gpu_share:
            options["num_gpus"] = self.placement.gpu_share
        elif self.gpus:  # an actor that asked for no GPU may see all of them
            options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}
        if self.group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=self.group, placement_group_bundle_index=index
            )
        return options


def reserve_resources(config: Config) -> ActorResources:
    """Reserve the resources for a config. Ray frees them when this driver disconnects.

    Raises `UsageError` if the cluster does not have them, `RaypolyError` if they are in use for too long.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    placement = resolve_placement(config.generator, gpus, config.train.ranks)
    if not placement.sleeps:
        return ActorResources(placement, gpus)
    bundle = {"CPU": 2 * ACTOR_CPUS} | ({"GPU": 1.0} if placement.on_gpu else {})
    # without GPUs all pairs are on one machine, whose memory they share
    strategy = "PACK" if placement.on_gpu else "STRICT_PACK"
    pairs = max(config.generator.engines, config.train.ranks)
    group = placement_group([bundle] * pairs, strategy=strategy)
    if not group.wait(WAIT_SECONDS):
        raise RaypolyError(
            f"The cluster had no room for generator.placement=colocated ({pairs} x {bundle}) in {WAIT_SECONDS:.0f} s: "
            "end what holds it (`ray status` shows it), then run the same command again."
        )
    return ActorResources(placement, gpus, group)
