"""What a preparation decides without Ray: band, splits, prompts, the same problem."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.long_prompts import MARK
from raypoly.data.preparing.candidates import Candidate, ProblemBuffer, SourceFacts, apply_decisions
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.preparing.prepare_config import BandConfig, PrepareConfig, PromptsConfig, SourceConfig, SplitConfig
from raypoly.data.preparing.problem_selection import (
    ChunkOutcome,
    decide_band,
    decide_duplicates,
    decide_lengths,
    decide_splits,
    prompt_makers,
    prompts_of,
    template_digests,
    use_templates,
)
from tests.support.preparation_rows import candidate

TEXT = "Given an array of many numbers, say which of them is the third smallest. " * 8 + "Answer with a code block."
PROMPTS = [candidate("short", "Say hello."), candidate("long", TEXT)]


def test_the_band_keeps_both_ends_and_nothing_that_is_unknown() -> None:
    names = [candidate(f"solved-{passes}") for passes in (0, 1, 12, 13)] + [candidate("broken")]
    outcomes = [ChunkOutcome(it.id, 16, passes) for it, passes in zip(names, (0, 1, 12, 13, None), strict=True)]
    decisions = decide_band(outcomes, BandConfig())
    assert [it.id for it in apply_decisions(names, decisions)] == ["solved-1", "solved-12"]
    assert [it.passes for it in apply_decisions(names, decisions)] == [1, 12]
    assert decisions[0].reason == "the base model solves it in 0 of 16 samples, and band.low is 1"
    assert decisions[4].reason.startswith("the samples could not be judged")


def test_a_split_by_seed_does_not_depend_on_the_order_of_rows() -> None:
    names = [candidate(f"p{number}") for number in range(30)]
    config = SplitConfig(validation=5, test=4)
    one = {d.problem_id: d.facts["split"] for d in decide_splits(names, config)}
    another = {d.problem_id: d.facts["split"] for d in decide_splits(names[::-1], config)}
    assert one == another
    assert sorted(one.values()).count("validation") == 5
    assert sorted(one.values()).count("test") == 4
    other = {d.problem_id: d.facts["split"] for d in decide_splits(names, SplitConfig(validation=5, test=4, seed=1))}
    assert other != one


def test_a_split_by_date_sets_the_newest_apart() -> None:
    days = [None, "2024-01-01", "2025-02-03", "2024-06-07"]
    names = [candidate(str(day), date=day) for day in days]
    found = {d.problem_id: d.facts["split"] for d in decide_splits(names, SplitConfig(by="date", validation=1, test=1))}
    assert found == {"None": "train", "2024-01-01": "train", "2024-06-07": "validation", "2025-02-03": "test"}


def test_a_test_set_is_all_that_is_left() -> None:
    assert {d.facts["split"] for d in decide_splits([candidate("a"), candidate("b")], SplitConfig(rest="test"))} == {
        "test"
    }


def test_a_split_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"leaves none of the 2 problems that are kept to be train"):
        decide_splits([candidate("a"), candidate("b")], SplitConfig(validation=2))


async def words(texts: Sequence[str]) -> list[list[str]]:
    """A tokenizer of words."""
    return [text.split() for text in texts]


def measured(candidates: list[Candidate], config: PromptsConfig, limit: int) -> list[Decision]:
    return asyncio.run(decide_lengths(candidates, prompts_of(candidates), config, limit, words))


def test_long_prompts_are_dropped_or_cut_by_rule() -> None:
    dropped = measured(PROMPTS, PromptsConfig(), 40)
    assert [it.id for it in apply_decisions(PROMPTS, dropped)] == ["short"]
    assert dropped[1].reason == f"its prompt has {len(TEXT.split())} tokens, generator.max_prompt_tokens is 40"
    cut = apply_decisions(PROMPTS, measured(PROMPTS, PromptsConfig(over_long="cut"), 40))[1]
    assert cut.problem.prompt.startswith("Given an array")
    assert cut.problem.prompt.endswith("code block.")
    assert MARK in cut.problem.prompt
    assert cut.prompt_tokens == len(cut.problem.prompt.split()) == 40


def test_a_prompt_that_is_too_long_without_its_statement_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 50 + "{statement}")
    asking = PrepareConfig(
        sources={"mine": SourceConfig(path="x")}, prompts=PromptsConfig(template=str(tmp_path / "long.txt"))
    )
    framed = use_templates(PROMPTS, prompt_makers(asking))
    decided = measured(framed, PromptsConfig(over_long="cut"), 40)
    assert decided[0].facts == {"tokens": 52}
    assert apply_decisions(framed, decided) == []


def test_a_source_has_a_template_of_its_own_where_it_names_one(tmp_path: Path) -> None:
    for name in ("all", "theirs"):
        (tmp_path / f"{name}.txt").write_text(f"For {name}: {{statement}}")
    sources = {
        "mine": SourceConfig(path="x"),
        "theirs": SourceConfig(path="x", template=str(tmp_path / "theirs.txt")),
        "plain": SourceConfig(path="x", template="none"),
    }
    candidates = [replace(PROMPTS[0], facts=SourceFacts(name, 1)) for name in sources]
    config = PrepareConfig(sources=sources, prompts=PromptsConfig(template=str(tmp_path / "all.txt")))
    found = prompts_of(use_templates(candidates, prompt_makers(config)))
    assert found == ["For all: Say hello.", "For theirs: Say hello.", "Say hello."]


def test_an_edited_template_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text("Do: {statement}")
    sources = {"mine": SourceConfig(path="x", template=str(file)), "theirs": SourceConfig(path="x")}
    config = PrepareConfig(sources=sources, prompts=PromptsConfig(template="base"))
    before = template_digests(config)
    file.write_text("Please do: {statement}")
    after = template_digests(config)
    assert list(before) == ["prompts.template", "sources.mine.template"]
    assert [before[key] == after[key] for key in before] == [True, False]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("nowhere.txt", r"^sources\.theirs\.template=nowhere\.txt can't be read"),
        ("chat", r"^sources\.theirs\.template=chat makes messages, and needs prompts\.chat_template"),
    ],
)
def test_a_source_whose_template_cant_be_used_is_named(template: str, said: str) -> None:
    sources = {"mine": SourceConfig(path="x"), "theirs": SourceConfig(path="x", template=template)}
    with pytest.raises(UsageError, match=said):
        prompt_makers(PrepareConfig(sources=sources))


def test_without_a_tokenizer_tokens_are_unknown_and_nothing_is_dropped() -> None:
    decided = asyncio.run(decide_lengths(PROMPTS, prompts_of(PROMPTS), PromptsConfig(), 1, None))
    assert apply_decisions(PROMPTS, decided) == PROMPTS


def test_copies_are_dropped_once_and_the_evaluation_sets_name_is_told() -> None:
    statement = "Given a sorted list of numbers find the two whose sum comes nearest to the target, and return them."
    names = [candidate("a", statement), candidate("b", statement), candidate("c", TEXT)]
    problem = replace(candidate("eval", TEXT).problem, source="tests")
    evaluation = [Candidate.of(problem, SourceFacts("tests", 1), ProblemBuffer())]
    decisions = decide_duplicates(names, evaluation)
    assert [(d.problem_id, d.facts["same_as"]) for d in decisions] == [("c", "eval"), ("b", "a")]
    assert decisions[0].reason.startswith("is in tests as well: eval")
