"""The house keeps its shape: the numbers of `tests.support.structure` that a change may not worsen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support import structure
from tests.support.structure import PRODUCT, Module, modules_below


@pytest.fixture(scope="module")
def product() -> Sequence[Module]:
    return modules_below(*PRODUCT)


@pytest.fixture(scope="module")
def tests() -> Sequence[Module]:
    return modules_below("tests")


def test_a_public_class_name_occurs_once(product: Sequence[Module]) -> None:
    assert structure.named_twice(structure.public_classes(product)) == []


def test_a_file_name_occurs_once(product: Sequence[Module], tests: Sequence[Module]) -> None:
    """But for the two commands that have a loop behind them, and `conftest.py`, whose name is pytest's."""
    twice = structure.named_twice(structure.file_names(product))
    assert [line.partition(":")[0] for line in twice] == ["evaluate.py", "train.py"]
    ours = [module for module in tests if not module.path.endswith("conftest.py")]
    assert structure.named_twice(structure.file_names(ours)) == []


def test_no_test_imports_a_benchmark(tests: Sequence[Module]) -> None:
    """What a test and a benchmark share is in `tests/support`, and the benchmark imports it from there."""
    assert structure.importers_of_benchmarks(tests) == []
