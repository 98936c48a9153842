"""How well, and how fast, problems that are the same are found.

    python -m benchmarks.similar [--problems FILE] [--training 30000] [--evaluation 2000] [--sample 200] [--json FILE]

Recall: of each kind of planted copy (`tests/support/planted_copies.py`), how many are found, and which pairs are found
within FILE. Speed: a training and an evaluation set made of FILE's sentences, every tenth evaluation problem a copy of
one to train on, against comparing all pairs by Jaccard similarity of Python's sets, and by `difflib`; those two are
timed on a sample of pairs, and extrapolated to all. CPU seconds of one process.
Exit code 1 where a recall is below 95 %, or the large comparison takes 120 s or more.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats import problem_of
from raypoly.data.formats.row_fields import prompt_of
from raypoly.data.formats.row_files import read_lines
from raypoly.data.similar import find_duplicates, find_overlaps
from tests.support.planted_copies import KINDS

DEFAULT = Path(__file__).parents[2] / "shared/data/leetcode/LeetCodeDataset-v0.2.0-train.jsonl.gz"
LEAST_RECALL, MOST_SECONDS = 0.95, 120.0
COPIED = 10
"""One evaluation problem in so many is a copy."""


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and CPU seconds."""
    begin = time.process_time()
    return action(), time.process_time() - begin


def full_text(row: dict[str, Any]) -> str:
    """The statement with its examples, where the row has them apart from its prompt."""
    meta = row.get("meta")
    return prompt_of(meta["question_title"], meta["lang_code"]) if isinstance(meta, dict) else problem_of(row).prompt


def recall(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Print, for each kind of copy, the share that is found, and what is taken for a copy of another problem."""
    problems = [problem_of(row) for row in rows]
    found: dict[str, float] = {}
    for kind, change in KINDS.items():
        rng = random.Random(0)
        copies = [
            replace(problem, id=str(n), prompt=change(full_text(row), rng), metadata={"was": problem.id})
            for n, (problem, row) in enumerate(zip(problems, rows, strict=True))
        ]
        pairs, seconds = timed(lambda copies=copies: find_overlaps(copies, problems))
        right = sum(pair.kept.id == pair.dropped.metadata["was"] for pair in pairs)
        others = [f"{p.dropped.metadata['was']} = {p.kept.id}" for p in pairs if p.kept.id != p.dropped.metadata["was"]]
        found[kind] = right / len(problems)
        print(
            f"{kind:22}{found[kind]:8.2%}{seconds:8.1f} s   another problem: {', '.join(others) or 'none'}", flush=True
        )
    return found


def made(texts: Sequence[str], count: int, rng: random.Random, name: str) -> list[Problem]:
    """Problems out of sentences of other problems, as long as those are, one word in three another one."""
    sentences = [s for text in texts for s in re.split(r"(?<=\.)\s+", text.partition("```")[0]) if len(s) > 20]
    words = [word for sentence in sentences for word in sentence.split()]
    lengths = [len(text.partition("```")[0].split()) for text in texts]
    problems = []
    for number in range(count):
        length, text = rng.choice(lengths), []
        while len(text) < length:
            text += [rng.choice(words) if rng.random() < 1 / 3 else word for word in rng.choice(sentences).split()]
        problems.append(Problem(f"{name}-{number}", " ".join(text), "", TestSuite("stdin", "[]")))
    return problems


def speed(rows: Sequence[dict[str, Any]], training: int, evaluation: int, sample: int) -> dict[str, float]:
    """Print the table of the large comparison."""
    rng = random.Random(1)
    texts = [problem_of(row).prompt for row in rows]
    ours, theirs = made(texts, training, rng, "training"), made(texts, evaluation, rng, "evaluation")
    copied = min(evaluation // COPIED, training)
    for place, original in enumerate(rng.sample(ours, copied)):
        theirs[place] = replace(theirs[place], prompt=KINDS["whitespace"](original.prompt, rng))
    pairs, seconds = timed(lambda: find_overlaps(ours, theirs))
    found = len({pair.kept.id for pair in pairs})
    few, others = ours[:sample], theirs[:sample]
    bags = [[frozenset(zip(w, w[1:], w[2:], strict=False)) for w in (p.prompt.lower().split() for p in side)]
            for side in (few, others)]  # fmt: skip
    _, naive = timed(lambda: [len(a & b) / (len(a | b) or 1) for a in bags[0] for b in bags[1]])
    fewer = max(1, sample // 10)
    _, diff = timed(
        lambda: [difflib.SequenceMatcher(None, a.prompt, b.prompt).ratio() for a in few[:fewer] for b in others[:fewer]]
    )
    whole = training * evaluation
    result = {
        "raypoly": seconds,
        "sets, all pairs": naive / sample**2 * whole,
        "difflib, all pairs": diff / fewer**2 * whole,
    }
    print(f"\n{training:,} problems against {evaluation:,}; {found} of {copied} copies found, {len(pairs)} pairs\n")
    for name, value in result.items():
        note = "" if name == "raypoly" else "   extrapolated from a sample of pairs; statements as they are"
        print(f"{name:22}{value:14,.1f} s{value / seconds:12,.1f} x{note}")
    return result | {"copies": copied, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=Path, default=DEFAULT, help="A file of problems. Default: ../shared's.")
    parser.add_argument("--training", type=int, default=30_000)
    parser.add_argument("--evaluation", type=int, default=2_000)
    parser.add_argument("--sample", type=int, default=200, help="Problems a side that are compared pair by pair.")
    parser.add_argument("--json", type=Path, help="Write the numbers there too.")
    chosen = parser.parse_args()
    if min(chosen.training, chosen.evaluation, chosen.sample) < 1:
        parser.error("--training, --evaluation and --sample are at least 1")
    rows = [json.loads(line) for _, line in read_lines(chosen.problems)]
    shares = recall(rows)
    for pair in find_duplicates([problem_of(row) for row in rows]):
        print(f"within the file: {pair.dropped.id} = {pair.kept.id} ({pair.reason}, {pair.similarity})")
    seconds = speed(rows, chosen.training, chosen.evaluation, chosen.sample)
    if chosen.json:
        chosen.json.write_text(json.dumps({"recall": shares, "speed": seconds}, indent=1))
    raise SystemExit(int(min(shares.values()) < LEAST_RECALL or seconds["raypoly"] >= MOST_SECONDS))


if __name__ == "__main__":
    main()
