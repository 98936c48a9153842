"""What a run needs before it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from raypoly.errors import UsageError
from workflows.starting import _downloaded


def test_a_folder_that_is_missing_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"model.path={tmp_path}/no-such is no folder here and could not be had"):
        _downloaded(str(tmp_path / "no-such"))


def test_a_driver_says_where_its_run_lies_before_it_loads_a_library_of_models() -> None:
    heavy = ("transformers", "torch._dynamo", "vllm")
    asked = f"import sys, workflows.train; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
