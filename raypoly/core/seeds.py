"""Seeds derived from their purpose alone.

    derive(run_seed, "sample", step, slot, problem_id, attempt, rollout)

The same parts give the same seed in any process or engine, so a sample can be drawn again.
"""

import hashlib


def derive(*parts: int | str) -> int:
    """63 bits of SHA-256 over the parts, a non-negative int; each part is tagged by its type, so 1 and "1" differ."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
