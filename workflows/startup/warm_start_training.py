"""The training of the warm start: Ray Data writes examples, Ray Train learns them.

Torch, transformers, Ray Data and Ray Train are imported where they are used. Ray Train and Ray Data start some ten
processes, most of which import this file and need none of them.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raypoly.core.config import WarmStartConfig
from raypoly.core.errors import RaypolyError
from raypoly.core.progress_display import beside
from raypoly.core.text import duration
from raypoly.data.puzzles.puzzle_language import Puzzle
from raypoly.learner.supervised_examples import Recipe, tokenizer_texts

_BLOCK = 2048  # examples of one Ray Data task
_REPORT_EVERY = 10
_TRAIN_SETTINGS = {
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",  # 60 s is too short for imports on a busy laptop
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # waits for a minute where it can't tell two local clusters apart
}


def train_warm_start(
    config: WarmStartConfig, puzzles: list[Puzzle], threads: int, folder: Path, say: Callable[[str], None]
) -> None:
    """Fill `folder` with the tiny policy after its warm start on `threads`. Raises `RaypolyError` if that fails."""
    say(f"Starting Ray Train for the warm start: {config.steps} supervised steps make the tiny model, which is cached")
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    inbox = ray.remote(num_cpus=0)(_Inbox).options(scheduling_strategy=here).remote()
    with tempfile.TemporaryDirectory(prefix="raypoly-warm-start-") as storage, _print_lines_of(inbox, say):
        _train(config, puzzles, {"threads": threads, "inbox": inbox}, storage)
    for name, content in ray.get(inbox.files.remote()).items():
        (folder / name).write_bytes(content)


class _Inbox:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._files: dict[str, bytes] = {}

    def say(self, line: str) -> None:
        self._lines.append(line)

    def lines(self, known: int) -> Sequence[str]:
        return self._lines[known:]

    def keep(self, files: dict[str, bytes]) -> None:
        self._files = files

    def files(self) -> dict[str, bytes]:
        return self._files


@contextmanager
def _print_lines_of(inbox: Any, say: Callable[[str], None]) -> Iterator[None]:
    over = threading.Event()

    def follow() -> None:
        known = 0
        while True:
            last = over.wait(0.5)
            try:
                lines = ray.get(inbox.lines.remote(known))
            except Exception:  # of many kinds, by how far Ray has ended
                if ray.is_initialized():
                    raise
                return  # the run has ended
            for line in lines:
                say(line)
                known += 1
            if last:
                return

    with beside(follow, over):
        yield


def tokenizer_and_recipe(config: WarmStartConfig, puzzles: list[Puzzle]) -> tuple[Any, Recipe]:
    """The tiny model's tokenizer, and what decides its examples."""
    from raypoly.learner.tiny_model import build_tokenizer

    tokenizer = build_tokenizer(tokenizer_texts(puzzles, config.planned > 0))
    return tokenizer, Recipe(config, tuple(it.words for it in puzzles), tokenizer.backend_tokenizer.to_str())


def _train(config: WarmStartConfig, puzzles: list[Puzzle], task: dict[str, Any], storage: str) -> None:
    import ray.train
    from ray.data import ExecutionOptions
    from ray.train.torch import TorchTrainer

    _, recipe = tokenizer_and_recipe(config, puzzles)
    trainer = TorchTrainer(
        _worker,
        train_loop_config={"recipe": recipe, **task},
        scaling_config=ray.train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
        run_config=ray.train.RunConfig(name="warm-start", storage_path=storage),
        datasets={"train": _examples(recipe)},
        dataset_config=ray.train.DataConfig(execution_options=ExecutionOptions(preserve_order=True)),
    )
    for name, value in _TRAIN_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise RaypolyError(f"the warm start failed in Ray Train: {error}") from error


def _examples(recipe: Recipe) -> Any:
    import ray.data

    count = recipe.config.steps * recipe.config.batch_size
    ray.data.DataContext.get_current().enable_progress_bars = False  # one line every few steps says enough
    indices = ray.data.range(count, override_num_blocks=max(1, count // _BLOCK))
    return indices.map_batches(recipe.write, batch_size=None)


def _batches(batch_size: int) -> Iterator[dict[str, NDArray[Any]]]:
    import ray.train

    expected = 0
    for batch in ray.train.get_dataset_shard("train").iter_batches(batch_size=batch_size, batch_format="numpy"):
        if not np.array_equal(batch["id"], np.arange(expected, expected + len(batch["id"]))):
            raise RaypolyError(
                "Ray Data delivered the warm start's examples out of order: the result would not repeat."
            )
        expected += len(batch["id"])
        yield batch


def _worker(task: dict[str, Any]) -> None:
    import ray.train
    import torch

    from raypoly.learner.tiny_model import SupervisedTrainer, build_model, save_folder, tokenizer_from_json

    torch.set_num_threads(task["threads"])
    recipe: Recipe = task["recipe"]
    tokenizer, steps = tokenizer_from_json(recipe.tokenizer), recipe.config.steps
    trainer, loss = SupervisedTrainer(build_model(len(tokenizer), recipe.config.seed), recipe.config), float("nan")
    began = 0.0
    for batch in _batches(recipe.config.batch_size):
        loss = trainer.step(batch["ids"], batch["labels"])
        began = began or time.monotonic()  # after the first step, which waits for the first block of examples
        if trainer.done % _REPORT_EVERY == 0 or trainer.done == steps:
            left = (time.monotonic() - began) / (trainer.done - 1 or 1) * (steps - trainer.done)
            eta = f", {duration(left)} left" if trainer.done < steps else ""
            task["inbox"].say.remote(f"warm start: step {trainer.done} of {steps}, loss {loss:.3f}{eta}")
    ray.train.report({"step": trainer.done, "loss": loss})
    with tempfile.TemporaryDirectory() as name:
        save_folder(trainer.model, tokenizer, Path(name))
        ray.get(task["inbox"].keep.remote({file.name: file.read_bytes() for file in sorted(Path(name).iterdir())}))
