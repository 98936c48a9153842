"""A gate's rows: plans that are known to be right or wrong, and planners' plans that the judge has labelled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gate_rows import LabelledPlan, read_rows
from raypoly.recipes.cppo.plan_config import PlanMakingConfig
from raypoly.recipes.cppo.plan_contract import read_plan
from tests.raypoly.recipes.cppo.planner_run import write_planner_run
from tests.support.faulty_front import running
from tests.support.preparation_rows import WORDS
from tests.workflows.cppo.planning_server import REFUSAL, PlanningServer, plan_making, prepared, proposal
from workflows.cppo.plan_making import make_plans

NAMES = {word: f"p{number}" for number, word in enumerate(WORDS)}


def methods(word: str) -> list[str]:
    """Four good ones and a repetition of the first."""
    ways = (
        "Sort {} by end",
        "Count {} with a heap",
        "Sweep over the {}",
        "Search {} by halves",
        "Again, sort {}",
    )
    return [f"{way.format(word)}." for way in ways]


def plan(*said: str) -> str:
    return "".join(f"{label}: {method}\n" for label, method in zip("ABCD", said, strict=True))


SCRIPT = {word: [proposal(*methods(word))] for word in WORDS}
VERDICTS: dict[str, dict[str, Any]] = {"Again": {"same_as": 1}, "vaguely": {"specific": False}}
GOOD = {word: plan(*methods(word)[:3], f"Walk a tree of {word}.") for word in WORDS}
VAGUE = {word: plan(*methods(word)[:3], f"Look vaguely at {word}.") for word in WORDS}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("prepared") / "problems", len(WORDS))


def config(url: str, folder: Path, problems: Path, **plans: Any) -> PlanMakingConfig:
    return plan_making(url, folder, problems, **{"held_out": 0.4, **plans})


def server(**more: Any) -> PlanningServer:
    return PlanningServer(script=SCRIPT, verdicts=VERDICTS, **more)


def plans_of(folder: Path, name: str = "gate") -> tuple[list[LabelledPlan], list[LabelledPlan]]:
    """Those that train a gate, and those that measure it."""
    return read_rows(folder / "data" / f"{name}.jsonl"), read_rows(folder / "data" / f"{name}_held_out.jsonl")


def names(plans: Sequence[LabelledPlan]) -> set[str]:
    return {it.problem.id for it in plans}


def test_wrong_plans_of_every_kind_stand_against_as_many_gold_ones(tmp_path: Path, problems: Path) -> None:
    with running(server()) as found:
        make_plans(config(found.url, tmp_path / "run", problems))
        assert all(count == 1 for count in found.asked.values()), "a gate's rows need no further question"
    train, held_out = plans_of(tmp_path / "run")
    assert names(train).isdisjoint(names(held_out))
    assert names(train) | names(held_out) == set(NAMES.values())
    words = {name: word for word, name in NAMES.items()}
    for each in (train, held_out):
        kinds = Counter(it.kind for it in each)
        assert set(kinds) == {"gold", "reworded", "other", "empty_talk", "code"}
        assert kinds["gold"] == len(each) / 2
    for it in (*train, *held_out):
        word, read = words[it.problem.id], read_plan(it.plan, 4)
        own = [method in methods(word)[:4] for method in read.branches]
        assert read.keeps
        assert it.valid == (it.kind == "gold") == all(own)
        assert it.kind != "reworded" or {methods(word)[0], methods(word)[4]} <= set(read.branches)
        assert it.kind != "other" or any(other in it.plan for other in WORDS if other != word)
        assert it.kind != "code" or "return x + 1" in it.plan or "def" in it.plan
    assert len({(it.problem.id, it.plan) for it in train}) == len(train)


def labels(url: str, tmp_path: Path, problems: Path, *runs: str, **more: Any) -> dict[str, Any]:
    """What the card says of the gate's rows with these runs' plans."""
    make_plans(config(url, tmp_path / "run", problems, label=runs, gate_rows="gate_2", **more))
    found: dict[str, Any] = json.loads((tmp_path / "run/plans.json").read_text())["gate"]
    return found


def test_planners_plans_are_labelled_once_and_go_beside_the_rows_that_are_there(tmp_path: Path, problems: Path) -> None:
    written = {NAMES[word]: [GOOD[word], VAGUE[word], "A: No plan."] for word in WORDS}
    run = write_planner_run(tmp_path / "joint", {"elsewhere": list(GOOD.values())}, written)
    with running(server()) as found:
        make_plans(config(found.url, tmp_path / "run", problems))
        first, before = found.asked.copy(), (tmp_path / "run/data/gate.jsonl").read_bytes()
        said = labels(found.url, tmp_path, problems, run)
        asked = found.asked - first
        assert {model for model, _ in asked} == {"judge"}
        assert asked.total() == 2 * len(WORDS)
        assert said["judged"] == {"not valid": len(WORDS), "valid": len(WORDS)}
        again = found.asked.copy()
        assert labels(found.url, tmp_path, problems, run) == said
        assert labels(found.url, tmp_path, problems, run, label_plans=1)["judged"] == {"not valid": len(WORDS)}
        assert found.asked == again
    assert (tmp_path / "run/data/gate.jsonl").read_bytes() == before, "a trained gate keeps its rows"


def test_labels_are_rows_of_the_side_of_their_problem(tmp_path: Path, problems: Path) -> None:
    run = write_planner_run(tmp_path / "joint", {NAMES[word]: [GOOD[word], VAGUE[word]] for word in WORDS})
    with running(server()) as found:
        said = labels(found.url, tmp_path, problems, run)
    train, held_out = plans_of(tmp_path / "run", "gate_2")
    assert names(train).isdisjoint(names(held_out))
    both = {it.plan: it.valid for it in (*train, *held_out) if it.kind == "written"}
    assert both == {**dict.fromkeys(GOOD.values(), True), **dict.fromkeys(VAGUE.values(), False)}
    assert said["train"] == Counter(it.kind for it in train)


def test_a_killed_labelling_ends_with_the_same_rows_and_asks_for_what_was_lost(tmp_path: Path, problems: Path) -> None:
    run = write_planner_run(tmp_path / "joint", {NAMES[word]: [GOOD[word], VAGUE[word]] for word in WORDS})
    with running(server(faults=("429", "500", "garbage", "reset"))) as found:
        said = labels(found.url, tmp_path, problems, run)
        whole, asked = plans_of(tmp_path / "run", "gate_2"), found.asked.copy()
        for name in ("plans.json", "data/gate_2.jsonl"):
            (tmp_path / "run" / name).unlink()
        lost = sorted((tmp_path / "run/plans").glob("judge-*"))[::3]
        for file in lost:  # as a kill before their commits would leave it
            file.unlink()
        assert labels(found.url, tmp_path, problems, run) == said
        assert (found.asked - asked).total() == len(lost)
    assert plans_of(tmp_path / "run", "gate_2") == whole


def test_a_plan_without_a_usable_answer_is_no_label(tmp_path: Path, problems: Path) -> None:
    run = write_planner_run(tmp_path / "joint", {NAMES["rivers"]: [GOOD["rivers"]]})
    with running(server(judge_answers={"rivers": [REFUSAL]})) as found:
        said = labels(found.url, tmp_path, problems, run)
    assert said["judged"] == {"unanswered": 1}
    train, held_out = plans_of(tmp_path / "run", "gate_2")
    assert not any(it.kind == "written" for it in (*train, *held_out))


def test_where_a_side_lacks_a_kind_there_are_no_rows_and_the_command_says_why(
    tmp_path: Path, problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(server()) as found:
        make_plans(config(found.url, tmp_path / "run", problems, held_out=0.0))
    assert not list((tmp_path / "run/data").glob("gate*"))
    said = "the held-out problems have not both valid plans and others"
    assert f"a gate's rows: none, since {said}" in capsys.readouterr().out
    assert said in (tmp_path / "run/plans.md").read_text()


def test_labels_over_a_trained_gates_rows_and_of_no_run_are_refused(tmp_path: Path, problems: Path) -> None:
    with pytest.raises(ValueError, match="label needs gate_rows of another name, such as gate_2"):
        config("http://x", tmp_path / "run", problems, label=["out/joint-s0"])
    with pytest.raises(UsageError, match="nowhere"):
        labels("http://127.0.0.1:9", tmp_path, problems, str(tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()
