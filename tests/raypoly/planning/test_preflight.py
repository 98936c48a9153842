"""Contradictions are refused before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.planning.devices import ELSEWHERE, GIB, Device, FreeResources, layout_of, this_machine
from raypoly.planning.preflight import check_config, require_gpu, require_model
from tests.support.random_model import random_model

ROOMY = FreeResources(memory=64 * GIB, disk=64 * GIB)


def refused(tmp_path: Path, *overrides: str, here: FreeResources = ROOMY) -> str:
    with pytest.raises(UsageError) as caught:
        check_config(load(None, overrides, lambda text: None), tmp_path / "run", here)
    return str(caught.value)


def test_the_default_config_is_fine(tmp_path: Path) -> None:
    assert check_config(load(None), tmp_path / "run", ROOMY) == []


@pytest.mark.parametrize("name", ["flowrl", "grpo", "poly_epo"])
def test_flowrl_fits_what_is_a_value(name: str, tmp_path: Path) -> None:
    check_config(load(None, [f"objective.name={name}", "loss.name=flowrl"], lambda text: None), tmp_path, ROOMY)


def test_a_judge_that_needs_a_key_without_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_JUDGE_KEY", raising=False)
    assert "MY_JUDGE_KEY is not set" in refused(tmp_path, "judge.api_key_env=MY_JUDGE_KEY")
    monkeypatch.setenv("MY_JUDGE_KEY", "secret")
    assert check_config(load(None, ["judge.api_key_env=MY_JUDGE_KEY"]), tmp_path, ROOMY) == []


def test_a_machine_that_is_planned_for_may_have_the_key_that_is_missing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for overrides in (["judge.name=openai"], ["judge.name=ensemble", "judge.members=[structural,openai]"]):
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        config = load(None, overrides)
        (remark,) = check_config(config, tmp_path, ELSEWHERE)
        assert "the machine that will run this: OPENAI_API_KEY is not set" in remark
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert check_config(config, tmp_path, ELSEWHERE) == []
    both = ("judge.name=openai", "judge.api_key_env=NO_SUCH_KEY", "judge.api_key_file=key.txt")
    assert "both given: drop one" in refused(tmp_path, *both, here=ELSEWHERE)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("objective.set_size=8", "objective.set_size=8 must be smaller than train.rollouts=8"),
        ("objective.colour=3", "objective.colour"),
        ("objective.name=flowrl", "set loss.name=flowrl"),
        ("objective.name=gfpo loss.name=flowrl", "gfpo leaves out rollouts"),
        ("objective.name=diver scorer.evidence=false evaluate.judge=false", "diver needs the statements of programs"),
        ("judge.name=http", "judge.url"),
        ("judge.name=structral", "structural"),
        ("problems.source=jsonl", "problems.path"),
        ("problems.source=nomodule:Source", "PYTHONPATH"),
        ("problems.path=x.jsonl", "problems.path=x.jsonl would be ignored, since puzzles are made, not read: set "),
        ("problems.source=tasks problems.validation_path=x.jsonl", "since tasks are made, not read: set problems.sou"),
        ("reward.name=json:", "reward.name='json:' is unknown"),
        (f"problems.source=jsonl problems.path={__file__} problems.test_path=/no.jsonl", "test_path=/no.jsonl is not"),
        ("model.path=/nowhere/model", "model.path=/nowhere/model does not exist"),
        ("model.path=nowhere", "model.path=nowhere does not exist"),
        ("train.token_budget=100", "less than one longest sequence"),
        ("train.mini_batch_prompts=7", "does not divide train.prompts_per_step=20"),
        ("train.mini_batch_prompts=10", "set loss.name=clipped_surrogate"),
        ("train.ahead=2", "train.ahead"),
        ("train.ahead=1", "which loss.name=policy_gradient does not correct: set loss.importance_cap=2"),
        ("train.ahead_mode=in_flight", "is of a step that is sampled ahead: set train.ahead=1, or drop it"),
        ("train.ahead=1 train.refill=3", "and train.refill=3 samples more for those that don't: set one of them to 0"),
        ("train.ahead=1 train.mini_batch_prompts=10 loss.name=cispo", "changes them in its middle: set train.ahead=0"),
        ("train.ahead=1 generator.placement=colocated", "they take turns on one GPU: set train.ahead=0"),
        ("train.warmup_steps=80 train.schedule=cosine", "has no step to decay in"),
        ("train.schedule=linear train.steps=0", "together are 0 steps"),
        ('generator.engine_args={"seed":1}', "generator.engine_args.seed can't be given"),
        ("generator.engine_args=7", "should be names with values"),
        ('generator.engine_args={"tensor_parallel_size":2}', "it is decided by generator.engines: each has one GPU"),
        ("generator.engine=sglang", "generator.engine='sglang' is unknown. Known: transformers, vllm, or one of your"),
        (f"model.path={__file__}", "is a file, and a model is a folder, a name on the Hugging Face hub or a .gguf"),
        ("evaluate.validation_greedy=true", "set evaluate.validation_samples=1"),
        ("evaluate.categories=/nowhere", "evaluate.categories needs a judge that grades, and one vote: set judge.na"),
        ("evaluate.categories=/nowhere", "/nowhere can't be read"),
        ("scorer.evidence=false", "judge.name=structural needs scorer.evidence"),
        ("judge.base_url=http://me:pw@a/v1", "judge.base_url has a name or a password in its address"),
        ("judge.name=http", "judge.url=null is no http(s) address"),
        (
            "judge.name=openai judge.base_url=http://8.8.8.8/v1 judge.api_key_env=PATH",
            "would get the key in clear text",
        ),
        ("judge.name=openai judge.base_url=http:///v1", "judge.base_url=http:///v1 is no http(s) address"),
        ("judge.name=http judge.url=http://me:pw@a/v1", "judge.url has a name or a password in its address"),
        ("judge.name=local", "judge.name=local needs judge.model: a Hugging Face folder, a hub id or a .gguf file"),
        ("judge.name=local judge.model=/nowhere/at/all", "judge.model=/nowhere/at/all does not exist"),
        (
            "judge.name=local judge.base_url=http://127.0.0.1:9/v1",
            "judge.base_url is about a server, and judge.name=local",
        ),
        ("judge.name=local judge.api_key_env=PATH", "judge.api_key_env is about a server"),
        ("judge.name=local judge.engine=vlm", "judge.engine"),
        ("judge.name=ensemble judge.members=[structural,local]", "judge.members names local, and an ensemble holds no"),
        (
            "judge.name=local judge.model=a/b train.refill=2 generator.placement=colocated generator.transport=objects",
            "The stage judge asks the learner's device about each group",
        ),
        ("train.offload=optimizer generator.placement=split", "train.offload=optimizer makes room for an engine on"),
        ("judge.name=local scorer.evidence=false", "judge.name=local needs scorer.evidence"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(tmp_path: Path, override: str, said: str) -> None:
    assert said in refused(tmp_path, *override.split())


def test_a_local_judge_is_whole_and_reads_no_more_than_its_model_does(tmp_path: Path) -> None:
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "max_position_embeddings": 8000}))
    keys = ["judge.name=local", f"judge.model={folder}"]
    assert "has no *.safetensors or *.bin: copy its weights again" in refused(tmp_path, *keys)
    save_file({}, folder / "model.safetensors")
    assert "reads 8000 tokens, and a question with its answer may have 8192: lower judge." in refused(tmp_path, *keys)
    fits = load(None, [*keys, "judge.max_prompt_tokens=5000"], lambda text: None)
    assert check_config(fits, tmp_path / "run", ROOMY) == []


def test_programs_may_leave_no_evidence_where_no_judge_reads_it(tmp_path: Path) -> None:
    nobody = ["scorer.evidence=false", "objective.name=grpo", "evaluate.judge=false"]
    texts = ["scorer.evidence=false", "judge.name=openai", "judge.view=raw", "judge.base_url=http://127.0.0.1:9/v1"]
    for overrides in (nobody, texts):
        assert check_config(load(None, overrides, lambda text: None), tmp_path / "run", ROOMY) == []
    assert "needs scorer.evidence" in refused(tmp_path, *nobody, "judge.when=sampled")
    assert "needs scorer.evidence" in refused(tmp_path, *texts, "judge.view=canonical")


def test_a_sink_whose_package_is_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "pip install wandb" in refused(tmp_path, "run.wandb_project=mine")


def test_a_hub_id_is_no_missing_folder(tmp_path: Path) -> None:
    assert check_config(load(None, ["model.path=Qwen/Qwen3-0.6B"]), tmp_path, ROOMY) == []


def test_a_folder_without_a_model_or_its_tokenizer_is_refused(tmp_path: Path) -> None:
    assert "no config.json" in refused(tmp_path, f"model.path={tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="holds no tokenizer"):
        require_model(str(tmp_path), tmp_path / "run")


def test_a_folder_that_was_copied_in_part_or_from_two_models_is_refused(tmp_path: Path) -> None:
    model = random_model(tmp_path / "model")
    whole = {name: (model / name).read_bytes() for name in ("model.safetensors", "tokenizer.json", "config.json")}
    tokenizer = json.loads(whole["tokenizer.json"])
    tokenizer["model"]["vocab"] |= {f"word{number}": 1000 + number for number in range(1000)}
    index = json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}).encode()
    for name, content, said in (
        ("model.safetensors", whole["model.safetensors"][:-1], "model.safetensors is cut or damaged"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1", "model.safetensors is cut or damaged"),
        ("model.safetensors", None, r"has no \*.safetensors or \*.bin"),
        ("model.safetensors.index.json", index, r"has no model-2\.safetensors: copy its weights again"),
        ("tokenizer.json", b"{", "tokenizer.json is no JSON"),
        ("tokenizer.json", json.dumps(tokenizer).encode(), r"tokenizer has 1,300 tokens and its config\.json 300"),
    ):
        require_model(str(model), tmp_path / "run")
        if content is None:
            (model / name).unlink()
        else:
            (model / name).write_bytes(content)
        with pytest.raises(UsageError, match=said):
            require_model(str(model), tmp_path / "run")
        (model / name).unlink(missing_ok=True)
        for kept, data in whole.items():
            (model / kept).write_bytes(data)
    (model / "config.json").write_text("{oops")
    assert "its config.json is no JSON object" in refused(tmp_path, f"model.path={model}")


def test_a_run_that_needs_a_gpu_is_refused_where_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no nvidia-smi
    for placement in ("colocated", "split"):
        with pytest.raises(UsageError, match=f"placement={placement} needs a GPU and the cluster has none"):
            require_gpu(load(None, [f"generator.placement={placement}"]))
    require_gpu(load(None, ["generator.placement=split", "generator.transport=gloo"]))
    require_gpu(load(None, ["generator.placement=colocated", "generator.transport=objects", "train.offload=all"]))
    with pytest.raises(UsageError, match=r"train\.offload=all makes room for an engine on the learner's GPU"):
        require_gpu(load(None, ["train.offload=all"]))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    require_gpu(load(None, ["generator.placement=split"]))


def test_a_model_that_the_hub_does_not_give_is_told_before_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    told = subprocess.run(
        [sys.executable, "-m", "raypoly.train", "model.path=org/none", f"run.dir={tmp_path / 'run'}"],
        capture_output=True,
        text=True,
    )
    assert (told.returncode, (tmp_path / "run").exists()) == (2, False)
    assert told.stderr.startswith("model.path=org/none is no folder here and could not be had from the Hugging Face")


def test_too_little_memory_is_refused_with_both_numbers_where_the_actors_will_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = FreeResources(memory=3 * GIB, disk=64 * GIB)
    message = refused(tmp_path, here=small)
    assert "3.0 GiB are free" in message
    with monkeypatch.context() as cluster:
        cluster.setenv("RAY_ADDRESS", "10.0.0.1:6379")
        check_config(load(None, [], note=print), tmp_path, small)
    here = this_machine(tmp_path)
    assert here.memory > 0
    assert "GiB are free" in refused(tmp_path, "generator.memory_gib=1000000", here=here)


def test_too_little_disk_is_refused(tmp_path: Path) -> None:
    assert "of disk" in refused(tmp_path, here=FreeResources(memory=64 * GIB, disk=GIB // 8))


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    message = refused(tmp_path, "judge.name=http", "problems.source=jsonl", "objective.set_size=9")
    assert len(message.splitlines()) == 3


def test_few_samples_are_a_remark(tmp_path: Path) -> None:
    assert "up to k=16 only" in check_config(load(None, ["evaluate.samples=16"]), tmp_path, ROOMY)[0]


def test_a_step_ahead_takes_a_gpu_for_the_engine_and_one_for_the_learner() -> None:
    config = load(None, ["train.ahead=1", "loss.importance_cap=2"])
    with pytest.raises(UsageError, match=r"take turns on one GPU: set train\.ahead=0"):
        layout_of(config, Device("a GPU", 80 * GIB, count=1))
    for count in (2, None):
        found = layout_of(config, Device("a GPU", 80 * GIB, count=count))
        assert (found.kind, found.gpus) == ("split", 2)
