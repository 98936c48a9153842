"""A small random gate, sealed with numbers that nobody measured, and plans for it."""

from __future__ import annotations

from pathlib import Path

from raypoly.core.values import Problem, TestSuite
from raypoly.recipes.cppo.gate_folder import GateFile, weights_hash
from raypoly.recipes.cppo.gate_question import COMPLETION_TEMPLATE, WORDS
from tests.support.random_model import random_model

PLAN = "A: Loop over the numbers and add the squares up.\nB: Use the closed formula of the sum.\n"
REWORDED = "A: Go over all numbers with a loop.\nB: Run a loop over each of the numbers.\n"
BREACH = "A: Loop.\nA: Loop again.\n"
GATE_NUMBERS = {"auc": 0.9, "balanced_accuracy": 0.8, "precision": 0.8, "recall": 0.95, "plans": 40.0}
PROBLEM = Problem(
    "squares", "# sum of squares from 1 to n\n", "f", TestSuite("none", ""), answer="completion", prefix="def f(n):\n"
)


def sealed_gate(folder: Path, tau: float = 0.17, words: tuple[str, str] = WORDS, recall: float | None = 0.95) -> Path:
    """Write a Hugging Face folder with `gate.json`."""
    random_model(folder)
    GateFile(
        words=words,
        template=COMPLETION_TEMPLATE,
        tau=tau,
        recall=recall,
        validation=GATE_NUMBERS,
        rows="0" * 64,
        weights=weights_hash(folder),
    ).write(folder)
    return folder
