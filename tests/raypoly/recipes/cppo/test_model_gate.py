"""A gate that is a model: what it answers, what it is trained on, and the folder that it lives in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.values import Draft, Float64, Problem, Rollout
from raypoly.data.templates import PLAIN, ChatTemplate
from raypoly.learner.tiny_model import build_tokenizer
from raypoly.recipes.cppo.gate_folder import FILE, gate_hash, read_gate
from raypoly.recipes.cppo.gate_model import GateModel
from raypoly.recipes.cppo.gate_question import COMPLETION_TEMPLATE, TEMPLATE, WORDS, GateAnswers, GateQuestion
from raypoly.recipes.cppo.gate_rows import LabelledPlan, balance, encode_rows, read_rows
from raypoly.recipes.cppo.gate_stage import ContractGate, GateStage, ModelGate
from raypoly.recipes.cppo.gate_validation import seal_gate
from raypoly.rollouts.scaffolds import build as build_program
from raypoly.run.run_identity import resolve_run
from tests.raypoly.recipes.cppo.gate_folders import BREACH, PLAN, PROBLEM, REWORDED, sealed_gate
from tests.support.random_model import TEXTS, random_model
from tests.support.worked_numbers import worked_cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed_gate(tmp_path_factory.mktemp("gate") / "model")


class TwoWords(GateModel):
    """Whose log-probabilities of the two words are given."""

    def __init__(self, pairs: Sequence[Sequence[float]]) -> None:
        self._pairs = iter(pairs)

    def _word_logprobs(self, problem: Problem, plan: str) -> list[float]:
        return list(next(self._pairs))


@pytest.mark.parametrize("case", worked_cases("gate_probability", "cppo"))
def test_worked_probabilities_and_what_the_training_of_a_word_learns(case: Any) -> None:
    given, want = case["input"], {name: np.array(values) for name, values in case["expected"].items()}
    pairs = list(zip(given["logp_pass"], given["logp_fail"], strict=True))
    found = TwoWords(pairs).ask(PROBLEM, [PLAN] * len(pairs))
    np.testing.assert_allclose(found.p, want["p_pass"], atol=1e-9)
    np.testing.assert_allclose(found.mass, want["mass"], atol=1e-9)
    right = np.array(given["label"], bool)
    bce = -np.log(np.where(right, found.p, 1 - found.p))
    np.testing.assert_allclose(bce, want["bce"], atol=1e-9)
    np.testing.assert_allclose(bce - np.log(found.mass), want["cross_entropy"], atol=1e-9)


def draft(text: str) -> Draft:
    tokens = np.zeros(0, np.int32)
    return Draft(Rollout(tokens, tokens, np.zeros(0, np.float32), text, "stop", 0, 0), "plan")


def next_token(folder: Path, prompt: str) -> Float64:
    """Log-probabilities of the token behind a prompt, float64 [V], by nothing but transformers."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        found: Float64 = model(ids).logits[0, -1].double().log_softmax(-1).numpy()
    return found


def word_tokens(folder: Path, words: Sequence[str] = WORDS) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in words]


def test_p_and_mass_are_those_of_the_next_token(folder: Path) -> None:
    logp = next_token(folder, f"{PLAN.strip()}\n{PROBLEM.prompt.strip()}\n# Plan: ")
    accept, refuse = np.exp(logp[word_tokens(folder)])
    answers = GateModel.load(folder, WORDS, COMPLETION_TEMPLATE).ask(PROBLEM, [PLAN])
    np.testing.assert_allclose(answers.p, [accept / (accept + refuse)], atol=1e-6)
    np.testing.assert_allclose(answers.mass, [accept + refuse], atol=1e-6)


def test_an_answer_does_not_depend_on_what_else_is_asked(folder: Path) -> None:
    model = GateModel.load(folder, WORDS, COMPLETION_TEMPLATE)
    alone = [model.ask(PROBLEM, [plan]).p[0] for plan in (PLAN, REWORDED)]
    assert model.ask(PROBLEM, [REWORDED, PLAN, PLAN]).p.tolist() == [alone[1], alone[0], alone[0]]
    assert model.ask(PROBLEM, []).p.shape == (0,)


def test_words_that_begin_alike_are_refused() -> None:
    tokenizer = build_tokenizer(TEXTS)
    with pytest.raises(UsageError, match="'yes' and 'yep' begin with the same token"):
        GateQuestion.of(tokenizer, ("yes", "yep"), COMPLETION_TEMPLATE)
    with pytest.raises(UsageError, match=r"has no \{plan\}"):
        GateQuestion.of(tokenizer, WORDS, "{statement}")
    with pytest.raises(UsageError, match=r"has no \{statement\}"):
        GateQuestion.of(tokenizer, WORDS, "{plan}")


def test_the_default_prompt_shows_statement_plan_and_words() -> None:
    prompt = GateQuestion.of(build_tokenizer(TEXTS)).prompt(PROBLEM, f"{PLAN}<|im_end|>")
    assert PROBLEM.prompt.strip() in prompt
    assert PLAN.strip() in prompt
    assert "<|im_end|>" not in prompt
    assert prompt.endswith("Answer pass or fail:")
    assert "{" not in prompt


class Told:
    """A model that notes what it is asked."""

    def __init__(self) -> None:
        self.plans: list[str] = []

    async def ask(self, problem: Problem, plans: Sequence[str]) -> GateAnswers:
        self.plans += plans
        return GateAnswers(np.full(len(plans), 0.2), np.full(len(plans), 0.9))


def gate_of(kind: type[GateStage], **keys: Any) -> GateStage:
    section = {"own": [f"{kind.__module__}:{kind.__name__}"], "gate": keys}
    config = Config.model_validate(
        {"stages": section, "objective": {"name": "cppo"}, "scaffold": {"name": "tuple", "methods": 2}}
    )
    return kind(config, objectives.of_run(config))


def asked(folder: Path, *plans: str) -> tuple[GateAnswers, list[str]]:
    told, gate = Told(), gate_of(ModelGate, path=str(folder))
    services = SimpleNamespace(models={"gate": told})
    return asyncio.run(gate.answers(PROBLEM, [draft(plan) for plan in plans], services)), told.plans


def test_a_plan_that_breaches_the_contract_gets_zero_and_nobody_is_asked(folder: Path) -> None:
    answers, plans = asked(folder, BREACH, PLAN)
    assert answers.p.tolist() == [0.0, 0.2]
    np.testing.assert_array_equal(answers.mass, [np.nan, 0.9])
    assert plans == [PLAN]
    assert asked(folder, BREACH)[1] == []


def test_tau_is_the_folders_unless_the_config_says_another(folder: Path) -> None:
    assert gate_of(ModelGate, path=str(folder)).tau == 0.17
    assert gate_of(ModelGate, path=str(folder), tau=0.4).tau == 0.4
    assert gate_of(ContractGate).tau == 0.5


def test_a_folder_that_is_no_gate_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"stages\.gate\.path=.*nowhere is no Hugging Face folder here"):
        resolve_run(gated(tmp_path / "run", tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"The stage gate needs stages\.gate\.path"):
        _ = gate_of(ModelGate).asked_model
    model = random_model(tmp_path / "model")
    with pytest.raises(UsageError, match=r"has no gate.json, so it is no gate yet: train the gate"):
        read_gate(model)
    (model / FILE).write_text('{"words": ["pass", "fail"], "tau": 2}')
    with pytest.raises(UsageError, match=r"gate.json can't be used \(template: Field required") as error:
        read_gate(model)
    assert "\n" not in str(error.value)


def test_a_gate_that_was_trained_on_must_be_sealed_again(tmp_path: Path) -> None:
    gate = sealed_gate(tmp_path / "gate")
    read_gate(gate)
    weights = gate / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"more")
    with pytest.raises(UsageError, match=r"is not the one that gate.json was written for"):
        read_gate(gate)


def gated(run: Path, gate: Path, **parameters: Any) -> Config:
    section = {"own": ["model_gate"], "gate": {"path": str(gate), **parameters}}
    return Config.model_validate({"run": {"dir": str(run)}, "stages": section})


def test_a_run_goes_on_with_its_own_gate_alone(tmp_path: Path) -> None:
    gate = sealed_gate(tmp_path / "gate")
    first = resolve_run(gated(tmp_path / "run", gate))
    _, lease = first.open("test")
    lease.release()
    assert resolve_run(gated(tmp_path / "run", gate)).changes == ()
    sealed_gate(gate, tau=0.3)
    with pytest.raises(UsageError, match=r"was started differently: stages.gate.sha256 is \"\w{64}\" now and was"):
        resolve_run(gated(tmp_path / "run", gate))
    given = first.config.stages.parameters["gate"]["sha256"]
    with pytest.raises(UsageError, match=f"gate.sha256={given}, but the gate in .* it is another gate"):
        gate_hash(gate, given)


def plans(count: int, valid: bool) -> list[LabelledPlan]:
    text = PLAN if valid else REWORDED
    return [LabelledPlan(replace(PROBLEM, id=f"p{i}"), text, valid) for i in range(count)]


def test_rows_are_balanced_by_a_seed() -> None:
    given = [*plans(3, True), *plans(8, False)]
    chosen = balance(given, seed=1)
    assert len(chosen) == 6
    assert sum(it.valid for it in chosen) == 3
    assert chosen == balance(given, seed=1)
    assert any(chosen != balance(given, seed=seed) for seed in range(2, 8))
    assert [given.index(it) for it in chosen] == sorted(given.index(it) for it in chosen)
    with pytest.raises(UsageError, match="there are 3 valid ones and 0 others"):
        balance(plans(3, True), seed=1)


def test_rows_are_those_of_the_program_given_and_have_the_tokens_that_the_gate_is_asked_with(
    folder: Path, tmp_path: Path
) -> None:
    question = GateQuestion.of(AutoTokenizer.from_pretrained(folder))
    path, given = tmp_path / "gate.jsonl", [*plans(1, True), *plans(1, False)]
    path.write_bytes(encode_rows(given))
    asks = build_program("given", ChatTemplate(PLAIN), rows=str(path))
    problems = asks.own_problems() or ()
    assert [it.prompt for it in problems] == [question.prompt(it.problem, it.plan) for it in given]
    assert [asks.ask(it, (), 1)[0].text for it in problems] == ["pass", "fail"]


def test_rows_are_read_back_as_plans_about_which_the_same_is_asked(folder: Path, tmp_path: Path) -> None:
    question = GateQuestion.of(AutoTokenizer.from_pretrained(folder))
    by_template = replace(PROBLEM, prompt="Solve it.\n\nAdd up.\n\nNow.", metadata={"statement": "Add up."})
    given = [*plans(2, True), LabelledPlan(by_template, REWORDED, False, "reworded")]
    path = tmp_path / "gate.jsonl"
    path.write_bytes(encode_rows(given))
    found = read_rows(path)
    assert [(it.problem.id, it.plan, it.valid, it.kind) for it in found] == [
        (it.problem.id, it.plan, it.valid, it.kind) for it in given
    ]
    assert [question.prompt(it.problem, it.plan) for it in found] == [
        question.prompt(it.problem, it.plan) for it in given
    ]
    path.write_text(path.read_text().replace(PLAN.splitlines()[0], "A: Guess.", 1))
    with pytest.raises(UsageError, match=r"gate.jsonl row 1 is no row of a gate: its prompt is not the question"):
        read_rows(path)
    path.write_text('{"prompt": "a", "response": "b"}')
    with pytest.raises(UsageError, match=r"row 1 is no row of a gate: problem_id: Field required"):
        read_rows(path)


def test_a_good_gate_is_sealed_with_its_numbers_and_its_tau(tmp_path: Path) -> None:
    gate = random_model(tmp_path / "run" / "model")
    p = GateModel.load(gate, WORDS, COMPLETION_TEMPLATE).ask(PROBLEM, [PLAN, REWORDED]).p
    likelier = PLAN if p[0] > p[1] else REWORDED
    held_out = [replace(it, valid=it.plan == likelier) for it in (*plans(3, True), *plans(3, False))]
    held_out.append(LabelledPlan(PROBLEM, BREACH, False))
    found = seal_gate(tmp_path / "run", held_out, methods=2, rows="a" * 64, template=COMPLETION_TEMPLATE)
    assert found.accepted
    assert found.auc == 1.0
    assert found.tau == p.max()
    said = json.loads((gate / FILE).read_text())
    assert (said["tau"], said["recall"], said["rows"], said["words"]) == (p.max(), 0.95, "a" * 64, ["pass", "fail"])
    assert (said["validation"]["auc"], said["validation"]["plans"]) == (1.0, 7)
    assert gate_of(ModelGate, path=str(gate)).tau == p.max()


def test_a_bad_gate_is_refused_with_its_numbers_and_the_next_step(tmp_path: Path) -> None:
    gate = sealed_gate(tmp_path / "gate")
    useless = [replace(it, plan=PLAN) for it in (*plans(3, True), *plans(3, False))]
    refusal = r"is not accepted, on \d+ held-out plans at tau .*AUC 0.500 is below 0.75.*Train it longer"
    with pytest.raises(RaypolyError, match=rf"{refusal}.*then measure it again\.$") as error:
        seal_gate(gate, useless, methods=2, rows="a" * 64, template=COMPLETION_TEMPLATE)
    assert error.value.exit_code == 1
    assert not (gate / FILE).exists(), "what was accepted before is not what was measured now"
    with pytest.raises(UsageError, match="has no trained gate"):
        seal_gate(tmp_path / "none", useless, methods=2, rows="", template=TEMPLATE)
    with pytest.raises(UsageError, match="both valid and invalid ones"):
        seal_gate(gate, plans(2, True), methods=2, rows="", template=COMPLETION_TEMPLATE)
