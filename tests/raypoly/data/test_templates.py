"""Prompts by a template say what the source said, in the template's words; what is too long is handled by one rule."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.values import Int32, Problem, TestSuite
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.formats import problem_of, read_problems
from raypoly.data.formats.row_fields import ANSWER
from raypoly.data.long_prompts import MARK, fit_prompts, fit_training_prompts, keep_ends
from raypoly.data.prompt_parts import split_prompt
from raypoly.data.templates import load_template
from raypoly.run.run_identity import config_hash
from tests.raypoly.data.format_rows import APPS, CONTEST, HUMANEVAL, LCB, MBPP, OWN, PLUS
from tests.raypoly.data.format_rows import LEETCODE as LEETCODE_ROW
from tests.support.scored_run import row_of, write_problems
from tests.support.small_problems import SHARED

DATA = SHARED / "data/leetcode"
CODE = "class Solution:\n    def add(self, a: int, b: int) -> int:"
TASK = "Add two numbers.\n\nExample 1:\n\nInput: a = 1, b = 2\nOutput: 3"
LEETCODE = {"task_id": "add", "prompt": "", "entry_point": "Solution().add", "test": "def check(candidate):\n    pass"}


def leetcode(**more: str) -> Problem:
    return problem_of(LEETCODE | more)


def problems_config(path: Path, **more: Any) -> dict[str, Any]:
    return {"source": "jsonl", "path": str(path), "validation": 0, "test": 0, **more}


def templated(path: Path, **more: Any) -> ProblemSet:
    return build_problem_set(Config.model_validate({"problems": problems_config(path, **more)}).problems)


@pytest.mark.parametrize(
    "row",
    [
        {"problem_description": TASK, "starter_code": CODE},
        {"query": f"{TASK}\nPlease complete the following python code precisely:\n```python\n{CODE}\n```\n"},
        {
            "query": "You are an expert Python programmer. You will be given a question (problem specification) and "
            "will generate a correct Python program that matches the specification and passes all tests.\n\n"
            f"### Question:\n{TASK}\n\n\n\n### Format: You will use the following starter code to write the solution "
            f"to the problem and enclose your code within delimiters.\n```python\n{CODE}\n```\n\n"
            "### Answer: (use the provided format with backticks)\n\n"
        },
    ],
)
def test_the_same_problem_has_the_same_prompt_whatever_words_its_source_lays_around_it(row: dict[str, str]) -> None:
    parts = split_prompt(leetcode(**row))
    assert (parts.statement, parts.signature) == (TASK, CODE)
    assert parts.head + parts.statement + parts.tail == leetcode(**row).prompt
    assert load_template("base").fill(statement=parts.statement, signature=parts.signature) == (
        f"### Problem\n{TASK}\n\n### Code to complete\n```python\n{CODE}\n```\n\n"
        "### Answer\nThe whole program in one Python code block:\n"
    )


def test_a_problem_without_code_to_complete_is_not_asked_to_complete_any() -> None:
    problem = problem_of(row_of("sum"))
    assert split_prompt(problem).signature == ""
    assert "Code to complete" not in load_template("base").fill(statement=split_prompt(problem).statement, signature="")


@pytest.mark.parametrize("row", [LEETCODE_ROW, HUMANEVAL, MBPP, PLUS, LCB, APPS, CONTEST, OWN])
def test_prompts_of_every_format_fall_into_their_parts_and_how_to_answer_is_no_statement(row: dict[str, Any]) -> None:
    problem = problem_of(row)
    parts = split_prompt(problem)
    assert parts.head + parts.statement + parts.tail == problem.prompt
    assert ANSWER.strip() not in parts.statement
    assert "Complete this code:" not in parts.statement
    prompt = load_template("base").fill(statement=parts.statement, signature=parts.signature)
    assert ("{signature}" in prompt, "### Code to complete" in prompt) == (False, bool(parts.signature))
    assert parts.statement in prompt


@pytest.mark.skipif(not DATA.is_dir(), reason="the published LeetCodeDataset files are not here")
@pytest.mark.parametrize("name", ["LeetCodeDataset-v0.2.0-train.jsonl.gz", "LeetCodeDataset-v0.3.1-test-part.jsonl.gz"])
def test_every_published_problem_has_its_statement_and_its_signature_in_either_template(name: str) -> None:
    base, chat = load_template("base"), load_template("chat")
    for problem in read_problems(DATA / name).problems:
        parts = split_prompt(problem)
        assert parts.head + parts.statement + parts.tail == problem.prompt
        method = problem.entry_point.rpartition(".")[2]
        assert len(parts.statement) > 40 or "not available" in parts.statement, problem.id
        assert re.search(rf"def {method} ?\(", parts.signature), problem.id
        assert "python code precisely" not in parts.statement
        assert "### " not in parts.statement
        assert parts.statement in base.fill(statement=parts.statement, signature=parts.signature)
        assert parts.signature in chat.messages(statement=parts.statement, signature=parts.signature)[1]["content"]


def test_a_template_of_one_s_own_is_used_as_it_is_and_braces_in_it_are_let_be(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("Q: {statement}\n\n\nComplete: {signature}\n\nReturn {x: 1} as a dict.\n\nA:")
    template = load_template(str(own))
    assert (
        template.fill(statement="S {signature}", signature="") == "Q: S {signature}\n\n\nReturn {x: 1} as a dict.\n\nA:"
    )
    assert (
        template.fill(statement="S", signature="C {statement}")
        == "Q: S\n\n\nComplete: C {statement}\n\nReturn {x: 1} as a dict.\n\nA:"
    )


def test_chat_messages_are_rendered_by_the_tokenizer_s_own_template(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
    tokenizer.save_pretrained(tmp_path / "chat")
    path = write_problems(tmp_path / "p.jsonl", [row_of("sum")])
    (problem,) = templated(path, template="chat", chat_template=str(tmp_path / "chat")).splits["train"]
    assert problem.prompt == (
        "<system>You are an expert Python programmer.</><user>Solve this problem.\n\nSum, problem sum.\n\n"
        "Give the whole program in one Python code block at the end of your answer.</><assistant>"
    )
    assert split_prompt(problem).statement == "Sum, problem sum."


def test_what_a_template_can_not_be_used_for_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = write_problems(tmp_path / "p.jsonl", [row_of("sum")])
    empty = tmp_path / "empty.txt"
    empty.write_text("Solve it.\n")
    early = tmp_path / "early.txt"
    early.write_text("Hello\n<<user>>\n{statement}\n")
    for given_, why in (
        ({"template": "bse"}, r"problems\.template=bse can't be read"),
        ({"template": str(empty)}, r"has no \{statement\}"),
        ({"template": str(early)}, "has text before its first <<role>>"),
        ({"template": "chat"}, r"needs problems\.chat_template"),
        ({"source": "puzzles", "template": "base"}, "is answered by going on with its prompt"),
        ({"source": "verl", "template": "base", "chat_template": "plain"}, "bring their messages|can't be read"),
    ):
        with pytest.raises(UsageError, match=why):
            templated(path, **given_)


def test_the_default_leaves_prompts_and_a_run_s_name_as_they_were_and_a_template_gives_another(tmp_path: Path) -> None:
    path = write_problems(tmp_path / "p.jsonl", [row_of("sum")])
    plain, other = templated(path), templated(path, template="base")
    assert plain.splits["train"][0].prompt == "Sum, problem sum."
    assert plain.hash != other.hash
    names = {
        config_hash(Config.model_validate({"problems": problems_config(path, **more)}))
        for more in ({}, {"template": "none", "over_long": "refuse"}, {"template": "base"}, {"over_long": "cut"})
    }
    assert len(names) == 3


async def by_word(texts: Sequence[str]) -> list[Int32]:
    """A tokenizer: a token a word."""
    return [np.zeros(len(text.split()), np.int32) for text in texts]


def fit(problems: Sequence[Problem], limit: int, rule: str) -> tuple[ProblemSet, list[str]]:
    config = Config.model_validate({"generator": {"max_prompt_tokens": limit}, "problems": {"over_long": rule}})
    notes: list[str] = []
    found = ProblemSet({"train": problems, "validation": problems[:1], "test": []}, "x")
    return asyncio.run(fit_prompts(found, config, by_word, notes.append)), notes


def long_problem(words: int) -> Problem:
    text = " ".join(f"w{i}" for i in range(words))
    return leetcode(problem_description=text, starter_code=CODE)


def test_dropped_problems_are_counted_by_split_and_told() -> None:
    short, long = Problem("s", "a b", "f", TestSuite("calls", "[]")), long_problem(60)
    kept, notes = fit([long, short, long], 40, "drop")
    assert [p.id for p in kept.splits["train"]] == ["s"]
    assert kept.splits["validation"] == []
    assert notes == [
        "3 of 4 prompts have more than 40 tokens (2 train, 1 validation): their problems are left out "
        "(problems.over_long=drop)."
    ]
    with pytest.raises(UsageError, match="leaves none to train on"):
        fit([long], 40, "drop")


def test_a_cut_prompt_keeps_the_ends_of_its_statement_and_all_that_stands_around_it() -> None:
    whole = long_problem(60)
    parts = split_prompt(whole)
    around = len(f"{parts.head}{parts.tail}".split())
    kept, notes = fit([whole], around + 1 + 7, "cut")
    (problem,) = kept.splits["train"]
    assert problem.prompt == f"w0 w1 w2 w3{MARK}w57 w58 w59{parts.tail}"
    assert "they were cut in their statements' middle" in notes[0]
    with pytest.raises(UsageError, match="tokens without its statement"):
        fit([whole], around, "cut")


def test_training_prompts_fit_with_what_is_put_before_them_and_others_without() -> None:
    def skilled(problem: Problem) -> tuple[str, ...]:
        return (problem.prompt, f"Strategy 1 | {problem.prompt}")

    long, short = (long_problem(words) for words in (60, 50))
    size = len(long.prompt.split())
    found = ProblemSet({"train": [long, short], "validation": [long], "test": []}, "x")

    def fit_as_trained(limit: int, rule: str) -> tuple[ProblemSet, list[str]]:
        config = Config.model_validate({"generator": {"max_prompt_tokens": limit}, "problems": {"over_long": rule}})
        notes: list[str] = []
        return asyncio.run(fit_training_prompts(found, config, by_word, notes.append, skilled)), notes

    assert fit_as_trained(size + 3, "drop") == (found, [])
    kept, notes = fit_as_trained(size + 2, "drop")
    assert (kept.splits["train"], kept.splits["validation"]) == ([short], [long])
    assert notes == [
        f"1 of 2 prompts have more than {size + 2} tokens (1 train): their problems are left out "
        "(problems.over_long=drop)."
    ]
    kept, _ = fit_as_trained(size + 2, "cut")
    cut, same = kept.splits["train"]
    assert MARK in cut.prompt
    assert len(cut.prompt.split()) + 3 <= size + 2
    assert (same, kept.splits["validation"]) == (short, [long])
    assert fit_as_trained(size - 5, "refuse") == (found, [])


def test_refusing_is_left_to_the_run_and_prompts_that_fit_are_left_alone() -> None:
    whole = long_problem(60)
    assert fit([whole], 5, "refuse")[0].splits["train"] == [whole]
    for rule in ("drop", "cut"):
        kept, notes = fit([whole], 500, rule)
        assert (kept.splits["train"], notes) == ([whole], [])


@given(st.integers(10, 400), st.integers(0, 60))
def test_a_cut_prompt_fits_and_one_word_more_would_not(words: int, room: int) -> None:
    whole = long_problem(words)
    parts = split_prompt(whole)
    limit = len(f"{parts.head}{parts.tail}".split()) + 1 + room
    kept, _ = fit([whole], limit, "cut")
    (problem,) = kept.splits["train"]
    size = len(problem.prompt.split())
    assert size <= limit
    if problem.prompt != whole.prompt:
        assert size == limit
        again = re.findall(r"\S+\s*", parts.statement)
        assert problem.prompt == f"{parts.head}{keep_ends(again, room)}{parts.tail}"


def test_a_templated_prompt_is_cut_in_its_statement_alone(tmp_path: Path) -> None:
    path = write_problems(tmp_path / "p.jsonl", [row_of("sum") | {"prompt": "w " * 100}])
    (problem,) = templated(path, template="base").splits["train"]
    kept, _ = fit([problem], 30, "cut")
    (cut,) = kept.splits["train"]
    assert cut.prompt.startswith("### Problem\nw w")
    assert cut.prompt.endswith("### Answer\nThe whole program in one Python code block:\n")
