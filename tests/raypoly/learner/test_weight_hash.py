"""The hash of weights is what its definition says, on every device and in every division, and misses no exchange."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from raypoly.learner.weight_hash import weight_hash
from workflows.step.weight_sync import differing_weights

BF16, FP32 = torch.bfloat16, torch.float32
MATRIX = torch.randn(300, 130, generator=torch.Generator().manual_seed(0))
"""More than two blocks of 2**14, and a part of one."""


def by_definition(bits: np.ndarray[tuple[int], np.dtype[np.int16]]) -> int:
    def m(k: int) -> int:
        z = (k + 1) * 0x9E3779B97F4A7C15 % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31 | 1

    return sum(x * m(i % 2**14) * m(2**14 + i // 2**14) for i, x in enumerate(bits.tolist())) % 2**64


def test_it_is_the_sum_that_the_definition_says() -> None:
    bits = MATRIX.bfloat16().view(torch.int16).flatten().numpy()
    assert weight_hash(MATRIX, BF16) == f"bfloat16[300, 130]:{by_definition(bits):016x}"


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_chunks_and_layout_change_nothing(dtype: torch.dtype) -> None:
    want = weight_hash(MATRIX, dtype)
    assert weight_hash(MATRIX, dtype, chunk=2**14) == want
    assert weight_hash(MATRIX, dtype, chunk=2**15) == want
    assert weight_hash(MATRIX.t().contiguous().t(), dtype) == want
    wide = torch.zeros(300, 260)
    wide[:, ::2] = MATRIX
    assert weight_hash(wide[:, ::2], dtype) == want
    assert weight_hash(torch.cat([MATRIX, MATRIX])[300:], dtype) == want


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_a_gpu_gives_the_hash_of_a_cpu(dtype: torch.dtype) -> None:
    tiny = torch.arange(1, 2**14, dtype=torch.int32).view(FP32)  # numbers below the smallest normal one
    for tensor in (MATRIX, tiny):
        assert weight_hash(tensor.cuda(), dtype) == weight_hash(tensor, dtype)


def test_a_float32_tensor_has_the_hash_of_its_rounded_copy() -> None:
    assert weight_hash(MATRIX, BF16) == weight_hash(MATRIX.bfloat16(), BF16)
    assert weight_hash(MATRIX, BF16) != weight_hash(MATRIX.bfloat16(), FP32)
    counted = torch.arange(7)
    assert weight_hash(counted, BF16) == weight_hash(counted, FP32)
    assert weight_hash(torch.zeros(0, 4), FP32) == f"float32[0, 4]:{0:016x}"


def test_every_single_bit_counts() -> None:
    tensor = MATRIX.bfloat16()
    want = weight_hash(tensor, BF16)
    for place in (0, 2**14 - 1, 2**14, tensor.numel() - 1):
        for bit in range(16):
            changed = tensor.clone()
            changed.view(torch.int16).flatten()[place] ^= -(2**15) if bit == 15 else 1 << bit
            assert weight_hash(changed, BF16) != want


def test_another_order_or_shape_is_another_hash() -> None:
    blocks = torch.randn(2, 2**14, generator=torch.Generator().manual_seed(1))
    orders: list[tuple[Tensor, Tensor]] = [
        (MATRIX, MATRIX[torch.arange(300).roll(1)]),
        (MATRIX, MATRIX.flip(1)),
        (blocks, blocks.flip(0)),
        (MATRIX, MATRIX.view(130, 300)),
        (MATRIX[:130], MATRIX[:130].t()),
    ]
    for one, other in orders:
        assert weight_hash(one, BF16) != weight_hash(other, BF16)


def test_one_update_too_small_for_log_probabilities_is_seen() -> None:
    """AdamW's first step moves each weight by lr."""
    assert weight_hash(MATRIX - 1e-6, FP32) != weight_hash(MATRIX, FP32)
    assert weight_hash(MATRIX - 1e-6, BF16) != weight_hash(MATRIX, BF16), "some are near the border of two bf16 numbers"


def test_what_differs_is_named() -> None:
    want, got = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "0", "d": "4"}
    assert differing_weights(want, got) == ["b", "c (missing)", "d (unknown to the learner)"]
    assert differing_weights(want, dict(want)) == []
