"""What Ray is asked for, for the learner and for each engine."""

from __future__ import annotations

from typing import Any

import pytest
from ray.util.placement_group import PlacementGroup

from raypoly.core.config import ScorerConfig
from raypoly.planning.placement import ON_CPU, Placement
from workflows.startup.ray_cluster import ACTOR_CPUS, scorer_options
from workflows.startup.resources import ActorResources

GROUP = PlacementGroup.empty()


def bundle_of(options: dict[str, Any]) -> int:
    bundle: int = options["scheduling_strategy"].placement_group_bundle_index
    return bundle


def test_split_actors_have_a_whole_gpu_each_and_colocated_ones_half_of_theirs() -> None:
    split = ActorResources(Placement("split", "nccl", on_gpu=True), gpus=2)
    assert split.rank(0) == split.engine(1) == {"num_cpus": ACTOR_CPUS, "num_gpus": 1.0}
    paired = ActorResources(Placement("colocated", "ipc", on_gpu=True), gpus=2, group=GROUP, engine_cpus=4.0)
    assert paired.rank(1)["num_gpus"] == paired.engine(1)["num_gpus"] == 0.5
    assert paired.engine(1)["num_cpus"] == 4.0
    assert bundle_of(paired.rank(1)) == bundle_of(paired.engine(1)) == 1


def test_split_ranks_and_engines_have_bundles_of_their_own() -> None:
    split = ActorResources(Placement("split", "objects", on_gpu=True), gpus=5, group=GROUP, ranks=2)
    taken = [bundle_of(split.rank(0)), bundle_of(split.rank(1)), *(bundle_of(split.engine(i)) for i in range(3))]
    assert taken == [0, 1, 2, 3, 4]


def test_a_stages_model_has_a_part_of_the_gpu_of_the_learners_first_rank() -> None:
    for kind in (Placement("colocated", "ipc", on_gpu=True), Placement("split", "nccl", on_gpu=True)):
        found = ActorResources(kind, gpus=2, group=GROUP, models=1)
        assert (found.stage_model["num_cpus"], bundle_of(found.stage_model)) == (0.0, 0)
        beside = [found.rank(0), found.stage_model, *([found.engine(0)] if kind.sleeps else [])]
        assert sum(options["num_gpus"] for options in beside) == pytest.approx(1.0)
    on_cpu = ActorResources(Placement("colocated", "objects"), gpus=0, group=GROUP, models=1)
    assert on_cpu.stage_model == {"num_cpus": ACTOR_CPUS}


def test_an_actor_without_a_gpu_sees_none_where_there_are_some() -> None:
    assert ActorResources(ON_CPU, gpus=0).engine(0) == {"num_cpus": ACTOR_CPUS}
    hidden = ActorResources(ON_CPU, gpus=8).rank(0)
    assert "num_gpus" not in hidden
    assert hidden["runtime_env"] == {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}


def test_scorers_reserve_cores_of_a_cluster_and_share_those_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert scorer_options(ScorerConfig()) == {"num_cpus": ACTOR_CPUS, "scheduling_strategy": "SPREAD"}
    config = ScorerConfig(cpus=2.0, label="raypoly.role=scorer")
    assert scorer_options(config)["num_cpus"] == 2.0
    assert scorer_options(config)["label_selector"] == {"raypoly.role": "scorer"}
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 4.0})
    assert [scorer_options(ScorerConfig(workers=n))["num_cpus"] for n in (2, 3, 4)] == [1.0, 1.0, ACTOR_CPUS]
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert scorer_options(ScorerConfig())["num_cpus"] == ACTOR_CPUS, "a start has a Ray of its own then"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert scorer_options(ScorerConfig(workers=3), reserved=1.0)["num_cpus"] == ACTOR_CPUS
