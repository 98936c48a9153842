"""OpenRLHF 0.11: a reward function, loaded from this file.

    --reward.remote_url "$(python -c 'import raypoly.integrations as r; print(r.__path__[0])')/with_openrlhf.py"

`--data.label_key` names a column with a row or id (`one_response.py`). OpenRLHF has no word for a reward that is
unknown: `reward_func` asks again, then raises, and the run ends at the missing reward.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from raypoly.core.errors import UsageError
from raypoly.integrations.one_response import GroundTruth, known_rewards

_END = re.compile(r"(?:\s*(?:<\|[^|<>]*\|>|</s>|<eos>|<end_of_turn>))+\s*\Z")
"""Special tokens at the end, which OpenRLHF leaves in a query."""


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[GroundTruth]) -> dict[str, Any]:
    """Float [B] `rewards` and `scores`. `queries`: each prompt with its response. Raises `Unknown`."""
    responses = map(_response, queries, prompts)
    found = torch.tensor(known_rewards(list(zip(labels, responses, strict=True))))
    return {"rewards": found, "scores": found, "extra_logs": {"passed": found}}


def _response(query: str, prompt: str) -> str:
    if not query.startswith(prompt):
        raise UsageError("A query doesn't begin with its prompt, so its response is unknown: the prompt may be cut.")
    return _END.sub("", query[len(prompt) :])
