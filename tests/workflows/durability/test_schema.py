"""A run whose files have another schema's number is refused in one sentence, by whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raypoly.analysis.run import Run
from raypoly.cli import main
from raypoly.core.errors import CorruptData, OtherSchema, UsageError
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import Lease, Store
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.rollout_files import encode_step
from raypoly.run.store.sealed_files import SCHEMA, seal, unseal
from raypoly.run.store.step_records import Applied, CompletedStep, decode, encode
from tests.support.finished_run import write_finished_run
from tests.support.sample_groups import make_group, stages
from tests.support.saved_checkpoint import save_checkpoint
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal

Other = Callable[[int], None]


@pytest.fixture
def other_schema(monkeypatch: pytest.MonkeyPatch) -> Other:
    """Writes as the raypoly of another schema does, until it is undone."""

    def write_as(schema: int) -> None:
        for module in ("sealed_files", "step_records"):
            monkeypatch.setattr(f"raypoly.run.store.{module}.SCHEMA", schema)

    return write_as


def said(key: str, schema: int) -> str:
    return (
        rf"{key} has schema {schema}, and this raypoly reads only schema {SCHEMA}: "
        r"use the raypoly that wrote it, or start another run \(run\.fresh=true\)\."
    )


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 3], ids=["older", "newer"])
def test_every_reader_says_it_and_touches_nothing(
    tmp_path: Path,
    other_schema: Other,
    monkeypatch: pytest.MonkeyPatch,
    schema: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other_schema(schema)
    folder = write_finished_run(tmp_path / "run")
    monkeypatch.undo()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    told = said(rf"{folder}/config\.json", schema)
    with pytest.raises(OtherSchema, match=told):
        resolve_run(load(None, [f"run.dir={folder}"], lambda text: None))
    with pytest.raises(OtherSchema, match=told):
        print(Run(folder).config)
    for command, code in ((["report"], 2), (["score", "--run"], 2), (["doctor", "--run"], 2)):
        with pytest.raises(SystemExit) as ended:
            main([*command, str(folder)])
        assert ended.value.code == code
        found = " ".join("".join(capsys.readouterr()).split())
        assert f"has schema {schema}, and this raypoly reads only schema {SCHEMA}" in found
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_no_file_of_another_schema_is_taken_for_damage(
    store: Store, lease: Lease, other_schema: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = stages(make_group(3, 1, 2))[1]
    other_schema(SCHEMA + 1)
    store.commit("journal/step-000003/00009.arrow", encode(3, 9, [record]))
    store.commit(step_key(4), encode_step(CompletedStep(4, (), (), (), Applied(4, "ab", {}))))
    save_checkpoint(Checkpoints(store, lease), 2, {"model.bin": b"weights"})
    monkeypatch.undo()
    with pytest.raises(OtherSchema, match=said("journal object 9 of step 3", SCHEMA + 1)):
        decode(3, 9, store.read("journal/step-000003/00009.arrow"))
    with pytest.raises(OtherSchema, match=said(r"step-000004\.parquet", SCHEMA + 1)):
        Journal(store)
    with pytest.raises(OtherSchema, match=said(r"step-000002/manifest\.json", SCHEMA + 1)):
        Checkpoints(store, lease).newest_valid()
    assert not store.damaged


def test_config_with_keys_that_are_unknown_is_refused_by_their_names(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "run")
    values = unseal((folder / "config.json").read_bytes(), "config.json")
    values["train"]["momentum"] = 0.9
    (folder / "config.json").write_bytes(seal(values))
    with pytest.raises(UsageError, match=r"config\.json .*does not know its train\.momentum"):
        resolve_run(load(None, [f"run.dir={folder}"], lambda text: None))


def test_schema_that_was_flipped_is_damage() -> None:
    data = encode(3, 1, [stages(make_group(3, 0, 2))[0]])
    for bit in range(8):
        with pytest.raises(CorruptData, match="checksum"):
            decode(3, 1, data[:8] + bytes([data[8] ^ 1 << bit]) + data[9:])


def test_journal_object_under_another_number_is_damage() -> None:
    record = stages(make_group(1, 0, 2))[0]
    with pytest.raises(CorruptData, match="number 4 of step 1 under another's name"):
        decode(1, 5, encode(1, 4, [record]))
