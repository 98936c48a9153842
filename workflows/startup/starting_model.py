from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import ray

from actors import ray_internals
from actors.model_files import ModelFiles, download_model
from raypoly.core.config import Config
from raypoly.core.gguf_models import GgufModel
from raypoly.data import ProblemSet
from workflows.startup.ray_cluster import joins_cluster
from workflows.startup.warm_start import ensure_warm_start


async def starting_model(config: Config, problem_set: ProblemSet, say: Callable[[str], None] = print) -> ModelFiles:
    """The policy's starting model: a folder's, a GGUF file's, the hub's, or the tiny one after its warm start."""
    if config.model.path is None:
        return ModelFiles(await asyncio.to_thread(ensure_warm_start, config, problem_set, say))
    return await named_model(config.model.path)


async def named_model(path: str) -> ModelFiles:
    """The model of a `model.path`: a folder's, a GGUF file's or the hub's. Raises `UsageError`."""
    gguf = GgufModel.find(path)
    if gguf is not None:
        return ModelFiles(await asyncio.to_thread(gguf.folder), title=gguf.name)
    folder = Path(path).expanduser().absolute()
    if folder.is_dir():
        return ModelFiles(folder)
    return ModelFiles(await asyncio.to_thread(download_model, path), hub=path)


def with_copy_for_other_nodes(model: ModelFiles) -> ModelFiles:
    """With a copy of a small folder if the cluster has nodes beside this one, or may get some."""
    if not joins_cluster():
        return model
    nodes = sum(node["Alive"] for node in ray.nodes())
    return model.with_copy() if nodes > 1 or ray_internals.autoscales() else model
