"""Memory by part: against what PyTorch really allocates, and against the facts that are known of a 4B model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from raypoly.algorithms.group_stage import GroupStage, StageModel
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Bool, Group, Problem
from raypoly.learner.compiled_layers import compile_layers, recompute
from raypoly.learner.offload import BUCKET, cut_buckets
from raypoly.learner.packing import pack
from raypoly.learner.policy_model import load_model, response_logprobs
from raypoly.learner.training_rows import TrainingRow
from raypoly.planning.device_memory import check_memory, host_memory, plan_memory
from raypoly.planning.devices import BOARDS, GIB, Device, DeviceLayout
from raypoly.planning.learner_memory import (
    GRADIENTS,
    PHASES,
    DeviceMemory,
    checkpoint_bytes,
    learner_parts,
    model_bytes,
)
from raypoly.planning.model_shape import PUBLISHED, from_config
from tests.support.compilers import needs_compiler

TOKENS = 512
BAND = (0.88, 1.05)
"""Measured over predicted."""
QWEN3_4B = PUBLISHED["Qwen/Qwen3-4B"]
H200 = BOARDS["h200"]


def wide(kind: Any, configuration: Any, folder: Path) -> Path:
    """A model small enough for a test, whose micro-batch is much larger than its weights."""
    sizes = {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    }
    kind(configuration(**sizes, max_position_embeddings=1024, tie_word_embeddings=False)).save_pretrained(folder)
    return folder


def peak_of_gradients(folder: Path, bf16: bool, kind: Any, compiled: bool, mask: Bool | None = None) -> int:
    """Bytes that one micro-batch's forward and backward pass need beside weights and their gradients. `mask`: of each
    row's response."""
    model = load_model(folder, torch.device("cpu"), bf16)
    if compiled:
        torch.compiler.reset()
        compile_layers(model, bf16, kind)
    else:
        recompute(model, kind)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 500, (4, TOKENS // 4)).astype(np.int32)
    none = np.zeros(TOKENS // 4 - 8, np.float32)
    batch = pack([TrainingRow(row[:8], row[8:], none, 1.0, 0, mask) for row in tokens])

    def gradients() -> None:
        response_logprobs(model, batch, 1.0, bf16, 1)[0].sum().backward()  # type: ignore[no-untyped-call]

    gradients()  # gradients are there from now on
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        gradients()
    assert profiled.profiler is not None
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return int(np.cumsum(sizes).max())


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=[pytest.mark.slow, needs_compiler])])
@pytest.mark.parametrize("kind", ["off", "products", "layers"])
@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        ((Qwen3ForCausalLM, Qwen3Config), "bfloat16"),
        ((Qwen3ForCausalLM, Qwen3Config), "float32"),
        ((LlamaForCausalLM, LlamaConfig), "bfloat16"),
    ],
    ids=["qwen3-bfloat16", "qwen3-float32", "llama-bfloat16"],
)
def test_activations_and_logits_are_those_that_pytorch_allocates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: tuple[Any, Any], dtype: str, kind: str, compiled: bool
) -> None:
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)  # an engine's, in the process of some test before
    folder = wide(*model, tmp_path)
    measured = peak_of_gradients(folder, dtype == "bfloat16", kind, compiled)
    config = Config.model_validate(
        {
            "model": {"dtype": dtype},
            "train": {
                "token_budget": TOKENS,
                "logits_mib": 1,
                "activation_checkpointing": kind,
                "compile": compiled,
            },
            "generator": {"max_prompt_tokens": 8, "max_tokens": TOKENS // 4 - 8},
            "loss": {"name": "clipped_surrogate"},
        }
    )
    shape = from_config(load_config(folder))
    assert shape is not None
    passing = [part for part in learner_parts(config, shape, DeviceLayout("cpu")) if part.phases <= GRADIENTS]
    predicted = DeviceMemory("here", tuple(passing)).needed
    assert BAND[0] < measured / predicted < BAND[1], f"{measured} measured, {predicted} predicted"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_of_conversations_take_what_their_turns_and_observations_say(tmp_path: Path, dtype: str) -> None:
    folder = wide(Qwen3ForCausalLM, Qwen3Config, tmp_path)
    own, observation = [True] * 14, [False] * (32 + 8)  # a model without a chat template reads its prompt once more
    mask = np.array([*own, *observation, *own, *observation, *own[:12]])
    measured = peak_of_gradients(folder, dtype == "bfloat16", "off", False, mask)
    turns = ["environment.name=python", "environment.max_turns=3", "environment.max_observation_tokens=32"]
    lengths = ["generator.max_prompt_tokens=8", "generator.max_tokens=40", f"train.token_budget={TOKENS}"]
    others = [f"model.dtype={dtype}", "train.logits_mib=1", "loss.name=clipped_surrogate"]
    config = load(None, [*turns, *lengths, *others], lambda text: None)
    assert config.generator.longest_row == 8 + len(mask)
    shape = from_config(load_config(folder))
    assert shape is not None
    passing = [part for part in learner_parts(config, shape, DeviceLayout("cpu")) if part.phases <= GRADIENTS]
    predicted = DeviceMemory("here", tuple(passing)).needed
    assert BAND[0] < measured / predicted < BAND[1], f"{measured} measured, {predicted} predicted"


def load_config(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return values


def h200_run(*overrides: str) -> Config:
    base = ["model.path=Qwen/Qwen3-4B-Base", "model.dtype=bfloat16", "generator.max_tokens=4096", "train.lr=1e-6"]
    more = ["generator.max_prompt_tokens=1024", "train.token_budget=8192", "generator.gpu_memory_fraction=0.3"]
    return load(None, [*base, *more, *overrides], lambda text: None)


def part(config: Config, name: str) -> int:
    (holding,) = plan_memory(config, QWEN3_4B, H200, DeviceLayout("colocated"))
    (found,) = [p.bytes for p in holding.parts if p.name == name]
    assert found is not None
    return found


def test_masters_gradients_and_moments_are_16_bytes_a_weight() -> None:
    config = h200_run("train.activation_checkpointing=layers")
    held = [part(config, name) for name in ("weights (float32 masters)", "gradients", "AdamW's moments")]
    assert sum(held) == 16 * 4_022_468_096
    assert sum(held) / 1e9 == pytest.approx(64, abs=0.5)


def test_flowrls_reference_and_its_head_are_counted() -> None:
    config, hidden = h200_run("objective.name=flowrl", "loss.name=flowrl"), QWEN3_4B.hidden
    assert part(config, "frozen reference") == 4 * QWEN3_4B.parameters
    head = 2 * (hidden * hidden + 3 * hidden) + hidden + 1
    assert part(config, "the loss's head, trained") == 16 * head
    plain = h200_run("objective.name=grpo")
    assert checkpoint_bytes(config, QWEN3_4B) - checkpoint_bytes(plain, QWEN3_4B) == 12 * head
    (holding,) = plan_memory(plain, QWEN3_4B, H200, DeviceLayout("colocated"))
    assert not {"frozen reference", "the loss's head, trained"} & {p.name for p in holding.parts}


def test_the_finished_model_takes_disk_by_its_type_and_one_weight_on_its_way_to_the_host() -> None:
    assert model_bytes(h200_run(), QWEN3_4B) == 4 * QWEN3_4B.parameters
    half, two = h200_run("run.model_dtype=bfloat16"), DeviceLayout("colocated", 2)
    assert model_bytes(half, QWEN3_4B) == 2 * QWEN3_4B.parameters
    (holding,) = plan_memory(half, QWEN3_4B, H200, two)
    (weight,) = [part.bytes for part in holding.parts if part.name == "a whole weight on its way to the host"]
    assert weight == 4 * QWEN3_4B.head


def test_the_engine_takes_its_share_of_the_gpu_and_no_more() -> None:
    _, engine = plan_memory(h200_run(), QWEN3_4B, H200, DeviceLayout("split"))
    assert engine.needed == pytest.approx(0.3 * H200.memory, rel=1e-6)


def test_a_config_that_fits_is_not_refused() -> None:
    check_memory(h200_run("train.activation_checkpointing=layers"), QWEN3_4B, H200, DeviceLayout("colocated"))


def test_a_config_that_cannot_fit_is_refused_with_the_part_and_what_to_turn() -> None:
    with pytest.raises(UsageError) as caught:
        check_memory(h200_run("train.token_budget=16384"), QWEN3_4B, H200, DeviceLayout("colocated"))
    said = str(caught.value)
    assert "(NVIDIA H200) has 139.8 GiB" in said
    assert "are activations" in said
    assert "train.activation_checkpointing=layers needs" in said
    better = h200_run("train.token_budget=16384", "train.activation_checkpointing=layers")
    check_memory(better, QWEN3_4B, H200, DeviceLayout("colocated"))


def test_logits_that_are_computed_at_once_are_what_is_too_much() -> None:
    unchunked = ["train.activation_checkpointing=layers", "train.token_budget=57344", "train.logits_mib=100000"]
    with pytest.raises(UsageError) as caught:
        check_memory(h200_run(*unchunked), QWEN3_4B, H200, DeviceLayout("colocated"))
    said = str(caught.value)
    assert "are needed while logits are computed" in said
    assert f"{2 * 4 * 151_936 * 57_344 / GIB:.1f} GiB are a chunk's logits" in said
    assert "What is enough: train.logits_mib=256 needs" in said


def test_what_no_single_key_can_make_fit_is_told_the_keys_that_do_together() -> None:
    model, layout = PUBLISHED["Qwen/Qwen3-8B"], DeviceLayout("colocated")
    config, turned = ["train.token_budget=16384", "train.logits_mib=100000"], "train.activation_checkpointing=layers"
    with pytest.raises(UsageError, match=rf"What is enough: train\.logits_mib=256 {turned} needs 139\.\d GiB\."):
        check_memory(h200_run(*config), model, H200, layout)
    check_memory(h200_run(config[0], "train.logits_mib=256", turned), model, H200, layout)


def test_what_no_turn_can_make_fit_says_so() -> None:
    with pytest.raises(UsageError, match=r"Even with .* model\.lora_rank=32 it would be .*: take a device with"):
        check_memory(
            h200_run("generator.gpu_memory_fraction=0.95"),
            PUBLISHED["Qwen/Qwen3-32B"],
            BOARDS["a100"],
            DeviceLayout("split"),
        )


def test_adapters_make_an_8b_model_fit_where_all_weights_do_not() -> None:
    config = h200_run("train.activation_checkpointing=products", "generator.gpu_memory_fraction=0.2")
    with pytest.raises(UsageError, match="lora_rank=32 needs"):
        check_memory(config, PUBLISHED["Qwen/Qwen3-8B"], H200, DeviceLayout("colocated"))


LAYERS = "train.activation_checkpointing=layers"


@pytest.mark.parametrize("board", ["h100", "rtx4090", "l4"])
def test_a_config_that_fits_once_it_is_offloaded_is_told_so_and_takes_it(board: str) -> None:
    model = QWEN3_4B if board == "h100" else PUBLISHED["Qwen/Qwen3-1.7B"]
    layout, config = DeviceLayout("colocated", through_host=False), [LAYERS, "generator.gpu_memory_fraction=0.5"]
    with pytest.raises(UsageError, match=r"What is enough: (.*; or )?train\.offload=optimizer needs \d\d\.\d GiB"):
        check_memory(h200_run(*config), model, BOARDS[board], layout)
    for kind in ("optimizer", "all"):
        check_memory(h200_run(*config, f"train.offload={kind}"), model, BOARDS[board], layout)
    with pytest.raises(UsageError, match=rf"What is enough: .*{LAYERS} train\.offload=optimizer needs \d\d\.\d GiB"):
        check_memory(h200_run(config[1]), model, BOARDS[board], layout)


def test_offloaded_parts_leave_the_gpu_for_the_machine_in_their_phases_alone() -> None:
    layout, weight = DeviceLayout("colocated", through_host=False), QWEN3_4B.parameters
    held = {
        k: plan_memory(h200_run(f"train.offload={k}"), QWEN3_4B, H200, layout)[0] for k in ("none", "optimizer", "all")
    }
    less = {k: {p: held["none"].total(p) - held[k].total(p) for p in PHASES} for k in held}
    assert less["optimizer"]["logits"] == less["all"]["logits"] == 8 * weight
    assert less["optimizer"]["sampling"] == 8 * weight - 4 * QWEN3_4B.head
    assert less["all"]["sampling"] == 12 * weight - 4 * QWEN3_4B.head
    copied = 2 * (weight + QWEN3_4B.head)  # in the engine's dtype, and the tied head twice
    assert less["all"]["hand-over"] == less["all"]["sampling"] - copied
    machine = {k: host_memory(h200_run(f"train.offload={k}"), QWEN3_4B, layout).needed for k in held}
    assert machine["optimizer"] - machine["none"] == 8 * weight
    assert machine["all"] - machine["none"] == 12 * weight
    split = [h200_run(f"train.offload={k}") for k in ("none", "all")]
    one, other = (plan_memory(config, QWEN3_4B, H200, DeviceLayout("split")) for config in split)
    assert one == other, "no engine shares the GPU: the run is refused"


def test_the_buckets_of_moments_on_the_gpu_are_no_more_than_planned() -> None:
    """Three at a time, and a copy of a weight's size while its change is measured."""
    config = {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32}
    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**config, num_key_value_heads=8, tie_word_embeddings=True))
    cut = cut_buckets([{"params": list(model.parameters())}], BUCKET)
    sizes = [sum(2 * weight.nbytes for weight in bucket) for _, bucket in cut]
    most = max(map(sum, zip(sizes, sizes[1:], sizes[2:], strict=False))) + model.lm_head.weight.nbytes
    parts = plan_memory(h200_run("train.offload=optimizer"), QWEN3_4B, H200, DeviceLayout("colocated"))[0].parts
    (planned,) = (part.bytes for part in parts if part.name == "moments of the bucket at work")
    assert planned is not None
    assert 0.85 * planned < most <= planned


def test_an_engine_without_room_for_one_sequence_is_refused_with_the_share_that_would_do() -> None:
    with pytest.raises(UsageError, match=r"KV cache does not fit.*set it to 0\.\d\d or more"):
        check_memory(h200_run("generator.gpu_memory_fraction=0.05"), QWEN3_4B, H200, DeviceLayout("colocated"))


def test_a_cpu_that_is_too_small_is_told_how_to_plan_for_a_gpu() -> None:
    laptop = Device("this machine's CPU", 16 * GIB, gpu=False)
    with pytest.raises(UsageError, match="--gpu NAME` plans for a GPU that is not here"):
        check_memory(h200_run("train.activation_checkpointing=layers"), QWEN3_4B, laptop, DeviceLayout("cpu"))


class Asked(GroupStage):
    name = "asked"

    @property
    def asked_model(self) -> StageModel:
        return StageModel(Path(self.config.run.scratch), lambda folder, on_answer: None)

    async def run(self, group: Group, problem: Problem, services: Any) -> Any:
        return await services.models[self.name].ask(problem)


def test_the_model_of_a_stage_counts_beside_the_learner_in_every_phase() -> None:
    own, off = f"stages.own=[{__name__}:Asked]", "train.activation_checkpointing=products"
    layout = DeviceLayout("colocated")
    (without,) = plan_memory(h200_run(off), QWEN3_4B, H200, layout)
    (held,) = plan_memory(h200_run(off, own, "run.scratch=Qwen/Qwen3-0.6B"), QWEN3_4B, H200, layout)
    weights = 4 * PUBLISHED["Qwen/Qwen3-0.6B"].parameters
    assert all(weights < held.total(phase) - without.total(phase) < weights + 2 * GIB for phase in PHASES)
    (held,) = plan_memory(h200_run(off, own, "run.scratch=/nowhere"), QWEN3_4B, H200, layout)
    assert held.unknown == ["the asked's model"]


def test_a_local_judge_is_awake_in_its_turn_alone_and_beside_the_learner_where_nothing_sleeps() -> None:
    off = ("train.activation_checkpointing=products", "judge.model=Qwen/Qwen3-4B-Instruct-2507")
    local = h200_run(*off, "judge.name=local")
    (without,) = plan_memory(h200_run(*off), QWEN3_4B, H200, DeviceLayout("colocated"))
    (held,) = plan_memory(local, QWEN3_4B, H200, DeviceLayout("colocated"))
    share, asleep = round(0.2 * H200.memory), 2 * GIB
    more = {phase: held.total(phase) - without.total(phase) for phase in PHASES}
    assert more == {**dict.fromkeys(PHASES, asleep), "judging": share}
    assert "judging" in held.phases
    assert "judging" not in without.phases
    (copy,) = [p.bytes for p in host_memory(local, QWEN3_4B, DeviceLayout("colocated")).parts if "judge" in p.name]
    assert copy == 2 * QWEN3_4B.parameters

    learner, engine = plan_memory(local, QWEN3_4B, H200, DeviceLayout("split"))
    plain, same = plan_memory(h200_run(*off), QWEN3_4B, H200, DeviceLayout("split"))
    assert {learner.total(phase) - plain.total(phase) for phase in learner.phases} == {share}
    assert engine == same
    assert not any("judge" in part.name for part in host_memory(local, QWEN3_4B, DeviceLayout("split")).parts)

    laptop = Device("this machine's CPU", 16 * GIB, gpu=False)
    keys = (*off, "judge.name=local", "judge.model=HuggingFaceTB/SmolLM2-135M-Instruct", "judge.memory_gib=0.5")
    (held,) = plan_memory(h200_run(*keys), QWEN3_4B, laptop, DeviceLayout("cpu"))
    parts = {part.name: part.bytes or 0 for part in held.parts if part.name.startswith("judge's")}
    assert parts["judge's engine: weights"] == 2 * PUBLISHED["HuggingFaceTB/SmolLM2-135M"].parameters
    assert parts["judge's engine: KV cache"] == GIB // 2

    with pytest.raises(
        UsageError, match=r"^The judge's engine's KV cache does not fit: judge\.gpu_memory_fraction=0\.05"
    ):
        plan_memory(
            h200_run(*off, "judge.name=local", "judge.gpu_memory_fraction=0.05"),
            QWEN3_4B,
            H200,
            DeviceLayout("colocated"),
        )
    (held,) = plan_memory(
        h200_run("judge.name=local", "judge.model=nobody/knows"), QWEN3_4B, H200, DeviceLayout("split")
    )[:1]
    assert held.unknown == ["judge's engine"]


def test_an_engine_that_sleeps_counts_only_while_it_works() -> None:
    config = h200_run("train.activation_checkpointing=products", "generator.gpu_memory_fraction=0.45")
    (held,) = plan_memory(config, QWEN3_4B, H200, DeviceLayout("colocated"))
    learner, engine = plan_memory(config, QWEN3_4B, H200, DeviceLayout("split"))
    gradients = 4 * 4_022_468_096
    assert held.total("sampling") == learner.total("sampling") + engine.total("sampling") - gradients, "they are let go"
    assert held.total("layers") - learner.total("layers") < 0.05 * H200.memory, "an engine asleep holds little"


def test_ranks_share_what_is_trained_and_each_computes_its_own_micro_batches() -> None:
    learner, engine = plan_memory(h200_run(), QWEN3_4B, H200, DeviceLayout("split", ranks=4))
    alone, _ = plan_memory(h200_run(), QWEN3_4B, H200, DeviceLayout("split"))
    assert learner.total("sampling") < 0.3 * alone.total("sampling")
    of = {p.name: p.bytes for p in learner.parts}
    assert of["activations"] == {p.name: p.bytes for p in alone.parts}["activations"]
    assert engine.needed < H200.memory


def test_an_engine_of_ones_own_is_unknown_and_never_a_number() -> None:
    config = h200_run("generator.engine=mine:Engine", "train.activation_checkpointing=layers")
    (holding,) = plan_memory(config, QWEN3_4B, H200, DeviceLayout("colocated"))
    assert list(holding.unknown) == ["engine mine:Engine"]
