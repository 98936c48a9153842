"""Labelling a file: clusters for a person, rows for a program, nothing lost in an outage."""

from pathlib import Path

import pytest

from raypoly.commands.judge_label import label_file
from raypoly.commands.section_config import JudgeChoice
from raypoly.core.config import JudgeConfig, ScorerConfig
from raypoly.core.errors import JudgeUnavailable, SandboxError
from tests.support.faulty_server import Server, running
from tests.support.gold_rows import HASH, ROW, read_rows, write_rows

STRUCTURAL = JudgeChoice(JudgeConfig(), ScorerConfig(workers=1))


def asking(server: Server, folder: Path, prompt: str = "Group them.") -> JudgeChoice:
    """A judge behind a socket that takes the marker in a program for its strategy."""
    (folder / "prompt.txt").write_text(prompt)
    own = {"base_url": server.url, "model": "marker", "prompt_file": str(folder / "prompt.txt")}
    judge = JudgeConfig(name="openai", cache_dir=str(folder), cache_mib=0, timeout=5.0, **own)
    return JudgeChoice(judge, ScorerConfig(workers=1))


def marked(name: str) -> dict[str, object]:
    programs = [f"def f(n):\n    return n, 'strategy_{i}'\n" for i in (2, 1, 0)]
    return {"id": name, "problem": f"The problem {name}.", "entry_point": "f", "programs": programs}


def test_clusters_are_printed_and_rows_are_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    label_file(write_rows(tmp_path / "g.jsonl", ROW, ROW | {"id": "again"}), str(out), STRUCTURAL)
    first, second = read_rows(out)
    assert first["labels"] == [1, 2, 1, 0]
    assert set(first) == {"id", "labels", "judge", "strategies"}
    assert second["id"] == "again"
    printed = capfd.readouterr().out
    assert "twice: 2 strategies of 4 programs\n  1  programs 0 2  hash table\n" in printed
    assert "-  programs 3  degenerate" in printed


def test_show_prints_canonical_forms_or_the_messages_that_would_be_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "g.jsonl", ROW)
    label_file(path, None, STRUCTURAL, show=True)
    canonical = capfd.readouterr().out
    assert "--- program 0, canonical; " in canonical
    assert "seen" not in canonical
    with running(Server()) as server:
        label_file(path, None, asking(server, tmp_path), show=True)
    sent = capfd.readouterr().out
    assert "--- system\nGroup them." in sent
    assert "<<<program 2 key" in sent


def test_rows_on_standard_output_stand_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    label_file(write_rows(tmp_path / "g.jsonl", ROW), "-", STRUCTURAL)
    captured = capfd.readouterr()
    assert captured.out.count("\n") == 1
    assert captured.out.startswith('{"id": "twice", "labels": [1, 2, 1, 0]')
    assert "2 strategies" in captured.err


def test_a_refused_group_is_a_row_without_labels_and_the_rest_is_labelled(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with running(Server(faults=["refusal"] * 5)) as server:
        choice = asking(server, tmp_path)
        label_file(write_rows(tmp_path / "one.jsonl", marked("a")), str(out), choice)
        (refused,) = read_rows(out)
        label_file(write_rows(tmp_path / "two.jsonl", marked("b")), str(out), choice)
    assert refused["labels"] is None
    assert "refused to answer" in refused["reason"]
    (labelled,) = read_rows(out)
    assert labelled["labels"] == [1, 2, 0]
    assert labelled["strategies"]["1"]


@pytest.mark.parametrize(("prompt", "kept"), [("Group them.", True), ("Edited under its name.", False)])
def test_an_outage_keeps_the_rows_so_far_and_the_same_command_goes_on(tmp_path: Path, prompt: str, kept: bool) -> None:
    out = tmp_path / "out.jsonl"
    # equal programs need no call: their row is there before the server is found to be away
    free = {"id": "free", "problem": "p", "programs": [HASH, HASH]}
    path = write_rows(tmp_path / "g.jsonl", free, marked("a"), marked("b"))
    with running(Server(faults=["quota"], forever=True)) as server:
        with pytest.raises(JudgeUnavailable, match=r"quota.*the same command goes on"):
            label_file(path, str(out), asking(server, tmp_path))
        assert not out.exists()
        (row,) = read_rows(tmp_path / "out.jsonl.part")
        server.forever = False
        label_file(path, str(out), asking(server, tmp_path, prompt))
    first, *others = read_rows(out)
    assert [each["labels"] for each in (first, *others)] == [[1, 1], [1, 2, 0], [1, 2, 0]]
    assert (first == row) == kept
    assert {each["judge"] for each in others} == {first["judge"]}, "no two prompts in one file"


def test_a_group_whose_programs_could_not_be_run_is_never_labelled(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    path = write_rows(tmp_path / "g.jsonl", ROW | {"tests": "def check(candidate:\n"}, ROW | {"id": "sound"})
    with pytest.raises(SandboxError, match="1 of 2 groups have no labels"):
        label_file(path, str(out), STRUCTURAL)
    assert [row["labels"] for row in read_rows(out)] == [None, [1, 2, 1, 0]]
