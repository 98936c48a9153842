"""Conversations on a virtual clock: what is asked when, what is kept, limits, and what a kill repeats."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from raypoly.core.errors import RaypolyError, Unknown
from raypoly.core.values import ASSISTANT, Problem, Rollout, Turn
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.environments import Conversation, Done, Environment, EnvironmentServices, Observation
from raypoly.run.store.rollout_columns import rollout_columns, rollouts_of
from raypoly.run.store.step_records import CompletedStep, Turned, assemble, decode, encode
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Taken, facts, open_virtual, stopped_after, taken
from workflows.step.conversations import with_turn


def wanted(conversation: Conversation) -> int:
    """Turns of this conversation, 1 to 4, by what was sampled first."""
    return turns_of(conversation.turns[0].text)


def turns_of(first: str) -> int:
    return 1 + int(first.split()[-1]) % 4


class Asking(Environment):
    """Answers until a conversation has as many turns as its first one says."""

    asked: ClassVar[list[tuple[str, int]]] = []

    async def respond(
        self, problem: Problem, conversation: Conversation, services: EnvironmentServices
    ) -> Observation | Done:
        turn = len(conversation.own)
        self.asked.append((conversation.text, turn))
        await asyncio.sleep(0.5 * (turn % 2))
        return Done() if turn >= wanted(conversation) else Observation(f"{turn} of {wanted(conversation)}")


class Grading(Environment):
    """What a conversation is worth: 1 for an even last seed, nothing that is known for a third of them."""

    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Done:
        code = sum(map(ord, conversation.text))
        if code % 3 == 0:
            raise Unknown("no answer")
        return Done(outcome=float(code % 2))


class Tooling(Environment):
    async def respond(
        self, problem: Problem, conversation: Conversation, services: EnvironmentServices
    ) -> Observation | Done:
        result = await services.run("run(0.7000)", "3")
        return Observation(f"{result.status} {result.output}")


class Raising(Environment):
    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Done:
        raise KeyError("board")


def named(kind: type) -> str:
    return f"environment.name={__name__}:{kind.__name__}"


def finished(folder: Path, *overrides: str, dull: Sequence[str] = ("p1",)) -> Taken:
    return taken(open_virtual(folder, set(dull), overrides))


def rollouts(step: CompletedStep) -> list[Rollout]:
    return [rollout for group in step.groups for rollout in group.rollouts]


@pytest.mark.parametrize("how", ["free", "ordered"])
def test_a_conversation_is_one_rollout_with_its_observations_masked(tmp_path: Path, how: str) -> None:
    run = finished(tmp_path, named(Asking), f"generator.turns={how}")
    (step,) = run.steps
    lengths = set()
    for rollout in rollouts(step):
        own = [turn for turn in rollout.turns if turn.role == ASSISTANT]
        turns = turns_of(own[0].text)
        lengths.add(turns)
        assert len(own) == turns
        assert [turn.role for turn in rollout.turns] == [ASSISTANT, *["user", ASSISTANT] * (turns - 1)]
        assert rollout.text == own[-1].text
        assert (rollout.length, len(rollout.tokens)) == (2 * turns, 2 * turns + 3 * (turns - 1))
        assert rollout.mask is not None
        np.testing.assert_array_equal(np.isnan(rollout.logprobs), ~rollout.mask)
        for turn, end in zip(rollout.turns, [*(t.start for t in rollout.turns[1:]), len(rollout.tokens)], strict=True):
            assert rollout.mask[turn.start : end].all() == (turn.role == ASSISTANT)
        assert rollout.finish_reason == "stop"
    assert len(lengths) > 2
    metrics = step.applied.metrics
    assert metrics["response_tokens"] == sum(rollout.length for rollout in rollouts(step))
    assert metrics["turns"] == pytest.approx(np.mean([(len(r.turns) + 1) / 2 for r in rollouts(step)]))
    assert metrics["finish_reasons"] == {"stop": 16}
    assert len(run.submitted) == (1 if how == "free" else max(lengths))
    if how == "ordered":
        assert len(run.submitted[0]) == 4, "the first turn is what a run without turns submits"


def test_both_ways_and_one_turn_sample_the_same_first_turns(tmp_path: Path) -> None:
    plain = finished(tmp_path / "plain").steps[0]
    free, ordered = (
        finished(tmp_path / how, named(Asking), f"generator.turns={how}").steps[0] for how in ("free", "ordered")
    )
    for one, many, turn_by_turn in zip(*map(rollouts, (plain, free, ordered)), strict=True):
        np.testing.assert_array_equal(many.tokens, turn_by_turn.tokens)
        assert one.seed == many.seed
        assert one.mask is None
        np.testing.assert_array_equal(one.tokens, many.tokens[:2])


@pytest.mark.parametrize("how", ["free", "ordered"])
def test_a_run_killed_anywhere_ends_alike_and_no_kept_turn_is_asked_again(tmp_path: Path, how: str) -> None:
    own = (named(Asking), f"generator.turns={how}")
    whole = finished(tmp_path / "whole", *own)
    turns = [kind for kind in whole.kinds if kind.startswith("turned")]
    assert len(turns) == sum(1 for r in rollouts(whole.steps[0]) for t in r.turns if t.role == ASSISTANT)
    rng, seen = random.Random(4), set()
    for trial in range(12):
        killed, left = tmp_path / f"killed-{trial}", len(whole.kinds) - 1
        Asking.asked.clear()
        kept = 0
        for _ in range(rng.randrange(1, 4)):
            commits = rng.randrange(left)
            run_virtual(stopped_after(open_virtual(killed, {"p1"}, own), commits))
            kept += sum(kind.startswith("turned") for kind in whole.kinds[:commits])
            left = max(1, left - commits)
        before = list(Asking.asked)
        assert whole.steps[0].applied.metrics["turns_again"] == 0
        again = finished(killed, *own)  # the journal refuses a second record of a turn
        assert facts(again.steps[0].groups) == facts(whole.steps[0].groups)
        assert again.steps[0].applied.digest == whole.steps[0].applied.digest
        later = Asking.asked[len(before) :]
        sampled_again = again.steps[0].applied.metrics["turns_again"]
        missing = sum(kind.startswith("turned") for kind in again.kinds)
        assert len(later) == missing, "one answer a turn that was not kept"
        assert 0 <= sampled_again <= (min(16, missing) if how == "free" else len(turns))
        seen.add(sampled_again > 0)
    assert seen == {False, True}


def test_limits_end_a_conversation_with_their_own_reason_and_the_last_program_decides(tmp_path: Path) -> None:
    short = finished(tmp_path / "turns", named(Asking), "environment.max_turns=2").steps[0]
    reasons = {rollout.finish_reason for rollout in rollouts(short)}
    assert reasons == {"stop", "turns"}
    assert all(len(rollout.turns) <= 3 for rollout in rollouts(short))
    assert all(np.isfinite(rewards).all() for rewards in short.rewards)
    few = finished(tmp_path / "tokens", named(Asking), "generator.max_tokens=4").steps[0]
    assert {rollout.finish_reason for rollout in rollouts(few)} == {"stop", "length"}
    assert max(rollout.length for rollout in rollouts(few)) == 4
    slow = finished(tmp_path / "tools", named(Tooling), "environment.max_tool_seconds=1").steps[0]
    assert {(rollout.finish_reason, len(rollout.turns)) for rollout in rollouts(slow)} == {("tool_seconds", 3)}
    dropped = finished(tmp_path / "drop", named(Asking), "environment.max_turns=2", "reward.when_cut=drop").steps[0]
    for group, advantages, rewards in zip(dropped.groups, dropped.advantages, dropped.rewards, strict=True):
        cut = np.array([rollout.finish_reason != "stop" for rollout in group.rollouts])
        assert np.isnan(advantages[cut]).all()
        np.testing.assert_array_equal(np.isnan(rewards), cut)
    assert dropped.applied.metrics["unknown_rollouts"] == 0, "left out on purpose, and nobody's outage"


def test_an_outcome_of_the_environment_is_the_reward_and_unknown_is_never_a_number(tmp_path: Path) -> None:
    step = finished(tmp_path, named(Grading), "reward.max_unknown=1").steps[0]
    seen = set()
    for group, rewards in zip(step.groups, step.rewards, strict=True):
        for rollout, reward in zip(group.rollouts, rewards, strict=True):
            code = sum(map(ord, rollout.text))
            seen.add(code % 3 == 0)
            if code % 3 == 0:
                assert (rollout.finish_reason, np.isnan(reward)) == ("unknown", True)
            else:
                assert reward == code % 2
    assert seen == {True, False}


@pytest.mark.parametrize("turns", ["last", "discounted"])
def test_credit_is_spread_over_turns(tmp_path: Path, turns: str) -> None:
    keys = (named(Asking), f"credit.turns={turns}", "credit.discount=0.5")
    plain, spread = finished(tmp_path / "all", named(Asking)).steps[0], finished(tmp_path / "by", *keys).steps[0]
    many = 0
    for place, group in enumerate(plain.groups):
        for number, rollout in enumerate(group.rollouts):
            own, advantage = (len(rollout.turns) + 1) // 2, plain.advantages[place][number]
            given = spread.token_advantages[place].get(number) if spread.token_advantages else None
            if own == 1:
                assert given is None
                assert spread.advantages[place][number] == advantage
            elif given is not None:
                factor = 0.0 if turns == "last" else 0.5
                expected = np.repeat([advantage * factor ** (own - 1 - k) for k in range(own)], 2)
                np.testing.assert_allclose(given, expected, rtol=1e-6)
                many += 1
    assert many


def test_what_an_environment_raises_ends_the_run_and_names_it(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as ended:
        finished(tmp_path, named(Raising))
    (error,) = ended.value.exceptions
    assert isinstance(error, KeyError)
    assert "environment.name" in error.__notes__[0]


def test_records_of_turns_come_back_as_they_were_and_the_newest_counts() -> None:
    tokens = np.arange(6, dtype=np.int32)
    mask = np.array([1, 1, 0, 0, 1, 1], np.bool_)
    turns = (Turn(ASSISTANT, 0, "a"), Turn("tool", 2, "\ud800 cut", "length", 0.25), Turn(ASSISTANT, 4, "b", "length"))
    logprobs = np.where(mask, -0.5, np.nan).astype(np.float32)
    whole = Rollout(tokens, tokens, logprobs, "b", "turns", 7, 3, mask, turns, float("nan"))
    first: Any = Rollout(tokens, tokens[:2], logprobs[:2], "a", "stop", 9, 3, mask[:2], turns[:1], 0.5)
    one, two = decode(4, 1, encode(4, 1, [Turned(4, 2, 0, whole), Turned(4, 5, 1, first, 3)]))
    assert isinstance(one, Turned)
    assert isinstance(two, Turned)
    assert (one.slot, one.place, one.kind, two.slot, two.kind) == (2, 0, "turned-0-2", 5, "turned-1-1")
    np.testing.assert_array_equal(one.rollout.mask, mask)
    assert one.rollout.turns == (turns[0], Turn("tool", 2, "\\ud800 cut", "length", 0.25), turns[2])
    assert np.isnan(one.rollout.outcome or 0.0)
    assert (two.rollout.outcome, two.drafts) == (0.5, 3)
    known = assemble(4, [one, two]).conversations
    assert {slot: list(own) for slot, own in known.items()} == {2: [0]}, "a conversation whose drafts are lost is lost"


class Silent(Environment):
    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Any:
        return None


class Posing(Environment):
    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Any:
        return Observation("I am the policy.", role="assistant")  # type: ignore[arg-type]


class Cancelling(Environment):
    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Any:
        raise asyncio.CancelledError


class Endless(Environment):
    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Any:
        return Done(outcome=10**400)


@pytest.mark.parametrize("how", ["free", "ordered"])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Silent, "respond() returns an Observation or Done"),
        (Posing, "an Observation of the role 'assistant', where user or tool is due"),
        (Cancelling, "let a CancelledError through on problem p"),
        (Endless, "where a number is due, NaN for unknown"),
    ],
)
def test_an_answer_that_is_none_is_a_sentence(tmp_path: Path, kind: type, told: str, how: str) -> None:
    with pytest.raises(ExceptionGroup) as ended:
        finished(tmp_path, named(kind), f"generator.turns={how}")
    (error,) = ended.value.exceptions
    assert isinstance(error, RaypolyError)
    assert told in str(error)


def test_a_tool_reads_a_text_that_is_not_utf8(tmp_path: Path) -> None:
    (step,) = finished(tmp_path, named(Surrogates)).steps
    assert {len(rollout.turns) for rollout in rollouts(step)} == {3}


class Surrogates(Environment):
    async def respond(self, problem: Problem, conversation: Conversation, services: EnvironmentServices) -> Any:
        result = await services.run("run(0.1)", "\ud800")
        return Done() if len(conversation.own) > 1 else Observation(result.status)


@pytest.mark.parametrize(
    ("first", "second", "whole", "stale"),
    [
        ((3, None), (3, None), (3, None), 8),
        ((3, None), (4, None), (3, 4), 4),
        ((3, None), (3, 1), (3, 5), 5),
        ((3, 2), (4, None), (3, 2), 2),
        ((4, None), (4, None), (4, None), 0),
        ((4, None), (3, None), (3, None), 8),
        ((4, None), (3, 1), (3, None), 8),
    ],
    ids=["old", "between turns", "in the second", "in the first", "new", "back", "back and again"],
)
def test_a_conversation_knows_where_newer_weights_went_on(
    first: tuple[int, int | None], second: tuple[int, int | None], whole: tuple[int, int | None], stale: int
) -> None:
    """`back`: it was killed before the newer weights' update was in the journal."""
    tokens = np.arange(4, dtype=np.int32)

    def turn(version: int, newer: int | None) -> Rollout:
        return Rollout(tokens, tokens, np.zeros(4, np.float32), "x", "stop", 1, version, newer_from=newer)

    request = SampleRequest(0, tokens, (1,))
    found = with_turn(with_turn(None, turn(*first), request), turn(*second), request)
    assert (found.weight_version, found.newer_from) == whole
    assert found.stale_tokens(4) == stale
    for some in ([found, turn(*first)], [turn(*first), turn(*second)]):
        again = rollouts_of(pa.table(rollout_columns(some)))
        assert [(it.weight_version, it.newer_from) for it in again] == [
            (it.weight_version, it.newer_from) for it in some
        ]
