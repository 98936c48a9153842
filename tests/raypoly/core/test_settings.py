"""What a user may write in a file and on the command line, and what is said to one who mistypes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from raypoly.algorithms.losses.clipped_surrogate import ClippedSurrogateConfig
from raypoly.core.config import Config
from raypoly.core.config_keys import config_keys, dotted_values
from raypoly.core.errors import UsageError
from raypoly.core.foreign_keys import FOREIGN
from raypoly.core.plugins import parse_parameters
from raypoly.core.settings import CONFIGS, dump, load, no_such_option


def refused(*overrides: str, path: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        load(path, overrides)
    return str(caught.value)


def test_without_arguments_the_embedded_default_is_loaded() -> None:
    config = load(None)
    assert config.run.name == "tiny"
    assert config.objective.name == "poly_epo"
    assert config.objective.parameters["set_size"] < config.train.rollouts


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_config_of_the_repository_loads_and_says_what_it_is_for(path: Path) -> None:
    assert load(str(path)).run.name == path.stem
    assert path.read_text().startswith("#")


def test_overrides_win_over_the_file() -> None:
    config = load(
        None,
        [
            "train.steps=3",
            "train.lr=1e-4",
            "run.fresh=true",
            "run.dir=2026",
            "train.betas=[0.8, 0.99]",
            "judge.members=[structural, openai]",
        ],
    )
    assert config.train.steps == 3
    assert config.train.lr == 1e-4
    assert config.run.fresh
    assert config.run.dir == "2026"
    assert config.judge.members == ["structural", "openai"]
    assert config.train.betas == (0.8, 0.99)


def test_numbers_like_1e_3_are_numbers_for_a_users_objective_too() -> None:
    assert load(None, ["objective.name=mine:Own", "objective.weight=1e-3"]).objective.parameters == {"weight": 1e-3}


def test_off_is_a_word_where_a_key_takes_words_and_false_where_it_takes_that(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train:\n  activation_checkpointing: off\nray:\n  dashboard: off\n")
    words = ["train.activation_checkpointing=off", "ray.dashboard=off"]
    for config in (load(str(file)), load(None, words)):
        assert config.train.activation_checkpointing == "off"
        assert config.ray.dashboard is False


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("train.stepz=3", "train.steps"),
        ("stepz=3", "train.steps"),
        ("trian.rollouts=3", "train.rollouts"),
        ("steps=3", "warm_start.steps or train.steps"),
        ("judge.nme=http", "judge.name"),
        ("trian=3", "train"),
        ("stages.onw=[a]", "stages.own"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(override: str, hint: str) -> None:
    assert f"did you mean {hint}?" in refused(override)


@pytest.mark.parametrize(
    ("override", "ours"),
    [
        ("learning_rate=1e-4", "train.lr"),
        ("train.num_generations=8", "train.rollouts"),
        ("actor_rollout_ref.rollout.n=8", "train.rollouts"),
        ("trainer.total_training_steps=5", "train.steps"),
        ("actor_rollout_ref.actor.optim.total_training_steps=5", "train.schedule_steps"),
        ("train.beta=0.1", "loss.kl_coefficient"),
    ],
)
def test_another_trainers_key_is_told_by_its_name_here(override: str, ours: str) -> None:
    with pytest.raises(UsageError, match=rf": raypoly calls it {re.escape(ours)} \(docs/from-verl\.md\)\.$"):
        load(None, [override])


def test_other_trainers_names_lead_to_keys_that_exist_and_hide_none() -> None:
    known = {key.name for key in config_keys()}
    parameters = {f"loss.{name}" for name in ClippedSurrogateConfig.model_fields} | {"objective.std"}
    assert set(FOREIGN.values()) <= known | parameters
    assert not FOREIGN.keys() & known
    assert {name: key for name, key in FOREIGN.items() if key.endswith(f".{name}")} == {}


def test_a_run_of_the_default_config_with_another_model_has_the_models_name() -> None:
    assert load(None).run.name == "tiny"
    assert load(None, ["model.path=Qwen/Qwen3-0.6B"]).run.name == "Qwen3-0.6B"
    assert load(None, ["model.path=/models/mine.gguf", "run.name=own"]).run.name == "own"
    assert load(str(CONFIGS / "smollm2.yaml")).run.name == "smollm2"


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(UsageError) as told:
        load(None, ["train.stepz=3", "train.lr=fast", "learning_rate=1", "train.rollouts=yes"])
    assert [line.partition(" ")[0] for line in str(told.value).splitlines()].count("There") == 2
    assert "train.lr=fast" in str(told.value)
    assert "train.rollouts=True" in str(told.value)


def test_a_part_s_wrong_parameters_are_a_sentence_each() -> None:
    class Takes(BaseModel, extra="forbid"):
        of_two_kinds: int | list[int] = 0
        other: int = 0

    with pytest.raises(UsageError) as told:
        parse_parameters(Takes, {"of_two_kinds": "x", "other": "y", "epsilon": 1}, "loss", "loss.name=mine")
    first, second, third = str(told.value).splitlines()
    assert first.startswith("loss.of_two_kinds.int='x' does not fit mine: ")
    assert second.startswith("loss.other='y' does not fit mine: ")
    assert third.startswith("loss.epsilon=1 does not fit mine: raypoly calls it loss.clip_low (it takes: of_two_kinds")


@pytest.mark.parametrize(
    ("option", "key"), [("--steps", "train.steps"), ("--learning-rate", "train.lr"), ("--train.steps", "train.steps")]
)
def test_an_option_that_is_a_key_is_told_so(option: str, key: str) -> None:
    assert no_such_option(option).endswith(f"here {key}=...")
    assert no_such_option("--frobnicate") == ""


def test_an_unknown_key_names_its_file_and_a_renamed_one_is_told_its_new_name(tmp_path: Path) -> None:
    said = refused("program.name=tuple")
    assert said == "program.name (on the command line) is called scaffold.name now: use that name."
    assert "gate.name (on the command line) is called stages.own now" in refused("gate.name=model")
    assert "gate.path (on the command line) is called stages.gate.path now" in refused("gate.path=gate/model")
    file = tmp_path / "mine.yaml"
    file.write_text("evaluate:\n  programs: [direct]\n")
    assert f"(in {file}) is called evaluate.scaffolds now" in refused(path=str(file))
    file.write_text("train: {stepz: 3}\n")
    assert refused(path=str(file)) == f"There is no key train.stepz (in {file}); did you mean train.steps?"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.steps=many", "train.steps=many (on the command line) should be a whole number, at least 0."),
        ("train.steps=yes", "train.steps=True (on the command line) should be a whole number, at least 0."),
        ("train.lr=0", "train.lr=0 (on the command line) should be a number, above 0."),
        ("judge.when=never", "judge.when=never (on the command line) should be `needed` or `sampled` or `always`."),
        ("train.stop=3", "train.stop=3 (on the command line) must be a section of keys, not a value."),
        ("train=3", "train (on the command line) is a section of keys: name one of them, such as train.seed."),
        ("train.steps", "'train.steps' is not an override: write section.key=value, such as train.steps=20."),
    ],
)
def test_a_wrong_value_is_one_sentence_with_key_value_and_what_is_expected(override: str, said: str) -> None:
    assert refused(override) == said


@pytest.mark.parametrize(
    "name",
    [
        "../../evil",
        "a\\b",
        ".hidden",
        "",
        " a",
        "a ",
        "a\nb",
        "a\x1b[2J",
        "n" * 151,
    ],
)
def test_a_runs_name_is_one_part_of_a_path(name: str) -> None:
    said = refused(f"run.name={name!r}")
    assert re.fullmatch(r"run\.name=.* \(on the command line\): it names a folder: begin with .* 150 bytes\.", said), (
        said
    )
    assert said.isprintable()


def test_a_name_of_letters_of_any_alphabet_is_one_and_a_files_own_is_made_one(tmp_path: Path) -> None:
    for name in ("GRPO-2", "über_9 (b)", "a.b+c=1,d@e", "2026"):
        assert load(None, [f"run.name={name}"]).run.name == name
    (file := tmp_path / ".50%.1.yaml").write_text("train: {steps: 3}\n")
    assert load(str(file)).run.name == "50-.1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("train: [1, 2", "is not YAML: "),
        ("- train", "must hold sections"),
        ("train: 3", "train=3"),
        ("steps: 3", "There is no key steps"),
        ("1: 2", "There is no key 1"),
        ("trian: {steps: 3}", "There is no section trian"),
        ("train: {steps: 3, lr: .inf}", "train.lr=inf"),
        ("train:\n  steps: 3\njudge: {}\ntrain:\n  lr: 1.0\n", "the key train is there a second time at line 4"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(content)
    message = refused(path=str(file))
    assert said in message
    assert str(file) in message
    assert "\n" not in message


def test_a_missing_file_is_named() -> None:
    assert refused(path="/nowhere/x.yaml").startswith(
        "There is no config file /nowhere/x.yaml, and none of that name among raypoly's own: cppo_h200, cppo_tiny,"
    )


def test_another_objective_drops_the_old_ones_parameters_and_says_which_and_the_same_one_keeps_them() -> None:
    said: list[str] = []
    config = load(None, ["objective.name=poly_epo", "objective.set_size=3"], said.append)
    assert config.objective.parameters == {**load(None).objective.parameters, "set_size": 3}
    assert said == []
    config = load(None, ["objective.name=grpo", "objective.std=sample"], said.append)
    assert config.objective.parameters == {"std": "sample"}
    assert len(said) == 1
    assert re.search(r"the parameters of poly_epo were dropped \(set_size=4", said[0])


def test_a_dumped_config_loads_to_an_equal_one(tmp_path: Path) -> None:
    config = load(None, ["train.lr=1e-5", "run.on_pause=echo paused: yes", "objective.name=grpo"], lambda text: None)
    file = tmp_path / "resolved.yaml"
    file.write_text(dump(config))
    assert load(str(file)) == config


def test_every_key_says_what_it_does() -> None:
    assert {key.name for key in config_keys()} >= dotted_values(Config()).keys() - {"generator.engine_args"}
    assert all(key.field.description for key in config_keys())


def test_a_packaged_config_is_known_by_name_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("tiny") == load("configs/tiny.yaml") == load(None)
    (tmp_path / "tiny").write_text("train: {steps: 3}")
    assert load("tiny").train.steps == 3
