"""D_alg in an evaluation: the judge classifies, people check it first, and what it does not say is no category."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import JudgeRefused, JudgeUnavailable
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.strategies.judge.algorithm_categories import CATEGORIES, QUESTION
from tests.support.timed_run import close_run
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import open_virtual
from workflows.evaluate import measure

WORDS = {"table": 1, "sorted": 2, "queue": 3, "tries": 4}
"""A word of a labelled method, and the number of its category."""
LABELLED = [
    {"statement": "Add.", "method": f"Use a {word}.", "annotators": [CATEGORIES[n - 1]] * 2, "gold": CATEGORIES[n - 1]}
    for word, n in WORDS.items()
]


class Classifier:
    """Three classes of programs by the number in their text; `silent`: statements about which it says nothing."""

    def __init__(self, silent: Sequence[str] = (), wrong: bool = False) -> None:
        self.silent, self.wrong, self.asked, self.away = silent, wrong, list[str](), 1

    async def grade(
        self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], question: str
    ) -> list[float]:
        assert question == QUESTION
        if self.away:
            self.away -= 1
            raise JudgeUnavailable("no connection")
        self.asked.append(problem.prompt)
        if problem.prompt in self.silent:
            raise JudgeRefused("it refused to answer")
        return [self._number(rollout.text) / 10 for rollout in rollouts]

    def _number(self, text: str) -> int:
        found = next((number for word, number in WORDS.items() if word in text), None)
        if found is not None:
            return 4 if self.wrong else found
        return int(re.findall(r"\d+", text)[-1]) % 3 + 1

    async def probe(self) -> None:
        """It is back."""


def measured(folder: Path, judge: Classifier, *keys: str) -> dict[str, Any]:
    """Results of eight samples a problem."""
    file = folder / "labelled.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in LABELLED))
    own = ["judge.name=openai", "judge.model=m", f"evaluate.categories={file}", *keys]

    async def work() -> dict[str, Any]:
        opened = await open_virtual(folder / "run", overrides=own)
        opened.services.judge.grade, opened.services.judge.probe = judge.grade, judge.probe  # type: ignore[method-assign]
        try:
            results, _ = await measure(opened, 0, "train", 8)
            return results
        finally:
            await close_run(opened)

    (folder / "run").mkdir()
    return run_virtual(work())


def test_independent_programs_are_compared_by_four_and_an_outage_is_waited_for(tmp_path: Path) -> None:
    judge = Classifier()
    found = measured(tmp_path, judge)
    assert found["category_agreement"] == {"kappa": 1.0, "accuracy": 1.0, "macro_f1": 1.0}
    assert found["unclassified"] == 0.0
    # of four draws from three equal shares
    assert found["algorithmic_diversity"] == pytest.approx(3 * (1 - (2 / 3) ** 4) / 4, abs=0.05)
    assert len(judge.asked) == len(LABELLED) + 32, "eight programs are one question"


def test_what_the_judge_does_not_say_is_no_category(tmp_path: Path) -> None:
    (tmp_path / "known").mkdir()
    asked = Classifier()
    measured(tmp_path / "known", asked)
    found = measured(tmp_path, Classifier(silent=asked.asked[-1:]))
    assert found["unclassified"] == pytest.approx(1 / 32)
    assert found["algorithmic_diversity"] is not None


@pytest.mark.parametrize("judge", [Classifier(wrong=True), Classifier(silent=["Add."])], ids=["wrong", "silent"])
def test_a_classifier_that_people_do_not_confirm_reports_nothing(tmp_path: Path, judge: Classifier) -> None:
    found = measured(tmp_path, judge)
    assert found["algorithmic_diversity"] is None
    agreement = found["category_agreement"]
    assert agreement is None if judge.silent else agreement["macro_f1"] < 0.7
