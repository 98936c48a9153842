"""How many tokens' logits are in memory at once. No torch here: the plan of a run's memory reads it too."""

from __future__ import annotations

MIB = 1 << 20
CHUNK_MIB = 512
"""Memory of a chunk's float32 logits. A pass holds up to three such arrays, four with a cap on logits."""
CPU_CHUNK_MIB = 16
"""The most on a CPU, whose cache then holds a chunk: a third less time with 49,152 words."""
_TILE = 128  # larger chunks are multiples of this, for the matrix units


def chunk_on(device: str, chunk_mib: int) -> int:
    """MiB of a chunk on a device of this type, such as `cpu`."""
    return min(chunk_mib, CPU_CHUNK_MIB) if device == "cpu" else chunk_mib


def tokens_of_chunk(vocabulary: int, chunk_mib: int) -> int:
    """Tokens whose float32 logits fit into `chunk_mib`, at least one; or words, for so many tokens."""
    tokens = max(1, chunk_mib * MIB // (4 * max(1, vocabulary)))
    return tokens - tokens % _TILE if tokens > _TILE else tokens
