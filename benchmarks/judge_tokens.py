"""How many tokens a judge is sent in the canonical view, against all programs as they were written.

    python -m benchmarks.judge_tokens [--data FILE] [--groups 40] [--seed 0] [--workers 2]

A group is a LeetCode problem with two known solutions that pass its tests and do not come out the same, and a renamed,
a commented and a reformatted copy of each: N = 8. Three requests are compared: the one that is sent; the same
instructions with the whole problem and all programs as they are (what `judge.view=raw` sends, uncut); and, as the
hardest measure, the problem and the programs alone, with no instructions at all. Then every group is labelled twice by
a server on this machine, and its requests are counted.

Tokens are those of a real vocabulary of 131,072 where `mistral_common` is there (vLLM brings it); else characters / 4.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from raypoly.core.config import JudgeConfig, ScorerConfig
from raypoly.data.formats import problem_of
from raypoly.strategies.judge.openai import OpenAIJudge
from raypoly.strategies.judge.openai.judge_prompt import INSTRUCTIONS, Message, render_messages
from raypoly.strategies.judge.program_groups import ObservedGroup, ProgramGroup, observing
from raypoly.strategies.judge.program_transforms import CHANGES, keywords
from raypoly.verifier.code_extraction import extract_code
from tests.support.faulty_server import Server, running

DATA = Path(__file__).parents[2] / "shared/data/leetcode/LeetCodeDataset-v0.2.0-train.jsonl.gz"
COPIES = ("renaming", "comments", "reformatting")
MOST = 0.5
"""Share of the raw tokens that may be sent."""
Count = Callable[[str], int]


@dataclass(frozen=True)
class Row:
    """One group's tokens."""

    shown: int
    """Programs that were sent, of 8."""
    sent: int
    raw: int
    bare: int


def groups(data: Path, seed: int) -> Iterator[ProgramGroup]:
    """Problems in random order, each with two solutions and their copies."""
    with gzip.open(data, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(seed).shuffle(rows)
    for row in rows:
        problem = problem_of(row)
        other = extract_code(problem, row.get("response", ""))
        if other is not None and problem.solution.strip():
            kept = keywords(row["test"])
            programs = [
                text for solution in (problem.solution, other) for text in (solution, *_copies(solution, seed, kept))
            ]
            yield ProgramGroup(problem.id, replace(problem, answer="completion"), tuple(programs))


def _copies(solution: str, seed: int, kept: frozenset[str]) -> list[str]:
    return [CHANGES[name](solution, random.Random(f"{seed} {name}"), kept) for name in COPIES]


def differs(seen: ObservedGroup) -> bool:
    """Whether every program passes, and the two solutions do not come out the same."""
    first, second = (seen.verdicts[place].evidence for place in (0, 4))
    passed = all(verdict.passed for verdict in seen.verdicts)
    return passed and first is not None and second is not None and first.canonical != second.canonical


def row(seen: ObservedGroup, judge: OpenAIJudge, tokens: Count) -> Row:
    problem, programs = seen.group.problem, seen.group.programs
    shown = judge.show(problem, seen.rollouts, seen.verdicts)
    return Row(
        shown=len(shown.texts),
        sent=_size(judge.preview(problem, seen.rollouts, seen.verdicts), tokens),
        raw=_size(render_messages(INSTRUCTIONS, problem.prompt, programs), tokens),
        bare=tokens("\n".join([problem.prompt, *programs])),
    )


def _size(messages: Sequence[Message], tokens: Count) -> int:
    return sum(tokens(message["content"]) + 4 for message in messages)  # 4 around each message


def vocabulary() -> tuple[str, Count]:
    """What tokens are counted by."""
    try:
        import mistral_common
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    except ImportError:
        return "characters / 4, an estimate", lambda text: -(-len(text) // 4)
    file = max((Path(mistral_common.__file__).parent / "data").glob("tekken_*.json"))
    tokenizer: Any = Tekkenizer.from_file(str(file))
    return file.name, lambda text: len(tokenizer.encode(text, bos=False, eos=False))


def table(rows: Sequence[Row]) -> str:
    """Mean and worst of each ratio; the ratio of the sums is what a bill would show."""
    lines = [f"{'':44}{'tokens':>10}{'sent':>10}{'ratio':>10}{'worst':>10}"]
    for name, whole in (("same instructions, all programs raw", "raw"), ("no instructions, all programs raw", "bare")):
        sums = sum(r.sent for r in rows), sum(getattr(r, whole) for r in rows)
        worst = max(r.sent / getattr(r, whole) for r in rows)
        cells = f"{sums[1] / len(rows):>10.0f}{sums[0] / len(rows):>10.0f}{sums[0] / sums[1]:>10.3f}{worst:>10.3f}"
        lines.append(f"{name:44}{cells}")
    return "\n".join(lines)


def passes(seen: Sequence[ObservedGroup]) -> tuple[int, int, list[Any]]:
    """Requests of a first and of a second pass over the groups, by two judges one after the other."""
    calls = []
    with running(Server()) as server, tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            judge = OpenAIJudge(JudgeConfig(name="openai", base_url=server.url, model="marker", cache_dir=folder))
            for one in seen:
                judge.label(one.group.problem, one.rollouts, one.verdicts)
            calls.append(len(server.bodies))
            judge.close()
    return calls[0], calls[1] - calls[0], server.bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    if not chosen.data.exists():
        parser.error(f"{chosen.data} is not there; name a file of LeetCodeDataset rows with --data")
    name, tokens = vocabulary()
    judge = OpenAIJudge(JudgeConfig(name="openai", base_url="http://127.0.0.1:1/v1", cache_mib=0))
    found: list[ObservedGroup] = []
    left_out = 0
    with observing(ScorerConfig(workers=chosen.workers)) as observe:
        drawn = groups(chosen.data, chosen.seed)
        while len(found) < chosen.groups and (some := [g for _, g in zip(range(8), drawn, strict=False)]):
            for seen in observe(some):
                if differs(seen):
                    found.append(seen)
                else:
                    left_out += 1
    found = found[: chosen.groups]
    rows = [row(seen, judge, tokens) for seen in found]
    first, second, _ = passes(found)
    print(f"{len(rows)} groups of 8 programs ({left_out} left out: a solution fails, or both come out the same)")
    print(f"tokens by {name}; instructions {tokens(INSTRUCTIONS)}\n")
    print(table(rows))
    shown = mean(r.shown for r in rows)
    print(f"\nprograms shown: {shown:.2f} of 8; requests: {first} on the first pass, {second} on the second")
    if second or sum(r.sent for r in rows) > MOST * sum(r.raw for r in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
