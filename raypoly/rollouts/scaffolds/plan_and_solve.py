"""plan_and_solve: N attempts that plan and carry it out, in one response (Wang et al. 2023, arXiv 2305.04091)."""

from __future__ import annotations

from raypoly.rollouts.scaffolds.direct import Direct


class PlanAndSolve(Direct):
    instruction = "First write a short plan: which method you use, and its steps. Then write the program by that plan."
