"""How often intervals hold the truth and tests reject. `python -m benchmarks.coverage` does all of it, with more
experiments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.simulated_cell import Cell
from tests.support.simulated_experiments import all_cells

_FEW = 400
_CELLS = {cell.name: cell for cell in all_cells()}
_SLOW = "random signs"
_CHOSEN = {name: cell for i, (name, cell) in enumerate(_CELLS.items()) if i % 4 == 0 and not name.startswith(_SLOW)}


@pytest.mark.parametrize("cell", _CHOSEN.values(), ids=_CHOSEN.keys())
def test_a_quarter_of_the_kinds_keep_their_bounds(cell: Cell) -> None:
    """400 experiments a kind."""
    found = cell.measured(_FEW, np.random.default_rng(sum(cell.name.encode())))
    assert found.ok, f"{found.share:.3f}, not within {found.low} to {found.high}"
