"""`raypoly evaluate --run` takes the run's own number of samples, and no response twice for two."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from tests.support.two_methods import TwoMethods
from workflows.evaluate import evaluate_run


def test_a_greedy_validation_takes_one_sample(tmp_path: Path) -> None:
    config = load(None, ["evaluate.validation_greedy=true", "evaluate.validation_samples=1"])
    with pytest.raises(UsageError, match=r"gives the same response 4 times: ask for --samples 1"):
        evaluate_run(str(tmp_path / "run"), config, "validation", 4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("split", "samples"), [("test", 5), ("train", 5), ("validation", 3)])
def test_without_a_number_it_is_that_of_the_splits_own_evaluations(tmp_path: Path, split: str, samples: int) -> None:
    config = load(None, ["evaluate.samples=5", "evaluate.validation_samples=3"])
    with pytest.raises(UsageError, match=rf"\b{samples}\b"):
        evaluate_run(str(tmp_path / "run"), config, split, None, {"tuple": TwoMethods()})
