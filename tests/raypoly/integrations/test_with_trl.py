"""TRL's own trainer for five steps, with Poly-EPO's advantages; where TRL is (`uv pip install trl==1.16.0`)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raypoly
from raypoly.core.config import ProblemsConfig
from raypoly.data import build_problem_set
from tests.support.warm_model import cached_warm_model

trl = pytest.importorskip("trl", reason="needs trl (uv pip install trl==1.16.0)")


def test_five_steps_have_the_objectives_advantages_and_leave_unknown_ones_out(tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from raypoly.integrations.with_trl import ObjectiveTrainer, labels_of, rewards_of

    seen: list[tuple[Any, Any]] = []

    class Watched(ObjectiveTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            if len(seen) == 4:
                verifier.close()  # the last step's verdicts are unknown
            output = super()._generate_and_score_completions(inputs)
            seen.append((self._scored, output["advantages"].double().numpy()))
            return output

    problems = build_problem_set(ProblemsConfig()).splits["train"][:40]
    objective, folder = raypoly.objective("poly_epo", set_size=4), cached_warm_model()
    with raypoly.Verifier(problems, workers=2) as verifier:
        trainer = Watched(
            objective=objective,
            labels=labels_of(verifier),
            model=AutoModelForCausalLM.from_pretrained(folder),
            processing_class=AutoTokenizer.from_pretrained(folder),
            args=trl.GRPOConfig(
                output_dir=str(tmp_path),
                num_generations=8,
                per_device_train_batch_size=16,
                max_completion_length=56,
                max_steps=5,
                report_to=[],
                use_cpu=True,
                save_strategy="no",
            ),
            train_dataset=Dataset.from_list([{"prompt": it.prompt, "problem_id": it.id} for it in problems]),
            reward_funcs=[rewards_of(verifier)],
        )
        trainer.train()
    assert len(seen) == 5
    for (rewards, labels), advantages in seen[:4]:
        for first in (0, 8):
            group = slice(first, first + 8)
            assert np.allclose(advantages[group], objective.advantages(rewards[group], labels[group]), atol=1e-6)
    assert any(advantages.any() for _, advantages in seen[:4])
    (rewards, _), advantages = seen[4]
    assert np.isnan(rewards).all()
    assert not advantages.any()
