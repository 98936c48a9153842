"""Every command of docs/reproduce.md runs word for word, at the tiny model's size and with data made here.

After a command's own words stand those that make it small: the tiny model, folders in place of the hub's data sets,
fewer steps. CPPO's section is in its own folder of tests.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.raypoly.data import source_rows
from tests.support.driver_process import ROOT
from tests.support.preparation_rows import problem_row, write_rows
from tests.support.random_model import random_model

PAGE = (ROOT / "docs" / "reproduce.md").read_text()
CHAT = "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if enable_thinking %}<think>{% endif %}"


def commands(section: str) -> Iterator[list[str]]:
    """The words of each raypoly command of the section that begins with this line."""
    text = f"{PAGE}\n## ".partition(section)[2].partition("\n## ")[0].replace("\\\n", " ")
    yield from (shlex.split(line, comments=True)[1:] for line in re.findall(r"^    (raypoly .*)$", text, re.M))


def statement(name: str, number: int) -> str:
    """One that is no copy of another's."""
    chosen = random.Random(f"{name} {number}")
    return "Count the " + " ".join("".join(chosen.choices("abdefgiklmnoprstu", k=6)) for _ in range(12)) + "."


def execution(number: int) -> Mapping[str, Any]:
    code = f"def f(x):\n    return x + {number}"
    return {"id": f"sample_{number}", "code": code, "input": "f(1)", "output": str(1 + number)}


def data_sets(folder: Path) -> Path:
    """The page's data sets as folders in the hub's layout, by the second part of their names."""
    lists = {"public": source_rows.FUNCTIONAL, "private": source_rows.packed(source_rows.MORE_FUNCTIONAL)}

    def livecodebench(name: str) -> Mapping[str, Any]:
        tests = (lists["public"], lists["private"], {"func_name": "twoSum"})
        return source_rows.livecodebench(name, source_rows.TWO_SUM, *tests) | {"contest_date": "2025-03-10T00:00:00"}

    def row(name: str, file: str, number: int) -> Mapping[str, Any]:
        asked = statement(f"{name} {file}", number)
        match name:
            case "LeetCodeDataset":
                return problem_row(f"p{number}") | {"problem_description": asked}
            case "code_generation_lite":
                return livecodebench(f"{file}-{number}") | {"question_content": asked}
            case "apps":
                return source_rows.APPS | {"problem_id": number, "question": asked, "difficulty": "introductory"}
            case "code_contests":
                return source_rows.CODE_CONTESTS | {"name": f"{number}_{file}", "description": asked}
            case "execution-v2":
                return execution(number)
        tests = json.dumps([{"input": "[2, 7]\n9", "output": "[0, 1]", "testtype": "functional"}])
        asks = {"question_id": str(number), "test_id": "0", "question_content": asked, "starter_code": ""}
        return asks | {"function_name": "twoSum", "test": tests}

    files = {"LeetCodeDataset": ("train",), "code_generation_lite": ("test6",), "apps": ("train", "test")}
    files |= {"code_contests": ("train", "valid"), "execution-v2": ("test",), "test_generation": ("test",)}
    for name, its in files.items():
        (folder / name).mkdir(parents=True)
        splits = [{"split": file, "path": f"{file}.jsonl"} for file in its]
        card = yaml.safe_dump({"configs": [{"config_name": "default", "data_files": splits}]})
        (folder / name / "README.md").write_text(f"---\n{card}---\n")
        for file in its:
            write_rows(folder / name / f"{file}.jsonl", (row(name, file, number) for number in range(12)))
    return folder


class Reader:
    """Somebody who types the page's commands in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, data_sets(folder / "hub")
        (folder / "configs").symlink_to(ROOT / "configs")
        self.model = random_model(folder / "model")
        (self.model / "chat_template.jinja").write_text(CHAT)

    def small(self, command: str, config: Path) -> list[str]:
        """Words that make the command small."""
        values = yaml.safe_load((self.folder / config).read_text())
        engine = [f"model.path={self.model}", "model.dtype=float32", "generator.engine=transformers"]
        engine += ["generator.placement=auto", "generator.max_tokens=24", "scorer.workers=1", "ray.dashboard=false"]
        if command == "experiment":
            size = ["train.steps=2", "train.prompts_per_step=4", "evaluate.every=2", "train.checkpoint_every=2"]
            return [*engine, *size, "generator.max_prompt_tokens=700", "judge.name=structural"]
        named = [(part, it) for part in ("sources", "against") for it in values.get(part, {}).items()]
        hub = [f"{part}.{name}.hub={self.data / its['hub'].split('/')[1]}" for part, (name, its) in named]
        own = [*hub, f"prompts.tokenizer={self.model}", "generator.max_prompt_tokens=700"]
        own += [f"prompts.chat_template={self.model}"] if "chat_template" in values.get("prompts", {}) else []
        own += ["split.validation=2"] if "validation" in values.get("split", {}) else []
        own += [f"sources.{name}.take=10" for name, its in values["sources"].items() if "take" in its]
        return [*own, "sampling.samples=2", "band.low=0", *engine] if values["sampling"] else own

    def types(self, words: list[str], more: list[str] | None = None) -> str:
        """What the command says. Raises `AssertionError` where it fails."""
        more = self.small(words[0], Path(words[words.index("--config") + 1])) if more is None else more
        own = {"RAYPOLY_RUNS": str(self.folder / "runs"), "OPENAI_API_KEY": "not-a-key", "HF_HUB_OFFLINE": "1"}
        line = [sys.executable, "-m", "raypoly.cli", *words, *more]
        done = subprocess.run(line, cwd=self.folder, env=os.environ | own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}\n{done.stderr[-3000:]}{done.stdout[-3000:]}"
        return done.stdout

    def table(self, name: str) -> str:
        assert (self.folder / f"runs/experiment-{name}/figure.png").stat().st_size > 10_000
        return (self.folder / f"runs/experiment-{name}/table.md").read_text()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("reader"))


def test_the_page_has_these_commands() -> None:
    studies = {section: [words[0] for words in commands(section)] for section in ("# How", "## The code", "## CPPO's")}
    assert studies == {
        "# How": ["prepare", "prepare", "experiment", "experiment"],
        "## The code": ["prepare", "prepare", "experiment", "experiment"],
        "## CPPO's": [*["prepare"] * 3, "make-plans", "prepare", "prepare", "experiment", "experiment"],
    }
    assert sum(map(len, studies.values())) == PAGE.count("\n    raypoly ")


@pytest.mark.slow
@pytest.mark.parametrize(("section", "name", "runs"), [("# How", "leetcode_h200", 2), ("## The code", "code_night", 4)])
def test_a_code_study_runs_to_its_table_and_figures(reader: Reader, section: str, name: str, runs: int) -> None:
    *_, planned, _ = [reader.types(words) for words in commands(section)]
    samples = 256 if runs == 2 else 64
    assert f"12 problems and {runs // 2} seed" in planned, "what it can show"
    assert "in all " in planned, "what it costs"
    table = reader.table(name)
    assert all(f"pass@{k} " in table for k in (1, 4, 16, 64, 256) if k <= samples)
    assert "**Difference from grpo**" in table
    found = json.loads((reader.folder / f"runs/experiment-{name}/results.json").read_text())["runs"]
    assert [run["problems_after"]["problems"]["samples"] for run in found] == [[samples] * 12] * runs
    assert all(len(run["curves"]["strategies_correct_judged"]) == 2 for run in found)
