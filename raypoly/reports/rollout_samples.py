"""A few rollouts of the newest step, chosen to differ: each verdict, and each strategy that passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from raypoly.run_files import RunFiles
from raypoly.store import Store

_COLUMNS = ("problem_id", "prompt_tokens", "text", "status", "detail", "strategy", "label")
_MOST = 12
_TOKENIZER = "model/tokenizer.json"


@dataclass(frozen=True)
class RolloutSample:
    """One rollout as the report shows it."""

    step: int
    problem_id: str
    prompt: str
    """Empty where the run's tokenizer is not there (yet)."""
    text: str
    status: str
    detail: str
    strategy: str
    """By execution; with the judge's label within its group where there is one."""


def sample_rollouts(run: RunFiles) -> Sequence[RolloutSample]:
    """Up to `_MOST` rollouts of the newest step that is kept, one for each (verdict, strategy), passed ones first."""
    if not run.steps:
        return []
    step = run.steps[-1]
    table = run.rollouts(step)
    decode = _decoder(run.store)
    rows = table.select([name for name in _COLUMNS if name in table.column_names]).to_pylist()
    chosen: dict[tuple[str, str], RolloutSample] = {}
    for row in rows:
        key = (row.get("status") or "not scored", row.get("strategy") or "")
        chosen.setdefault(key, _sample(step, row, decode))
    order = sorted(chosen.items(), key=lambda item: (item[0][0] != "passed", item[0]))
    return [sample for _, sample in order[:_MOST]]


def _decoder(store: Store) -> Callable[[Sequence[int]], str]:
    """Token ids to text, by the tokenizer that lies beside the final weights."""
    if not store.exists(_TOKENIZER):
        return lambda tokens: ""
    loaded = Tokenizer.from_file(str(store.fetch(_TOKENIZER)))
    return lambda tokens: str(loaded.decode(tokens))


def _sample(step: int, row: Mapping[str, Any], decode: Callable[[Sequence[int]], str]) -> RolloutSample:
    judged = f", judged {row['label']} in its group" if row.get("label") else ""
    return RolloutSample(
        step=step,
        problem_id=str(row.get("problem_id", "")),
        prompt=decode(row.get("prompt_tokens") or []),
        text=str(row.get("text", "")),
        status=row.get("status") or "not scored",
        detail=row.get("detail") or "",
        strategy=(row.get("strategy") or "no strategy") + judged,
    )
