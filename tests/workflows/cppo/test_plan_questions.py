"""Gold plans: exact counts from the first question to the plans, whatever servers do, and nothing is asked twice."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import PausedTooLong, UsageError
from raypoly.data import build_problem_set
from raypoly.recipes.cppo.plan_config import PlanMakingConfig
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.recipes.cppo.plan_proposals import PlanOutcome, funnel
from raypoly.rollouts.scaffolds import build
from raypoly.run.store import acquire_lease, open_store
from tests.support.faulty_front import running
from tests.support.faulty_handler import Answer
from tests.support.judge_faults import error_body
from tests.support.preparation_rows import candidate
from tests.workflows.cppo.planning_server import CUT, REFUSAL, PlanningServer, plan_making, prepared, proposal
from workflows.cppo.plan_making import make_plans
from workflows.cppo.plan_questions import PlanQuestions

FOUR = ("Sort by the end.", "Count with a heap.", "Sweep over the days.", "Search the smallest bound.")
SCRIPT = {
    "rivers": [proposal(*FOUR, "Guess a bit.", "Try it out.")],
    "castles": [
        proposal(*FOUR[:3], "sort, by the end", "Sweep; then return f(x)", "Hash every name. Then look it up.")
    ],
    "engines": [REFUSAL],
    "orchards": ["Here you are: methods", proposal(*FOUR)],
    "lanterns": ["not JSON", "{}"],
    "violins": [proposal(*FOUR[:3], "Sort the ends in order.", "Cut it in halves.", "Walk a tree of days.")],
    "glaciers": [proposal(*FOUR, "Number five."), CUT],
    "harbours": [CUT],
    "kettles": [proposal(*FOUR)],
}
VERDICTS: dict[str, dict[str, Any]] = {
    "Guess": {"specific": False},
    "Try": {"actionable": False, "hook": False},
    "in order": {"same_as": 1},
    "halves": {"code_or_answer": True},
    "Number": {"hook": False},
}
JUDGE = {"kettles": [REFUSAL], "glaciers": ["{}", '{"methods": []}']}
EXPECTED: dict[str, Any] = {
    "problems": 9,
    "unanswered": {"judge refused": 1, "judge unreadable": 1, "teacher refused": 1, "teacher unreadable": 2},
    "proposed": 6 + 6 + 4 + 6 + 5 + 4,
    "left_out": {
        "breach": 2,
        "repeated": 2,
        "not specific": 1,
        "not actionable": 1,
        "no hook": 0,
        "code or answer": 1,
        "not judged": 3 + 5 + 4,
    },
    "kept": 4 + 4 + 4,
    "too_few": 1,
    "plans": 3,
}


def server(**more: Any) -> PlanningServer:
    return PlanningServer(script=SCRIPT, verdicts=VERDICTS, judge_answers=JUDGE, **more)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("prepared") / "problems", len(SCRIPT))


def card(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "plans.json").read_text())["plans"]
    return found


@pytest.mark.parametrize("faults", [(), ("429", "500", "503", "garbage", "429-retry-after", "cut", "reset")])
def test_the_funnel_counts_every_method_once_whatever_the_servers_do(
    tmp_path: Path, problems: Path, faults: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with running(server(faults=faults)) as found:
        make_plans(plan_making(found.url, tmp_path / "run", problems))
    assert card(tmp_path / "run") == EXPECTED
    assert EXPECTED["proposed"] == EXPECTED["kept"] + sum(EXPECTED["left_out"].values())
    shown = capsys.readouterr().out
    assert "gold plans" in shown
    assert "scaffold.rows=" in shown
    assert "gold plans" in (tmp_path / "run" / "plans.md").read_text()


def test_plans_are_rows_that_supervised_training_reads(tmp_path: Path, problems: Path) -> None:
    with running(server()) as found:
        make_plans(plan_making(found.url, tmp_path / "run", problems))
    file = tmp_path / "run" / "data" / "plans.jsonl"
    given = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["problem"] for row in given] == ["p0", "p3", "p5"]
    assert all(read_plan(row["response"], 4).keeps for row in given)
    assert given[0]["response"] == "".join(f"{label}: {text}\n" for label, text in zip("ABCD", FOUR, strict=True))
    (asked,) = build("tuple", methods=4).ask(candidate("p", "x").problem, (), 4)
    assert given[0]["prompt"].split("\n")[0] == asked.prompt.split("\n")[0], "the prompt of the scaffold `tuple`"
    own = build("given", rows=str(file)).own_problems()
    assert own is not None
    assert [it.prompt for it in own] == [row["prompt"] for row in given]


def test_a_finished_or_killed_preparation_asks_nothing_twice(tmp_path: Path, problems: Path) -> None:
    with running(server()) as found:
        config = plan_making(found.url, tmp_path / "run", problems)
        make_plans(config)
        first, plans = found.asked.copy(), (tmp_path / "run" / "data" / "plans.jsonl").read_bytes()
        for name in ("plans.json", "data/plans.jsonl"):
            (tmp_path / "run" / name).unlink()
        answers = sorted((tmp_path / "run" / "plans").iterdir())
        lost = next(path for path in answers if "walk a tree" in path.read_text().lower())
        lost.unlink()  # as a kill before its commit would leave it
        make_plans(config)
        assert (found.asked - first).total() == 1, "what was lost, and nothing else"
    assert card(tmp_path / "run") == EXPECTED
    assert (tmp_path / "run" / "data" / "plans.jsonl").read_bytes() == plans


class Killed(BaseException):
    """In place of SIGKILL, before an answer is on the disk."""


def outcomes(url: str, folder: Path, problems: Path, kill_after: int | None = None) -> list[PlanOutcome] | None:
    """What became of every problem; None where a start was killed after so many answers were kept."""
    config = plan_making(url, folder, problems, {"concurrency": 1})
    store, left = open_store(folder), kill_after
    lease, commit = acquire_lease(store), store.commit

    def commit_some(key: str, data: bytes) -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left = None if left is None else left - 1
        commit(key, data)

    store.commit = commit_some  # type: ignore[method-assign]

    async def work() -> list[PlanOutcome]:
        questions = PlanQuestions(config.plans, None, store, lambda text: None, first_wait=0.05)
        try:
            return await questions.outcomes(build_problem_set(config.problems).splits["train"])
        finally:
            questions.close()

    try:
        return asyncio.run(work())
    except BaseExceptionGroup:
        return None
    finally:
        lease.release()


def test_kills_anywhere_end_with_the_same_plans(tmp_path: Path, problems: Path) -> None:
    with running(server()) as found:
        whole = outcomes(found.url, tmp_path / "whole", problems)
        answers, rng = found.asked.copy(), random.Random(7)
        assert whole is not None
        assert funnel(whole, 4) == EXPECTED
        for trial in range(8):
            found.asked.clear()
            kills = [rng.randrange(answers.total() // 2) for _ in range(rng.randrange(1, 4))]
            ended = [outcomes(found.url, tmp_path / f"killed-{trial}", problems, after) for after in kills]
            assert outcomes(found.url, tmp_path / f"killed-{trial}", problems) == whole
            lost = ended.count(None)  # the two questions under way, one to each server
            assert found.asked.total() <= answers.total() + 2 * lost, "what was kept is not asked again"


class Failing(PlanningServer):
    """Fails every question about engines, which the script has refused."""

    def answer(self, body: Any, headers: Any) -> Answer:
        failing = "engines" in body["messages"][-1]["content"]
        return Answer(500, error_body("No.", "server_error")) if failing else super().answer(body, headers)


def test_a_question_that_a_server_never_answers_is_refused_and_holds_up_nobody(tmp_path: Path, problems: Path) -> None:
    with running(Failing(script=SCRIPT, verdicts=VERDICTS, judge_answers=JUDGE)) as found:
        made = outcomes(found.url, tmp_path / "run", problems)
    assert made is not None
    assert funnel(made, 4) == EXPECTED


def test_nothing_that_is_held_out_is_asked(tmp_path: Path) -> None:
    apart = prepared(tmp_path / "problems", len(SCRIPT), validation=2, test=2)
    with running(server()) as found:
        make_plans(plan_making(found.url, tmp_path / "run", apart))
    train = (apart / "data" / "train.jsonl").read_text()
    assert {problem for _, problem in found.asked} == {word for word in SCRIPT if word in train}
    assert card(tmp_path / "run")["problems"] == 5


def test_a_server_that_stays_away_ends_the_command_and_keeps_what_was_answered(tmp_path: Path, problems: Path) -> None:
    with running(server()) as found:
        config = plan_making(found.url, tmp_path / "run", problems, {"max_pause": 0.2})
        asking = found.answer

        def closing(body: Any, headers: Any) -> Any:
            if sum(found.asked.values()) == 5:
                found.faults, found.forever = ("503",), True
            return asking(body, headers)

        found.answer = closing  # type: ignore[method-assign]
        with pytest.raises(PausedTooLong, match=r"stayed away for plans\.(teacher|judge)\.max_pause=0\.2 s"):
            make_plans(config)
        found.faults, found.forever = (), False
        make_plans(config)
        assert max(found.asked.values()) <= 2, "an answer that can't be used is asked for once more"
    assert card(tmp_path / "run") == EXPECTED


def test_a_key_is_in_no_file_and_no_message(
    tmp_path: Path, problems: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLANS_KEY", "sk-secret-of-the-teacher")
    with running(server(key="sk-secret-of-the-teacher")) as found:
        make_plans(plan_making(found.url, tmp_path / "run", problems, {"api_key_env": "PLANS_KEY"}))
    kept = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert b"sk-secret" not in kept
    assert "sk-secret" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"teacher": {"url": "http://x", "name": "t"}}, r"plans\.judge\.name is missing"),
        (
            {"teacher": {"url": "x", "name": "t"}, "judge": {"url": "http://x", "name": "j"}},
            r"plans\.teacher\.url=x is",
        ),
        ({"teacher": {"name": "t"}, "judge": {"url": "http://x", "name": "j"}}, r"plans\.teacher\.url=null is no http"),
    ],
)
def test_what_cant_be_asked_is_said_before_anything_starts(tmp_path: Path, changes: Any, said: str) -> None:
    config = PlanMakingConfig.model_validate({"run": {"dir": str(tmp_path / "run")}, "plans": changes})
    with pytest.raises(UsageError, match=said):
        make_plans(config)
    assert not (tmp_path / "run").exists()


def test_plans_of_more_methods_than_are_proposed_are_refused() -> None:
    with pytest.raises(ValueError, match=r"proposals=6 are too few for plans of methods=7"):
        PlanMakingConfig.model_validate({"plans": {"methods": 7}})


def test_a_key_that_is_not_there_is_said(tmp_path: Path, problems: Path) -> None:
    config = plan_making("http://127.0.0.1:9", tmp_path / "run", problems, {"api_key_env": "NO_SUCH_KEY"})
    with pytest.raises(UsageError, match=r"plans\.teacher\.api_key_env='NO_SUCH_KEY' is not set"):
        make_plans(config)
