"""Data sets by name, on the Hugging Face hub or in a folder of the hub's layout.

    load_hub(ProblemsConfig(source="hub", path="newfacade/LeetCodeDataset", revision="215604a...")).splits["train"]
    files, commit = HubSplit("newfacade/LeetCodeDataset", "215604a...", split="train").find("problems.path=...")

Rows are recognised, read and split as those of `problems.source=jsonl`: the same rows are the same problem set.

The package `datasets` decides, as for `load_dataset`: by the data set's card (README.md), else by the files' names.
raypoly reads these files itself: in the tables that `datasets` makes of them, a row has a null for every column that it
lacks, and all rows have one type.

A lookup at a commit is recorded in the user's cache. With it, and the hub's own cache of files, the same command needs
no network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from raypoly.core.caches import cache_root
from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import HubUnreachable, UsageError
from raypoly.core.values import Problem
from raypoly.data.jsonl import SPLIT, in_window, read_askable
from raypoly.data.problem_set import ProblemSet, problem_set_of

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_READABLE = (".jsonl", ".json", ".ndjson", ".parquet", ".jsonl.gz", ".json.gz")
_BUSY = (408, 429)  # statuses of the hub, besides those from 500, that say nothing about the data set


@dataclass(frozen=True)
class HubSplit:
    """A split of a data set, by name."""

    name: str
    """owner/name on the hub, or a folder here."""
    revision: str | None = None
    """Commit, tag or branch; a folder needs none."""
    subset: str | None = None
    """The data set's configuration; None for its default."""
    split: str | None = None
    """None for its only one."""
    file: str | None = None
    """Instead of a split."""

    @property
    def folder(self) -> Path | None:
        """The data set's folder, if it is one here."""
        path = Path(self.name).expanduser()
        return path.resolve() if path.is_dir() else None

    def check(self, what: str) -> None:
        """Raise `UsageError` if it can't be found whatever the hub has; `what` names it in the sentence."""
        if self.folder is None and not _NAME.fullmatch(self.name):
            raise UsageError(f"{what} is neither a folder here nor a data set's name on the hub, owner/name.")
        if self.folder is None and self.revision is None:
            raise UsageError(
                f"{what} is no folder here, and as a data set's name on the hub it needs a revision: give a commit or "
                "a tag of the data set, so that the same rows come again."
            )

    def find(self, what: str) -> tuple[tuple[Path, ...], str | None]:
        """(Its files in the order of its rows, downloaded if they are not in the hub's cache; their commit, None for a
        folder).

        Raises `UsageError` if there is no such data set, subset, split or file, and `HubUnreachable`.
        """
        self.check(what)
        if self.folder is not None:
            names = [self.file] if self.file else self._look_up(str(self.folder), what)[1]
            return tuple(self.folder / name for name in names), None
        commit, names = (str(self.revision), [self.file]) if self.file else self._recorded(what)
        files = tuple(self._download(name, commit, what) for name in names)
        return files, _snapshot(files[0]) or commit

    def _recorded(self, what: str) -> tuple[str, list[str]]:
        """(commit, names of the files): as recorded if they are pinned or the hub is away, else as the hub says."""
        known = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        record = cache_root() / "hub" / f"{known}.json"
        if record.is_file() and _COMMIT.fullmatch(str(self.revision)):
            return _read(record)
        try:
            commit, names = self._look_up(self.name, what)
        except HubUnreachable:
            if record.is_file():
                return _read(record)
            raise
        _write(record, commit, names)
        return commit, names

    def _look_up(self, place: str, what: str) -> tuple[str, list[str]]:
        """(commit, names of the split's files); `place` is the name or an absolute path."""
        from datasets import load_dataset_builder  # seconds, which other sources do not need

        # an empty cache of its own: in the user's it may find another revision's rows instead
        with _in_one_sentence(what), tempfile.TemporaryDirectory() as cache:
            builder = load_dataset_builder(place, self.subset, revision=self.revision, cache_dir=cache)
        splits = {str(name): list(map(str, files)) for name, files in (builder.config.data_files or {}).items()}
        split = self.split if self.split is not None or len(splits) != 1 else next(iter(splits))
        if split not in splits:
            lacks = "has more than one split" if split is None else f"has no split {split!r}"
            raise UsageError(f"{what} {lacks}: set split to {' or '.join(splits)}.")
        base = place if self.folder is not None else f"hf://datasets/{place}@{builder.hash}"
        names = [file.removeprefix(f"{base}/") for file in splits[split]]
        if strange := [name for name in names if not name.endswith(_READABLE) or "://" in name]:
            copies = "try revision=refs/convert/parquet, where the hub keeps its own Parquet copies"
            advice = copies if self.folder is None else "write its rows in one of these"
            raise UsageError(f"{what} has {strange[0]}, and raypoly reads JSON lines and Parquet: {advice}.")
        return str(builder.hash), names

    def _download(self, name: str, commit: str, what: str) -> Path:
        from huggingface_hub import hf_hub_download  # half a second, which local files do not need

        with _in_one_sentence(f"{name} of {what}"):
            return Path(hf_hub_download(self.name, name, repo_type="dataset", revision=commit))


def _snapshot(path: Path) -> str | None:
    """The commit of a file in the hub's cache."""
    parts = path.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else None


def _read(record: Path) -> tuple[str, list[str]]:
    found = json.loads(record.read_text())
    return found["commit"], found["files"]


def _write(record: Path, commit: str, names: list[str]) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    aside = record.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps({"commit": commit, "files": names}))
    aside.replace(record)


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    """Turn what `datasets` and `huggingface_hub` raise into `UsageError`, or `HubUnreachable` for an outage."""
    from huggingface_hub import errors

    try:
        yield
    except (ConnectionError, TimeoutError, errors.LocalEntryNotFoundError) as error:
        raise _unreachable(what, error) from error
    except (errors.EntryNotFoundError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        missing = type(error).__name__.removeprefix("Remote").removesuffix("NotFoundError").lower()
        raise UsageError(
            f"{what} is not on the Hugging Face hub ({missing} not found), or needs a login (hf auth login)."
        ) from error
    except errors.HTTPError as error:  # type: ignore[attr-defined]  # its HTTP library's; no answer has no status
        status = getattr(getattr(error, "response", None), "status_code", 500)
        if status >= 500 or status in _BUSY:
            raise _unreachable(what, error) from error
        raise UsageError(f"{what} can't be had from the Hugging Face hub: {_first_line(error)}.") from error
    except (OSError, ValueError, RuntimeError, TypeError, yaml.YAMLError) as error:
        raise UsageError(_unreadable(what, error)) from error


def _unreachable(what: str, error: Exception) -> HubUnreachable:
    return HubUnreachable(
        f"{what} is not on this machine, and the Hugging Face hub can't be reached ({_first_line(error)}): try again, "
        "or name a folder."
    )


def _unreadable(what: str, error: Exception) -> str:
    # `datasets` has no class of its own for these errors.
    said = str(error)
    if "vailable" in said:  # a wrong configuration, or none of several
        known = re.findall(r"'([^']*)'", said.partition("vailable")[2].partition("]")[0])
        return f"{what} has no such subset: set subset to {' or '.join(known)}."
    if "Dataset scripts" in said:
        return (
            f"{what} has a loading script, which the package datasets refuses: raypoly prepare takes one of its files "
            "by sources.NAME.file."
        )
    return f"{what} can't be read as a data set: {_first_line(error)}."


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


def load_hub(config: ProblemsConfig) -> ProblemSet:
    """The problems of `config.split` within the window but for `config.exclude`, split by `config.seed`.

    `config.validation_split` and `test_split` ignore the window. Raises `UsageError` where there is no such data set,
    no usable row, or too few problems; `HubUnreachable`.
    """

    def read(split: str) -> list[Problem]:
        files, _ = hub_split(config, split).find(f"problems.path={config.path}")
        return read_askable(Path(str(config.path)), files)

    hub_split(config).check(f"problems.path={config.path}")
    return problem_set_of(
        read,
        config,
        SPLIT,
        lambda problems: in_window(problems, config.since, config.until),
        config.split or "train",
        numbered=True,
    )


def hub_split(config: ProblemsConfig, split: str | None = None) -> HubSplit:
    """A split of the config's data set. Raises `UsageError` if none is named."""
    if config.path is None:
        raise UsageError("problems.source=hub needs problems.path, a data set's name on the hub, owner/name.")
    return HubSplit(config.path, config.revision, config.subset, split)
