"""The decisions of `raypoly prepare`, without Ray: read, compare, count, choose, split, write.

    config = load_of(PrepareConfig, "configs/prepare/mine.yaml", ["sampling.samples=8"])
    loaded = load_sources(config.sources)

The driver, which runs solutions and samples the base model, is `workflows/prepare`.
"""

from raypoly.data.preparing.prepare_config import PrepareConfig
from raypoly.data.preparing.sources import load_sources

__all__ = ["PrepareConfig", "load_sources"]
