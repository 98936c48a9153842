"""verl's Parquet rows become problems as they are; rows that can't are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from raypoly.core.config import ProblemsConfig, ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.formats import program_of
from raypoly.data.problem_set import with_tests
from raypoly.data.verl_rows import compute_score_args, problem_of_row
from raypoly.planning.preflight import require_tests
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.sandbox import Sandbox
from tests.raypoly.data.trainer_rows import ASSERTS, CASES, PAIRS, SKYWORK, verl
from tests.support.random_model import TEXTS
from tests.support.verl_files import SCHEMA, code_row, gsm8k_row, write_parquet

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def load_rows(path: Path, **changes: Any) -> ProblemSet:
    given = {"source": "verl", "path": str(path), "chat_template": "plain", "validation": 0, "test": 0}
    return build_problem_set(ProblemsConfig.model_validate(given | changes))


def test_a_row_keeps_all_that_a_reward_function_is_told(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "train.parquet", [gsm8k_row(5)])
    (problem,) = load_rows(path).splits["train"]
    truth = compute_score_args(problem)
    assert (truth.data_source, truth.ground_truth) == ("openai/gsm8k", "7")
    assert truth.extra_info == gsm8k_row(5)["extra_info"]
    assert problem.prompt == gsm8k_row(5)["prompt"][0]["content"]
    assert (problem.tests.kind, problem.source) == ("none", str(path))


def test_ground_truths_that_are_tests_are_run_in_the_sandbox(tmp_path: Path) -> None:
    check = "def check(candidate):\n    assert candidate(2) == 4\n\ncheck(double)\n"
    rows = [
        code_row(3),
        code_row(4, functional=check),
        code_row(5, inputs=[[2], [3]], outputs=[4, 6], fn_name="double"),
    ]
    problems = {p.tests.kind: p for p in load_rows(write_parquet(tmp_path / "a.parquet", rows)).splits["train"]}
    assert set(problems) == {"stdin", "check", "calls"}
    answers = {
        "stdin": "```python\nprint(sum(map(int, input().split())))\n```",
        "check": "```python\ndef double(n):\n    return 2 * n\n```",
        "calls": "```python\ndef double(n):\n    return 2 * n\n```",
    }
    with Sandbox(ScorerConfig()) as sandbox:
        for kind, problem in problems.items():
            found = extract_code(problem, answers[kind])
            assert found is not None
            assert sandbox.score(problem, program_of(problem, found)).passed, kind


def test_answers_to_problems_without_tests_are_not_run(tmp_path: Path) -> None:
    (problem,) = load_rows(write_parquet(tmp_path / "a.parquet", [gsm8k_row(5)])).splits["train"]
    with Sandbox(ScorerConfig()) as sandbox:
        verdict = sandbox.score(problem, "while True: pass")
    assert (verdict.status, verdict.tests_total) == ("no_code", 0)
    assert with_tests([problem]) == []


def test_messages_are_rendered_by_the_chat_template(tmp_path: Path) -> None:
    from raypoly.learner.tiny_model import build_tokenizer

    tokenizer = build_tokenizer(TEXTS)
    tokenizer.save_pretrained(tmp_path / "bare")
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(tmp_path / "chat")
    path = write_parquet(tmp_path / "a.parquet", [code_row(3)])
    (problem,) = load_rows(path, chat_template=str(tmp_path / "chat")).splits["train"]
    want = AutoTokenizer.from_pretrained(tmp_path / "chat").apply_chat_template(
        code_row(3)["prompt"], tokenize=False, add_generation_prompt=True
    )
    assert problem.prompt == want
    assert problem.prompt.endswith("<|im_start|>assistant\n")
    with pytest.raises(UsageError, match="without a chat template"):
        load_rows(path, chat_template=str(tmp_path / "bare"))
    with pytest.raises(UsageError, match=r"problems\.chat_template: the folder"):
        load_rows(path, chat_template=None)


def test_bad_rows_are_named_by_file_row_and_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        gsm8k_row(1),
        gsm8k_row(2, prompt=[]),
        gsm8k_row(3, data_source=None),
        gsm8k_row(4, reward_model=None),
        code_row(5, inputs=["1"], outputs=[]),
        gsm8k_row(6, prompt=[{"role": "user", "content": None}]),
        gsm8k_row(1),
        gsm8k_row(7),
    ]
    assert len(load_rows(write_parquet(tmp_path / "a.parquet", rows)).splits["train"]) == 2
    said = [record.getMessage() for record in caplog.records]
    wanted = ["prompt", "data_source", "reward_model", "inputs", "prompt.0.content", "came before"]
    assert [f"a.parquet row {row} " in text for row, text in zip(range(2, 8), said, strict=True)] == [True] * 6
    assert [word in text for word, text in zip(wanted, said, strict=True)] == [True] * 6


def test_pictures_and_what_json_cannot_hold_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wide = SCHEMA.append(pa.field("images", pa.list_(pa.binary())))
    raw = wide.set(4, pa.field("extra_info", pa.struct({"index": pa.int64(), "raw": pa.binary()})))
    rows = [
        gsm8k_row(1, extra_info={"index": 1, "raw": None}),
        gsm8k_row(2, extra_info={"index": 2, "raw": b"x"}),
        gsm8k_row(3, extra_info={"index": 3, "raw": None}, images=[b"png"]),
    ]
    (problem,) = load_rows(write_parquet(tmp_path / "a.parquet", rows, raw)).splits["train"]
    assert compute_score_args(problem).extra_info == {"index": 1, "raw": None}
    assert "row 2 is left out: extra_info: no JSON value" in caplog.text
    assert "row 3 is left out: images" in caplog.text


def test_a_folder_is_read_whole_and_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    write_parquet(folder / "train-00000-of-00002.parquet", [gsm8k_row(i) for i in range(6)])
    write_parquet(folder / "train-00001-of-00002.parquet", [gsm8k_row(i) for i in range(6, 12)])
    whole = write_parquet(tmp_path / "whole.parquet", [gsm8k_row(i) for i in range(12)][::-1])
    first, second = (load_rows(path, validation=3, test=2) for path in (folder, whole))
    assert first.hash == second.hash
    assert [len(first.splits[name]) for name in ("train", "validation", "test")] == [7, 3, 2]
    changed = [gsm8k_row(i) for i in range(11)] + [gsm8k_row(11, reward_model={"style": "rule", "ground_truth": "0"})]
    assert load_rows(write_parquet(tmp_path / "b.parquet", changed), validation=3, test=2).hash != first.hash


def test_a_problem_on_the_exclusion_list_is_left_out(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [gsm8k_row(1), gsm8k_row(2)])
    ids = [problem.id for problem in load_rows(path).splits["train"]]
    listed = tmp_path / "exclude.jsonl"
    listed.write_text(json.dumps({"problem_id": ids[0], "reason": "wrong"}))
    assert [p.id for p in load_rows(path, exclude=str(listed)).splits["train"]] == ids[1:]


def test_files_that_are_none_of_verls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no Parquet")
    with pytest.raises(UsageError, match="can't be read as Parquet"):
        load_rows(tmp_path / "text.parquet")
    with pytest.raises(UsageError, match="can't be read as Parquet"):
        load_rows(tmp_path / "absent.parquet")
    other = write_parquet(tmp_path / "other.parquet", [{"prompt": "Add."}], pa.schema({"prompt": pa.string()}))
    with pytest.raises(UsageError, match="no column data_source and no reward_model"):
        load_rows(other)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"without a file \*\.parquet"):
        load_rows(tmp_path / "empty")
    with pytest.raises(UsageError, match="leaves no problem"):
        load_rows(write_parquet(tmp_path / "bad.parquet", [gsm8k_row(1, prompt=[])]))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["objective.name=grpo"], "reward.name=passed can't judge"),
        (
            ["reward.name=m:compute_score"],
            "judge.name=structural finds strategies in programs alone",
        ),
        (["reward.name=m:compute_score", "judge.name=http"], "set judge.name=openai"),
        (["reward.name=m:compute_score", "objective.name=diver"], "diver needs"),
    ],
)
def test_not_run_is_never_taken_for_wrong(tmp_path: Path, overrides: list[str], said: str) -> None:
    config = load(None, overrides, lambda text: None)
    problems = load_rows(write_parquet(tmp_path / "a.parquet", [gsm8k_row(1), code_row(2)]))
    with pytest.raises(UsageError, match="1 of 2 training problems have no tests") as caught:
        require_tests(problems, config)
    assert said in str(caught.value)
    require_tests(load_rows(write_parquet(tmp_path / "b.parquet", [code_row(2)])), config)
    for fits in (
        ["objective.name=grpo"],
        ["judge.name=openai"],
        ["judge.name=ensemble", "judge.members=[openai,openai]"],
    ):
        own = ["reward.name=m:compute_score"]
        require_tests(problems, load(None, [*fits, *own], lambda text: None))


@pytest.mark.parametrize(
    ("truth", "kind"),
    [(SKYWORK, "check"), ({"assert_case": ASSERTS}, "check"), (ASSERTS, "check"), (PAIRS, "stdin"), (CASES, "stdin"),
     ("42", "none"), ([1, 2], "none"), (["yes", "no"], "none"), ({"answer": 4}, "none")],
)  # fmt: skip
def test_a_ground_truth_that_holds_tests_in_any_shape_is_told_from_an_answer(truth: object, kind: str) -> None:
    assert problem_of_row(verl(truth, 1), str).tests.kind == kind
