"""Diversity of methods: worked numbers, and the ends of each scale."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MPNetConfig, MPNetModel

from raypoly.analysis.metrics.plan_diversity import (
    SentenceEncoder,
    bleu_4,
    has_duplicate,
    semantic_diversity,
    surface_diversity,
)
from raypoly.core.errors import UsageError
from raypoly.learner.tiny_model import build_tokenizer
from tests.support.worked_numbers import worked_cases

TEXTS = st.lists(st.text("ab ", max_size=12), min_size=2, max_size=5)


@pytest.mark.parametrize("case", worked_cases("plan_diversity", "cppo"))
def test_worked_numbers(case: Any) -> None:
    expected, methods = case["expected"], case["input"].get("methods")
    if methods is None:
        pytest.skip("of categories: tests/raypoly/strategies/judge/test_algorithm_categories.py")
    for i, row in enumerate(expected["bleu_candidate_i_reference_j"]):
        for j, value in enumerate(row):
            assert value is None or bleu_4(methods[i], methods[j]) == pytest.approx(value)
    assert surface_diversity(methods) == pytest.approx(expected["D_surf"])
    assert has_duplicate(methods) == expected["duplicate"]


@pytest.mark.parametrize("case", [*worked_cases("d_surf"), *worked_cases("d_sem")])
def test_worked_numbers_of_texts_and_vectors(case: Any) -> None:
    given = case["input"]
    if "texts" in given:
        assert surface_diversity(given["texts"]) == pytest.approx(case["expected"]["value"])
    else:
        assert semantic_diversity(np.array(given["embeddings"], float)) == pytest.approx(case["expected"]["value"])


@settings(max_examples=100)
@given(TEXTS)
def test_surface_diversity_is_a_share_whatever_the_order(texts: list[str]) -> None:
    found = surface_diversity(texts)
    assert found is not None
    assert 0 <= found <= 1
    assert found == pytest.approx(surface_diversity(texts[::-1]))


@pytest.mark.parametrize("text", ["", "greedy", "use dp over ends", "sort the array and use two pointers"])
def test_the_same_words_have_no_surface_diversity_however_few(text: str) -> None:
    assert surface_diversity([text, f" {text}\n", text]) == 0.0


def test_a_length_without_a_match_makes_bleu_zero() -> None:
    assert bleu_4("a b c x d e f", "a b c y d e f") == 0.0
    assert bleu_4("a b c", "a b c d") == 0.0
    assert bleu_4("", "a b c d") == bleu_4("a b c d", "") == 0.0
    assert bleu_4("a b c d", "a b c d e") == pytest.approx(np.exp(1 - 5 / 4))


def test_a_word_that_is_repeated_matches_as_often_as_the_reference_has_it() -> None:
    """5/8, 4/7, 3/6 and 2/5 of the candidate's n-grams are in the reference."""
    expected = (5 / 8 * 4 / 7 * 3 / 6 * 2 / 5) ** 0.25
    assert bleu_4("a a a a a a a a", "a a a a a") == pytest.approx(expected)


def test_below_two_texts_nothing_can_be_compared() -> None:
    assert surface_diversity([]) is surface_diversity(["sort"]) is None
    assert semantic_diversity(np.ones((1, 3))) is semantic_diversity(np.ones((0, 3))) is None
    assert not has_duplicate([])


def test_semantic_diversity_is_the_mean_cosine_distance() -> None:
    vectors = np.array([[2.0, 0.0], [0.0, 0.5], [-1.0, 0.0]])
    assert semantic_diversity(vectors) == pytest.approx((1 + 2 + 1) / 3)
    assert semantic_diversity(np.array([[1.0, 2.0], [3.0, 6.0]])) == pytest.approx(0.0)
    with pytest.raises(ValueError, match="no direction"):
        semantic_diversity(np.array([[1.0, 0.0], [0.0, 0.0]]))


def test_a_duplicate_is_literal_but_for_case_punctuation_and_white_space() -> None:
    assert has_duplicate(["Use DP.", "sort", "use  dp"])
    assert not has_duplicate(["use dp", "use dynamic programming"])


METHODS = ["sort the ends and sweep", "use a hash map", "dp", "sort the ends and sweep"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceEncoder:
    folder: Path = tmp_path_factory.mktemp("encoder")
    tokenizer = build_tokenizer(METHODS)
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
    together = encoder.encode(METHODS)
    assert together.shape == (4, 16)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0)
    np.testing.assert_allclose(together, np.concatenate([encoder.encode([text]) for text in METHODS]), atol=1e-5)
    np.testing.assert_allclose(encoder.encode(METHODS * 10), np.tile(together, (10, 1)), atol=1e-5)


def test_only_other_texts_are_away(encoder: SentenceEncoder) -> None:
    assert semantic_diversity(encoder.encode([METHODS[0]] * 3)) == pytest.approx(0.0, abs=1e-6)
    found = semantic_diversity(encoder.encode(METHODS))
    assert found is not None
    assert found > 0.01
    assert encoder.encode([]).shape == (0, 16)


def test_a_text_beyond_the_encoders_length_is_cut(encoder: SentenceEncoder) -> None:
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(["sort " * 1_000]), axis=1), 1.0)


def test_an_encoder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("nobody/encoder", str(tmp_path)):
        with pytest.raises(UsageError, match=f"D_sem is left out: {name} can't be opened"):
            SentenceEncoder.open(name)
