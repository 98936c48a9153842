"""Text of others is seen as it is, and durations read alike everywhere."""

from __future__ import annotations

import pytest

from raypoly.core.text import duration, visible

SEEN = {
    "if user != 'admin\u202e\u2066'": r"if user != 'admin\u202e\u2066'",
    "a\u200bb\u200d\ufeffc\u00add": r"a\u200bb\u200d\ufeffc\xadd",
    "\x1b[2J\x07\x9b\x7f": r"\x1b[2J\x07\x9b\x7f",
    "x\u00a0=\u3000\u2028y": r"x\xa0=\u3000\u2028y",
    "\u3164 = 1": r"\u3164 = 1",
    "tag \U000e0041": r"tag \U000e0041",
    "ok\U000e0148\u180b": r"ok\U000e0148\u180b",
    "half \ud800": r"half \ud800",
    "one\r\ntwo\rthree\tfour\n": "one\ntwo\\rthree\tfour\n",
    "Größe, 数, 🙂, pass@8 ±0.1": "Größe, 数, 🙂, pass@8 ±0.1",
}


@pytest.mark.parametrize(("written", "seen"), SEEN.items())
def test_a_character_that_hides_or_commands_is_seen_as_its_escape(written: str, seen: str) -> None:
    assert visible(written) == seen


def test_durations_have_one_form() -> None:
    told = ["0.3 s", "44 s", "99 s", "4.5 min", "99.9 min", "11.1 h"]
    assert [duration(seconds) for seconds in (0.31, 44, 99.4, 270, 5994, 40_000)] == told
