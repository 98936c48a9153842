"""A run ends at a plateau, which its rows alone decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.config import Config, StopSection
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.run.plateau import Plateau, has_ended, stops_after

VECTORS = Path(__file__).parents[4] / "shared" / "vectors" / "cppo.json"


def test_the_shared_vectors() -> None:
    if not VECTORS.is_file():
        pytest.skip("the shared vectors are not here")
    for case in json.loads(VECTORS.read_text())["warm_up_plateau"]:
        given = case["input"]
        found = stops_after(given["accepted"], given["window"], given["least_gain"])
        assert found == case["expected"]["stops_after_steps"], case["name"]


def test_the_first_plateau_counts_and_none_comes_before_two_windows() -> None:
    assert stops_after([1, 1, 1], 2, 0.1) is None
    assert stops_after([1, 1, 1, 1, 9, 9], 2, 0.1) == 4
    assert stops_after([1, 2, 3, 4, 5, 5, 5, 5], 2, 0.1) == 8
    assert stops_after([], 1, 0.0) is None


def test_a_window_with_an_unknown_value_decides_nothing() -> None:
    assert stops_after([1, None, 1, 1, 1, 1], 2, 0.1) == 6


def rows(values: list[Any]) -> list[dict[str, Any]]:
    return [{"step": step, "loss": value, "seconds": {"total": 1.0}} for step, value in enumerate(values)]


def test_a_measure_with_a_minus_sign_is_to_fall() -> None:
    falling = rows([5, 4, 3, 2, 2, 2])
    for measure, ends in (("-loss", [False] * 6 + [True]), ("loss", [False] * 4 + [True] * 3)):
        plateau = Plateau(StopSection(measure=measure, window=2, least_gain=0.6))
        for row in reversed(falling):
            plateau.take(row)
            plateau.take(row)
        assert [plateau.ends_by(steps) for steps in range(7)] == ends


def test_without_a_measure_a_run_ends_with_its_steps() -> None:
    plateau = Plateau(StopSection())
    for row in rows([1] * 100):
        plateau.take(row)
        plateau.check(row)
    assert not plateau.ends_by(100)
    assert has_ended(Config(), 80, lambda: [])
    assert not has_ended(Config(), 79, lambda: rows([1] * 79))


def test_a_run_has_ended_at_its_plateau_and_not_before() -> None:
    config = load(None, ["train.stop.measure=-loss", "train.stop.window=2"], str)
    assert not has_ended(config, 3, lambda: rows([1, 1, 1]))
    assert has_ended(config, 4, lambda: rows([1, 1, 1, 1]))
    assert not has_ended(config, 4, lambda: rows([1, None, 1, 1]))


@pytest.mark.parametrize("measure", ["los", "seconds"])
def test_a_measure_that_no_row_has_is_refused_in_one_sentence(measure: str) -> None:
    plateau = Plateau(StopSection(measure=measure))
    with pytest.raises(UsageError, match=rf"train.stop.measure={measure} is no measure of a step: .* has loss\."):
        plateau.check(rows([1.0])[0])


def test_the_keys_are_set_by_dots_and_may_change_on_resume() -> None:
    from raypoly.run.run_identity import resumable_keys

    config = load(None, ["train.stop.measure=-loss", "train.stop.least_gain=0.1"], str)
    assert (config.train.stop.measure, config.train.stop.window, config.train.stop.least_gain) == ("-loss", 10, 0.1)
    assert {"train.stop.measure", "train.stop.window", "train.stop.least_gain"} <= resumable_keys(Config)
    with pytest.raises(UsageError, match=r"train.stop.window=0 .* should be a whole number, at least 1"):
        load(None, ["train.stop.window=0"], str)
