"""An experiment's file says what is meant, or one sentence says what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raypoly.algorithms import objectives
from raypoly.algorithms.objectives import Objective
from raypoly.analysis.experiments.experiment_config import ArmConfig, ExperimentConfig, load_experiment
from raypoly.analysis.experiments.planned_runs import plan_runs
from raypoly.core import settings
from raypoly.core.errors import UsageError
from tests.raypoly.analysis.experiments.made_experiments import experiment

CONFIGS = settings.CONFIGS / "experiments"
PAGE = settings.CONFIGS.parent / "docs" / "experiments.md"


def test_an_arms_values_reach_its_run_as_they_were_written(tmp_path: Path) -> None:
    arm = """{objective.name: mine:Own, objective.word: "off", objective.digits: "12", objective.none: null,
      objective.odd: "a: b: [", objective.list: [1, 2.5], run.on_pause: "echo 'gone', $HOME", train.lr: 1e-5,
      train.betas: [0.9, 0.95], evaluate.judge: false, train.mini_batch_prompts: null}"""
    (run,) = plan_runs(experiment(tmp_path, f"arms:\n  one: {arm}\n"), tmp_path, [])
    given = {"word": "off", "digits": "12", "none": None, "odd": "a: b: [", "list": [1, 2.5]}
    assert run.config.objective.parameters == given
    assert run.config.run.on_pause == "echo 'gone', $HOME"
    assert (run.config.train.lr, run.config.train.betas) == (1e-5, (0.9, 0.95))
    assert (run.config.evaluate.judge, run.config.train.mini_batch_prompts) == (False, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seeds: [0]", "has no arms"),
        ("arms: {}", "has no arms"),
        ("[1, 2]", "must hold keys"),
        ("arms: {a: {}}\nstpes: 3", "There is no key stpes in"),
        ("arms: {a: {}}\nseeds: []", "give one seed or more"),
        ("arms: {a: {}}\nseeds: [1, 1]", "each once"),
        ("arms: {a: {}}\nseeds: [true]", "seeds.0"),
        ("arms: {a: {seeds: yes}}", "arms.a.seeds"),
        ("arms: {a: {steps: -1}}", "arms.a.steps"),
        ("arms: {a: {steps: 2, train.steps: 3}}", "not both"),
        ("arms: {a: {objective: {name: grpo}}}", "section.key: value"),
        ("arms: {a: {run.dir: /tmp/x}}", "arm a sets run.dir"),
        ("arms: {a: {train.seed: 3}}", "arm a sets train.seed"),
        ("arms: {../a: {}}", "names folders"),
        ("arms: {a: {}, b: {}}\nprimary: {measure: pass@64, against: b}", "all arms are compared with a"),
        ("arms: {a: {}}\nprimary: {measure: pass@x, against: a}", "primary.measure"),
        ("name: a/b\narms: {a: {}}", "names folders"),
        ("arms: {a: 3}", "arms.a"),
        ("arms: {a: {sweep: {train.lr: 3}}}", "sweep is one key that the arm does not set, with values"),
        ("arms: {a: {sweep: {train.lr: [1, 1]}}}", "there are two arms a-1"),
        ("arms: {a: {train.lr: 1, sweep: {train.lr: [1, 2]}}}", "sweep is one key that the arm does not set"),
    ],
)
def test_a_mistake_in_an_experiments_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        experiment(tmp_path, text)
    assert said in str(refused.value)
    assert "mine.yaml" in str(refused.value)
    assert "\n" not in str(refused.value)


def takes_no_more(objective: Objective) -> bool:
    return objective.reads_rewards and "drafts" not in objective.needs and objective.terms != "own"


def test_every_objective_is_an_arm_and_the_eight_have_three_seeds(tmp_path: Path) -> None:
    whole = load_experiment(CONFIGS / "objectives.yaml")
    names = {run.config.objective.name for run in plan_runs(whole, tmp_path, [])}
    built = {name: objectives.build(name) for name in objectives.KNOWN}
    plain = {name for name, each in built.items() if takes_no_more(each)}
    assert names >= plain, "those that need given responses, plans or terms are other experiments'"
    thrice = [name for name in whole.arms if len(whole.seeds_of(name)) == 3]
    assert len(thrice) == 8
    assert thrice[0] == "grpo"


def test_the_tiny_experiment_has_two_warm_starts_and_a_control(tmp_path: Path) -> None:
    runs = plan_runs(load_experiment(CONFIGS / "tiny.yaml"), tmp_path, [])
    assert [run.name for run in runs] == ["grpo-s0", "poly_epo-s0", "grpo_no_budgets-s0", "grpo-s1", "poly_epo-s1"]
    assert [(run.config.train.seed, run.config.warm_start.seed) for run in runs[2:4]] == [(0, 0), (1, 1)]


def test_the_page_has_every_key_and_an_experiment_that_is_taken(tmp_path: Path) -> None:
    page = PAGE.read_text()
    named = [f"| `{key}` |" for key in ExperimentConfig.model_fields if key != "arms"]
    named += [f"| `arms.NAME.{key}` |" for key in ArmConfig.model_fields]
    assert [key for key in named if key not in page] == []
    shown = re.search(r"```yaml\n(.*?)```", page, re.S)
    assert shown is not None
    runs = plan_runs(experiment(tmp_path, shown[1]), tmp_path, [])
    assert len(runs) == 10
    assert runs[3].config.objective.name == "short_first:ShortFirst"
