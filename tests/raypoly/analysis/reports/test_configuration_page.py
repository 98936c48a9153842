"""The page of keys is what the models say."""

from __future__ import annotations

from pathlib import Path

from docs.tools.configuration_page import configuration_page
from raypoly.algorithms import losses, objectives
from raypoly.core.config_keys import config_keys
from raypoly.core.plugins import load_plugin
from raypoly.rollouts import scaffolds

PAGE = Path(__file__).resolve().parents[4] / "docs" / "configuration.md"


def test_the_configuration_page_is_true() -> None:
    assert PAGE.read_text() == configuration_page(), "docs/configuration.md is out of date: run `make docs`"


def test_every_key_is_on_the_page() -> None:
    text = configuration_page()
    assert [key.name for key in config_keys() if f"| `{key.name}` |" not in text] == []
    for section, parts in (("objective", objectives), ("loss", losses), ("scaffold", scaffolds)):
        for name in parts.KNOWN:
            fields = load_plugin(name, parts.KNOWN, f"{section}.name").Config.model_fields
            own = text.partition(f"### {section}.name={name}\n")[2].partition("\n##")[0]
            assert [key for key in fields if f"| `{section}.{key}` |" not in own] == [], name
