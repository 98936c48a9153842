"""How the command ends: one sentence and an exit code, and a traceback in a file where it is our fault."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from raypoly.core import __version__
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from tests.support.faulty_server import Server, running
from tests.support.finished_run import write_finished_run, write_summary
from tests.support.gold_rows import ROW, write_rows
from tests.support.long_run import write_long_run
from tests.support.program_files import Command, read_rows
from tests.support.random_model import random_model

ROOT = Path(__file__).resolve().parents[2]
TINY = str(ROOT / "configs" / "prepare" / "tiny.yaml")
EXPERIMENT = str(ROOT / "configs" / "experiments" / "tiny.yaml")
BROKEN = '''
"""An objective whose author made a mistake, and one that takes its time."""
import time
def load(config): raise RuntimeError("no such planet") from ZeroDivisionError("the first cause")
def wait(config): print("waiting", flush=True); time.sleep(60)
'''


def run(tmp_path: Path, *arguments: str, module: str = "raypoly.cli") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        cwd=tmp_path,
    )


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", environment(tmp_path)["RAYPOLY_RUNS"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken", raising=False)  # another test's


def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "broken.py").write_text(BROKEN)
    paths = f"{ROOT}{os.pathsep}{tmp_path}"
    return {**os.environ, "RAYPOLY_RUNS": str(tmp_path / "runs"), "PYTHONPATH": paths, "TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "train.stepz=3"], "did you mean train.steps?"),
        (["train", "run.name=../../evil"], "run.name=../../evil (on the command line): it names a folder"),
        (["prepare", "--config", TINY, "run.name=a/b"], "run.name=a/b (on the command line): it names a folder"),
        (["train", "judge.name=openai", "judge.base_url=http://"], "judge.base_url=http:// is no http(s) address"),
        (["train", "objective.set_size=8"], "must be smaller than train.rollouts=8"),
        (["train", "--config", "/nowhere.yaml"], "There is no config file /nowhere.yaml"),
        (["train", "--stepz", "3"], "--stepz"),
        (["train", "warm_start.seed=99999999999999999999"], "warm_start.seed=99999999999999999999 (on the command"),
        (["train", "--dry-run", "--gpu", "h900"], "--gpu h900 is not known: b200, h200"),
        (["experiment", "--config", str(ROOT / "configs" / "tiny.yaml")], "has no arms: write arms"),
        (["report", "/nowhere"], "not a run folder"),
        (["report"], "Name a run, or several to compare"),
        (["prepare", "--config", TINY, "bnad.low=2"], "did you mean band.low?"),
        (["evaluate"], "by one of --run RUN, --model MODEL, and --endpoint URL with --name."),
        (["evaluate", "--run", "a", "--model", "b"], "by one of --run RUN"),
        (["evaluate", "--run", "a", "sampling.seed=1"], "leave out all overrides but scaffold.key=value"),
        (["evaluate", "--endpoint", "http://a/v1"], "--endpoint URL needs --name"),
        (["evaluate", "--model", "m", "--split", "test"], "--split is of --run"),
        (["evaluate", "--model", "m", "--problems", "p", "--samples", "0"], "--samples"),
        (["evaluate", "--model", str(ROOT / "docs"), "--problems", "p"], "docs is no model's folder"),
        (["experiment", "--config", EXPERIMENT, "train.stepz=2"], "did you mean train.steps?"),
    ],
)
def test_a_users_mistake_is_told_with_exit_code_2_and_nothing_is_left(
    command: Command, tmp_path: Path, arguments: list[str], said: str
) -> None:
    ended = command(*arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert not (tmp_path / "runs").exists()


def one_sentence(command: Command, tmp_path: Path, said: str, *arguments: str) -> None:
    """The command ends with 2 and this sentence alone, and leaves nothing."""
    before = {entry.name for entry in tmp_path.iterdir()}
    ended = command(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert {entry.name for entry in tmp_path.iterdir()} - {"__pycache__"} == before


def test_a_models_folder_given_as_a_run_is_told_apart(command: Command, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}')
    ended = command("evaluate", "--run", str(tmp_path / "model"))
    assert ended.returncode == 2
    assert "model/config.json is a model's: its folder is no run. `raypoly evaluate --model` takes it." in ended.stderr


def test_problems_that_cant_be_read_are_one_sentence_and_nothing_is_left(command: Command, tmp_path: Path) -> None:
    model = str(random_model(tmp_path / "model"))
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "odd.jsonl").write_text('{"a": 1}\n')
    for name, said in (
        ("absent.jsonl", "absent.jsonl, can't be read: No such file"),
        ("empty.jsonl", "has no usable row: it is empty"),
        ("odd.jsonl", "has no usable row: row 1: "),
    ):
        one_sentence(command, tmp_path, said, "evaluate", "--model", model, "--problems", name)
        if name != "absent.jsonl":  # which other mistakes are told with
            own = ("problems.source=jsonl", f"problems.path={name}", f"model.path={model}")
            one_sentence(command, tmp_path, said.replace("row 1", "line 1"), "train", *own)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("objective.name=grop", "objective.name='grop' is unknown; did you mean 'grpo'? Known: "),
        ("reward.name=broken:nope", "reward.name='broken:nope': the module broken is there and has no nope."),
        ("reward.name=broken:lode", "broken is there and has no lode; did you mean 'load'?"),
        ("reward.name=absent:nope", "No module named 'absent'. Is its folder on PYTHONPATH?"),
        ("objective.name=torn:Torn", "No module named 'numpyy'. That is an error in torn itself."),
        ("run.dir=/proc/x", "run.dir=/proc/x can't be made: /proc keeps no files; give another run.dir or set"),
    ],
)
def test_a_mistake_is_said_once_with_its_cause_and_nothing_else(
    command: Command, tmp_path: Path, override: str, said: str
) -> None:
    (tmp_path / "torn.py").write_text("import numpyy\n")
    one_sentence(command, tmp_path, said, "train", override)


def test_a_run_inside_another_run_is_refused(command: Command, tmp_path: Path) -> None:
    _, lease = resolve_run(load(None, [f"run.dir={tmp_path / 'outer'}"])).open("test")
    lease.release()
    one_sentence(command, tmp_path, "outer: give a folder beside it.", "train", "run.dir=outer/inner")


def test_a_key_given_as_an_option_is_told_so_where_keys_are_taken(command: Command) -> None:
    for words in (["train", "--steps", "5"], ["doctor", "--learning-rate=1"]):
        ended = command(*words)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"There is no option {words[1].partition('=')[0]}: keys are written as")
    assert "No such option" in command("report", "--steps", "5").stderr


def test_the_version_and_examples_can_be_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert command("--version").stdout == f"raypoly {__version__}\n"
    for words in ([], ["train"]):
        told = command(*words, "--help").stdout
        assert "raypoly train train.steps=6 evaluate.samples=16\n" in re.sub(" +\n", "\n", told)
        assert max(map(len, told.splitlines())) <= 80


PROBLEM = '{"id": "add", "entry_point": "add", "tests": {"kind": "calls", "cases": [{"args": [1], "expected": 1}]}}'
PROGRAM = '{"id": "a", "problem_id": "add", "code": "def add(x): return x"}'
FILES = ["--problems", "P.jsonl", "--programs", "C.jsonl"]


@pytest.mark.parametrize(
    ("problems", "programs", "arguments", "said"),
    [
        (None, PROGRAM, [*FILES, "--out", "V.jsonl"], "P.jsonl can't be read"),
        ("{", PROGRAM, [*FILES, "--out", "V.jsonl"], "P.jsonl has no usable row"),
        (PROBLEM, None, [*FILES, "--out", "V.jsonl"], "C.jsonl can't be read"),
        (PROBLEM, PROGRAM + "\n{}", [*FILES, "--out", "V.jsonl"], "C.jsonl line 2: the row has no id"),
        (PROBLEM, PROGRAM, [*FILES, "--out", "no/V.jsonl"], "no/V.jsonl.part can't be written: No such file"),
        (PROBLEM, PROGRAM, [*FILES, "--out", "V.jsonl", "--workers", "0"], "scorer.workers=0"),
        (PROBLEM, PROGRAM, [*FILES, "--out", "V.jsonl", "scorer.memory=1"], "did you mean scorer.memory_mib?"),
        (PROBLEM, PROGRAM, [*FILES, "--out", "V.jsonl", "train.steps=3"], "'train.steps=3' is no key of the scorer"),
        (PROBLEM, PROGRAM, [*FILES, "--out", "./C.jsonl"], "--out ./C.jsonl is the file that is read"),
        (PROBLEM, PROGRAM, FILES, "Give --programs and --out"),
        (PROBLEM, PROGRAM, [*FILES, "--validate"], "leave --programs and --evidence out"),
    ],
)
def test_a_mistake_in_what_is_to_be_scored_is_one_sentence_and_nothing_is_left(
    command: Command, tmp_path: Path, problems: str | None, programs: str | None, arguments: list[str], said: str
) -> None:
    for name, text in (("P.jsonl", problems), ("C.jsonl", programs)):
        if text is not None:
            (tmp_path / name).write_text(text + "\n")
    one_sentence(command, tmp_path, said, "score", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["label", "none.jsonl"], "none.jsonl can't be read"),
        (["label", "bad.jsonl"], "bad.jsonl line 2: programs: Field required"),
        (["label", "G.jsonl", "train.steps=3"], "'train.steps=3' is no key of the judge"),
        (["label", "G.jsonl", "judge.vote=3"], "did you mean judge.votes?"),
        (["label", "G.jsonl", "--judge", "strucural"], "did you mean 'structural'?"),
        (["label", "G.jsonl", "--out", "./G.jsonl"], "--out ./G.jsonl is the file that is read"),
        (["audit", "--gold", "bad.jsonl"], "bad.jsonl line 2: programs: Field required"),
        (["audit", "--require", "arii=0.7"], "did you mean ari?"),
        (["audit", "--against", "judge.view=raw"], "there is nothing to compare"),
        (["audit", "--judge", "openai", "judge.api_key_env=NOT_THERE"], "judge.api_key_env='NOT_THERE' is not set"),
        (["cache", "now"], "'now' is no key of the judge"),
    ],
)
def test_a_mistake_in_what_is_to_be_judged_is_one_sentence_and_nothing_is_left(
    command: Command, tmp_path: Path, arguments: list[str], said: str
) -> None:
    write_rows(tmp_path / "G.jsonl", ROW)
    write_rows(tmp_path / "bad.jsonl", ROW, {"id": "b", "problem": "p", "labels": [1]})
    one_sentence(command, tmp_path, said, "judge", *arguments)


def test_judge_labels_a_file_and_audits_itself_by_one(command: Command, tmp_path: Path) -> None:
    write_rows(tmp_path / "G.jsonl", ROW)
    labelled = command("judge", "label", "G.jsonl", "--out", "L.jsonl")
    assert labelled.returncode == 0, labelled.stderr
    assert "twice: 2 strategies of 4 programs" in labelled.stdout
    assert read_rows(tmp_path / "L.jsonl")[0]["labels"] == ROW["labels"]
    words = ["--gold", "G.jsonl", "--no-consistency", "--require", "ari=0.9", "f1=0.9"]
    audited = command("judge", "audit", *words)
    assert audited.returncode == 0, audited.stderr
    assert "adjusted Rand index" in audited.stdout
    short = command("judge", "audit", *words, "refused=-1")
    assert short.returncode == 1
    assert short.stderr.endswith("is not good enough: refused is 0.000, above -1.\n")


def test_control_c_does_not_wait_for_a_judge_that_hangs(tmp_path: Path) -> None:
    write_rows(tmp_path / "G.jsonl", ROW)
    with running(Server(faults=["hang"], forever=True)) as server:
        words = [f"judge.base_url={server.url}", "judge.model=marker", f"judge.cache_dir={tmp_path}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "raypoly.cli", "judge", "label", "G.jsonl", "--judge", "openai", *words],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
            cwd=tmp_path,
        )
        while not server.bodies:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert said == "Interrupted.\n"


def test_a_dry_run_begins_with_the_plan_has_every_key_when_asked_and_starts_nothing(
    command: Command, tmp_path: Path
) -> None:
    ended = command("train", "--dry-run", "train.steps=7")
    assert ended.returncode == 0, ended.stderr
    short = ended.stdout
    assert short.startswith("# plan\n")
    assert len(short.splitlines()) < 60
    for word in ("set_size: 4", "def f(", "7 steps x 20 problems x 8 rollouts = 1,120 rollouts", "run folder: "):
        assert word in short
    assert str(tmp_path / "runs" / "tiny-poly_epo-s0-") in short
    keys = yaml.safe_load(short.partition("shows all\n")[2])
    assert keys["train"] == {"steps": 7}, "what is at its default is not among them"
    assert "at most 80" not in short
    whole = command("train", "--dry-run", "--verbose", "train.steps=7").stdout
    every = yaml.safe_load(whole.partition("# config: every key\n")[2])
    assert every == load(None, ["train.steps=7"]).model_dump(mode="json")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("rollouts", "said"), [(8, "-m raypoly.train"), (4, "needs other keys than this run: ")])
def test_a_finished_runs_last_line_is_a_command_that_can_be_pasted(tmp_path: Path, rollouts: int, said: str) -> None:
    """With four rollouts a group no set of four is left to choose."""
    words = [f"train.rollouts={rollouts}", "train.steps=12", "evaluate.every=4", "scorer.workers=1"]
    place = tmp_path / "run"
    write_finished_run(place, "grpo", True, *words)
    kept = json.loads((place / "summary.json").read_text())
    write_summary(place, {**kept, "state": "finished"})
    own = ["objective.name=grpo", f"run.dir={place}"]
    told = run(tmp_path, *own, *words, module="raypoly.train")
    assert told.returncode == 0, told.stderr
    last = told.stdout.splitlines()[-1]
    assert last.startswith("to compare: ")
    assert said in last
    if rollouts == 8:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAYPOLY_RUNS")}
        command = last.removeprefix("to compare: ") + " --dry-run"
        pasted = subprocess.run(
            ["bash", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "by poly_epo" in pasted.stdout
        assert str(tmp_path / "runs" / "tiny-poly_epo-s0-") in pasted.stdout


def test_an_unexpected_exception_shows_its_first_cause_and_keeps_the_traceback(tmp_path: Path) -> None:
    ended = run(tmp_path, "train", "--dry-run", "problems.source=broken:load")
    assert ended.returncode == 1
    first, second = ended.stderr.splitlines()
    assert re.fullmatch(r"ZeroDivisionError: the first cause \(.*broken\.py, line 4, in load\)", first)
    kept = re.search(r"traceback is in ([^;\s]+)", second)
    assert kept is not None
    assert "RuntimeError: no such planet" in Path(kept[1]).read_text()


def test_control_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raypoly.train", "--dry-run", "problems.source=broken:wait"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert said == "Interrupted. The same command goes on from here.\n"


def test_report_rebuilds_figure_and_page_from_the_runs_files(command: Command, tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "runs" / "short")
    ended = command("report", str(folder))
    assert ended.returncode == 0, ended.stderr
    assert f"report: {folder}/report.html" in ended.stdout
    assert (folder / "report.html").is_file()


def test_a_run_that_you_may_only_read_has_its_page_elsewhere(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_finished_run(tmp_path / "runs" / "short")
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, asked: may(path, asked) and Path(path) != folder)
    ended = command("report", str(folder))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"{folder} is not yours to write: name a place for the page with --out FILE.\n"
    ended = command("report", str(folder), "--out", "mine.html")
    assert ended.returncode == 0, ended.stderr
    assert "pass@64" in ended.stdout
    assert f"report: {tmp_path}/mine.html" in ended.stdout
    assert "uPlot" in (tmp_path / "mine.html").read_text()
    assert not {"report.html", "figure.png"} & {path.name for path in folder.iterdir()}


def test_report_compares_several_runs(command: Command, tmp_path: Path) -> None:
    one, two = (str(write_long_run(tmp_path / name, name)) for name in ("grpo", "poly_epo"))
    for page, more in (("comparison.html", []), ("mine.html", ["--out", "mine.html"])):
        ended = command("report", one, two, *more)
        assert ended.returncode == 0, ended.stderr
        assert "In pass@1, poly_epo ends" in ended.stdout
        assert f"report: {tmp_path}/{page}" in ended.stdout
        assert (tmp_path / page).is_file()


def test_the_embedded_config_is_found_in_a_jobs_copy_of_the_working_directory(tmp_path: Path) -> None:
    copy = tmp_path / "working_dir"
    copy.mkdir()
    for folder in ("raypoly", "workflows", "actors", "configs"):
        (copy / folder).symlink_to(ROOT / folder)
    found = subprocess.run(
        [sys.executable, "-c", "from raypoly.core.settings import DEFAULT, load; load(None); print(DEFAULT)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=copy,
    )
    assert Path(found.stdout.strip()).is_file()
