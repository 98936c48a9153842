"""The pages of objectives, of keys and of other trainers' keys are what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from docs.tools.configuration_page import configuration_page
from docs.tools.foreign_keys_table import DIFFERENCES, fill_keys
from docs.tools.objectives_page import MIXED, WRONG_NOVELTY, advantages, fill_tables
from raypoly.algorithms import losses, objectives
from raypoly.algorithms.objectives import KNOWN, build
from raypoly.core import settings
from raypoly.core.config_keys import config_keys
from raypoly.core.foreign_keys import NAMES
from raypoly.core.plugins import load_plugin
from raypoly.rollouts import scaffolds

PAGE = Path(__file__).resolve().parents[4] / "docs" / "objectives.md"
KEYS = PAGE.with_name("configuration.md")
TEXT = PAGE.read_text()


def test_the_page_of_objectives_is_true() -> None:
    assert fill_tables(TEXT) == TEXT, "docs/objectives.md is out of date: run `make docs`"


@pytest.mark.parametrize("name", KNOWN)
def test_every_objective_is_described_and_compared_twice(name: str) -> None:
    """Those that read no rewards are described alone."""
    assert len(re.findall(rf"^\| \[?`{name}`", TEXT, re.M)) == (3 if build(name).reads_rewards else 1)


def test_what_is_no_table_stays_as_it_is() -> None:
    stale = re.sub(r"^\| `grpo` \|.*\n", "", TEXT, flags=re.M)
    assert stale != TEXT
    assert fill_tables(stale) == TEXT
    assert fill_tables("no table here\n") == "no table here\n"


def test_the_worked_example_pays_a_wrong_novelty_and_punishes_the_right_majority() -> None:
    raw = advantages("poly_epo", WRONG_NOVELTY)
    unit = build("poly_epo", reduction="unit").advantages(rewards=WRONG_NOVELTY.rewards, labels=[1] * 6 + [2, 3])
    np.testing.assert_allclose(unit[[0, 6, 7]], [-0.28125, 1.09375, 0.59375], atol=1e-12)
    np.testing.assert_allclose(raw, 5 * unit, atol=1e-12)
    assert all(number in TEXT for number in ("-0.28", "+1.09", "+0.59"))


def test_what_the_page_says_of_a_wrong_novelty_and_of_no_attempt_is_so() -> None:
    numbers = {name: advantages(name, MIXED) for name in KNOWN if build(name).reads_rewards}
    for name in ("poly_epo", "grpo_diversity"):
        assert numbers[name][6] > numbers[name][3]
    assert numbers["darling"][6] == numbers["darling"][3]
    assert numbers["uniqueness_aware"][6] < numbers["uniqueness_aware"][3]
    assert all(values[7] < 1e-12 for values in numbers.values())
    assert all(advantages(name, WRONG_NOVELTY)[7] < 0 for name in ("darling", "uniqueness_aware"))
    assert advantages("strategy_coverage", WRONG_NOVELTY).tolist() == [0] * 6 + [1, 0]


@pytest.mark.parametrize("command", re.findall(r"`(objective\.name=\S+ [^`]*)`", TEXT))
def test_a_published_combination_is_one_that_a_config_takes(command: str) -> None:
    config = settings.load(None, command.split(), note=lambda text: None)
    build(config.objective.name, **config.objective.parameters).check(config.train.rollouts)
    taken, given = losses.of_run(config).config.model_dump(), config.loss.parameters
    assert {key: taken[key] for key in given} == given


def test_the_configuration_page_is_true() -> None:
    assert KEYS.read_text() == configuration_page(), "docs/configuration.md is out of date: run `make docs`"


def test_the_table_of_other_trainers_keys_is_true() -> None:
    page = KEYS.with_name("from-verl.md").read_text()
    assert page == fill_keys(page), "docs/from-verl.md is out of date: run `make docs`"
    assert DIFFERENCES.keys() <= {key for key, names in NAMES.items() if names.verl or names.trl}


def test_every_key_is_on_the_page() -> None:
    text = configuration_page()
    assert [key.name for key in config_keys() if f"| `{key.name}` |" not in text] == []
    for section, parts in (("objective", objectives), ("loss", losses), ("scaffold", scaffolds)):
        for name in parts.KNOWN:
            fields = load_plugin(name, parts.KNOWN, f"{section}.name").Config.model_fields
            own = text.partition(f"### {section}.name={name}\n")[2].partition("\n##")[0]
            assert [key for key in fields if f"| `{section}.{key}` |" not in own] == [], name
