"""A gate's folder: a Hugging Face folder, and `gate.json`, which says how it is asked and how good it is.

    GateFile(...).write(folder)         # seals the folder: these weights passed the validation
    read_gate(folder)                   # raises one sentence where it can't be used

`gate.json` has a hash of the other files. So its own hash stands for the whole folder, and a gate that is trained
further must be sealed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raypoly.core.caches import file_sha256
from raypoly.core.errors import UsageError
from raypoly.data.formats.row_fields import error_reason

FILE = "gate.json"
_SEAL = "train the gate and let raypoly.recipes.cppo.gate_validation.seal_gate write it (docs/cppo.md)"


class GateFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    words: tuple[str, str]
    """For a valid plan, and for another."""
    template: str
    """Of its prompts, with `{statement}` and `{plan}`."""
    chat_template_kwargs: Mapping[str, Any] = {}
    """Variables of the chat template that its rows were rendered with."""
    tau: float = Field(ge=0, le=1)
    recall: float | None
    """That `tau` was chosen for; None where `tau` was given."""
    validation: Mapping[str, float]
    """`auc`, `balanced_accuracy`, `precision`, `recall`, and how many held-out `plans` they are of."""
    rows: str
    """SHA-256 of its training rows."""
    weights: str
    """SHA-256 of the folder's other files."""

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Read it, without a look at the other files. Raises `UsageError`."""
        path = folder / FILE
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UsageError(f"stages.gate.path={folder} has no {FILE}, so it is no gate yet: {_SEAL}.") from error
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            reason = error_reason(error) if isinstance(error, ValueError) else error.strerror
            raise UsageError(f"{path} can't be used ({reason}): {_SEAL}.") from error

    def write(self, folder: Path) -> None:
        partial = folder / f".{FILE}"
        partial.write_text(json.dumps(self.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
        partial.replace(folder / FILE)

    def check_thresholds(self, folder: Path, recall: float, tau: float | None) -> None:
        """Raise `UsageError` unless the gate in this folder has this `tau`, or without it one chosen for this `recall`:
        what is after it must not go on with another threshold."""
        if self.recall == recall if tau is None else self.tau == tau:
            return
        had = f"tau={self.tau:g}" if self.recall is None else f"recall={self.recall:g}"
        wanted = f"recall={recall:g}" if tau is None else f"tau={tau:g}"
        raise UsageError(
            f"The gate in {folder} was sealed with {had}, and {wanted} is asked for: give {had} back, or give the arm "
            "another name."
        )


def read_gate(folder: Path) -> GateFile:
    """The gate in a folder. Raises `UsageError` where there is none, or where another file has changed since."""
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"stages.gate.path={folder} is no Hugging Face folder here: name the folder of a gate's model."
        )
    found = GateFile.of_folder(folder)
    if found.weights != weights_hash(folder):
        raise UsageError(f"The model in {folder} is not the one that {FILE} was written for: {_SEAL} again.")
    return found


def gate_hash(folder: Path, given: str | None = None) -> str:
    """SHA-256, hex, of its `gate.json`. Raises `UsageError` if another one is `given`, or as `read_gate`."""
    read_gate(folder)
    found = hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
    if given not in (None, found):
        raise UsageError(f"stages.gate.sha256={given}, but the gate in {folder} has {found}: it is another gate.")
    return found


def weights_hash(folder: Path) -> str:
    """SHA-256, hex, over the folder's files but `gate.json` and hidden ones, by name."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        if file.is_file() and name != Path(FILE) and not any(part.startswith(".") for part in name.parts):
            found = file.stat()
            hashed = _file_hash(file, (found.st_size, found.st_mtime_ns))
            digest.update(f"{name.as_posix()}\n{hashed}\n".encode())
    return digest.hexdigest()


@cache  # a gate has gigabytes, and a start reads it three times; another stamp is another file
def _file_hash(file: Path, stamp: tuple[int, int]) -> str:
    return file_sha256(file)
