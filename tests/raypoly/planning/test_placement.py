"""A placement is what the cluster has room for, or refused in one sentence."""

from __future__ import annotations

import pytest

from raypoly.core.config import GeneratorConfig, TrainConfig
from raypoly.core.errors import UsageError
from raypoly.planning.placement import Kind, Placement, refuse_placement, resolve_placement


@pytest.mark.parametrize(
    ("gpus", "settings", "kind", "transport", "share"),
    [
        (0, {}, "cpu", "objects", 0.0),
        (0, {"engines": 3}, "cpu", "objects", 0.0),
        (1, {}, "colocated", "ipc", 0.5),
        (1, {"engine": "transformers"}, "colocated", "objects", 0.5),
        (2, {}, "split", "nccl", 1.0),
        (4, {"engines": 3}, "split", "nccl", 1.0),
        (8, {"placement": "cpu", "engines": 2}, "cpu", "objects", 0.0),
        (8, {"placement": "colocated"}, "colocated", "ipc", 0.5),
        (2, {"transport": "objects"}, "split", "objects", 1.0),
        (0, {"placement": "colocated", "transport": "objects", "engines": 2}, "colocated", "objects", 0.0),
        (0, {"placement": "split", "transport": "gloo"}, "split", "gloo", 0.0),
    ],
)
def test_a_cluster_gets_the_placement_that_fits_it(
    gpus: int, settings: dict[str, object], kind: str, transport: str, share: float
) -> None:
    found = resolve_placement(GeneratorConfig.model_validate(settings), gpus)
    assert (found.kind, found.transport, found.gpu_share) == (kind, transport, share)
    assert found.sleeps == (kind == "colocated")
    applied = found.applied(GeneratorConfig.model_validate(settings))
    assert (applied.placement, applied.transport) == (kind, transport)


@pytest.mark.parametrize(
    ("gpus", "settings", "said"),
    [
        (0, {"placement": "colocated"}, "needs a GPU and the cluster has none: use generator.placement=cpu"),
        (0, {"placement": "split"}, "generator.transport=gloo to rehearse it without one"),
        (0, {"placement": "colocated", "transport": "ipc"}, "needs a GPU and the cluster has none"),
        (0, {"placement": "colocated", "transport": "gloo"}, "gloo does not work with placement colocated"),
        (0, {"transport": "gloo"}, "gloo does not work with placement cpu: use objects"),
        (1, {"placement": "split"}, "needs 2 GPUs (one a rank of the learner, 1; one an engine, 1)"),
        (1, {"engines": 2}, "one engine beside each rank of the learner (1), and generator.engines=2"),
        (3, {"engines": 3}, "needs 4 GPUs"),
        (1, {"transport": "nccl"}, "nccl does not work with placement colocated: use ipc or objects"),
        (1, {"engine": "transformers", "transport": "ipc"}, "ipc needs generator.engine=vllm and a GPU"),
    ],
)
def test_what_can_not_be_is_refused_in_one_sentence(gpus: int, settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve_placement(GeneratorConfig.model_validate(settings), gpus)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("gpus", "settings", "kind", "on_gpu"),
    [
        (0, {"placement": "split", "engines": 2}, "split", True),
        (0, {"placement": "colocated"}, "colocated", True),
        (1, {"placement": "split", "transport": "objects"}, "split", True),
        (0, {"placement": "split", "transport": "gloo"}, "split", False),
        (0, {}, "cpu", False),
    ],
)
def test_gpus_that_an_autoscaler_may_bring_count(
    gpus: int, settings: dict[str, object], kind: str, on_gpu: bool
) -> None:
    found = resolve_placement(GeneratorConfig.model_validate(settings), gpus, grows=True)
    assert (found.kind, found.on_gpu) == (kind, on_gpu)


def test_a_learner_of_several_ranks_takes_as_many_gpus() -> None:
    assert resolve_placement(GeneratorConfig(), gpus=3, ranks=2) == Placement("split", "nccl", on_gpu=True)
    both = resolve_placement(GeneratorConfig(placement="colocated", engines=2), gpus=2, ranks=2)
    assert both == Placement("colocated", "ipc", on_gpu=True)
    with pytest.raises(UsageError, match="needs 4 GPUs"):
        resolve_placement(GeneratorConfig(engines=2), gpus=3, ranks=2)


@pytest.mark.parametrize("kind", ["split", "cpu"])
def test_nothing_is_offloaded_where_no_engine_shares_the_learners_gpu(kind: Kind) -> None:
    refuse_placement(TrainConfig(), kind)
    refuse_placement(TrainConfig(offload="all"), "colocated")
    with pytest.raises(UsageError, match=rf"^train\.offload=all makes room .* where placement {kind} has none: set"):
        refuse_placement(TrainConfig(offload="all"), kind)
