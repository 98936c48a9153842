"""A gate model's folder: a Hugging Face folder, and `gate.json`, which says how it is asked and how good it is.

    GateFile(...).write(folder)         # seals the folder: these weights passed the validation
    read_gate(folder)                   # raises one sentence where it can't be used
    with_gate_hash(config.gate)         # with `gate.sha256`: another gate is another run

`gate.json` names the content of the other files by a hash. So its own hash stands for the whole folder, and a gate that
was trained on must be sealed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raypoly.core.config import GateSection
from raypoly.core.errors import UsageError
from raypoly.data.formats.row_fields import error_reason

FILE = "gate.json"
_SEAL = "train the gate and let raypoly.recipes.cppo.gates.gate_acceptance.seal_gate write it (docs/cppo.md)"


class GateFile(BaseModel):
    """The content of `gate.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    words: tuple[str, str]
    """What the model says of a valid plan, and of another."""
    template: str
    """The text of its prompts, with `{statement}` and `{plan}`."""
    tau: float = Field(ge=0, le=1)
    """A plan is accepted from this probability on."""
    recall: float | None
    """The recall on held-out plans that `tau` was chosen for; None where `tau` was given."""
    validation: Mapping[str, float]
    """`auc`, `balanced_accuracy`, `precision` and `recall` at `tau`, and how many `plans` they are of."""
    rows: str
    """SHA-256 of the rows that it was trained on."""
    weights: str
    """SHA-256 of the folder's other files."""

    def write(self, folder: Path) -> None:
        partial = folder / f".{FILE}"
        partial.write_text(json.dumps(self.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
        partial.replace(folder / FILE)

    def check_thresholds(self, folder: Path, recall: float, tau: float | None) -> None:
        """Raise `UsageError` unless the gate in this folder has this `tau`, or if that is None, one that was chosen for
        this `recall`. What is after it must not go on with another threshold."""
        if self.recall == recall if tau is None else self.tau == tau:
            return
        had = f"tau={self.tau:g}" if self.recall is None else f"recall={self.recall:g}"
        wanted = f"recall={recall:g}" if tau is None else f"tau={tau:g}"
        raise UsageError(
            f"The gate in {folder} was sealed with {had}, and {wanted} is asked for: give {had} back, or give the arm "
            "another name."
        )


def read_gate(folder: Path) -> GateFile:
    """The gate in a folder. Raises `UsageError` where there is none, or its other files are not those that it was
    sealed with."""
    path = folder / FILE
    if not (folder / "config.json").is_file():
        raise UsageError(f"gate.path={folder} is no Hugging Face folder here: name the folder of a gate's model.")
    try:
        found = GateFile.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"gate.path={folder} has no {FILE}, so it is no gate yet: {_SEAL}.") from error
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        reason = error_reason(error) if isinstance(error, ValueError) else error.strerror
        raise UsageError(f"{path} can't be used ({reason}): {_SEAL}.") from error
    if found.weights != weights_hash(folder):
        raise UsageError(f"The model in {folder} is not the one that {FILE} was written for: {_SEAL} again.")
    return found


def with_gate_hash(section: GateSection) -> GateSection:
    """The config's section with `sha256` of the gate at its `path`, if it is a model's.

    Raises `UsageError` if it has another, or as `read_gate`.
    """
    path = section.parameters.get("path")
    if section.name != "model" or not isinstance(path, str):  # the gate itself says what is wrong
        return section
    folder = gate_folder(path)
    read_gate(folder)
    found, given = hashlib.sha256((folder / FILE).read_bytes()).hexdigest(), section.parameters.get("sha256")
    if given not in (None, found):
        raise UsageError(f"gate.sha256={given}, but the gate in {folder} has {found}: it is another gate.")
    return section.model_copy(update={"sha256": found})


def gate_folder(path: str) -> Path:
    """The folder that a `gate.path` names."""
    return Path(path).expanduser().absolute()


def weights_hash(folder: Path) -> str:
    """SHA-256, hex, over the folder's files but `gate.json` and hidden ones, by name."""
    stamps: list[tuple[Path, Any]] = []
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.is_file() and parts != (FILE,) and not any(part.startswith(".") for part in parts):
            found = file.stat()
            stamps.append((file, (found.st_size, found.st_mtime_ns)))
    digest = hashlib.sha256()
    for file, stamp in stamps:
        digest.update(f"{file.relative_to(folder).as_posix()}\n{_file_hash(file, stamp)}\n".encode())
    return digest.hexdigest()


@cache
def _file_hash(file: Path, stamp: tuple[int, int]) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
