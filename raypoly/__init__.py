"""raypoly: reinforcement learning from verifiable rewards over *sets* of rollouts, native to Ray."""

from typing import TYPE_CHECKING, Any

from raypoly.core import __version__

if TYPE_CHECKING:
    from raypoly.analysis.reports.comparison_page import compare
    from raypoly.analysis.run import Run

__all__ = ["Run", "__version__", "compare"]
_PLACES = {"Run": "raypoly.analysis.run", "compare": "raypoly.analysis.reports.comparison_page"}


def __getattr__(name: str) -> Any:
    """`raypoly.Run` and `raypoly.compare` on first use: actors need no pyarrow and no config."""
    if name not in _PLACES:
        raise AttributeError(f"module 'raypoly' has no attribute {name!r}")
    from importlib import import_module

    from raypoly.core.errors import MissingPackage

    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error) or error from error
