"""Runs on given responses: nothing is sampled or run, rewards are unknown, and a killed run ends with the same bits."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Rollout
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts import scaffolds
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems, is_sampled, of_evaluations
from raypoly.run.plateau import stops_after
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import (
    ROLLOUTS,
    SMALL,
    Recorded,
    Recorder,
    Sampler,
    Stopped,
    facts,
    stop_after,
    stopped_after,
    taken,
)
from workflows.startup.open_run import OpenRun
from workflows.step.scaffold_rounds import check_given
from workflows.train import Training


class NoEngine(Sampler):
    """Encodes, and nothing else."""

    samples = False

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        raise AssertionError("nothing is sampled")
        yield

    async def update_weights(self, deliver: Any) -> None:
        raise AssertionError("nobody needs weights")


def rows_file(folder: Path, problems: int = 12) -> Path:
    rows = [
        {"prompt": f"Say {n}.", "response": f"{n} {100 * n + i}", "problem": f"say-{n}"}
        for n in range(problems)
        for i in range(ROLLOUTS)
    ]
    file = folder / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def config_of(rows: Path, *overrides: str) -> Config:
    return load(None, [*SMALL, "objective.name=supervised", f"scaffold.rows={rows}", *overrides], str)


async def opened_at(folder: Path, config: Config, session: type[Recorded] = Recorded) -> OpenRun:
    problems = scaffolds.of_run(config).own_problems() or ()

    def learner(config: Config, journal: Any, writer: Any, groups: int) -> Recorded:
        return session(config, journal, writer, 1)

    opened = await open_timed_run(
        folder,
        Times.drawn(1, 4),
        config=config,
        generator=NoEngine((), True),
        learner=learner,
        problems=problems,
    )
    await opened.services.learner.start()
    await opened.weights.sync()
    return opened


def test_attempts_are_the_given_responses_with_advantage_one_and_an_unknown_reward(tmp_path: Path) -> None:
    config = config_of(rows_file(tmp_path))
    first, second = taken(opened_at(tmp_path / "run", config), 2).steps
    seen = [group.problem_id for group in (*first.groups, *second.groups)]
    assert len(set(seen)) == 8
    for group in first.groups:
        n = int(group.problem_id.removeprefix("say-"))
        assert [r.text for r in group.rollouts] == [f"{n} {100 * n + i}" for i in range(ROLLOUTS)]
        assert [r.tokens.tolist() for r in group.rollouts] == [[n, 100 * n + i, 0] for i in range(ROLLOUTS)]
        assert all(np.isnan(r.logprobs).all() and r.finish_reason == "stop" for r in group.rollouts)
        assert {verdict.status for verdict in group.verdicts or ()} == {"no_code"}
    assert all((advantages == 1).all() for advantages in first.advantages)
    assert all(np.isnan(rewards).all() for rewards in first.rewards)
    row = first.applied.metrics
    assert row["zero_advantage"] == 0
    unknown = ("reward", "probe_mean", "mismatch_mean", "tokens_per_second", "strategies_correct")
    assert [row[name] for name in unknown] == [None] * 5


def test_a_run_killed_anywhere_ends_with_the_same_bits(tmp_path: Path) -> None:
    config = config_of(rows_file(tmp_path))
    (whole,) = taken(opened_at(tmp_path / "whole", config)).steps
    rng = random.Random(5)
    for trial in range(5):
        folder = tmp_path / f"killed-{trial}"
        for _ in range(rng.randrange(1, 4)):
            run_virtual(stopped_after(opened_at(folder, config), rng.randrange(8)))
        (again,) = taken(opened_at(folder, config)).steps
        assert again.applied.digest == whole.applied.digest
        assert facts(again.groups) == facts(whole.groups)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "row 1 can't be trained on: not JSON"),
        ('{"prompt": "a"}', "it has no response"),
        ('{"prompt": "a", "response": ""}', "its response is empty"),
        ('{"prompt": "", "response": "b"}', "its prompt is empty"),
        ('{"prompt": "a", "messages": [], "response": "b"}', "not both"),
        ('{"prompt": 3, "response": "b"}', "row 1 can't be trained on: "),
        ('{"messages": [{"role": "assistant", "content": "b"}]}', "nothing stands before its response"),
        ('{"messages": [{"role": "user", "content": "b"}], "response": "c"}', "need problems.chat_template"),
        ("", "has no rows"),
    ],
)
def test_a_row_that_can_t_be_trained_on_is_named_in_one_sentence(tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "rows.jsonl").write_text(row)
    with pytest.raises(UsageError) as refused:
        scaffolds.of_run(config_of(tmp_path / "rows.jsonl")).own_problems()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_messages_are_rendered_and_the_last_one_is_the_response(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "1 + 1"}]
    rows = [{"messages": said}, {"prompt": said[:1], "response": "2"}, {"messages": said[:1], "response": "3"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    scaffold = scaffolds.of_run(config_of(tmp_path / "rows.jsonl", "problems.chat_template=plain"))
    problems = scaffold.own_problems() or ()
    assert [problem.id for problem in problems] == ["row-1", "row-2", "row-3"]
    asks = [scaffold.ask(problem, (), 1)[0] for problem in problems]
    assert [(ask.prompt, ask.text) for ask in asks] == [("Add.", "1 + 1"), ("Add.", "2"), ("Add.", "3")]


def test_rows_of_a_parquet_file_and_of_packed_lines_are_the_same_problems(tmp_path: Path) -> None:
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = rows_file(tmp_path, 3)
    rows = [json.loads(line) for line in plain.read_text().splitlines()]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    found = [
        [(p.id, p.prompt, p.metadata) for p in scaffolds.of_run(config_of(file)).own_problems() or ()]
        for file in (plain, tmp_path / "rows.jsonl.gz", tmp_path / "rows.parquet")
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 3


def test_every_problem_needs_as_many_responses_as_rollouts(tmp_path: Path) -> None:
    scaffold = scaffolds.of_run(config_of(rows_file(tmp_path)))
    scaffold.check(ROLLOUTS)
    with pytest.raises(UsageError, match=r"has 4 responses to say-0, and train.rollouts=8: set train.rollouts=4"):
        scaffold.check(8)


def test_two_prompts_of_one_problem_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": said, "response": "b", "problem": 7} for said in "ac"]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UsageError, match=r"row 2 has another prompt than .* row 1, and both name the problem 7"):
        scaffolds.of_run(config_of(tmp_path / "rows.jsonl")).own_problems()


def test_the_problem_sets_hash_says_what_the_responses_are(tmp_path: Path) -> None:
    from raypoly.data import ProblemSet

    file, source = rows_file(tmp_path), ProblemSet({"train": (), "validation": (), "test": ()}, "source")
    before = fit_problems(source, config_of(file))
    assert len(before.splits["train"]) == 12
    other = tmp_path / "other.jsonl"
    other.write_text(file.read_text().replace("1103", "1104"))
    assert fit_problems(source, config_of(other)).hash != before.hash
    assert before.source == source.hash, "what is measured is not of the rows"


def test_a_response_that_is_too_long_is_refused_before_the_first_step(tmp_path: Path) -> None:
    config = config_of(rows_file(tmp_path), "generator.max_tokens=2")
    scaffold = scaffolds.of_run(config)

    async def check() -> None:
        generator: Any = NoEngine((), True)
        await check_given(generator, config, scaffold.own_problems() or (), scaffold)

    with pytest.raises(
        UsageError, match=r"A response to say-0 .* has 3 tokens with its end, generator.max_tokens is 2"
    ):
        asyncio.run(check())


def test_evaluations_of_a_run_on_given_responses_sample_by_direct(tmp_path: Path) -> None:
    config = config_of(rows_file(tmp_path), "scaffold.name=given")
    assert [type(it).__name__ for it in of_evaluations(config).values()] == ["Direct"]
    assert is_sampled(config)
    assert not is_sampled(config_of(rows_file(tmp_path), "evaluate.every=0"))


FALLING = (5.0, 4.0, 3.0, 2.0, 1.5, 1.5, 1.49, 1.49, 1.49, 1.49)
"""The first plateau of two windows of two steps, with a least gain of 0.1, is reached after step 8."""


class Falling(Recorder):
    async def apply(self) -> UpdateStats:
        stats = await super().apply()
        return replace(stats, loss=FALLING[stats.version - 1])


class FallingSession(Recorded):
    def made(self) -> Recorder:
        return Falling()


def ended(folder: Path, config: Config, commits: int | None = None) -> int:
    """Train to the end, or through so many commits; returns how many steps are done."""

    async def work() -> int:
        opened = await opened_at(folder, config, FallingSession)
        opened.restore()
        stop_after(opened.durability.journal, commits)

        async def nothing() -> None:
            """What the recorder has no weights for."""

        opened.durability.checkpoint = nothing  # type: ignore[method-assign]
        opened.finish = nothing  # type: ignore[method-assign]
        with suppress(ExceptionGroup, Stopped):
            await Training(opened).run()
        await close_run(opened)
        return opened.services.learner.version

    return run_virtual(work())


def test_a_run_ends_at_its_plateau_also_where_it_was_killed(tmp_path: Path) -> None:
    stop = ("train.stop.measure=-loss", "train.stop.window=2", "train.stop.least_gain=0.1", "train.steps=10")
    config = config_of(rows_file(tmp_path, 40), *stop)
    assert stops_after([-loss for loss in FALLING], 2, 0.1) == 8
    assert ended(tmp_path / "whole", config) == 8
    assert ended(tmp_path / "whole", config) == 8, "the same command adds nothing"
    rng = random.Random(2)
    for trial in range(3):
        folder = tmp_path / f"killed-{trial}"
        for _ in range(3):
            ended(folder, config, rng.randrange(30))
        assert ended(folder, config) == 8
    longer = config_of(rows_file(tmp_path, 40), "train.steps=10")
    assert ended(tmp_path / "whole", longer) == 10, "without the plateau it goes on"
