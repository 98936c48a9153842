"""`raypoly check` finds planted breaches, and none in what ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raypoly.algorithms.objectives import build
from raypoly.cli import main
from raypoly.core.errors import UsageError
from raypoly.integrations.contract_checks import KINDS, check, checks_of, contract_of, report
from tests.raypoly.test_light_base import COMMAND, without_extras
from tests.support.canned_engine import judge_folder
from tests.support.contract_breaches import HonestObjective, gives_text
from tests.support.random_model import random_model
from workflows.step.stages import KNOWN as STAGES

BREACHES = {
    "GivesWrongTokens": "What compute() gives an attempt has to be a numpy array, float32 [20]; it gave",
    "GivesFloat32": "it gave float32 [0.0], for rewards=[1.0].",
    "GivesOneLess": "float64 [1]; it gave float64 []",
    "DividesByZero": "has to be finite; it gave float64 [nan], for rewards=[1.0].",
    "DrawsGlobally": "It changes numpy's global random numbers",
    "CountsCalls": "Its answer depends on what it was asked before",
    "RemembersLastMean": "Its answer depends on what it was asked before",
    "ReusesItsBuffer": "A later call changes its answer",
    "ChangesRewards": "It changes its input, where it may only change a copy",
    "PaysTheFirst": "Its answer depends on the order of rollouts, which means nothing: rewards=[1.0, 0.0]",
    "PaysDegenerates": "A degenerate rollout is paid above every attempt of the same reward",
    "ReadsDegenerateIds": "It reads the ids of degenerate rollouts",
    "PaysHighIds": "It depends on how strategies are numbered",
    "ReadsWithoutNeed": "a field of the group that `needs` does not name is None",
    "SwallowsErrors": "Reading the group raises RuntimeError('planted'), and it answers",
    "HashesOutcomes": "In another process, where hash(), sets and module state differ, it answers otherwise",
    "HoldsALock": "It can't go to another process (TypeError(\"cannot pickle '_thread.lock' object\"))",
    "TakesItsTime": "It takes 1.1 s, above 1 s, for rewards=[1.0].",
    "TakesAnything": "It takes a parameter that it does not have: Config needs extra='forbid'.",
    "BadValidator": "A wrong weight raises TypeError(",
    "KeepsASet": "What state_dict() gives, and checkpoints keep, has to be JSON values",
    "ForgetsItsState": "After load_state_dict(state_dict()) it differs",
    "DropsAGroup": "finish() has to give advantages of all 16 groups",
    "gives_text": "It has to give one number, None where it is not known",
    "TooFew": "compute() has to give 2 numbers",
    "ByPlace": "Its answer depends on the order of rollouts",
    "Endless": "compute() has to give 1 numbers",
    "gives_array": "it gave bool [True]",
    "divides_by_tests": "It raises ZeroDivisionError('division by zero') for the verdict 'passed' with 0 of 0 tests",
    "swallows": "Reading the response raises RuntimeError('planted'), and it answers",
    "takes_two": "it is called with (problem, rollout, verdict)",
    "GivesMean": "token_losses (neither sum nor mean) has to be a numpy array, float32 [1]",
    "CentresTheBatch": "A token's loss or gradient depends on other responses",
    "WeighsByPlace": "Its answer depends on the order of rollouts",
    "HasNoBound": "has to be finite",
    "PushesTheWrongWay": "It does not fall as a response of advantage 1.0 gets more likely",
    "Detaches": "No gradient reaches tokens.logp_T",
    "ReachesMaskedTokens": "A masked token has a gradient",
    "HidesItsRatio": "set takes_ratio = True",
    "ChangesAdvantages": "It changes its input",
    "DropsOut": "It changes PyTorch's global random numbers",
    "StageOfOneLess": "must give 1 values of ['value'], gave {'value': 0}",
    "TokensOneLess": "run() has to give each rollout a number of value a token",
    "TokensOfObservations": "run() has to give each rollout a number of value a token",
    "FinishesOneLess": "finish() has to keep a group's attempts, and their tokens",
    "OutcomeOfInfinity": "An outcome is a number, NaN for unknown; it gave inf",
    "CancelsItself": "It raises CancelledError() for",
    "CreditOneLess": "What token_credit() gives has to be a numpy array, float64",
    "StageOfObjects": "a finding that does not fit its columns",
    "StageOfNaN": "raise Unknown instead",
    "StageNotAsync": "run() has to be `async def`.",
    "StageHidesOutage": "A server is away, and it gives a finding",
    "StageKeepsTheGroup": "With several groups in one event loop it mixes up findings",
    "StageRanksByPlace": "Its answer depends on the order of rollouts, which means nothing: 2 programs",
    "JudgeLabelsOneLess": "Labels.ids has to be a numpy array, int32 [1]; it gave int32 []",
    "JudgeLabelsByPlace": "Equal programs get different strategies",
    "JudgeLabelsByCall": "Its answer depends on what it was asked before",
    "JudgeGivesAList": "label() has to give Labels",
    "JudgeForgetsDegenerates": "A response without code has to be degenerate",
    "JudgeHashes": "In another process",
    "JudgeSwallows": "Reading a verdict raises RuntimeError('planted'), and it answers",
    "JudgeSharesState": "Asked by four threads at once it errs",
    "AsksOneLess": "must ask for 1 attempts at double, asked for 0.",
    "AsksAtRandom": "ask() gives other asks for the same problem and drafts",
    "AsksByCall": "Its answer depends on what it was asked before",
    "AsksForever": "After 40 rounds it asks for more drafts",
    "ShowsTheTests": "It shows the hidden tests or the solution",
    "AsksBySet": "In another process",
}
HONEST = ("HonestObjective", "honest_reward", "HonestLoss", "HonestStage", "HonestJudge", "HonestScaffold")
HONEST += ("HonestTokens", "HonestCredit")


@pytest.mark.parametrize("name", BREACHES)
def test_a_planted_breach_is_told_in_a_sentence(name: str) -> None:
    found = report(f"tests.support.contract_breaches:{name}", None, {}).breaches
    assert any(BREACHES[name] in said for said in found), found
    assert all("\n" not in said and said.endswith(".") for said in found)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_part_holds_all_that_is_tried(name: str) -> None:
    check(f"tests.support.contract_breaches:{name}")


def shipped() -> list[tuple[str, str]]:
    names = [(kind, name) for kind in KINDS for name in contract_of(kind).known]
    return [*names, *(("stage", place) for place in STAGES.values())]


@pytest.mark.parametrize(("kind", "name"), shipped())
def test_what_ships_keeps_its_contract(kind: str, name: str, tmp_path: Path) -> None:
    (rows := tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"prompt": f"Add {i}.", "response": "x"}) + "\n" for i in range(2))
    )
    members = ["structural", "raypoly.strategies.judge.structural:StructuralJudge"]
    params: dict[str, dict[str, Any]] = {
        "given": {"rows": str(rows)},
        "http": {"url": "http://127.0.0.1:9/judge"},
        "ensemble": {"members": members},
    }
    if name == "local":
        model, cache = judge_folder(random_model(tmp_path / "random"), tmp_path), tmp_path / "cache"
        params[name] = {
            "model": str(model),
            "engine": "tests.support.canned_engine:CannedEngine",
            "cache_dir": str(cache),
        }
    found = report(name, kind, params.get(name, {}))
    assert found.breaches == []
    asked = [it.state for it in found.results[:3]]
    asking = [place for stage, place in STAGES.items() if stage != "reward"]  # whose outcome is here that of verdicts
    servers = ("openai", "http", "model_gate", *asking)
    assert ("not tried" in asked) == (name in servers), "what needs a server says so, and nothing else"


def test_a_reward_of_verls_signature_is_called_as_verl_does() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: object) -> object:
        return {"score": "a sum" if "sum" in solution_str else 1.0}

    with pytest.raises(AssertionError, match="It has to give one number"):
        check(compute_score)


def test_a_class_or_an_instance_is_checked_as_a_name_is() -> None:
    check(HonestObjective)
    check(build("poly_epo", set_size=2))
    with pytest.raises(AssertionError, match="it gave 'no'"):
        check(gives_text)
    check("tests.support.contract_breaches:gives_none_later")
    with pytest.raises(UsageError, match="3 is none of these"):
        check(3)


@pytest.mark.parametrize("one", checks_of("poly_epo", set_size=2))
def test_each_check_is_a_test_of_its_own(one: Callable[[], None]) -> None:
    one()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["poly_epo", "set_size=2"], 0, "answers have the right type, shape and values"),
        (["mine:Mine"], 1, "compute() has to give 2 attempts a finite number"),
        (["poly_ep"], 2, "THING='poly_ep' is unknown; did you mean 'poly_epo'?"),
        (["nowhere:Mine"], 2, "No module named 'nowhere'. Is its folder on PYTHONPATH?"),
        (["flowrl"], 2, "'flowrl' is several things: say which by --as objective or --as loss."),
        (["grpo", "--as", "objektive"], 2, "--as='objektive' is unknown; did you mean 'objective'?"),
        (["grpo", "stdd=none"], 2, "objective.stdd='none' does not fit GRPO: it has no such parameter (it takes"),
        (["grpo", "std"], 2, "'std' is no parameter: write key=value, such as set_size=4."),
        (["mine:Nothing"], 2, "is none of these: objective (a subclass of Objective)"),
    ],
)
def test_the_command_ends_with_a_code_and_a_sentence(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text(
        "from raypoly.algorithms.objectives import Objective\n"
        "class Nothing: pass\n"
        "class Mine(Objective):\n"
        "    def compute(self, group): return [group.size]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["check", *words])
    told = capsys.readouterr()
    assert ended.value.code == code, told.err
    assert said in (told.err if code == 2 else told.out)
    assert code != 2 or told.err.count("\n") == 1


@pytest.mark.parametrize(("words", "code"), [(["grpo"], 0), (["policy_gradient"], 2)])
def test_a_kind_that_needs_no_extra_is_checked_on_the_base(words: list[str], code: int) -> None:
    ended = without_extras(
        f"if __name__ == '__main__':\n    {COMMAND.format(words=['check', *words])}".replace("\nmain", "\n    main")
    )
    assert ended.returncode == code, ended.stderr
    assert code == 0 or ended.stderr.startswith("This needs torch, which is not installed: pip install 'raypoly[train")
