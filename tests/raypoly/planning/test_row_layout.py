"""`--dry-run` says how rows will go, as the learner then does it, and what padding costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, PreTrainedConfig, Qwen3MoeConfig

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.learner.policy_model import is_packed, load_model
from raypoly.planning.row_layout import describe_layout, row_layout
from tests.raypoly.learner.test_model_families import PACKED, PADDED
from tests.raypoly.learner.test_packing import SIZES, folder
from tests.raypoly.planning.test_dry_run import dry_run


@pytest.fixture
def no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PATH", "/nowhere")  # a GPU of the machine that tests is not asked
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # the command sets its own


def configured(*overrides: str) -> Config:
    return load(None, ["objective.name=grpo", *overrides], lambda text: None)


@pytest.mark.parametrize("name", [*PACKED, *PADDED])
def test_what_is_said_is_what_the_learner_does(name: str, tmp_path: Path) -> None:
    path = folder((PACKED | PADDED)[name], tmp_path)
    said = row_layout(str(path))
    assert said in (None, "packed" if is_packed(load_model(path, torch.device("cpu"))) else "padded")
    assert said is not None or name in ("granite", "cohere", "falcon mamba"), "their configs tell of no layers"


def test_the_tiny_and_the_published_models_are_packed_and_an_unknown_one_is_unknown() -> None:
    assert row_layout(None) == row_layout("Qwen/Qwen3-4B-Base") == "packed"
    assert row_layout("nobody/secret-70B") is None
    assert "unknown before the model loads" in describe_layout(configured(), None)


def test_a_text_model_within_a_larger_config_is_read(tmp_path: Path) -> None:
    text = PADDED["qwen3.5"].to_dict()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": text}))
    assert row_layout(str(tmp_path)) == "padded"


def test_padding_costs_the_prompts_of_all_responses() -> None:
    config = configured("train.rollouts=8", "generator.max_prompt_tokens=1000", "generator.max_tokens=500")
    assert "about 2.4 times the tokens" in describe_layout(config, "padded")  # 8 x 1500 / (1000 + 8 x 500)
    assert describe_layout(config, "packed") == "rows: packed, prompts shared"


@pytest.mark.usefixtures("no_runs")
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


@pytest.mark.usefixtures("no_runs")
def test_the_dry_run_refuses_a_mixture_of_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Qwen3MoeConfig(**SIZES, head_dim=16, num_experts=4, moe_intermediate_size=16)
    path = folder(config, tmp_path / "model")
    with pytest.raises(UsageError, match="mixture of experts"):
        row_layout(str(path))
    capsys.readouterr()
    assert dry_run(f"model.path={path}") == 2
    said = capsys.readouterr().err
    assert "mixture of experts" in said
    assert said.count("\n") == 1
