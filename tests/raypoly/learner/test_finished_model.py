"""The finished model's files: those that transformers writes, bit for bit, made a weight at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load as load_safetensors
from transformers import AutoModelForCausalLM, AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel

from raypoly.algorithms.losses import build
from raypoly.core.config import TrainConfig
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.run.store.shards import INDEX, WEIGHTS
from tests.support.pretrained_files import pretrained_files
from tests.support.random_model import random_model
from tests.support.random_rows import random_rows, update


def neox(folder: Path) -> Path:
    """A model whose head has another name in its file than in the module."""
    random_model(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    words = len(AutoTokenizer.from_pretrained(folder))
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=words, **sizes, **ends)).save_pretrained(folder)
    assert "embed_out.weight" in load_safetensors((folder / WEIGHTS).read_bytes())
    return folder


def learned(folder: Path) -> tuple[PolicyLearner, PreTrainedModel]:
    """A learner after an update, and transformers' model with its weights."""
    one = PolicyLearner(folder, TrainConfig(), build("policy_gradient"), 1.0)
    update(one, random_rows())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: torch.from_numpy(array) for name, array in one.export().items()})
    assert not all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    return one, model


def written(model: PreTrainedModel, folder: Path) -> dict[str, bytes]:
    model.save_pretrained(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("kind", ["untied", "tied", "renamed"])
def test_files_are_those_that_transformers_writes(tmp_path: Path, kind: str) -> None:
    folder = neox(tmp_path / "start") if kind == "renamed" else random_model(tmp_path / "start", tied=kind == "tied")
    one, model = learned(folder)
    assert pretrained_files(one) == written(model, tmp_path / "whole")
    (tmp_path / "several").mkdir()
    for name, data in (in_several := pretrained_files(one, most=100_000)).items():
        (tmp_path / "several" / name).write_bytes(data)
    assert len(in_several) > 4
    assert in_several[INDEX]
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "several").state_dict()
    assert all(torch.equal(opened[name], tensor) for name, tensor in model.state_dict().items())


def test_in_bfloat16_each_weight_is_rounded_once_and_the_config_says_so(tmp_path: Path) -> None:
    one, model = learned(random_model(tmp_path / "start"))
    (tmp_path / "half").mkdir()
    for name, data in pretrained_files(one, dtype="bfloat16").items():
        (tmp_path / "half" / name).write_bytes(data)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert opened.dtype == torch.bfloat16
    for name, tensor in model.state_dict().items():
        assert torch.equal(opened.state_dict()[name], tensor.to(torch.bfloat16)), name


def test_wrong_sampling_keys_of_the_starting_model_lose_no_finished_model(tmp_path: Path) -> None:
    """transformers refuses to save them; the run has learned for hours by then."""
    one, _ = learned(random_model(tmp_path / "start"))
    whole = pretrained_files(one)
    one._model.generation_config.update(do_sample=False, temperature=0.5)
    with pytest.raises(ValueError, match="GenerationConfig is invalid"):
        one._model.save_pretrained(tmp_path / "never")
    assert pretrained_files(one)[WEIGHTS] == whole[WEIGHTS]
