"""The decisions of `raypoly prepare`, without Ray: read, compare, count, choose, split, write, explain.

    config = load_config("configs/prepare/mine.yaml", ["sampling.samples=8"])
    loaded = load_sources(config.sources)

The driver, which runs solutions and samples the base model, is `workflows/prepare`.
"""

from raypoly.data.preparing.prepare_config import PrepareConfig, load_config
from raypoly.data.preparing.sources import load_sources

__all__ = ["PrepareConfig", "load_config", "load_sources"]
