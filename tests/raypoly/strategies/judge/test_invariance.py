"""Other words for the same programs change no canonical form and no partition.

RAYPOLY_INVARIANCE=10000 python -m pytest tests/raypoly/strategies/judge/test_invariance.py    # half an hour
"""

import gzip
import json
import os
import random
from collections.abc import Iterator
from functools import cache

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Evidence
from raypoly.data.formats import problem_of
from raypoly.strategies.features.algorithm_features import algorithm_features
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.program_groups import group_of_gold, observing
from raypoly.strategies.judge.program_transforms import keywords
from raypoly.strategies.judge.structural import label_evidence
from raypoly.strategies.live_code.constructs import live_constructs
from raypoly.strategies.live_code.live_program import canonical_text, live_program
from raypoly.verifier.code_extraction import extract_code
from tests.raypoly.strategies.judge.rewording import reworded
from tests.support.small_problems import SHARED

LEETCODE = SHARED / "data/leetcode/LeetCodeDataset-v0.2.0-train.jsonl.gz"
GROUPS = int(os.environ.get("RAYPOLY_INVARIANCE", "25"))
SEED = int(os.environ.get("RAYPOLY_INVARIANCE_SEED", "0"))


def sources() -> list[tuple[str, str, list[str]]]:
    """(id, entry point, programs) of the gold groups, and of real problems with two solutions four times each."""
    found = [(gold.id, gold.entry_point, list(gold.programs)) for gold in read_gold_groups()]
    if LEETCODE.exists():
        with gzip.open(LEETCODE, "rt") as lines:
            for line in lines:
                row = json.loads(line)
                problem = problem_of(row)
                other = extract_code(problem, row.get("response", ""))
                solutions = [text for text in (problem.solution, other) if text]
                found.append((problem.id, problem.entry_point, (solutions * 8)[:8]))
    return found


@cache
def evidence(program: str, entry: str) -> Evidence | None:
    """What the sandbox finds without running the program; None where it does not parse."""
    try:
        text = canonical_text(live_program(program, entry))
        live = live_constructs(live_program(program, entry).tree)
        return Evidence(text, live, {}, "", algorithm_features(program, entry))
    except SyntaxError:
        return None


def partition(found: list[Evidence | None]) -> list[int]:
    return [int(i) for i in label_evidence(found).ids]


def other_words(program: str, entry: str, rng: random.Random, kept: frozenset[str] = frozenset()) -> str:
    try:
        return reworded(program, rng, kept | {"Solution", entry.split(".")[-1]})
    except SyntaxError:
        return program


def transformed(count: int) -> Iterator[tuple[str, str, list[str], list[str], list[int]]]:
    """(id, entry, programs, the same in other words and another order, that order)."""
    known = sources()
    rng = random.Random(SEED)
    rng.shuffle(known)
    for number in range(count):
        name, entry, programs = known[number % len(known)]
        order = rng.sample(range(len(programs)), len(programs))
        yield name, entry, programs, [other_words(programs[i], entry, rng) for i in order], order


def test_reworded_groups_have_the_same_forms_and_the_same_partition() -> None:
    failed: list[str] = []
    changed = 0
    for name, entry, programs, others, order in transformed(GROUPS):
        before = [evidence(program, entry) for program in programs]
        after = [evidence.__wrapped__(program, entry) for program in others]
        for place, (found, text) in enumerate(zip(after, others, strict=True)):
            wanted = before[order[place]]
            changed += text != programs[order[place]]
            if (wanted and wanted.canonical) != (found and found.canonical):
                failed.append(f"{name}: canonical form of program {order[place]}\n{programs[order[place]]}\n{text}")
            elif (wanted and wanted.features) != (found and found.features):
                failed.append(f"{name}: features of program {order[place]}\n{text}")
        first, second = partition(before), partition(after)
        pairs = set(zip((first[i] for i in order), second, strict=True))
        if not len(pairs) == len(set(first)) == len(set(second)):
            failed.append(f"{name}: partition {first}, in order {order} {second}")
    assert changed > 7 * GROUPS
    assert not failed, f"{len(failed)} of {GROUPS} groups: " + "\n\n".join(failed[:20])


def test_reworded_programs_give_what_the_programs_gave() -> None:
    """The rewording itself is sound, and so is what a sandbox finds by running."""
    rng = random.Random(SEED)
    with observing(ScorerConfig(workers=2)) as observe:
        for gold in rng.sample(read_gold_groups(), 2):
            plain = group_of_gold(gold)
            texts = tuple(other_words(text, gold.entry_point, rng, keywords(gold.tests)) for text in plain.programs)
            first, second = observe([plain, type(plain)(plain.id, plain.problem, texts)])
            assert [v.status for v in first.verdicts] == [v.status for v in second.verdicts]
            forms = [[v.evidence and v.evidence.canonical for v in seen.verdicts] for seen in (first, second)]
            assert forms[0] == forms[1]
