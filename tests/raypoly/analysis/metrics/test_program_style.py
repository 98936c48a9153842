"""How programs are written: comments and names."""

from __future__ import annotations

import pytest

from raypoly.analysis.metrics.program_style import ProgramStyle, program_style


@pytest.mark.parametrize(
    ("code", "style"),
    [
        ("", None),
        (" \n", None),
        ("return 1", ProgramStyle(0.0, None)),
        ("ab = len(abcd)  # xyz", ProgramStyle(4 / 16, 3.0)),
        ("x = '# no' + \"# no\"", ProgramStyle(0.0, 1.0)),
        ("x = '''\n# no\n'''\n#yes", ProgramStyle(4 / 15, 1.0)),
        ("x = 'open\nyy = 1 #c", ProgramStyle(2 / 13, 1.5)),
        ("x = 'it\\'s # no'", ProgramStyle(0.0, 1.0)),
        ("for self in range(3): pass", ProgramStyle(0.0, None)),
    ],
)
def test_comments_and_names_are_measured_outside_of_strings(code: str, style: ProgramStyle | None) -> None:
    assert program_style(code) == style


@pytest.mark.parametrize("part", ['"', "'", '"""a\\', "'\\", "\\", "#", "a", '"\n', "\"''"])
def test_any_text_takes_one_pass(part: str) -> None:
    """A pattern that tries places again would take minutes here."""
    assert program_style(part * 100_001) is not None
