"""lm-evaluation-harness 0.4: documents and results for a task's file.

    task: raypoly
    custom_dataset: !function raypoly.integrations.with_lm_eval.documents
    metadata: {problems: problems.jsonl}
    test_split: test
    output_type: generate_until
    doc_to_text: "{{prompt}}"
    doc_to_target: ""
    process_results: !function raypoly.integrations.with_lm_eval.process_results
    metric_list:
      - {metric: passed, aggregation: mean, higher_is_better: true}
      - {metric: unknown, aggregation: mean, higher_is_better: false}

A document whose verdict is unknown has no `passed`, so the mean goes without it; `unknown` is the share of those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from raypoly.data.formats import read_problems, row_of
from raypoly.integrations.one_response import rewards


def documents(problems: str, **_: Any) -> dict[str, Dataset]:
    """`prompt` and `problem` (a row as JSON) of each problem of a file, a folder or a pattern."""
    found = read_problems(Path(problems)).problems
    return {"test": Dataset.from_list([{"prompt": it.prompt, "problem": json.dumps(row_of(it))} for it in found])}


def process_results(doc: Mapping[str, Any], results: Sequence[str | Sequence[str]]) -> dict[str, float]:
    """`passed` of a document's response, of several their mean, and `unknown`. `doc["problem"]`: a row or an id."""
    texts = [results[0]] if isinstance(results[0], str) else results[0]
    known = [found for found in rewards([(doc["problem"], text) for text in texts]) if found is not None]
    if not known:
        return {"unknown": 1.0}
    return {"passed": sum(known) / len(known), "unknown": 1 - len(known) / len(texts)}
