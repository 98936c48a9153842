"""A preparation's config: YAML, dotted overrides, and one sentence for each mistake."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.settings import CONFIGS, load_of
from raypoly.data.preparing import PrepareConfig

FILE = "sources:\n  mine: {path: rows.jsonl, since: 2025-03-01}\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "mine.yaml").write_text(FILE)
    return str(tmp_path / "mine.yaml")


@pytest.mark.parametrize("path", sorted((CONFIGS / "prepare").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_that_is_shipped_is_taken(path: Path) -> None:
    assert path.read_text().startswith("# ")
    assert load_of(PrepareConfig, str(path), []).run.name == path.stem


def test_overrides_reach_into_sources_and_sections(file: str) -> None:
    config = load_of(
        PrepareConfig, file, ["sources.mine.path=2026", "sources.more.path=b", "band.high=15", "sampling=off"]
    )
    assert config.sources["mine"].path == "2026"
    assert config.sources["mine"].since == date(2025, 3, 1)
    assert config.sources["more"].path == "b"
    assert (config.band.high, config.sampling.samples, config.run.name) == (15, 0, "mine")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("sources.mine.pth=1", r"no key sources\.mine\.pth .*did you mean sources\.NAME\.path\?"),
        ("band.low=13", r"low=13 is above high=12, so nothing would be kept"),
        ("sources.mine.since=soon", r"sources\.mine\.since=soon .*should be a day such as 2025-03-01"),
        ("split.by=chance", r"split\.by=chance .*should be `seed` or `date`"),
        ("sources.mine.hub=a/b", r"sources\.mine .*give either path or hub"),
    ],
)
def test_a_mistake_is_one_sentence(file: str, override: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        load_of(PrepareConfig, file, [override])
    assert "\n" not in str(caught.value)


def test_nobody_is_asked_what_is_only_compared(file: str) -> None:
    with pytest.raises(UsageError, match=r"against\.eval\.template makes no prompt"):
        load_of(PrepareConfig, file, ["against.eval.path=b", "against.eval.template=base"])


def test_a_config_without_sources_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("band: {low: 1}\n")
    with pytest.raises(UsageError, match=r"names no file of problems: give it sources\.NAME\.path"):
        load_of(PrepareConfig, str(tmp_path / "empty.yaml"), [])
