"""Other trainers' names of keys, and raypoly's: TRL 1.16, verl 0.9, SkyRL 0.4, OpenRLHF 0.11 (docs/from-verl.md).

own_key("optim.lr")    # "train.lr"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# raypoly's key | verl's | TRL's | those of SkyRL, OpenRLHF and older versions. Of verl's, `actor.`, `ref.`, `rollout.`
# and `model.` are below `actor_rollout_ref.`
_LINES = """
problems.path | data.train_files | train_dataset | train_data dataset dataset_name prompt_data
problems.validation_path | data.val_files | eval_dataset | val_data
problems.over_long | data.truncation | |
problems.chat_template | | | apply_chat_template
problems.chat_template_kwargs | data.apply_chat_template_kwargs | chat_template_kwargs | enable_thinking
model.path | model.path | model_name_or_path | pretrain model_name base_model model_id pretrained
model.dtype | rollout.dtype actor.fsdp_config.model_dtype | | torch_dtype param_dtype bf16 fp16
model.lora_rank | model.lora_rank | peft_config | lora_r lora_dim
generator.engine | rollout.name | use_vllm | inference_backend rollout_backend
generator.engines | | | vllm_num_engines num_inference_engines
generator.engine_args | rollout.engine_kwargs | |
generator.gpu_memory_fraction | rollout.gpu_memory_utilization | vllm_gpu_memory_utilization |
generator.max_sequences | rollout.max_num_seqs | |
generator.max_prompt_tokens | data.max_prompt_length | | prompt_max_len max_input_length
generator.max_tokens | data.max_response_length | max_completion_length | max_new_tokens generate_max_len
    max_generate_length max_gen_len
generator.placement | actor_rollout_ref.hybrid_engine rollout.free_cache_engine | vllm_mode | colocate_all
    vllm_enable_sleep
generator.temperature | rollout.temperature | temperature |
train.steps | trainer.total_training_steps trainer.total_epochs | max_steps num_train_epochs | num_train_steps
    num_epochs epochs
train.prompts_per_step | data.train_batch_size | generation_batch_size | batch_size rollout_batch_size n_prompts
train.rollouts | rollout.n | num_generations | n_samples_per_prompt n_samples group_size num_rollouts
    num_samples_per_prompt
train.refill | algorithm.filter_groups | | dynamic_sampling dynamic_filtering
train.seed | data.seed data.shuffle | |
train.lr | actor.optim.lr | learning_rate | actor_learning_rate
train.schedule | actor.optim.lr_scheduler_type | lr_scheduler_type | lr_scheduler scheduler warmup_style lr_schedule
train.warmup_steps | actor.optim.lr_warmup_steps | | lr_warmup_ratio warmup_ratio num_warmup_steps
train.schedule_steps | actor.optim.total_training_steps | |
train.weight_decay | actor.optim.weight_decay | weight_decay | wd l2
train.betas | actor.optim.betas | adam_beta1 adam_beta2 | adam_betas
train.max_grad_norm | actor.grad_clip | max_grad_norm | max_norm clip_grad grad_clipping gradient_clipping
train.mini_batch_prompts | actor.ppo_mini_batch_size | | mini_batch_size policy_mini_batch_size
train.ahead | trainer.v1.trainer_mode | | async_train one_step_off_policy
train.ahead_mode | | | partial_rollout in_flight_weight_updates
train.token_budget | actor.ppo_max_token_len_per_gpu actor.ppo_micro_batch_size_per_gpu actor.use_dynamic_bsz
    | per_device_train_batch_size gradient_accumulation_steps | micro_train_batch_size micro_train_batch_size_per_gpu
    max_tokens_per_microbatch
train.activation_checkpointing | model.enable_gradient_checkpointing | gradient_checkpointing |
train.offload | actor.fsdp_config.param_offload actor.fsdp_config.optimizer_offload | | adam_offload cpu_offload
train.compile | actor.use_torch_compile | torch_compile |
train.ranks | trainer.n_gpus_per_node trainer.nnodes | | num_gpus nnodes world_size
    actor_num_gpus_per_node policy_num_gpus_per_node
train.checkpoint_every | trainer.save_freq | save_steps | ckpt_interval save_interval
train.keep_last | trainer.max_actor_ckpt_to_keep | save_total_limit | max_ckpts_to_keep max_ckpt_num
objective.name | algorithm.adv_estimator | | advantage_estimator advantage algorithm
objective.std | algorithm.norm_adv_by_std_in_grpo | scale_rewards | grpo_norm_by_std
loss.name | actor.policy_loss.loss_mode | importance_sampling_level | policy_loss_type
loss.clip_low | actor.clip_ratio_low actor.clip_ratio | epsilon | eps_clip eps_clip_low clip_eps cliprange
loss.clip_high | actor.clip_ratio_high | epsilon_high | eps_clip_high
loss.dual_clip | actor.clip_ratio_c | delta |
loss.aggregation | actor.loss_agg_mode | loss_type | loss_reduction
loss.entropy_coefficient | actor.entropy_coeff | entropy_coef | entropy_loss_coef ent_coef
loss.kl_coefficient | actor.kl_loss_coef actor.use_kl_loss | beta | kl_coef init_kl_coef kl_penalty_coef
loss.kl_in_reward | algorithm.use_kl_in_reward algorithm.kl_ctrl | | use_kl_in_reward
distill.teacher | | teacher_model_name_or_path | teacher_model teacher_path teacher_hf_checkpoint
loss.kl | actor.kl_loss_type | | kl_estimator_type kl_estimator
loss.importance_level | algorithm.rollout_correction.rollout_is | vllm_importance_sampling_mode |
loss.importance_cap | algorithm.rollout_correction.rollout_is_threshold | vllm_importance_sampling_cap
    | tis_imp_ratio_cap
loss.mask_level | algorithm.rollout_correction.rollout_rs | |
loss.mask_high | algorithm.rollout_correction.rollout_rs_threshold | |
loss.mask_low | | | rollout_rs_threshold_lower
reward.name | reward.custom_reward_function.path reward.custom_reward_function.name reward.reward_manager.name
    | reward_funcs | reward_fn reward_function remote_rm_url custom_rm_path reward_model
reward.terms.NAME.weight | | reward_weights |
evaluate.every | trainer.test_freq trainer.val_before_train | eval_steps eval_strategy | eval_interval
evaluate.validation_samples | rollout.val_kwargs.n | num_generations_eval | eval_n_samples_per_prompt
evaluate.validation_greedy | rollout.val_kwargs.do_sample | |
run.dir | trainer.default_local_dir | output_dir | save_path ckpt_path log_dir
run.name | trainer.experiment_name | run_name | exp_name
run.fresh | trainer.resume_mode | |
run.wandb_project | trainer.project_name trainer.logger | report_to | wandb_run_name use_wandb
"""


@dataclass(frozen=True)
class ForeignNames:
    """Other trainers' names of one of raypoly's keys."""

    verl: tuple[str, ...]
    trl: tuple[str, ...]
    others: tuple[str, ...]


def _names() -> Iterator[tuple[str, ForeignNames]]:
    for line in _LINES.strip().replace("\n    ", " ").split("\n"):
        key, *names = line.split("|")
        yield key.strip(), ForeignNames(*(tuple(part.split()) for part in names))


def _endings() -> Iterator[tuple[str, str]]:
    # a single word is taken only where it can hardly mean anything else: not `n`, nor `lr` of an optimiser
    for key, names in NAMES.items():
        for name in (*names.verl, *names.trl, *names.others):
            *before, last = name.split(".")
            if before and name != key:
                yield f"{before[-1]}.{last}", key
            if not key.endswith(f".{last}") and (not before or "_" in last):
                yield last, key


NAMES: Mapping[str, ForeignNames] = dict(_names())
# where two share an ending, the first line has it
FOREIGN: Mapping[str, str] = dict(reversed(list(_endings())))
"""By a key's last word, or its last two: raypoly's key."""


def own_key(name: str) -> str | None:
    """raypoly's key for another trainer's dotted one."""
    *_, last = words = name.split(".")
    return FOREIGN.get(".".join(words[-2:])) or FOREIGN.get(last)
