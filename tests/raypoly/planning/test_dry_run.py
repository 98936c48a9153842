"""`raypoly train --dry-run` as a user meets it; the configs for GPUs are planned for where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import LlamaConfig, PreTrainedConfig, Qwen3MoeConfig

from raypoly.analysis.experiments.experiment_config import load_experiment
from raypoly.cli import main
from raypoly.core.errors import UsageError
from raypoly.core.settings import CONFIGS, load
from raypoly.planning.devices import BOARDS, Device, DeviceLayout, layout_of
from raypoly.planning.dry_run import describe_layout
from tests.raypoly.learner.test_model_families import PADDED
from tests.raypoly.learner.test_packing import SIZES, folder
from tests.support.random_model import random_model
from tests.support.verl_files import gsm8k_row, write_parquet

GPU_CONFIGS = ("leetcode_h200", "poly_epo_4xh200")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", "/nowhere")  # a GPU of the machine that tests is not asked
    monkeypatch.setattr("sys.excepthook", None)


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """A file of 160 problems."""
    tests = {"kind": "calls", "cases": [{"args": [1], "expected": 1}]}
    rows = ({"id": f"p{i}", "prompt": f"Give back x, {i}.", "entry_point": "f", "tests": tests} for i in range(160))
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def dry_run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--dry-run", *words])
    return int(str(ended.value.code or 0))


@pytest.mark.parametrize("name", GPU_CONFIGS)
def test_a_config_for_h200_fits_one_and_says_what_it_takes(
    name: str, problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", str(CONFIGS / f"{name}.yaml"), f"problems.path={problems}", "problems.validation=32"]
    assert dry_run("--gpu", "h200", *words) == 0
    said = capsys.readouterr().out
    for line in ("# memory: NVIDIA H200, 139.8 GiB", "4,022,468,096 weights", "AdamW's moments", "a step"):
        assert line in said
    assert "`raypoly train --rehearse` does one step" in said, "no number of hours before one was measured"
    assert "in all, evaluations apart" in said


@pytest.mark.parametrize("gpu", ["rtx4090", "l4"])
@pytest.mark.parametrize(
    "changes",
    [(), ("model.path=Qwen/Qwen3-1.7B-Base", "model.lora_rank=32", "generator.gpu_memory_fraction=0.3")],
    ids=["all weights", "adapters of a larger model"],
)
def test_the_config_for_a_card_of_24_gb_fits_one(gpu: str, changes: tuple[str, ...], problems: Path) -> None:
    assert (
        dry_run("--gpu", gpu, "--config", str(CONFIGS / "qwen3_24gb.yaml"), f"problems.path={problems}", *changes) == 0
    )


@pytest.mark.parametrize("name", [*GPU_CONFIGS, "qwen3_24gb", "smollm2"])
def test_a_config_for_a_real_model_opens_with_what_it_needs_and_costs(name: str) -> None:
    head = (CONFIGS / f"{name}.yaml").read_text().partition("\nmodel:")[0]
    assert all(line.startswith("#") for line in head.splitlines() if line)
    for word in ("# For: ", "# Needs: ", "# Costs: "):
        assert word in head


def test_the_studys_setting_is_that_of_its_table() -> None:
    config = load(str(CONFIGS / "leetcode_h200.yaml"))
    train, generator = config.train, config.generator
    assert (config.model.path, config.model.dtype) == ("Qwen/Qwen3-4B-Base", "bfloat16")
    assert (train.prompts_per_step, train.rollouts, train.steps) == (32, 8, 250)
    assert (train.lr, train.max_grad_norm, train.weight_decay) == (1e-6, 1.0, 0.0)
    assert (generator.temperature, generator.max_prompt_tokens, generator.max_tokens) == (1.0, 1024, 4096)
    assert config.objective.model_extra == {"set_size": 4, "reduction": "sum", "require_two": True}
    assert (config.judge.name, config.judge.model, config.judge.when) == ("openai", "gpt-4.1-mini", "sampled")
    assert (config.problems.validation, config.evaluate.every, config.evaluate.validation_samples) == (45, 25, 1)
    assert (config.loss.name, config.loss.model_extra) == ("policy_gradient", {})
    grpo = load(str(CONFIGS / "leetcode_h200.yaml"), ["objective.name=grpo"], lambda text: None)
    assert grpo.judge.when == "sampled", "the other arm has its diversity curve"


def test_the_papers_setting_is_the_papers() -> None:
    config = load(str(CONFIGS / "poly_epo_4xh200.yaml"))
    assert (config.train.prompts_per_step, config.train.rollouts, config.train.steps) == (128, 8, 850)
    assert config.loss.model_extra == {"clip_low": 0.20, "clip_high": 0.28}
    assert (config.generator.max_prompt_tokens, config.generator.max_tokens) == (1024, 4096)


def test_arms_on_the_small_language_model_differ_in_their_objective_alone() -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "smollm2.yaml")
    assert (list(experiment.arms), experiment.seeds) == (["grpo", "poly_epo", "pkpo"], (0, 1))
    for arm in experiment.arms.values():
        assert {key.partition(".")[0] for key in arm.sets} == {"objective"}
    config = load(str(CONFIGS / "smollm2.yaml"), [], lambda text: None)
    assert (config.problems.source, config.problems.test, config.evaluate.samples) == ("tasks", 60, 64)
    assert config.evaluate.judge


def test_placement_ranks_and_engines_are_planned_for_as_a_run_would_have_them() -> None:
    h200, cpu = BOARDS["h200"], Device("this machine's CPU", 1 << 34, gpu=False)
    one, four = (load(str(CONFIGS / f"{name}.yaml")) for name in GPU_CONFIGS)
    assert layout_of(one, h200) == DeviceLayout("colocated", through_host=False)
    assert layout_of(four, h200) == DeviceLayout("colocated", 4, 4, through_host=False)
    split = load(None, ["generator.placement=split", "generator.engines=2"])
    assert layout_of(split, h200).gpus == 3
    assert layout_of(load(None), cpu) == DeviceLayout("cpu")
    with pytest.raises(UsageError, match="needs 4 GPUs"):
        layout_of(four, replace(h200, count=2))


def test_a_config_that_cannot_fit_ends_with_2_after_the_table(
    problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", str(CONFIGS / "leetcode_h200.yaml"), f"problems.path={problems}"]
    assert dry_run("--gpu", "a100", *words, "generator.gpu_memory_fraction=0.3") == 2
    said = capsys.readouterr()
    assert "together" in said.out
    assert "(NVIDIA A100 80GB) has 79.1 GiB" in said.err
    assert "model.lora_rank=32 needs" in said.err
    assert said.err.count("\n") == 1


def test_a_model_that_nobody_knows_is_unknown_and_not_refused(
    problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", str(CONFIGS / "leetcode_h200.yaml"), f"problems.path={problems}"]
    assert dry_run("--gpu", "h200", *words, "model.path=nobody/secret-70B") == 0
    said = capsys.readouterr().out
    assert "unknown: the sizes of nobody/secret-70B" in said


def test_without_a_gpu_a_config_that_needs_one_is_planned_for_an_h200(
    problems: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--config", str(CONFIGS / "leetcode_h200.yaml"), f"problems.path={problems}"]
    monkeypatch.delenv("OPENAI_API_KEY")
    assert dry_run(*words) == 0, "no key either: the run will start elsewhere"
    here = capsys.readouterr()
    assert "Note: no GPU is here, and the config needs one: this is planned for an NVIDIA H200; --gpu" in here.err
    assert dry_run("--gpu", "h200", *words) == 0
    assert here.out == capsys.readouterr().out
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    dry_run(*words, "generator.transport=objects")  # fits or not
    assert "# memory: this machine's CPU" in capsys.readouterr().out, "a rehearsal without a GPU"


def test_the_tiny_run_is_planned_for_on_this_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run() == 0
    said = capsys.readouterr().out
    assert "# memory: this machine's CPU" in said
    assert "the tiny model, 424,800 weights" in said
    table = said.partition("424,800 weights\n")[2].partition("the engine has room")[0]
    assert max(map(len, table.splitlines())) <= 80


def test_a_plan_says_how_a_file_of_problems_is_split(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["problems.source=jsonl", f"problems.path={problems}", "model.path=Qwen/Qwen3-4B-Base"]
    assert dry_run("--gpu", "h200", *words) == 0
    said = "32 to train on, 64 for validation, 64 for test (held out by problems.validation and problems.test)"
    assert said in capsys.readouterr().out
    assert dry_run("--gpu", "h200", *words, "problems.validation=10", f"problems.test_path={problems}") == 2
    assert "is in train and in test: take it out of one of the two places" in capsys.readouterr().err


def test_answers_of_mathematics_need_a_second_zygote_a_scorer(
    problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config", str(CONFIGS / "leetcode_h200.yaml"), "scorer.workers=100", "scorer.memory_mib=64"]
    asked = tmp_path / "asked.jsonl"
    rows = ({"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(160))
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scorers = []
    for path in (problems, asked):
        assert dry_run("--gpu", "h200", *words, f"problems.path={path}") == 0
        scorers.append(capsys.readouterr().out.partition("scorers ")[2].partition(" GiB")[0])
    assert float(scorers[1]) - float(scorers[0]) == pytest.approx(100 * 80 / 1024, abs=0.3)


def test_a_step_needs_no_more_problems_than_there_are(problems: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--gpu", "h200", "problems.source=jsonl", f"problems.path={problems}", "model.path=Qwen/Qwen3-4B-Base"]
    words += ["problems.validation=64", "problems.test=64"]
    assert dry_run(*words, "train.prompts_per_step=33") == 2
    assert "only 32 training problems: set train.prompts_per_step=32." in capsys.readouterr().err
    assert dry_run(*words, "train.prompts_per_step=30", "train.refill=3") == 2
    assert "are 33 problems a step, but there are only 32 training problems" in capsys.readouterr().err


def test_problems_without_the_tests_that_a_run_needs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_parquet(tmp_path / "rows.parquet", [gsm8k_row(number) for number in range(4)])
    words = ["problems.source=verl", f"problems.path={path}", "problems.chat_template=plain"]
    assert dry_run(*words, "problems.validation=1", "problems.test=1") == 2
    assert "2 of 2 training problems have no tests to run" in capsys.readouterr().err


def test_evaluations_are_planned_on_splits_that_the_runs_reward_can_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without tests, by a function of one's own."""
    (tmp_path / "scored_here.py").write_text("def compute_score(data_source, solution_str, ground_truth): return 0.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = write_parquet(tmp_path / "rows.parquet", [gsm8k_row(number) for number in range(16)])
    words = ["--gpu", "h200", "--config", str(CONFIGS / "poly_epo_4xh200.yaml"), "train.prompts_per_step=8"]
    words += ["train.mini_batch_prompts=8", "problems.validation=4", "problems.test=4"]
    words += ["problems.source=verl", f"problems.path={path}", "problems.chat_template=plain"]
    assert dry_run(*words, "reward.name=scored_here:compute_score") == 0
    said = capsys.readouterr().out
    assert "evaluation: test before and after, " in said
    assert "evaluation: validation at steps 0, 50" in said


def test_rows_of_ones_own_need_a_model_that_can_read_them(
    tmp_path: Path, problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--gpu", "h200", "problems.source=jsonl", f"problems.path={problems}"]
    assert dry_run(*words) == 2
    assert "the tiny model that is trained then reads puzzles alone: problem 'p" in capsys.readouterr().err
    words += [f"model.path={random_model(tmp_path / 'model')}", "generator.max_prompt_tokens=5"]
    assert dry_run(*words) == 2
    said = capsys.readouterr().err
    assert "160 of 160 prompts have more than generator.max_prompt_tokens=5 tokens; the longest, of p" in said
    assert not (tmp_path / "runs").exists()
    assert dry_run(*words, "problems.over_long=drop") == 0
    (tmp_path / "model" / "tokenizer.json").write_text('{"version": "1.0"}')
    assert dry_run(*words) == 2
    assert "/model: its tokenizer can't be read (KeyError: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--dry-run", "--gpu", "h300"], "--gpu h300 is not known: b200, h200"),
        (["--gpu", "h200"], "--gpu and --verbose need --dry-run"),
        (["--verbose"], "--gpu and --verbose need --dry-run"),
        (["--dry-run", "--rehearse"], "--rehearse excludes it"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", *words])
    assert ended.value.code == 2
    assert wrong in capsys.readouterr().err


def test_padding_costs_the_prompts_of_all_responses() -> None:
    words = ["objective.name=grpo", "train.rollouts=8", "generator.max_prompt_tokens=1000", "generator.max_tokens=500"]
    config = load(None, words, lambda text: None)
    assert "about 2.4 times the tokens" in describe_layout(config, "padded")  # 8 x 1500 / (1000 + 8 x 500)
    assert "unknown before the model loads" in describe_layout(config, None)
    assert describe_layout(config, "packed") == "rows: packed, prompts shared"


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (LlamaConfig(**SIZES), "rows: packed, prompts shared"),
        (PADDED["qwen3.5"], "rows: padded to one length, prompt computed for each response: about "),
    ],
    ids=["llama", "qwen3.5"],
)
def test_the_dry_run_has_a_line(
    config: PreTrainedConfig, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(config, tmp_path / "model")
    assert dry_run(f"model.path={path}") == 0
    (found,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("rows:")]
    assert found.startswith(line)


def test_the_dry_run_refuses_a_mixture_of_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Qwen3MoeConfig(**SIZES, head_dim=16, num_experts=4, moe_intermediate_size=16)
    path = folder(config, tmp_path / "model")
    capsys.readouterr()  # what saving the model said
    assert dry_run(f"model.path={path}") == 2
    said = capsys.readouterr().err
    assert "mixture of experts" in said
    assert said.count("\n") == 1
