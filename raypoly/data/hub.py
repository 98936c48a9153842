"""Problems of a data set by its name on the Hugging Face hub, or in a local folder of the hub's layout.

    load_hub(ProblemsConfig(source="hub", path="newfacade/LeetCodeDataset", revision="215604a...")).splits["train"]

Rows are recognised, read and split as those of `problems.source=jsonl`: the same rows are the same problem set.
"""

from __future__ import annotations

from pathlib import Path

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data.hub_files import HubSplit
from raypoly.data.jsonl import SPLIT, in_window, read_askable
from raypoly.data.problem_set import ProblemSet, problem_set_of


def load_hub(config: ProblemsConfig) -> ProblemSet:
    """The problems of the split `config.split` within the window, without those of `config.exclude`, split by
    `config.seed`. `config.validation_split` and `test_split` are splits of the data set, whatever the window.

    Raises `UsageError` where there is no such data set, no usable row, or too few problems; `HubUnreachable`.
    """

    def read(split: str) -> list[Problem]:
        found = hub_split(config, split).find(f"problems.path={config.path}")
        return read_askable(Path(str(config.path)), found.files)

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
