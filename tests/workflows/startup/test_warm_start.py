"""The warm start: an ordinary model folder, the same for the same seed, cached, and made again when damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from raypoly import Run
from raypoly.core.config import Config, ProblemsConfig, WarmStartConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.data import ProblemSet, build_problem_set
from tests.support.local_driver import SMALL, LocalDriver, wait_for
from tests.support.run_differences import run_differences
from workflows.startup.ray_cluster import local_ray
from workflows.startup.warm_start import ensure_warm_start


def short(seed: int = 0, budgets: bool = True) -> Config:
    return Config(
        warm_start=WarmStartConfig(seed=seed, steps=12, batch_size=16), problems=ProblemsConfig(budgets=budgets)
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with local_ray(num_cpus=2, include_dashboard=True):
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path))
    return tmp_path


def run(config: Config) -> tuple[Path, list[str]]:
    lines: list[str] = []
    return ensure_warm_start(config, build_problem_set(config.problems), lines.append), lines


@pytest.mark.usefixtures("cluster", "cache")
def test_the_folder_is_an_ordinary_model_made_once_and_repaired_to_the_same_bits() -> None:
    path, said = run(short())
    assert said[0].startswith("Starting Ray Train for the warm start: 12 supervised steps make the tiny model")
    assert re.fullmatch(r"warm start: step 10 of 12, loss [\d.]+, [\d.]+ s left", said[1])
    assert re.fullmatch(r"warm start: step 12 of 12, loss [\d.]+", said[2])
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    tokens = tokenizer("def f(n):\n return n\n", return_tensors="pt").input_ids
    assert torch.isfinite(model(tokens).logits).all()
    for config in (short(), short(budgets=False)):
        assert run(config) == (path, [])

    weights = path / "model.safetensors"
    sound = weights.read_bytes()
    weights.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    again, said = run(short())
    assert again == path
    assert any("damaged" in line and "model.safetensors" in line for line in said)
    assert weights.read_bytes() == sound


def test_problems_that_are_no_puzzles_are_refused_with_a_way_out(cache: Path) -> None:
    other = Problem("two-sum", "Solve.", "f", TestSuite("calls", "[]"), source="rows.jsonl")
    with pytest.raises(UsageError, match=r"model\.path"):
        ensure_warm_start(short(), ProblemSet({"train": [other]}, ""))
    assert not list(cache.iterdir())


@pytest.mark.slow
def test_a_driver_killed_in_its_warm_start_makes_the_same_model_when_it_is_asked_again(tmp_path: Path) -> None:
    def driver(name: str) -> LocalDriver:
        folder = tmp_path / name
        overrides = [*SMALL, "warm_start.steps=60", "warm_start.batch_size=16", "train.steps=1"]
        return LocalDriver(folder / "run", overrides, {"RAYPOLY_CACHE": str(folder / "cache")})

    whole, killed = driver("whole"), driver("killed")
    for folder in (whole.folder, killed.folder):
        folder.parent.mkdir()
    assert whole.finish() == 0, whole.log()
    for moment in ("supervised steps make the tiny model", "step 20 of 60"):
        killed.start()
        wait_for(lambda moment=moment: moment in killed.log() or not killed.lives)
        killed.kill()
    assert killed.finish() == 0, killed.log()
    made = [list((tmp_path / name / "cache/warm-start").glob("*/model.safetensors")) for name in ("whole", "killed")]
    assert [len(paths) for paths in made] == [1, 1], "what was half made is not left behind"
    assert made[0][0].read_bytes() == made[1][0].read_bytes()
    assert run_differences(Run(killed.folder), Run(whole.folder)) == []
