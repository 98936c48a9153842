"""The budget of retries: it is used up by what keeps failing, and refills with progress."""

import asyncio

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError, RuntimeEnvSetupError

from actors.calls import LOST, REFILL_SECONDS, Retries, reason
from raypoly.core.errors import BrokenEnvironment, OutOfRetries

LOSS = RayActorError()


async def test_what_keeps_failing_ends_with_the_cause_first() -> None:
    notes: list[str] = []
    retries = Retries(2, notes.append)
    await retries.again("The generator", LOSS)
    await retries.again("The generator", LOSS)
    with pytest.raises(OutOfRetries, match=r"^its process died.*The generator was lost once more.*run.retries"):
        await retries.again("The generator", LOSS)
    assert len(notes) == 2
    assert "1 of 2 retries are left" in notes[0]


async def test_one_loss_that_takes_many_calls_with_it_counts_once() -> None:
    retries = Retries(2)
    await asyncio.gather(*(retries.again(f"Scorer {i % 4}", LOSS) for i in range(8)))
    assert retries.left == 1
    await retries.again("Scorer 1", LOSS)
    assert retries.losses == {"Scorer 0": 1, "Scorer 1": 2, "Scorer 2": 1, "Scorer 3": 1}


async def test_the_actors_of_a_lost_node_use_one_retry_and_those_of_the_next_another() -> None:
    now = [0.0]
    retries, loss = Retries(9, now=lambda: now[0]), RayActorError(error_msg="The node has died.")
    for who in ("The learner", "Scorer 0", "Scorer 1"):
        await retries.again(who, loss)
        now[0] += 5
    assert retries.left == 8
    await asyncio.gather(*(retries.again(f"Scorer {1 + i % 2}", loss) for i in range(8)))
    assert retries.left == 7, "its new node is lost as well"
    await retries.again("The judge", LOSS)
    assert retries.left == 6, "no node was lost with that one"
    now[0] += 100
    await retries.again("The judge", loss)
    assert retries.left == 5


async def test_actors_that_can_not_be_reached_and_then_are_found_dead_with_their_node_use_one_retry() -> None:
    now = [0.0]
    retries, died = Retries(9, now=lambda: now[0]), RayActorError(error_msg="The node has died.")
    for who in ("Scorer 0", "Scorer 1"):
        await retries.again(who, ActorUnavailableError("The actor is temporarily unavailable", None))
        now[0] += 5
    await retries.again("The judge", died)
    assert retries.left == 8
    now[0] += 5
    await retries.again("Scorer 0", ActorUnavailableError("The actor is temporarily unavailable", None))
    assert retries.left == 7, "it was somewhere else by then"


async def test_a_replacement_on_a_node_that_is_found_dead_later_uses_no_further_retry() -> None:
    now = [0.0]
    retries, died = Retries(9, now=lambda: now[0]), RayActorError(error_msg="The node has died.")
    for who in ("The judge", "Scorer 0"):
        await retries.again(who, ActorUnavailableError("The actor is temporarily unavailable", None))
    for left in (8, 7):
        now[0] += 20
        for who in ("The judge", "Scorer 0"):
            await retries.again(who, died)
        assert retries.left == left, "its next node is another"


@pytest.mark.parametrize(
    ("raised", "lacks"),
    [
        ("ModuleNotFoundError: No module named 'actors'", "has no module actors"),
        (
            "ImportError: raypoly 0.0.1 is installed, and the driver has 0.1.0",
            r"has raypoly 0\.0\.1, and the driver 0\.1\.0",
        ),
    ],
)
async def test_a_node_that_can_not_import_what_the_driver_can_ends_the_run_at_once_and_is_named(
    raised: str, lacks: str
) -> None:
    retries = Retries(9)
    text = (
        "The actor died because of an error raised in its creation task, ray::Scorer.__init__() (pid=7, ip=10.0.0.7, "
        "repr=<x>)\nRuntimeError: The actor with name Scorer failed to import on the worker.\n\n"
        f"{raised}"
    )
    with pytest.raises(BrokenEnvironment, match=rf"^node 10\.0\.0\.7 {lacks}\. .*raypoly doctor"):
        await retries.again("Scorer 0", RayActorError(error_msg=text))
    assert retries.left == 9


async def test_a_node_that_can_not_make_the_environment_is_a_lost_actor_and_is_named() -> None:
    text = "Could not create the actor.\n[Node 10.0.0.7] Traceback\n  File x\nOSError: no space at s3://key:secret@b"
    error = RuntimeEnvSetupError(text)
    assert isinstance(error, LOST)
    assert reason(error) == "node 10.0.0.7 could not make the run's environment: OSError"


async def test_progress_gives_retries_back_and_idle_time_does_not() -> None:
    now = [0.0]
    retries = Retries(2, now=lambda: now[0])
    await retries.again("The judge", LOSS)
    now[0] += 100 * REFILL_SECONDS
    retries.progress()
    assert retries.left == 1, "nothing was done in that time but one thing"
    while now[0] < 102 * REFILL_SECONDS:
        now[0] += 10
        retries.progress()
    assert retries.left == 2
