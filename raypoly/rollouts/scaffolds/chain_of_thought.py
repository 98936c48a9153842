"""chain_of_thought: N attempts that reason before they answer (Wei et al. 2022, arXiv 2201.11903; its zero-shot form,
Kojima et al. 2022, arXiv 2205.11916)."""

from __future__ import annotations

from raypoly.rollouts.scaffolds.direct import Direct


class ChainOfThought(Direct):
    instruction = "Think step by step about how to solve it before you write the program."
