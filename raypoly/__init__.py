"""raypoly: reinforcement learning from verifiable rewards over *sets* of rollouts, native to Ray."""

from typing import TYPE_CHECKING, Any

from raypoly.core import __version__

if TYPE_CHECKING:
    from raypoly.analysis.reports.comparison_page import compare
    from raypoly.analysis.run import Run

__all__ = ["Run", "__version__", "compare"]


def __getattr__(name: str) -> Any:
    """`raypoly.Run` and `raypoly.compare` on first use: actors need no pyarrow and no config."""
    if name == "Run":
        from raypoly.analysis.run import Run

        return Run
    if name == "compare":
        from raypoly.analysis.reports.comparison_page import compare

        return compare
    raise AttributeError(f"module 'raypoly' has no attribute {name!r}")
