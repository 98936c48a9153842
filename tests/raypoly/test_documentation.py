"""What the docs tell a reader to do works as it is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from raypoly.algorithms import objectives
from raypoly.algorithms.losses import KNOWN as LOSSES
from raypoly.algorithms.losses import build, of_run
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.analysis.experiments.experiment_config import load_experiment
from raypoly.core import settings
from raypoly.core.config import Config, TrainConfig
from raypoly.core.config_keys import config_keys
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Verdict
from raypoly.data import build_problem_set
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.planning import preflight
from raypoly.planning.devices import ELSEWHERE
from raypoly.verifier.rewards import AnsweredGroup, Rewards, reward_function
from tests.support.program_files import Command
from tests.support.random_model import random_model
from tests.support.sample_groups import make_rollout

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [link for link in targets if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_on_the_site_once() -> None:
    named = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.parent != ROOT]
    assert sorted(named) == sorted(["index.md", *pages])


def test_the_pages_objective_can_measure_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, page in ("short_first", "tutorials/own-objective.md"), ("measured_first", "add-an-objective.md"):
        text = (ROOT / "docs" / page).read_text()
        source = re.search(rf"`{name}\.py`\):\n\n```python.*?\n(.*?)```", text, re.S)
        assert source is not None
        (tmp_path / f"{name}.py").write_text(source[1])
    monkeypatch.syspath_prepend(tmp_path)
    objective = objectives.build("measured_first:MeasuredFirst", charge=0.02)
    assert objective.credit(rewards=[1, 0, 1, 0], lengths=[9, 9, 30, 30]).measures == {"longest": 30.0}


def test_the_pages_loss_trains_from_a_file_outside_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "losses.md").read_text(), re.S)
    assert source is not None
    (tmp_path / "gentle.py").write_text(source[1])
    monkeypatch.syspath_prepend(tmp_path)
    learner = PolicyLearner(
        random_model(tmp_path / "model"), TrainConfig(), build("gentle:Gentle", negative=0.0, importance_cap=2), 1.0
    )
    tokens = np.arange(2, 6, dtype=np.int32)
    norms = []
    for advantage in (1.0, -1.0):
        learner.begin(learner.version, Normalisers(prompts=1, rollouts=1, t_max=4))
        learner.accumulate(
            [TrainingRow(tokens, tokens, learner.logprobs(tokens, tokens, 1.0), advantage, learner.version)]
        )
        norms.append(learner.apply().grad_norm)
    assert norms[0] > 0.01
    assert norms[1] == 0.0


def test_the_cluster_file_is_one_that_ray_up_takes() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = util.prepare_config(yaml.safe_load((ROOT / "cluster.yaml").read_text()))
    util.validate_config(config)
    assert config["head_node_type"] in config["available_node_types"]


def test_every_key_beside_one_of_verls_exists() -> None:
    known = {key.name for key in config_keys()}
    for section, parts in (("objective", objectives.KNOWN), ("loss", LOSSES)):
        known |= {f"{section}.{key}" for name in parts for key in load_plugin(name, parts, section).Config.model_fields}
    page = (ROOT / "docs" / "from-verl.md").read_text()
    sections = "|".join(Config.model_fields)
    named = set(re.findall(rf"`((?:{sections})\.\w+)[`=]", page))
    verls = {"model.enable_gradient_checkpointing"}
    assert {"problems.chat_template", "loss.clip_low", "objective.std"} <= named
    assert named - known - verls == set()


def test_the_pages_config_and_words_are_taken(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "from-verl.md").read_text()
    found = re.search(r"```yaml\n(.*?)```", page, re.S)
    words = re.search(r"as verl's defaults have it:\n\n    (.*)\n", page)
    assert found is not None
    assert words is not None
    (tmp_path / "mine.yaml").write_text(found[1])
    config = settings.load(str(tmp_path / "mine.yaml"), words[1].split(), lambda text: None)
    assert config.problems.source == "verl"
    assert of_run(config).config.model_dump()["clip_high"] == 0.2
    assert objectives.build(config.objective.name, **config.objective.parameters).needs == frozenset()


def test_the_tutorials_reward_pays_a_short_program_that_passes_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "tutorials" / "own-reward.md").read_text()
    source = re.search(r"\(`(\w+)\.py`\):\n\n```python.*?\n(.*?)```\n\n.*? (reward\.name=\S+) ", page, re.S)
    assert source is not None
    (tmp_path / f"{source[1]}.py").write_text(source[2])
    monkeypatch.syspath_prepend(tmp_path)
    config = settings.load(None, [source[3]], lambda text: None)
    reward, (problem, *_) = reward_function(config), build_problem_set(config.problems).splits["train"]
    passed, random = Verdict("passed", 4, 4, 0.1), np.random.default_rng(0)
    assert reward.function(problem, make_rollout(random, 40), passed) == pytest.approx(0.96)
    assert reward.function(problem, make_rollout(random, 90), passed) == pytest.approx(0.91)


def test_the_term_of_the_page_is_found_by_its_command_and_swept_by_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "rewards.md").read_text()
    (source,) = re.findall(r'```python title="my_terms\.py"\n(.*?)```', page, re.S)
    (words,) = re.findall(r"raypoly train (reward\.terms\.mine\.name=\S+ \S+)", page)
    assert source.count("\n") <= 11
    (tmp_path / "my_terms.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    config = settings.load(None, words.split(), lambda text: None)
    (term,), (puzzle, *_) = Rewards.of_run(config).terms.values(), build_problem_set(config.problems).splits["train"]
    random = np.random.default_rng(0)
    (swept,) = re.findall(r"```yaml\n(arms:.*?)```", page, re.S)
    (tmp_path / "sweep.yaml").write_text(swept)
    arms = load_experiment(str(tmp_path / "sweep.yaml")).arms
    assert {name: arm.sets[words.split()[1].partition("=")[0]] for name, arm in arms.items()} == {
        "mine-0": 0,
        "mine-0.1": 0.1,
    }
    rollouts = tuple(replace(make_rollout(random, 3), text="\n" * lines) for lines in (3, 30))
    assert term.values(AnsweredGroup(puzzle, rollouts, (), np.zeros(2))).tolist() == [1.0, 0.0]


def test_the_papers_command_for_mathematics_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = "configs/poly_epo_4xh200.yaml"
    head = (ROOT / config).read_text()
    (words,) = re.findall(rf"^# +python -m raypoly\.train --config {config} (problems\.path=\S+)$", head, re.M)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    rows = [{"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(200)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = settings.load(str(ROOT / config), words.split(), lambda text: None)
    preflight.check_config(run, tmp_path / "run", ELSEWHERE)
    assert {problem.tests.kind for problem in build_problem_set(run.problems).splits["train"]} == {"answer"}


def test_the_command_for_a_data_set_by_name_trains_a_model_that_can_read_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "data.md").read_text().replace(" \\\n", "")
    (config, words) = re.findall(r"raypoly train --config (\S+) +(problems\.source=hub .*)", page)[0]
    run = settings.load(str(ROOT / config), words.split(), lambda text: None)
    assert run.model.path is not None
    preflight.check_config(run, tmp_path, ELSEWHERE)


def words_of(method: str) -> list[str]:
    """The command line of a published method, from its row of the table."""
    page = (ROOT / "docs" / "objectives.md").read_text()
    (row,) = re.findall(rf"^\| {re.escape(method)} \([\d.]+\) \| `(.*)` \|$", page, re.M)
    return str(row).split()


@pytest.mark.parametrize(
    "method", ["GRPO", "Dr.GRPO", "DAPO", "GSPO", "CISPO", "DARLING", "FlowRL", "REINFORCE++ with a KL"]
)
def test_a_published_methods_command_line_is_one_that_a_run_takes(method: str, tmp_path: Path) -> None:
    words = words_of(method)
    config = settings.load(None, words, lambda text: None)
    preflight.check_config(config, tmp_path, ELSEWHERE)
    made = {"loss.name": config.loss.name}
    made |= {f"loss.{key}": str(value) for key, value in of_run(config).config.model_dump().items()}
    told = dict(word.split("=") for word in words if word.startswith("loss."))
    assert {key: made[key] for key in told} == {key: value.replace("null", "None") for key, value in told.items()}


def test_dapos_command_line_is_planned_with_its_dynamic_sampling(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path))
    planned = command("train", "--dry-run", *words_of("DAPO"))
    assert planned.returncode == 0, planned.stderr
    assert "refill: up to 20 problems more a step" in planned.stdout
