"""The learner: equation 4's gradient, independence of packing, and a state that comes back bit for bit."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_safetensors
from transformers import AutoModelForCausalLM

from raypoly.algorithms.losses import build
from raypoly.core.config import TrainConfig
from raypoly.core.errors import CorruptData
from raypoly.learner.checkpoint_state import encode_tensors
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from tests.support.local_driver import ROOT
from tests.support.pretrained_files import pretrained_files
from tests.support.random_rows import NORMALISERS, random_rows, update


def learner(folder: Path, **train: object) -> PolicyLearner:
    return PolicyLearner(folder, TrainConfig.model_validate(train), build("policy_gradient"), temperature=1.0)


def norm_by_plain_autograd(folder: Path, rows: list[TrainingRow]) -> float:
    """Of equation 4's gradient, by a loop over single sequences."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for row in rows:
        ids = torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]).astype(np.int64))
        logp = torch.log_softmax(model(ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None])[:, 0]
        own = torch.from_numpy(np.broadcast_to(np.float32(row.advantage), len(row.tokens)).copy())
        (-(own * logp[len(row.prompt_tokens) - 1 :]).sum() / (2 * 4 * 16)).backward()
    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def test_the_gradient_is_equation_four(folder: Path) -> None:
    got = update(learner(folder, max_grad_norm=1e9), random_rows())
    assert got.grad_norm == pytest.approx(norm_by_plain_autograd(folder, random_rows()), rel=1e-4)
    assert got.rows == 8
    assert got.version == 1


def test_one_advantage_a_token_is_its_own_gradient_and_the_same_numbers_are_the_same_bits(folder: Path) -> None:
    rng, rows = np.random.default_rng(3), random_rows()
    by_token = [replace(row, advantage=rng.normal(size=len(row.tokens)).astype(np.float32)) for row in rows[:-1]]
    mixed = [*by_token, rows[-1]]
    got = update(learner(folder, max_grad_norm=1e9), mixed)
    assert got.grad_norm == pytest.approx(norm_by_plain_autograd(folder, mixed), rel=1e-4)
    same = [replace(row, advantage=np.full(len(row.tokens), row.advantage, np.float32)) for row in rows]
    assert update(learner(folder), same).weight_digest == update(learner(folder), rows).weight_digest


def test_the_norm_of_an_update_is_that_of_the_change_of_the_weights(folder: Path) -> None:
    for given in ({"weight_decay": 0.0}, {"weight_decay": 0.3}, {"betas": [0, 0.999]}):
        ours = learner(folder, lr=1e-2, **given)
        for _ in range(3):
            before = {name: weight.clone() for name, weight in ours.weights()}
            found = update(ours, random_rows())
            moved = [weight - before[name] for name, weight in ours.weights()]
            assert found.update_norm == pytest.approx(float(torch.nn.utils.get_total_norm(moved)), rel=1e-4)


def test_pieces_of_any_size_give_the_same_bits(folder: Path) -> None:
    digests = set()
    for pieces in ([8], [1, 7], [3, 3, 2]):
        one = learner(folder, token_budget=64)
        one.begin(0, NORMALISERS)
        rest = random_rows()
        for size in pieces:
            one.accumulate(rest[:size])
            rest = rest[size:]
        digests.add(one.apply().weight_digest)
    assert len(digests) == 1


def test_no_advantage_is_no_gradient_and_still_a_step(folder: Path) -> None:
    one = learner(folder)
    before = one.digest()
    stats = update(one, [TrainingRow(r.prompt_tokens, r.tokens, r.sampler_logprobs, 0.0, 0) for r in random_rows()])
    assert (stats.grad_norm, stats.rows, stats.version) == (0.0, 0, 1)
    assert stats.weight_digest == before


def test_tensors_are_encoded_as_safetensors_does() -> None:
    tensors = {
        "b": torch.randn(5, dtype=torch.bfloat16),
        "a": torch.randn(2, 3),
        "c": torch.tensor(1.5),
        "d": torch.ones(0),
        "e": torch.arange(3),
        "f": torch.tensor([True, False]),
    }
    wanted = save_safetensors(tensors, {"format": "pt"})
    assert encode_tensors(tensors) == wanted
    assert not tensors, "each was freed when it was in the file"


_ENCODE = """
import resource, torch
from raypoly.learner.checkpoint_state import encode_tensors
tensors = {str(number): torch.ones(2**23) for number in range(8)}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = encode_tensors(tensors)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(data))
"""


def test_file_of_a_snapshot_takes_little_more_memory_than_its_tensors_did() -> None:
    """62 GB more for Qwen3-4B's moments, where the machine had 125 GiB, ended a learner."""
    measured = subprocess.run([sys.executable, "-c", _ENCODE], capture_output=True, text=True, check=True, cwd=ROOT)
    assert float(measured.stdout) < 0.3


def test_a_snapshot_is_of_its_moment_whatever_is_trained_after_it(folder: Path) -> None:
    one = learner(folder)
    stats = update(one, random_rows())
    wanted = one.save()
    snapshot = one.snapshot()
    parts = snapshot.parts()
    first = next(parts)
    for step in (1, 2):
        update(one, random_rows(step))
    assert dict([first, *parts]) == wanted
    other = learner(folder)
    other.load(wanted)
    assert (other.version, other.digest()) == (1, stats.weight_digest)


def test_what_is_saved_names_nothing_of_ours(folder: Path) -> None:
    """Else other programs could not open it."""
    one = learner(folder)
    for files in (one.pretrained_config(), pretrained_files(one)):
        assert "config.json" in files
        assert not [name for name, data in files.items() if b"raypoly" in data]


def test_other_weights_than_saved_are_noticed(folder: Path) -> None:
    one = learner(folder)
    saved = one.save()
    saved["learner.json"] = saved["learner.json"].replace(one.digest()[:8].encode(), b"00000000")
    with pytest.raises(CorruptData, match="version 0"):
        one.load(saved)


def test_a_step_out_of_order_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="version 3"):
        learner(folder).begin(3, NORMALISERS)
