"""raypoly: reinforcement learning from verifiable rewards over *sets* of rollouts, native to Ray."""

from typing import TYPE_CHECKING, Any

from raypoly.core import __version__

if TYPE_CHECKING:
    from raypoly.algorithms.objectives import build as objective
    from raypoly.analysis.reports.comparison_page import compare
    from raypoly.analysis.run import Run
    from raypoly.integrations.in_process import Verifier
    from raypoly.integrations.notebook_trainer import Trainer

__all__ = ["Run", "Trainer", "Verifier", "__version__", "compare", "objective"]
_PLACES = {
    "Run": ("raypoly.analysis.run", "Run"),
    "Trainer": ("raypoly.integrations.notebook_trainer", "Trainer"),
    "Verifier": ("raypoly.integrations.in_process", "Verifier"),
    "compare": ("raypoly.analysis.reports.comparison_page", "compare"),
    "objective": ("raypoly.algorithms.objectives", "build"),
}


def __getattr__(name: str) -> Any:
    """Each on first use: `import raypoly` loads nothing. Raises `MissingPackage` where an extra is needed."""
    if name not in _PLACES:
        raise AttributeError(f"module 'raypoly' has no attribute {name!r}")
    from importlib import import_module

    from raypoly.core.errors import MissingPackage

    try:
        place, what = _PLACES[name]
        return getattr(import_module(place), what)
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error) or error from error
