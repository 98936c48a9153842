"""The house keeps its shape: the numbers of `tests.support.structure` that a change may not worsen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support import structure
from tests.support.structure import PRODUCT, Module, modules_below

PRIVATE_NAMES = 30
"""The most that tests may reach in all. Test what a module promises before you raise it."""
TRAIN_LINES, STEP_LINES = 148, 30
PRODUCT_LINES, PRODUCT_FILES, PROSE_WORDS, TOP_ENTRIES = 73_057, 467, 76_626, 18
"""Those of today; lines are on their way to 54,000. Lower them as the house shrinks."""


@pytest.fixture(scope="module")
def product() -> Sequence[Module]:
    return modules_below(*PRODUCT)


@pytest.fixture(scope="module")
def tests() -> Sequence[Module]:
    return modules_below("tests")


def test_no_modules_import_each_other_not_even_late(product: Sequence[Module]) -> None:
    assert structure.import_circles(product) == []


def test_imports_point_one_way(product: Sequence[Module]) -> None:
    assert structure.upward_imports(product) == []


def test_a_room_imports_only_those_before_it(product: Sequence[Module]) -> None:
    assert structure.upward_rooms(product) == []


def test_the_house_grows_no_larger(product: Sequence[Module]) -> None:
    assert sum(module.lines for module in product) <= PRODUCT_LINES
    assert len(product) <= PRODUCT_FILES
    assert structure.prose_words(product) <= PROSE_WORDS
    assert len(structure.top_entries()) <= TOP_ENTRIES


def test_a_public_class_name_occurs_once(product: Sequence[Module]) -> None:
    assert structure.named_twice(structure.public_classes(product)) == []


def test_a_file_name_occurs_once(product: Sequence[Module], tests: Sequence[Module]) -> None:
    """But for `train.py`, a command and its loop, and `conftest.py`, whose name is pytest's."""
    twice = structure.named_twice(structure.file_names(product))
    assert [line.partition(":")[0] for line in twice] == ["train.py"]
    ours = [module for module in tests if not module.path.endswith("conftest.py")]
    assert structure.named_twice(structure.file_names(ours)) == []


def test_a_function_fits_on_a_screen(product: Sequence[Module]) -> None:
    assert structure.long_functions(product) == []


def test_no_test_imports_a_benchmark(tests: Sequence[Module]) -> None:
    """What a test and a benchmark share is in `tests/support`, and the benchmark imports it from there."""
    assert structure.importers_of_benchmarks(tests) == []


def test_few_private_names_are_reached_from_tests(tests: Sequence[Module]) -> None:
    reached = structure.private_names(tests)
    assert len(reached) <= PRIVATE_NAMES, "\n".join(reached)


def test_what_a_config_names_is_built_once_and_handed_over(product: Sequence[Module]) -> None:
    """By the start of a run, and by an actor in its own process; a recipe's workflows stand for themselves."""
    outside = [module for module in product if module.path.startswith(("actors/", "workflows/"))]
    building = {module.path for module in outside if ".of_run(" in module.text}
    own = {path for path in building if "/cppo/" in path or "gate" in path}
    stages = {f"workflows/step/stages/{name}.py" for name in ("reward_stage", "token_stages")}
    builds = {"workflows/startup/run_parts.py", *stages}
    assert building - own <= {*builds, "actors/learner.py", "actors/reward_workers.py"}


def test_the_training_loop_is_read_on_one_screen(product: Sequence[Module]) -> None:
    (train,) = [module for module in product if module.path == "workflows/train.py"]
    assert train.lines <= TRAIN_LINES
    assert structure.function_lines(train, "step") <= STEP_LINES
