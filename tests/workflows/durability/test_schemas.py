"""A run that an earlier raypoly wrote opens and goes on; one that a later raypoly wrote is refused in one sentence.

`runs_of_schemas/schema-1.tar.xz` and `schema-3.tar.xz` were written by the last raypoly of each of these schemas.
They hold three completed steps, one half done, an evaluation and a checkpoint, with `expected.json` beside them. In
that of schema 3 one group has log-probabilities behind each prompt.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.analysis.run import Run
from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, NewerSchema, UsageError
from raypoly.core.settings import load
from raypoly.core.values import Group, Verdict
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import Applied
from raypoly.run.store.checked_parquet import encode_table
from raypoly.run.store.record_encoding import decode, encode
from raypoly.run.store.rollout_columns import verdict_columns, verdicts_of
from raypoly.run.store.sealed_json import SCHEMA, seal, unseal
from tests.support.sample_groups import make_group, stages
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.observers.summary import Summary

RUNS = Path(__file__).parent / "runs_of_schemas"


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of schema 1, or of the one that a test names."""
    with tarfile.open(RUNS / f"{getattr(request, 'param', 'schema-1')}.tar.xz") as archive:
        archive.extractall(tmp_path / "run", filter="data")
    return tmp_path / "run"


def config_of(root: Path) -> Config:
    overrides = [f"run.dir={root}", "train.steps=5", "train.prompts_per_step=2", "train.rollouts=2"]
    return load(None, overrides, lambda text: None)


def described(group: Group) -> dict[str, Any]:
    """As `expected.json` has it."""
    labels, verdicts = group.labels, group.verdicts
    return {
        "problem": group.problem_id,
        "slot": group.slot,
        "tokens": [rollout.tokens.tolist() for rollout in group.rollouts],
        "prompts": [rollout.prompt_tokens.tolist() for rollout in group.rollouts],
        "logprobs": [rollout.logprobs.tobytes().hex() for rollout in group.rollouts],
        "texts": [rollout.text for rollout in group.rollouts],
        "seeds": [rollout.seed for rollout in group.rollouts],
        "verdicts": None
        if verdicts is None
        else [
            [v.status, v.tests_passed, v.cpu_seconds, v.repeatable, v.evidence and v.evidence.strategy]
            for v in verdicts
        ],
        "labels": None if labels is None else [labels.ids.tolist(), labels.degenerate.tolist(), labels.judge],
        "unjudged": group.unjudged,
    }


@pytest.mark.parametrize("old", ["schema-1", "schema-3"], indirect=True)
def test_run_of_an_older_schema_opens_whole_and_goes_on(old: Path) -> None:
    expected = json.loads((old / "expected.json").read_text())
    store, lease = resolve_run(config_of(old)).open("raypoly train")
    assert lease.epoch == 2
    journal, checkpoint = Journal(store, lease), Checkpoints(store, lease).newest_valid()
    assert checkpoint is not None
    assert checkpoint.step == 2
    assert journal.replayable(2) == range(2, 3)
    assert [journal.applied(step) for step in range(3)] == [
        Applied(step, f"{step:064x}", expected["rows"][step], groups=2) for step in range(3)
    ]
    for step in range(3):
        assert [described(group) for group in journal.load_step(step).groups] == expected["steps"][str(step)]
        assert Run(old).rollouts(step).num_rows == 4
    assert [described(group) for group in journal.step(3).groups.values()] == expected["open"]
    assert journal.evaluations()[0, "test"]["pass_at_k"] == {"1": 0.5}
    assert not store.damaged

    async def end_the_step() -> None:
        group = make_group(3, 1, 2, tokens=6)
        for record in stages(group)[1:]:
            await journal.commit(record)
        await journal.commit(Applied(3, "ab", expected["rows"][2]))
        groups, numbers = [make_group(3, slot, 2, tokens=6) for slot in range(2)], journal.load_step(2).rewards
        await journal.seal_step(3, groups, numbers, numbers)
        await journal.index_before(4)

    asyncio.run(end_the_step())
    Summary(store, journal, config_of(old)).write("running")
    assert Journal(store, lease).completed_steps() == (0, 1, 2, 3)
    lease.release()


def test_config_that_lacks_keys_of_today_has_their_defaults(old: Path) -> None:
    values = json.loads((old / "config.json").read_text())
    del values["judge"]["max_unjudged"], values["warm_start"]
    (old / "config.json").write_text(json.dumps(values))
    assert resolve_run(config_of(old)).resumes
    assert Run(old).config.warm_start == config_of(old).warm_start


def test_config_with_keys_that_are_unknown_is_refused_by_their_names(old: Path) -> None:
    values = json.loads((old / "config.json").read_text())
    values["train"]["momentum"] = 0.9
    (old / "config.json").write_text(json.dumps(values))
    with pytest.raises(UsageError, match=r"config\.json .*does not know its train\.momentum"):
        resolve_run(config_of(old))


def newer(values: dict[str, Any]) -> bytes:
    """As a later raypoly would seal it."""
    body = {**values, "schema": SCHEMA + 7}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "sha256": digest}).encode()


def test_run_of_a_later_raypoly_is_refused_before_anything_is_touched(old: Path) -> None:
    (old / "config.json").write_bytes(newer(json.loads((old / "config.json").read_text())))
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with pytest.raises(
        UsageError, match=rf"config\.json has schema version {SCHEMA + 7}, this raypoly reads up to {SCHEMA}"
    ):
        resolve_run(config_of(old))
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before


def test_files_of_a_later_raypoly_are_refused_and_never_taken_for_damage(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lease = resolve_run(config_of(old)).open("raypoly train")
    table = pa.table({"step": [1]})
    data = encode_table(table, {"step": "3", "digest": "", "metrics": "{}", "groups": "1", "schema": str(SCHEMA + 1)})
    store.commit("rollouts/step-000003.parquet", data)
    with pytest.raises(
        NewerSchema, match=rf"step-000003\.parquet has schema version {SCHEMA + 1}, this raypoly reads up to {SCHEMA}"
    ):
        Journal(store, lease)
    store.delete("rollouts/step-000003.parquet")
    monkeypatch.setattr("raypoly.run.store.record_encoding.SCHEMA", SCHEMA + 1)
    record = stages(make_group(3, 1, 2))[1]
    store.commit("journal/step-000003/00009.arrow", encode(3, 9, [record]))
    with pytest.raises(NewerSchema, match=f"journal object 9 of step 3 has schema version {SCHEMA + 1}"):
        Journal(store, lease).step(3)
    assert not store.damaged
    lease.release()


def test_version_that_was_flipped_is_damage(old: Path) -> None:
    record = stages(make_group(1, 0, 2))[0]
    for data in (encode(1, 1, [record]), (old / "journal/step-000003/00001.arrow").read_bytes()):
        for bit in range(8):
            with pytest.raises(CorruptData, match="checksum"):
                decode(3, 1, data[:8] + bytes([data[8] ^ 1 << bit]) + data[9:])


def test_journal_object_under_another_number_is_damage() -> None:
    record = stages(make_group(1, 0, 2))[0]
    with pytest.raises(CorruptData, match="number 4 of step 1 under another's name"):
        decode(1, 5, encode(1, 4, [record]))


def test_columns_that_an_earlier_raypoly_lacked_read_as_unknown() -> None:
    verdicts = make_group(1, 0, 4).verdicts
    assert verdicts is not None
    table = pa.table(verdict_columns(verdicts)).drop_columns(["failure", "features", "repeatable"])
    found = verdicts_of(table)
    assert [verdict.status for verdict in found] == [verdict.status for verdict in verdicts]
    assert {verdict.failure for verdict in found} == {None}
    assert {verdict.evidence.features for verdict in found if verdict.evidence} <= {()}
    assert all(isinstance(verdict, Verdict) and verdict.repeatable for verdict in found)


def test_sealed_json_says_what_was_changed_in_it() -> None:
    data = seal({"lr": 0.003, "pass_at_k": {1: 0.5}})
    assert unseal(data, "a.json") == {"lr": 0.003, "pass_at_k": {"1": 0.5}}
    with pytest.raises(CorruptData, match=r"a\.json is damaged: its checksum"):
        unseal(data.replace(b"0.003", b"0.001"), "a.json")
    with pytest.raises(CorruptData, match=r"a\.json is damaged"):
        unseal(data.replace(b'"sha256"', b'"sha257"'), "a.json")


def test_old_rollout_files_are_plain_parquet(old: Path) -> None:
    assert pq.read_table(old / "rollouts" / "step-000000.parquet").num_rows == 4
