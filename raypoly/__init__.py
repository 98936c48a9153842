"""raypoly: reinforcement learning from verifiable rewards over *sets* of rollouts, native to Ray."""

from typing import TYPE_CHECKING, Any

from raypoly.version import __version__

if TYPE_CHECKING:
    from raypoly.run import Run

__all__ = ["Run", "__version__"]


def __getattr__(name: str) -> Any:
    """`raypoly.Run` on first use: actors that import raypoly need no pyarrow and no config for it."""
    if name == "Run":
        from raypoly.run import Run

        return Run
    raise AttributeError(f"module 'raypoly' has no attribute {name!r}")
