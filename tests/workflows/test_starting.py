"""What a run needs before it starts."""

from pathlib import Path

import pytest

from raypoly.errors import UsageError
from workflows.starting import _downloaded


def test_a_folder_that_is_missing_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"model.path={tmp_path}/no-such is no folder here and could not be had"):
        _downloaded(str(tmp_path / "no-such"))
