"""What an answer means: exactly one label for each program, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raypoly.strategies.judge.openai.judge_prompt import cut_middle, render_messages
from raypoly.strategies.judge.openai.judge_reply import (
    AssignedCluster,
    InvalidAnswer,
    answer_schema,
    listed,
    merge_votes,
    parse_answer,
)
from tests.raypoly.strategies.judge.openai_groups import same_partition
from tests.support.small_problems import SHARED


def answer(*clusters: int, **extra: Any) -> str:
    entries = [{"index": i, "strategy": "s", "cluster_id": c, **extra} for i, c in enumerate(clusters, 1)]
    return json.dumps({"programs": entries})


def test_a_map_of_clusters_is_read_as_the_list_that_it_is() -> None:
    """The form of Poly-EPO's judge (arXiv 2604.17654)."""
    given = {"chain_of_thought": "Two add {up}, one looks up.", "2": 0, "1": "4", "3": 4}
    found = parse_answer(listed(f"So:\n```json\n{json.dumps(given)}\n```"), 3)
    assert [entry.cluster for entry in found] == [4, 0, 4]
    assert answer_schema(3, "map")["required"] == ["chain_of_thought", "1", "2", "3"]
    for wrong in ({"1": 4, "2": 0}, {**given, "4": 1}, {**given, "2": "b"}, {"chain_of_thought": ""}):
        with pytest.raises(InvalidAnswer):
            parse_answer(listed(json.dumps(wrong)), 3)
    with pytest.raises(InvalidAnswer, match="not JSON"):
        listed(json.dumps(given)[:-2])


def test_a_prompt_with_slots_is_all_that_is_sent_and_a_text_fills_no_slot() -> None:
    (message,) = render_messages(
        "Of {problem}: cluster {count} solutions.\n{programs}\nReply.", "Add {count}.", ["{problem}", "b"]
    )
    key = message["content"].split("program 1 key ")[1].split(">>>")[0]
    shown = f"<<<program 1 key {key}>>>\n{{problem}}\n<<<program 2 key {key}>>>\nb\n<<<end key {key}>>>"
    assert message == {"role": "user", "content": f"Of Add {{count}}.: cluster 2 solutions.\n{shown}\nReply."}


def test_entries_are_taken_by_index_in_any_order() -> None:
    entries = [{"index": 2, "strategy": "b", "cluster_id": 9}, {"index": 1, "strategy": "a", "cluster_id": 4}]
    assert parse_answer(json.dumps({"programs": entries}), 2) == [AssignedCluster(4, "a"), AssignedCluster(9, "b")]


def test_zero_a_hundred_and_a_mark_are_degenerate() -> None:
    assert [found.cluster for found in parse_answer(answer(0, 100, 3), 3)] == [0, 0, 3]
    assert [found.cluster for found in parse_answer(answer(2, degenerate=True), 1)] == [0]
    assert parse_answer(answer(*range(1, 121)), 120)[99].cluster == 100, "with so many programs it may be an id"


@pytest.mark.parametrize("character", ["\n", "\t", "\x00", "\x1b", "\\ud800", "\\n"])
def test_a_control_character_in_a_strategy_is_shown_as_a_space(character: str) -> None:
    text = answer(4).replace('"s"', f'"two{character}pointers"')
    assert parse_answer(text, 1) == [AssignedCluster(4, "two pointers")]


FORMS = {
    "a fence": "```json\n{}\n```",
    "a fence that the end lacks": "```json\n{}",
    "a note behind the fence": "```json\n{}\n```\nLet me know.",
    "prose before the fence": "Here is the grouping:\n\n```JSON\n{}\n```",
    "prose around it": "The groups: {} As asked, [1, 2] are {{alike}}.",
    "thoughts": "<think>Both loop, or {{not}}: {{'a': 1}}.</think>\n{}",
    "thoughts whose begin the prompt has": "Both loop.\n</think>\n\n{}",
    "thoughts with a draft": '<think>{{"programs": [{{"index": 1, ...}}] or {{"programs": []}}</think>{}',
    "thoughts by another name": '<Reasoning>Perhaps {{"programs": []}}</Reasoning>{}',
    "another object": 'With d = {{"a": {{"b": 1}}}}:\n{}',
    "said twice": "{0}\n\nFinal answer:\n{0}",
    "a mark of the order of bytes": "\ufeff{}\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_around_the_answer_is_no_fault(form: str) -> None:
    text = answer(4, 7).replace('"s"', '"s </think> {"')
    assert [found.cluster for found in parse_answer(FORMS[form].format(text), 2)] == [4, 7]


@pytest.mark.parametrize("number", ["1", "1.0", '"1"', '"1.0"'])
def test_a_whole_number_is_one_however_it_is_written(number: str) -> None:
    text = answer(5, 5).replace(": 5", f": {number}").replace('"index": 1', f'"index": {number}')
    assert [found.cluster for found in parse_answer(text, 2)] == [1, 1]


def test_the_shared_replies_are_read() -> None:
    cases = SHARED / "cases" / "25-judge-replies.json"
    if not cases.is_file():
        pytest.skip("the shared cases are not here")
    for case in json.loads(cases.read_text())["replies"]:
        assert [found.cluster for found in parse_answer(case["text"], 2)] == [1, 1], case["id"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "Programs 1 and 2 are alike.",
        answer(1),
        answer(1, 1, 1),
        answer(1, 1).replace('"index": 2', '"index": 1'),
        answer(1, 1).replace('"index": 2', '"index": 3'),
        answer(1, -1),
        answer(1, 1).replace('"cluster_id": 1', '"cluster_id": "one"'),
        answer(1, 1).replace('"cluster_id": 1', '"cluster_id": "1.5"'),
        answer(1, 1).replace('"cluster_id": 1', '"cluster_id": null'),
        answer(1, 1).replace('"index": 1', '"index": true'),
        answer(1, 1).replace('"cluster_id": 1', '"cluster_id": 1.5'),
        answer(1, 1).replace('"cluster_id": 1', '"cluster_id": true'),
        *(answer(1, 1)[:-cut] for cut in (1, 2, 3, 20)),
        f"{answer(1, 1)} No: {answer(1, 2)}",
        f"{answer(1, 1)} No: {answer(1, 2)[:-1]}",
        f"{answer(1, 1)} No: {answer(1, 2)[:-15]}",
        f"{answer(1, 1)} No: {answer(1)}",
        f"Perhaps {answer(1, 1)}</think> I can't say.",
        f"<think>Perhaps {answer(1, 1)}",
        json.dumps({"result": json.loads(answer(1, 1))}),
        json.dumps({"result": json.loads(answer(1, 1))})[:-1],
        answer(1, 1).replace('"cluster_id": 1', f'"cluster_id": {"9" * 5000}'),
        answer(1, 1).replace('"cluster_id": 1', '"cluster_id": NaN'),
        "[" * 100_000,
        "{" * 100_000,
        '{"programs": ' * 100_000,
    ],
)
def test_anything_but_one_label_for_each_program_is_invalid(text: str) -> None:
    with pytest.raises(InvalidAnswer):
        parse_answer(text, 2)


def test_the_portable_schema_is_the_same_for_every_count_and_within_strict_mode() -> None:
    assert answer_schema(2, "portable") == answer_schema(9, "portable")
    text = json.dumps(answer_schema(2, "portable"))
    assert not any(word in text for word in ("minItems", "prefixItems", "maxLength", "enum", "const", "$ref"))
    assert text.count('"additionalProperties": false') == 2


def test_votes_are_joined_as_the_method_says() -> None:
    vectors = SHARED / "vectors" / "methods.json"
    if not vectors.is_file():
        pytest.skip("the shared vectors are not here")
    for case in json.loads(vectors.read_text())["consensus_vote"]:
        assert merge_votes(case["input"]["runs"]) == case["expected"]["labels"], case["name"]


def test_degenerate_needs_a_majority() -> None:
    assert merge_votes([[0, 1], [0, 1], [2, 1]]) == [0, 1]
    assert merge_votes([[0, 1], [2, 1], [1, 1]]) == [1, 2]


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=5), st.permutations(range(6)))
def test_votes_do_not_depend_on_ids_or_order(runs: list[list[int]], order: list[int]) -> None:
    joined = merge_votes(runs)
    renamed = [[0 if i == 0 else 50 - i for i in run] for run in runs]
    assert merge_votes(renamed) == joined
    shuffled = merge_votes([[run[i] for i in order] for run in runs])
    assert same_partition(shuffled, [joined[i] for i in order])
    if len(runs) == 1:
        assert same_partition(joined, runs[0])


@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_every_border_carries_a_key_that_no_program_holds(programs: list[str]) -> None:
    text = render_messages("s", "problem", programs)[1]["content"]
    key = text.split("key ", 1)[1].split(">>>", 1)[0]
    assert not any(key in program for program in programs)
    assert text.count(f" key {key}>>>\n") == len(programs) + 2


def test_a_text_at_the_limit_is_left_whole() -> None:
    assert cut_middle("x" * 300, 300) == "x" * 300
    assert cut_middle("a" * 200 + "b" * 200, 300).startswith("a" * 200)
    assert cut_middle("a" * 200 + "b" * 200, 300).endswith("b" * 100)
