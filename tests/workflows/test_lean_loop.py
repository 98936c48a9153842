"""The loop of one process against the product: the same advantages, and in float32 with one engine the same weights."""

from pathlib import Path

import numpy as np

from raypoly import Run
from raypoly.core.settings import load
from tests.support.lean_loop import LeanLoop, PassedEvidence, VerdictMemory
from tests.support.local_driver import LocalDriver


def test_advantages_and_weights_are_the_product_s(reference: LocalDriver, warm_model: Path, tmp_path: Path) -> None:
    run = Run(reference.place)
    memory = VerdictMemory(run.config, tmp_path / "verdicts.db")
    loop = LeanLoop(run.config, memory, warm_model)
    digests = []
    for step in range(3):
        groups, stats = loop.step()
        digests.append(stats.weight_digest)
        advantages = np.concatenate([group.advantages for group in groups])
        assert np.array_equal(advantages, run.rollouts(step).column("advantage").to_numpy())
    assert digests == reference.digests()[:3]
    memory.close()


def test_what_ran_once_is_remembered(warm_model: Path, tmp_path: Path) -> None:
    config = load(None, ["problems.validation=2", "generator.engine=transformers"])
    measured = []
    for _ in range(2):
        memory = VerdictMemory(config, tmp_path / "verdicts.db")
        measured.append(LeanLoop(config, memory, warm_model).evaluate("validation", 8))
        ran = memory.ran
        memory.close()
    assert measured[0] == measured[1]
    assert ran == 0
    held_out = VerdictMemory(config, tmp_path / "held-out.db", PassedEvidence())
    alike = LeanLoop(config, held_out, warm_model).evaluate("validation", 8)
    held_out.close()
    for name in ("pass_at_k", "strategies_correct", "slices"):
        assert alike[name] == measured[0][name]
