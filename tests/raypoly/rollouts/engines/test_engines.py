"""Engines: the learner's log-probabilities, the same samples again, no stale weights."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from raypoly.algorithms.losses import build as build_loss
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import GeneratorConfig, TrainConfig
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.core.values import Int32
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.tiny_model import build_tokenizer
from raypoly.learner.training_rows import TrainingRow
from raypoly.rollouts.engines import Engine, Sample, SampleRequest, build
from raypoly.rollouts.engines.transformers_engine import TransformersEngine
from tests.support.random_model import TEXTS, random_model
from workflows.step.weight_sync import differing_weights

RNG = np.random.default_rng(0)
REQUESTS = [
    SampleRequest(slot, RNG.integers(2, 200, 20 + slot).astype(np.int32), tuple(range(100 * slot, 100 * slot + 4)))
    for slot in range(5)
]
LONG_PROMPT = RNG.integers(2, 200, 100).astype(np.int32)


@pytest.fixture(scope="module", params=["transformers", "vllm"])
def engine(folder: Path, request: pytest.FixtureRequest) -> Engine:
    return build(folder, GeneratorConfig(engine=request.param, max_tokens=24), "float32")


def learner(folder: Path) -> PolicyLearner:
    return PolicyLearner(folder, TrainConfig(lr=0.05), build_loss("policy_gradient"), temperature=1.0)


def sample(engine: Engine) -> dict[int, list[Sample]]:
    return dict(engine.sample(REQUESTS))


def worst(engine: Engine, one: PolicyLearner) -> float:
    """Largest difference of a log-probability, sampled or fixed, between engine and learner."""
    found = [
        np.abs(one.logprobs(REQUESTS[slot].prompt_tokens, each.tokens, 1.0) - each.logprobs).max()
        for slot, samples in sample(engine).items()
        for each in samples
    ]
    ((_, (after_long,)),) = engine.sample([SampleRequest(0, LONG_PROMPT, (7,))])
    found.append(np.abs(one.logprobs(LONG_PROMPT, after_long.tokens, 1.0) - after_long.logprobs).max())
    fixed = engine.prompt_logprobs(LONG_PROMPT) - one.logprobs(LONG_PROMPT[:1], LONG_PROMPT[1:], 1.0)
    return float(max([*found, np.abs(fixed).max()]))


def test_every_seed_has_its_sample_and_asking_again_gives_the_same(engine: Engine) -> None:
    first, again = sample(engine), sample(engine)
    assert sorted(first) == [0, 1, 2, 3, 4]
    for slot, samples in first.items():
        assert len(samples) == 4
        for one, two in zip(samples, again[slot], strict=True):
            assert one.tokens.tolist() == two.tokens.tolist()
            assert one.logprobs.tolist() == two.logprobs.tolist()
            assert 1 <= len(one.tokens) <= 24
            assert (one.finish_reason == "length") == (len(one.tokens) == 24 and one.tokens[-1] != 0)
    assert len({tuple(each.tokens.tolist()) for samples in first.values() for each in samples}) > 10


def test_a_greedy_request_takes_the_likeliest_token_each_time_beside_others_that_sample(
    engine: Engine, folder: Path
) -> None:
    prompt = REQUESTS[0].prompt_tokens
    found = dict(engine.sample([SampleRequest(0, prompt, (1, 2), greedy=True), SampleRequest(1, prompt, (1, 2))]))
    greedy, other = (sample.tokens for sample in found[0])
    assert greedy.tolist() == other.tolist(), "whatever the seed"
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.from_numpy(np.concatenate([prompt, greedy]).astype(np.int64))[None]
    with torch.no_grad():
        likeliest = model(ids).logits[0].argmax(-1)
    assert greedy.tolist() == likeliest[len(prompt) - 1 : -1].tolist()
    assert any(sample.tokens.tolist() != greedy.tolist() for sample in found[1])


def test_a_submission_larger_than_one_batch_of_the_engine_is_sampled_whole(engine: Engine) -> None:
    prompts = np.random.default_rng(1).integers(2, 200, (130, 100)).astype(np.int32)
    requests = [SampleRequest(slot, prompt, (slot, slot + 1000)) for slot, prompt in enumerate(prompts)]
    found = dict(engine.sample(requests))
    assert sorted(found) == list(range(130))
    assert all(len(samples) == 2 for samples in found.values())


def test_requests_of_other_limits_share_a_batch_and_each_keeps_its_own(engine: Engine) -> None:
    whole = sample(engine)
    limits = (3, 24, 1, 7, 1000)  # the last is beyond the engine's own
    mixed = dict(engine.sample([replace(it, max_tokens=most) for it, most in zip(REQUESTS, limits, strict=True)]))
    for slot, most in enumerate(limits):
        for one, long in zip(mixed[slot], whole[slot], strict=True):
            assert one.tokens.tolist() == long.tokens[:most].tolist()
            np.testing.assert_allclose(one.logprobs, long.logprobs[:most], atol=1e-5)
            assert one.finish_reason == (long.finish_reason if len(long.tokens) <= most else "length")


def test_requests_that_come_meanwhile_are_sampled_as_if_they_had_been_there(engine: Engine) -> None:
    whole, found = sample(engine), list[tuple[int, list[Sample]]]()
    coming, last = [[], REQUESTS[1:3], [REQUESTS[3]]], [replace(REQUESTS[4], slot=0)]

    def more(wait: bool) -> list[SampleRequest] | None:
        if coming:
            return coming.pop(0)
        if len(found) == 4 and last:
            return [last.pop()]
        return [] if last else None

    full: Any = engine
    for answered in full.sample(REQUESTS[:1], more):
        found.append(answered)
    assert sorted(slot for slot, _ in found) == [0, 0, 1, 2, 3], "a slot that was answered is asked again"
    again = [samples for slot, samples in found if slot == 0]
    for samples, want in (*((samples, whole[slot]) for slot, samples in found if slot), (again[1], whole[4])):
        for one, other in zip(samples, want, strict=True):
            assert one.tokens.tolist() == other.tokens.tolist()
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_a_group_comes_out_when_its_last_response_ends_and_those_that_go_on_are_as_if_alone(folder: Path) -> None:
    engine = TransformersEngine(folder, GeneratorConfig(engine="transformers", max_tokens=200), "float32")
    prompt = REQUESTS[0].prompt_tokens
    found = {}
    for slot, (one,) in engine.sample([SampleRequest(seed, prompt, (seed,)) for seed in range(200)]):
        assert len(one.tokens) == engine.decoded
        found[slot] = one
    lengths = [len(one.tokens) for one in found.values()]
    assert sorted(found) == list(range(200))
    assert sorted(lengths) == lengths
    assert len(set(lengths)) > 10
    assert lengths.count(200) < 150, "so many end that the batch is thinned out"
    for seed in (3, 150):
        ((_, (alone,)),) = engine.sample([SampleRequest(0, prompt, (seed,))])
        assert alone.tokens.tolist() == found[seed].tokens.tolist()
        np.testing.assert_allclose(alone.logprobs, found[seed].logprobs, atol=1e-5)


def test_an_update_leaves_nothing_of_the_old_weights(engine: Any, folder: Path) -> None:
    one = learner(folder)
    engine.update_weights(one.export())
    assert engine.weight_hashes() == one.weight_hashes()
    assert worst(engine, one) < 1e-4
    stale = worst(engine, changed(one))
    assert stale > 1e-2
    engine.update_weights(one.export())
    assert worst(engine, one) < 1e-4


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_weights_that_come_between_two_tokens_are_told_of_each(engine: Any, folder: Path) -> None:
    old, new, steps = learner(folder), changed(learner(folder)), 0
    engine.update_weights(old.export())
    engine.set_weight_version(3)
    whole = sample(engine)

    def more(wait: bool) -> list[SampleRequest] | None:
        nonlocal steps
        steps += 1
        if steps == 9:
            engine.update_weights(new.export())
            engine.set_weight_version(4)
        return None if wait else []

    found = dict(engine.sample(REQUESTS, more))
    switched = 0
    pairs = [(slot, *pair) for slot in whole for pair in zip(found[slot], whole[slot], strict=True)]
    for slot, one, other in pairs:
        assert (other.weight_version, other.newer_from) == (one.weight_version, None) == (3, None)
        at = one.newer_from
        assert one.tokens[:at].tolist() == other.tokens[:at].tolist()
        if at is not None:
            switched += 1
            prompt = REQUESTS[slot].prompt_tokens
            assert np.abs(one.logprobs - old.logprobs(prompt, one.tokens, 1.0))[:at].max() < 1e-4
            ids = np.concatenate([prompt, one.tokens[:at]])
            assert float(next_logprobs(folder, old, new, ids)[one.tokens[at]]) == pytest.approx(
                one.logprobs[at], abs=1e-4
            )
    assert switched >= 10
    assert worst(engine, new) < 1e-4, "the next submission has nothing of the old ones"
    engine.update_weights(old.export())


@torch.no_grad()
def next_logprobs(folder: Path, old: PolicyLearner, new: PolicyLearner, ids: Int32) -> torch.Tensor:
    """Of the token after `ids`, whose last one is read by the new weights over the keys and values of the old ones."""
    ids_1T, model = torch.from_numpy(ids.astype(np.int64))[None], AutoModelForCausalLM.from_pretrained(folder)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in old.export().items()})
    before = model(ids_1T[:, :-1]).past_key_values
    model.load_state_dict({name: torch.from_numpy(value) for name, value in new.export().items()})
    return torch.log_softmax(model(ids_1T[:, -1:], past_key_values=before).logits[0, -1], -1)


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_a_tied_head_is_the_embedding_before_and_after_every_update(name: str, tmp_path: Path) -> None:
    engine: Any = build(random_model(tmp_path, tied=True), GeneratorConfig(engine=name, max_tokens=24), "float32")
    one = learner(tmp_path)
    assert worst(engine, one) < 1e-4
    for _ in range(2):
        assert worst(engine, changed(one)) > 1e-2
        sent = pickle.loads(pickle.dumps(one.host_weights(), protocol=5))
        assert sent["lm_head.weight"] is sent["model.embed_tokens.weight"], "sent once"
        engine.update_weights(sent)
        found = engine.weight_hashes()
        assert differing_weights(one.weight_hashes(), found) == []
        assert found["lm_head.weight"] == found["model.embed_tokens.weight"]
        assert worst(engine, one) < 1e-4


def test_a_head_that_vllm_keeps_tied_is_refused_on_a_cpu(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 32, "vocab_size": 64}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = AutoModelForCausalLM.from_config(Gemma2Config(**sizes, **heads))
    model.save_pretrained(tmp_path)
    build_tokenizer(TEXTS).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"keeps the lm_head.weight of Gemma2ForCausalLM tied.*engine=transformers"):
        build(tmp_path, GeneratorConfig(engine="vllm", max_tokens=4), "float32")


def changed(one: PolicyLearner) -> PolicyLearner:
    row = TrainingRow(LONG_PROMPT[:10], LONG_PROMPT[10:20], np.zeros(10, np.float32), 1.0, 0)
    one.begin(one.version, Normalisers(1, 1, 10))
    one.accumulate([row])
    one.apply()
    return one


@pytest.fixture(scope="module")
def rounded(folder: Path) -> Any:
    """vLLM's engine in bfloat16."""
    return build(folder, GeneratorConfig(), "bfloat16")


def test_logits_are_not_rounded_to_bfloat16(rounded: Any) -> None:
    """Two tokens behind one prompt differ by their logits alone. Logits in bfloat16 would differ by whole multiples of
    2**-12 wherever both are above 1/32."""
    prompt = list(range(2, 30))
    found = [rounded.prompt_logprobs(np.array([*prompt, token], np.int32))[-1] for token in range(2, 100)]
    steps = np.diff(np.array(found, np.float64)) * 2**12
    assert np.mean(np.abs(steps - np.round(steps)) < 0.05) < 0.5


def test_fused_norms_equal_the_ones_that_they_replace(rounded: Any) -> None:
    def differences(model: Any) -> list[tuple[str, float]]:
        found = []
        for name, norm in model.named_modules():
            if type(norm).__name__ != "RMSNorm":
                continue
            assert "forward" in vars(norm), name
            size = norm.weight.numel()
            wide = torch.randn(5, 3 * size, dtype=torch.bfloat16)
            x, residual = wide[:, :size], wide[:, size : 2 * size]  # strided, as a part of a layer's output is
            for given in ([x], [x, residual]):
                new = norm(*(each.clone(memory_format=torch.preserve_format) for each in given))
                old = norm.forward_native(*(each.clone() for each in given))
                pairs = zip(new, old, strict=True) if len(given) == 2 else [(new, old)]
                found.append((name, max(float((a - b).abs().max()) for a, b in pairs)))
            found.append((name, float((norm(x) - norm(x.contiguous())).abs().max())))
        return found

    (found,) = rounded._engine.apply_model(differences)
    assert {name.rsplit(".", 1)[-1] for name, _ in found} >= {"q_norm", "k_norm", "input_layernorm", "norm"}
    assert max(difference for _, difference in found) <= 0.04  # one step of bfloat16 between 2 and 4, at most


@pytest.mark.slow
def test_a_submission_has_the_same_bits_whatever_was_sampled_before() -> None:
    """An evaluation that was killed goes on in a new process. Prompts begin alike, as those of a chat do, and take more
    than one batch, so a block that was kept would move the batches' border. The tiny model rounds alike there; SmolLM2
    does not."""
    try:
        model = GgufModel.find("smollm2-q4")
    except UsageError as error:
        pytest.skip(str(error))
    assert model is not None
    config = GeneratorConfig(engine="vllm", max_tokens=12, max_prompt_tokens=320, threads=2, temperature=0.8)
    drawn = np.random.default_rng(2)
    begin, ends = drawn.integers(1_000, 40_000, 40), drawn.integers(1_000, 40_000, (64, 230))
    prompts = [np.concatenate([begin, end]).astype(np.int32) for end in ends]
    requests = [SampleRequest(slot, prompt, tuple(range(8))) for slot, prompt in enumerate(prompts)]
    fresh = dict(build(model.folder(), config, "bfloat16").sample(requests[32:]))
    used = build(model.folder(), config, "bfloat16")
    list(used.sample(requests[:32]))
    for slot, samples in used.sample(requests[32:]):
        for one, two in zip(samples, fresh[slot], strict=True):
            assert one.tokens.tolist() == two.tokens.tolist()
            assert one.logprobs.tolist() == two.logprobs.tolist()
