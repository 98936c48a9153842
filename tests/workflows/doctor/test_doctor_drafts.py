"""The doctor finds runs with drafts sound, and says which groups have drafts alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raypoly import Run
from raypoly.core.values import Draft
from raypoly.run.store import acquire_lease
from raypoly.run.store.step_records import Drafted
from tests.support.drafted_run import write_drafted_run
from workflows.doctor import examine
from workflows.durability.journal import Journal


def test_drafts_in_files_and_in_the_journal_are_sound_and_counted(tmp_path: Path) -> None:
    run = Run(write_drafted_run(tmp_path))
    drafts = tuple(Draft(rollout, "plan") for rollout in run.completed(0).groups[0].rollouts)

    lease = acquire_lease(run.store)
    asyncio.run(Journal(run.store, lease).commit(Drafted(2, 1, 0, drafts)))
    lease.release()
    report = examine(run.uri)
    assert not report.damaged
    assert report.resume.step == 2
    assert dict(report.resume.groups) == {"generated": 0, "scored": 0, "judged": 0, "drafted": 1}
