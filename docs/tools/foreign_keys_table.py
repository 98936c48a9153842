"""The table of docs/from-verl.md: raypoly/core/foreign_keys.py, and what differs behind the names.

python -m docs.tools.foreign_keys_table docs/from-verl.md      (make docs)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from raypoly.analysis.reports.pages import fill_place
from raypoly.core.foreign_keys import NAMES
from raypoly.core.tables import ReportTable

DIFFERENCES: Mapping[str, str] = {
    "problems.path": "with `problems.source=verl` for verl's files",
    "problems.validation_path": "or `problems.test_path`, or numbers of rows: `problems.validation`, `problems.test`",
    "problems.over_long": "`error` is `refuse`, the default",
    "model.dtype": "weights, gradients and moments are float32",
    "generator.temperature": "`top_p`, `top_k`, `min_p` are always off",
    "generator.placement": "`colocate` is `colocated`, the engine's own GPUs `split`",
    "train.prompts_per_step": "problems; responses in TRL",
    "train.seed": "always shuffled",
    "train.warmup_steps": "no ratio",
    "train.weight_decay": "0.01 in verl, 0 here",
    "train.mini_batch_prompts": "default: the whole step, on-policy",
    "train.ahead": "`sync` is 0, `separate_async` is 1: [one step ahead]"
    "(ranks.md#may-the-engines-sample-while-the-learner-works), never more",
    "train.token_budget": "a micro-batch's tokens",
    "train.ranks": "also `generator.engines`; Ray finds the nodes",
    "train.checkpoint_every": "10; off in verl",
    "objective.name": "`grpo`, `gdpo`, `reinforce_plus_plus` (`..._baseline`: `objective.baseline=group`) and others",
    "objective.std": "verl's `true` and TRL's `group`, the defaults there, are `sample`; here `none`, Dr.GRPO",
    "loss.name": "`vanilla` is `clipped_surrogate`, TRL's `sequence` is `gspo`; TRL has `cispo` as a `loss_type`",
    "loss.clip_low": "with `loss.name=clipped_surrogate`; the ratio is to the [sampler](losses.md#which-policy-is-old)",
    "loss.clip_high": "0.28; 0.2 in both",
    "loss.dual_clip": "3; unset in TRL",
    "loss.aggregation": "`token-mean`, `dapo`: `token_mean`; `grpo`: `seq_mean_token_mean`; here "
    "`seq_mean_token_sum_norm` (`dr_grpo`), by `generator.max_tokens`",
    "loss.mask_high": "verl's `0.5_2.0` is `loss.mask_low=0.5 loss.mask_high=2.0`",
    "loss.kl_coefficient": "0 is off",
    "loss.kl": "`kl` is `k1`, `mse` is `k2`, `low_var_kl` is `k3`, as in TRL",
    "reward.name": "module:function, [as it is](#rewards)",
    "reward.terms.NAME.weight": "an outcome, and [terms](rewards.md) with weights",
    "evaluate.validation_samples": "and `evaluate.samples`",
    "evaluate.validation_greedy": "`do_sample=false` is `true`",
    "run.fresh": "the same command resumes; `true` starts anew",
    "run.wandb_project": "or `run.tensorboard`; `metrics.jsonl` always",
}
"""By raypoly's key: values that have other names, and defaults that differ."""


def fill_keys(page: str) -> str:
    """The page with the table as it is now."""
    rows = [
        (f"`{key}`", _code(names.verl), _code(names.trl), DIFFERENCES.get(key, ""))
        for key, names in NAMES.items()
        if names.verl or names.trl
    ]
    table = ReportTable(("raypoly", "verl 0.9", "TRL 1.16", "what differs"), rows).markdown()
    return fill_place(page, "table", "keys", table, "The page")


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(fill_keys(file.read_text()))
