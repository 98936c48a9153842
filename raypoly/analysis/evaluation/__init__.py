"""Evaluation of a model on problems: config, folder, prompts, results, tables.

    config = evaluation_config(None, ["model.path=smollm2-q4", "problems.path=human-eval", "sampling.samples=10"])

`workflows/model_evaluation.py` drives it.
"""

from raypoly.analysis.evaluation.evaluation_config import check_files, evaluation_config

__all__ = ["check_files", "evaluation_config"]
