"""Several ranks compute, tell and keep what one does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from transformers import AutoModelForCausalLM, Qwen2Config

from raypoly.algorithms.losses import build
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.core.errors import CorruptData, UsageError
from raypoly.learner.checkpoint_state import HEAD, META
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.ranks import ONE, Ranks
from raypoly.learner.sharding import assign_writers
from raypoly.learner.update_stats import UpdateStats
from raypoly.learner.weight_hash import HASHED, weight_hash
from raypoly.rollouts.engines import Weights
from tests.raypoly.learner.test_packing import SIZES
from tests.raypoly.learner.test_packing import folder as random_folder
from tests.support.compilers import needs_compiler, needs_peft
from tests.support.pretrained_files import pretrained_files
from tests.support.random_rows import NORMALISERS, random_rows
from tests.support.rank_processes import RankProcesses

Files = dict[str, bytes]
TIED = Qwen2Config(**SIZES | {"vocab_size": 200}, tie_word_embeddings=True)


@dataclass(frozen=True)
class Case:
    """A learner, and what it is given: so many of eight rows a step."""

    train: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    loss: dict[str, Any] = field(default_factory=dict)
    counts: tuple[int, ...] = (8, 5, 7)
    sizes: tuple[int, ...] = (2,)
    """How many ranks it is compared with one on."""

    def learner(self, ranks: Ranks, folder: Path) -> PolicyLearner:
        # AdamW divides by a gradient's size: where that is next to nothing, rounding decides a share of lr
        train = TrainConfig.model_validate({"lr": 3e-5, "token_budget": 40} | self.train)
        loss = build(**{"name": "policy_gradient"} | self.loss)
        return PolicyLearner(folder, train, loss, 1.0, ModelConfig.model_validate(self.model), ranks)

    def update(self, one: PolicyLearner) -> UpdateStats:
        step = one.version
        one.begin(step, NORMALISERS)
        given = random_rows(step)[: self.counts[step]]
        one.accumulate(given[:3])
        one.accumulate(given[3:])
        return one.apply()


@dataclass(frozen=True)
class Told:
    """All that a rank tells."""

    stats: list[UpdateStats]
    logprobs: list[float]
    weights: Weights
    hashes: Mapping[str, str]
    saved: Files
    folder: Files


def trained(ranks: Ranks, case: Case, folder: Path) -> Told:
    one = case.learner(ranks, folder)
    prompt = np.arange(5, dtype=np.int32)
    stats = []
    for _ in case.counts:
        logp_T = one.logprobs(prompt, prompt, 1.0)  # between updates, as weight sync asks for them
        stats.append(case.update(one))
    return Told(stats, logp_T.tolist(), one.export(), one.weight_hashes(), one.save(), pretrained_files(one))


def gone_on(ranks: Ranks, case: Case, folder: Path, parts: Sequence[Files]) -> tuple[Files, UpdateStats | None]:
    """What is saved of what was loaded, and the step after it."""
    one = case.learner(ranks, folder)
    one.load(*parts[ranks.rank :: ranks.size])
    saved = one.save()
    return saved, case.update(one) if one.version < len(case.counts) else None


def numbers(stats: UpdateStats) -> dict[str, float]:
    told = asdict(stats)
    del told["weight_digest"]
    return told | told.pop("measured")


def head_of(several: Sequence[Told]) -> dict[str, torch.Tensor]:
    """The weights of the loss's head, each of which one rank has saved."""
    parts = [load_safetensors(told.saved[HEAD]) for told in several if HEAD in told.saved]
    assert sum(map(len, parts)) == len({name for part in parts for name in part})
    return {name: tensor for part in parts for name, tensor in part.items()}


def assert_same(several: list[Told], one: Told) -> None:
    """Losses and weights to 1e-6, on every rank."""
    for told in several:
        assert repr(told.stats) == repr(several[0].stats), "ranks tell different things"
        assert told.logprobs == pytest.approx(one.logprobs, abs=5e-6)
        assert told.weights.keys() == (one.weights.keys() if told is several[0] else set())
        exported = {name: torch.from_numpy(weight) for name, weight in told.weights.items()}
        assert told.hashes == {name: weight_hash(tensor, torch.float32) for name, tensor in exported.items()}
    for got, want in zip(several[0].stats, one.stats, strict=True):
        assert got.loss == pytest.approx(want.loss, abs=1e-6)
        assert numbers(got) == pytest.approx(numbers(want), rel=2e-5, abs=1e-6, nan_ok=True)
    for name, weight in several[0].weights.items():
        assert float(np.abs(weight - one.weights[name]).max()) < 1e-6, name
    head, wanted = head_of(several), head_of([one])
    assert head.keys() == wanted.keys()
    for name, weight in head.items():
        assert float((weight - wanted[name]).abs().max()) < 1e-6, name


CASES = {
    "unequal rows": Case(sizes=(2, 4)),
    "fewer rows than ranks": Case(counts=(1, 3, 0), sizes=(4,)),
    "one micro-batch": Case({"token_budget": 4096}, loss={"aggregation": "token_mean", "importance_cap": 2.0}),
    "recomputed, with a reference": Case(
        {"activation_checkpointing": "layers"},
        loss={"kl_coefficient": 0.2, "entropy_coefficient": 0.01},
        sizes=(4,),
    ),
    "compiled": Case({"compile": True}),
    "adapters": Case(model={"lora_rank": 4}, loss={"kl_coefficient": 0.2}),
    "a head of the loss": Case(loss={"name": "flowrl", "beta": 1.0}, counts=(8, 1, 7), sizes=(2, 4)),
}


NEEDS = {"adapters": needs_peft, "compiled": needs_compiler}


@pytest.mark.parametrize("name", [pytest.param(n, marks=NEEDS.get(n, ())) for n in CASES])
def test_two_or_four_ranks_give_the_losses_and_weights_of_one(together: RankProcesses, folder: Path, name: str) -> None:
    case = CASES[name]
    one = trained(ONE, case, folder)
    start = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    assert bool(head_of([one])) is ("name" in case.loss)
    assert max(float(np.abs(one.weights[n] - start[n].numpy()).max()) for n in start) > 5e-5
    for size in case.sizes:
        assert_same(together.run(size, trained, case, folder), one)


def test_tied_weights_and_biases_are_those_of_one_rank_in_every_form(together: RankProcesses, tmp_path: Path) -> None:
    """Qwen2's head is its embedding; its attention has biases."""
    case = replace(Case(), counts=(8, 8))
    made = random_folder(TIED, tmp_path / "start")
    one, several = trained(ONE, case, made), together.run(2, trained, case, made)
    assert_same(several, one)
    assert several[0].folder.keys() == one.folder.keys()
    assert several[0].folder["config.json"] == one.folder["config.json"]
    assert several[1].folder == {}
    saved = tmp_path / "saved"
    saved.mkdir()
    for name, data in several[0].folder.items():
        (saved / name).write_bytes(data)
    opened = AutoModelForCausalLM.from_pretrained(saved).state_dict()
    assert opened.keys() == several[0].weights.keys()
    assert all(np.array_equal(opened[name].numpy(), weight) for name, weight in several[0].weights.items())


def test_in_bf16_several_ranks_round_what_one_rounds(together: RankProcesses, folder: Path) -> None:
    """Where norms or the embedding were rounded too, the gradient's norm would be off by 1e-3."""
    case = Case(model={"dtype": "bfloat16"}, counts=(8,))
    one, (two, _) = trained(ONE, case, folder), together.run(2, trained, case, folder)
    assert two.stats[0].loss == pytest.approx(one.stats[0].loss, rel=1e-5)
    assert two.stats[0].grad_norm == pytest.approx(one.stats[0].grad_norm, rel=1e-4)  # 1.5e-5 on some processors
    assert two.stats[0].update_norm == pytest.approx(one.stats[0].update_norm, rel=1e-3)
    assert two.stats[0].entropy == pytest.approx(one.stats[0].entropy, rel=1e-5)


@pytest.mark.parametrize(
    "case",
    [Case(), pytest.param(Case(model={"lora_rank": 4}), marks=needs_peft), Case(loss={"name": "flowrl"})],
    ids=["weights", "adapters", "head"],
)
def test_a_checkpoint_of_some_ranks_goes_on_on_any_number_of_ranks(
    together: RankProcesses, folder: Path, case: Case
) -> None:
    """1 to 2 to 4 to 1: the same bits come back, of weights and moments, and the same step follows."""
    first = trained(ONE, replace(case, counts=case.counts[:2]), folder).saved
    parts, steps = [first], []
    for size in (2, 4):
        answers = together.run(size, gone_on, case, folder, parts)
        parts = [saved for saved, _ in answers]
        assert [META in files for files in parts] == [True] + [False] * (size - 1)
        sizes = [sum(map(len, files.values())) for files in parts]
        assert max(sizes) < 1.3 * sum(sizes) / size
        steps.append(answers[0][1])
    again, step = gone_on(ONE, case, folder, parts)
    assert again == first
    for other in steps:
        assert numbers(other) == pytest.approx(numbers(step), rel=2e-5, abs=1e-6, nan_ok=True)


def digested(ranks: Ranks, folder: Path, parts: Sequence[Files], hashed: bool) -> tuple[list[str], Files]:
    """Digests of a learner as a GPU has them, or not: as loaded, and an update later; and what it saves then."""
    one = Case().learner(ranks, folder)
    one._state._hashed = hashed
    if parts:
        one.load(*parts[ranks.rank :: ranks.size])
    digests = [one.digest(), Case().update(one).weight_digest]
    return digests, one.save()


def test_a_gpu_s_digest_is_of_hashes_and_its_checkpoint_loads_anywhere(together: RankProcesses, folder: Path) -> None:
    (before, after), saved = digested(ONE, folder, [], hashed=True)
    assert before.startswith(HASHED)
    assert before != after
    assert Case().learner(ONE, folder).digest() == digested(ONE, folder, [], hashed=False)[0][0] != before
    answers = together.run(2, digested, folder, [saved], hashed=True)
    for digests, _ in answers:
        assert digests[0] == after
    parts = [files for _, files in answers]
    assert HASHED.encode() in parts[0][META]
    two = digested(ONE, folder, parts, hashed=False)
    assert len(two[0][0]) == len(after) - len(HASHED)
    parts[0] = parts[0] | {META: parts[0][META].replace(HASHED.encode(), HASHED.encode() + b"0")}
    with pytest.raises(CorruptData, match="version 2"):
        Case().learner(ONE, folder).load(*parts)


def test_weights_of_another_model_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    saved = Case().learner(ONE, random_folder(TIED, tmp_path)).save()
    with pytest.raises(UsageError, match=r"weights lm_head\.weight of shape \[200, 32\]"):
        Case().learner(ONE, folder).load(saved)


def test_tensors_are_dealt_so_that_every_rank_writes_about_as_much() -> None:
    owners = assign_writers({"embedding": 100, "head": 90, "a": 40, "b": 40, "c": 5, "norm": 1}, 3)
    assert owners == {"embedding": 0, "head": 1, "a": 2, "b": 2, "c": 2, "norm": 2}
    assert assign_writers({"a": 1}, 4) == {"a": 0}
