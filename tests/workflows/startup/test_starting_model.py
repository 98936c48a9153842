"""What a run needs before it starts."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.data import build_problem_set
from workflows.startup.starting_model import starting_model


def test_a_folder_that_is_missing_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    config = Config.model_validate({"model": {"path": str(tmp_path / "no-such")}})
    with pytest.raises(UsageError, match=f"model.path={tmp_path}/no-such is no folder here and could not be had"):
        asyncio.run(starting_model(config, build_problem_set(config.problems)))


def test_a_gguf_file_becomes_a_folder_that_keeps_the_name_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf", reason="needs the package gguf (pip install 'raypoly[gguf]')")
    from tests.support.gguf_files import write_gguf

    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
    path = str(write_gguf(tmp_path / "tiny.gguf"))
    config = Config.model_validate({"model": {"path": path}})
    model = asyncio.run(starting_model(config, build_problem_set(config.problems)))
    assert model.name == path
    assert model.here().parent == tmp_path / "cache" / "gguf"
    assert (model.here() / "model.safetensors").is_file()


def test_a_driver_of_the_default_run_loads_no_library_of_models_or_tensors() -> None:
    """Its errors come a second after the command, and it holds 130 MiB less."""
    heavy = ("transformers", "torch", "vllm", "openai")
    asked = (
        "import sys, workflows.train; from raypoly.algorithms import losses; from raypoly.core import settings;"
        "losses.of_run(settings.load(None, [], note=lambda text: None));"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
