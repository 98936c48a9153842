"""Few problems make smaller splits and steps, where the user set none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.data import build_problem_set
from raypoly.data.problem_order import require_enough
from raypoly.planning.run_config import load_run_config
from raypoly.run.run_identity import resolve_run
from raypoly.run.store.sealed_files import unseal
from tests.support.program_files import Command


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def write(count: int, name: str = "mine.jsonl") -> list[str]:
    """Overrides that name a file of so many problems."""
    tests = {"kind": "calls", "cases": [{"args": [1], "expected": 1}]}
    rows = ({"id": f"p{i}", "prompt": f"Give back x, {i}.", "entry_point": "f", "tests": tests} for i in range(count))
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["problems.source=jsonl", f"problems.path={name}", "model.path=Qwen/Qwen3-0.6B"]


@pytest.mark.parametrize(
    ("count", "sizes", "step"),
    [(3, (0, 0), 3), (4, (1, 1), 2), (12, (2, 2), 8), (60, (10, 10), 20), (147, (24, 24), 20), (148, (64, 64), 20)],
)
def test_splits_and_steps_scale_down_to_what_the_data_has(count: int, sizes: tuple[int, int], step: int) -> None:
    told: list[str] = []
    config = load_run_config(None, write(count), told.append)
    assert (config.problems.validation, config.problems.test) == sizes
    assert config.train.prompts_per_step == step
    splits = build_problem_set(config.problems).splits
    assert (len(splits["validation"]), len(splits["test"])) == sizes
    require_enough(splits["train"], config)
    if count < 148:
        fewer = f"; {step} prompts a step instead of 20" if step < 20 else ""
        held_out = f"{count - sum(sizes)} train, {sizes[0]} validation, {sizes[1]} test"
        assert told == [f"{count} problems: {held_out}{fewer}."]
    else:
        assert told == []


def test_a_run_that_has_enough_problems_keeps_its_identity_and_one_with_few_has_its_own() -> None:
    enough = write(200)
    assert load_run_config(None, enough) == load(None, enough)
    assert load_run_config(None) == load(None)
    few = [resolve_run(load_run_config(None, write(count))).name for count in (12, 12, 14, 24)]
    assert few[0] == few[1]
    assert len({*few}) == 3, "more problems, other splits: another run"


def test_the_scaled_values_are_the_runs_own(command: Command) -> None:
    mine = [*write(12), "run.dir=run"]
    _, lease = resolve_run(load_run_config(None, mine)).open("test")
    lease.release()
    kept = unseal(Path("run/config.json").read_bytes(), "config.json")
    assert (kept["problems"]["test"], kept["train"]["prompts_per_step"]) == (2, 8)
    write(30)
    with pytest.raises(UsageError, match=r"problems\.test is 5 now and was 2"):
        resolve_run(load_run_config(None, mine))
    write(12)
    planned = command("train", "--dry-run", "--gpu", "h200", *mine)
    assert planned.returncode == 0
    assert "12 problems: 8 train, 2 validation, 2 test; 8 prompts a step instead of 20." in planned.stderr
    assert "x 8 problems x 8 rollouts" in planned.stdout
    assert "(resumes the run that is there)" in planned.stdout


def test_what_the_user_set_is_kept_or_refused_with_a_value_that_can_be_met() -> None:
    mine = write(12)
    config = load_run_config(None, [*mine, "problems.test=6"])
    assert (config.problems.validation, config.problems.test, config.train.prompts_per_step) == (1, 6, 5)
    Path("own.yaml").write_text("problems: {test: 12}\ntrain: {prompts_per_step: 20}\n")
    config = load_run_config("own.yaml", mine)
    with pytest.raises(UsageError, match=r"= 0 \+ 12 leaves none of the 12 problems.*: set .* problems.test=3\."):
        build_problem_set(config.problems)
    told: list[str] = []
    config = load_run_config("own.yaml", [*mine, "problems.test=2"], told.append)
    train = build_problem_set(config.problems).splits["train"]
    with pytest.raises(UsageError, match=r"prompts_per_step=20, but .* only 9 .*: set train.prompts_per_step=9\."):
        require_enough(train, config)
    assert told == []


def test_a_packaged_configs_sizes_scale_as_the_defaults_do_and_updates_divide_the_step() -> None:
    config = load_run_config("smollm2", [*write(12), "problems.template=none", "train.mini_batch_prompts=3"])
    assert (config.problems.validation, config.problems.test, config.train.prompts_per_step) == (2, 2, 6)


def test_splits_of_their_own_stay_and_problems_that_cant_be_read_are_told_later() -> None:
    mine = [*write(12), "problems.test_path=test.jsonl"]
    write(5, "test.jsonl")
    Path("test.jsonl").write_text(Path("test.jsonl").read_text().replace('"id": "p', '"id": "t'))
    config = load_run_config(None, mine)
    assert (config.problems.validation, config.train.prompts_per_step) == (2, 10)
    absent = ["problems.source=jsonl", "problems.path=absent.jsonl"]
    assert load_run_config(None, absent) == load(None, absent)
