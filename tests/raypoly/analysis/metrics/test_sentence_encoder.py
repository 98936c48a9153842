"""Texts as vectors, by a small random model of the kind that measures D_sem."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import MPNetConfig, MPNetModel

from raypoly.analysis.metrics.plan_diversity import SentenceEncoder, semantic_diversity
from raypoly.core.errors import UsageError
from raypoly.learner.tiny_model import build_tokenizer

TEXTS = ["sort the ends and sweep", "use a hash map", "dp", "sort the ends and sweep"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    folder: Path = tmp_path_factory.mktemp("encoder")
    tokenizer = build_tokenizer(TEXTS)
    torch.manual_seed(0)
    config = MPNetConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=400,
        initializer_range=1.0,
    )
    MPNetModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return SentenceEncoder.open(str(folder))


def test_a_text_has_the_same_vector_beside_longer_ones(encoder: SentenceEncoder) -> None:
    together = encoder.encode(TEXTS)
    assert together.shape == (4, 16)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0)
    np.testing.assert_allclose(together, np.concatenate([encoder.encode([text]) for text in TEXTS]), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS * 10), np.tile(together, (10, 1)), atol=1e-5)


def test_only_other_texts_are_away(encoder: SentenceEncoder) -> None:
    assert semantic_diversity(encoder.encode([TEXTS[0]] * 3)) == pytest.approx(0.0, abs=1e-6)
    found = semantic_diversity(encoder.encode(TEXTS))
    assert found is not None
    assert found > 0.01
    assert encoder.encode([]).shape == (0, 16)


def test_a_text_beyond_the_encoders_length_is_cut(encoder: SentenceEncoder) -> None:
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(["sort " * 1_000]), axis=1), 1.0)


def test_an_encoder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("nobody/encoder", str(tmp_path)):
        with pytest.raises(UsageError, match=f"D_sem is left out: {name} can't be opened"):
            SentenceEncoder.open(name)
