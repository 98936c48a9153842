"""What a run is made of: one pydantic section per part, each key with a sentence that says what it does.

`raypoly.settings.load` reads YAML and dotted overrides into a `Config`; nothing else builds one by hand.
A key whose field carries `on_resume` may change when a run is resumed; any other difference is refused.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

ON_RESUME: dict[str, Any] = {"on_resume": True}
"""Marks a key that does not affect results: it may differ between the starts of one run."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class RunConfig(Section):
    """Where a run lives and whom it tells."""

    name: str = Field("tiny", description="First part of the run folder's name.")
    dir: str | None = Field(
        None,
        description="The run folder: a path, or s3://, gs://, az:// or another URI of pyarrow's (docs/durability.md). "
        "Default: under $RAYPOLY_RUNS, else ~/raypoly-runs, named by what is computed.",
        json_schema_extra=ON_RESUME,
    )
    scratch: str | None = Field(
        None,
        description="For remote storage: a folder of this machine for copies that must be files; nothing in it is "
        "needed again. Default: `scratch` in the user's cache folder.",
        json_schema_extra=ON_RESUME,
    )
    storage_timeout: float = Field(
        30.0,
        gt=0,
        description="For remote storage: seconds after which a request without an answer has failed; a driver that "
        "has not renewed its lease for twice as long may be replaced.",
        json_schema_extra=ON_RESUME,
    )
    storage_patience: float = Field(
        300.0,
        ge=0,
        description="For remote storage: seconds over which a failing request is repeated before the run stops.",
        json_schema_extra=ON_RESUME,
    )
    fresh: bool = Field(
        False, description="Start a new run beside one that exists (-2, -3 ...).", json_schema_extra=ON_RESUME
    )
    retries: int = Field(
        10,
        ge=0,
        description="Lost actors and nodes that are replaced before the run stops; one is given back for every three "
        "minutes of progress.",
        json_schema_extra=ON_RESUME,
    )
    stall_seconds: float = Field(
        900.0,
        gt=0,
        description="A stage that makes no progress for so long has its stacks written and is restarted; the second "
        "time the run stops. Not while it is paused for the judge.",
        json_schema_extra=ON_RESUME,
    )
    grace_seconds: float = Field(
        100.0,
        gt=0,
        description="Seconds from SIGTERM or Ctrl-C to the end at the latest; a checkpoint is made where it fits in.",
        json_schema_extra=ON_RESUME,
    )
    max_set_aside: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Share of groups whose problem's tests can't be run above which the run stops.",
        json_schema_extra=ON_RESUME,
    )
    on_pause: str | None = Field(
        None, description="A shell command run once when training pauses for the judge.", json_schema_extra=ON_RESUME
    )
    tensorboard: bool = Field(
        False, description="Also write TensorBoard events to <run>/tensorboard.", json_schema_extra=ON_RESUME
    )
    wandb_project: str | None = Field(
        None, description="Also log to this Weights & Biases project.", json_schema_extra=ON_RESUME
    )


class ModelConfig(Section):
    """The policy's starting point."""

    path: str | None = Field(
        None, description="A Hugging Face folder or hub id. Default: the tiny model of `warm_start`."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Type in which learner and engine multiply; the learner's weights and gradients stay float32.",
    )
    lora_rank: int | None = Field(
        None,
        ge=1,
        description="Train adapters of this rank on every linear layer but the head, and nothing else (needs peft); "
        "checkpoints hold adapters alone, the engine gets merged weights. Default: all weights are trained.",
    )
    lora_alpha: int = Field(32, ge=1, description="Adapters are scaled by this over their rank.")


class WarmStartConfig(Section):
    """The tiny model's supervised start; used when model.path is not set. Cached in the user's cache folder."""

    seed: int = Field(0, description="Seed of the initial weights and of the supervised data.")
    steps: int = Field(220, ge=1, description="Supervised optimizer steps.")
    batch_size: int = Field(128, ge=1, description="Solutions a supervised step.")
    lr: float = Field(3e-3, gt=0, description="Peak learning rate (cosine to zero).")
    wrong_fraction: float = Field(0.7, ge=0, lt=1, description="Share of solutions that are wrong on purpose.")


class ProblemsConfig(Section):
    """Which problems are trained on."""

    source: str = Field("puzzles", description="`puzzles`, `jsonl`, `prepared`, `verl`, or package.module:Class.")
    path: str | None = Field(
        None,
        description="For `jsonl`: a file of rows in one of the formats of docs/problem-formats.md, a folder of such "
        "files, or a pattern (`part-*.parquet`). For `prepared`: the folder that `raypoly prepare` printed. For "
        "`verl`: a Parquet file, or a folder of them (docs/from-verl.md).",
    )
    test_path: str | None = Field(
        None, description="For `prepared`: another preparation, whose test split takes the place of this one's."
    )
    exclude: str | None = Field(
        None,
        description="For `jsonl`, `prepared`, `verl`: an exclusion list of `raypoly score --validate`; its problems "
        "are left out.",
    )
    since: str | None = Field(
        None,
        description="For `jsonl`: the first day, YYYY-MM-DD, of the problems to take by their source's date; those "
        "without a date are left out.",
    )
    until: str | None = Field(
        None, description="For `jsonl`: the last day of the problems to take, which belongs to them."
    )
    chat_template: str | None = Field(
        None,
        description="For `verl` and `template`: folder or hub id of the tokenizer whose chat template makes a prompt "
        "of messages, as a rule what model.path says; `plain` takes their texts alone.",
    )
    template: str = Field(
        "none",
        description="How prompts are made: as the source has them (`none`), by a template for base models (`base`) or "
        "for chat models (`chat`, which needs `chat_template`), as the statement alone (`statement`), or by a file "
        "of one's own (docs/data.md).",
    )
    over_long: Literal["refuse", "drop", "cut"] = Field(
        "refuse",
        description="What becomes of a prompt above generator.max_prompt_tokens: the run ends (`refuse`), its problem "
        "is left out (`drop`), or words are taken from the middle of its statement (`cut`).",
    )
    order: Literal["epochs", "pass_rate"] = Field(
        "epochs",
        description="Which problems a step trains on: each once an epoch (`epochs`), or drawn with a preference for "
        "those that the run's rollouts pass about half of the time (`pass_rate`, docs/data.md).",
    )
    seed: int = Field(0, description="Seed of generated problems and of the split.")
    budgets: bool = Field(True, description="Puzzles: hidden resource budgets. Off is the control experiment.")
    validation: int = Field(64, ge=0, description="Problems set apart for choosing.")
    test: int = Field(64, ge=0, description="Problems set apart for claiming.")

    @field_validator("since", "until")
    @classmethod
    def _day(cls, value: str | None) -> str | None:
        try:
            if value is not None and date.fromisoformat(value).isoformat() != value:
                raise ValueError
        except ValueError:
            raise ValueError(f"{value!r} is no day such as 2025-02-01") from None
        return value


class GeneratorConfig(Section):
    """The engine that samples."""

    engine: str = Field("vllm", description="`vllm`, `transformers`, or package.module:Class.")
    engines: int = Field(1, ge=1, description="Engines that share a step's groups, each a copy of the policy.")
    placement: Literal["auto", "colocated", "split", "cpu"] = Field(
        "auto",
        description="Where engines live: with the learner on one GPU, asleep while it works (`colocated`); on GPUs of "
        "their own (`split`); on no GPU (`cpu`). `auto`: by the GPUs of the cluster, none, one or more.",
        json_schema_extra=ON_RESUME,
    )
    transport: Literal["auto", "objects", "ipc", "nccl", "shared_memory", "gloo"] = Field(
        "auto",
        description="How weights reach an engine: Ray's object store (`objects`); for vLLM by CUDA IPC where "
        "`colocated` and by NCCL where `split`. `shared_memory` and `gloo` stand in for these two on a CPU, to "
        "rehearse them.",
        json_schema_extra=ON_RESUME,
    )
    temperature: float = Field(1.0, gt=0, description="Sampling temperature.")
    max_tokens: int = Field(56, ge=1, description="Longest response, in tokens (T_max of equation 4).")
    max_prompt_tokens: int = Field(136, ge=1, description="Longest prompt, in tokens; see problems.over_long.")
    threads: int = Field(1, ge=1, description="Compute threads of a CPU engine.")
    memory_gib: float = Field(1.0, gt=0, description="KV cache on a CPU engine, in GiB.", json_schema_extra=ON_RESUME)
    gpu_memory_fraction: float = Field(
        0.45, gt=0, le=1, description="Share of a GPU for an engine while it is awake.", json_schema_extra=ON_RESUME
    )
    max_sequences: int = Field(256, ge=1, description="Sequences decoded at once.")


class ScorerConfig(Section):
    """The pool of sandboxes that run candidate programs."""

    workers: int = Field(2, ge=1, description="Scorer actors.", json_schema_extra=ON_RESUME)
    isolation: Literal["required", "none"] = Field(
        "required",
        description="`required` refuses to start where programs can't be confined; `none` runs them unprotected.",
        json_schema_extra=ON_RESUME,
    )
    cpu_seconds_per_test: float = Field(
        6.0,
        gt=0,
        description="CPU seconds a test may take; at most max(1, 10 x a right program's slowest), where one is known.",
    )
    cpu_seconds_per_program: float = Field(60.0, gt=0, description="CPU seconds all tests of a program may take.")
    memory_mib: int = Field(256, ge=16, description="Memory a program may use above the runner's own, in MiB.")
    all_tests: bool = Field(
        False, description="Run the tests behind one that failed too; `reward.name=fraction` does so by itself."
    )
    evidence: bool = Field(
        True,
        description="Find out how each program works: its canonical form, and by a second, traced run its approach. "
        "Without it a program costs half as much, strategies are counted nowhere, and only a judge of texts can label.",
    )


class JudgeConfig(Section):
    """Who says which programs share a strategy."""

    name: str = Field("structural", description="`structural`, `openai`, `http`, `ensemble`, or package.module:Class.")
    members: list[str] = Field(
        default_factory=list, description="For `ensemble`: the judges that it asks, two or more; a majority decides."
    )
    when: Literal["needed", "sampled", "always"] = Field(
        "needed", description="Judge when the objective needs labels, always, or a tenth of the groups for the curve."
    )
    url: str | None = Field(None, description="For `http`: where the judge listens.")
    api_key_env: str | None = Field(
        None,
        description="Environment variable that holds the judge's key. For `openai` at its public address: "
        "OPENAI_API_KEY, where neither this nor the file is given.",
        json_schema_extra=ON_RESUME,
    )
    api_key_file: str | None = Field(
        None, description="For `openai`: a file that holds the judge's key.", json_schema_extra=ON_RESUME
    )
    base_url: str | None = Field(
        None,
        description="For `openai`: where an OpenAI-compatible server listens, such as http://127.0.0.1:8000/v1. "
        "Default: OpenAI's public address.",
        json_schema_extra=ON_RESUME,
    )
    model: str = Field("gpt-4.1-mini", description="For `openai`: the model that clusters.")
    view: Literal["canonical", "raw"] = Field(
        "canonical", description="For `openai`: programs are shown in canonical form, or as they were written."
    )
    votes: int = Field(1, ge=1, le=15, description="For `openai`: shuffled calls a group, joined by majority.")
    temperature: float | None = Field(
        0.0, ge=0, description="For `openai`: sampling temperature; null leaves it to the server."
    )
    prompt_file: str | None = Field(
        None, description="For `openai`: a text file of instructions in place of the built-in ones."
    )
    answer_schema: Literal["portable", "indexed"] = Field(
        "portable",
        description="For `openai`: `indexed` fixes every index in the grammar, for servers that know prefixItems "
        "(vLLM).",
    )
    max_program_chars: int = Field(8000, ge=200, description="For `openai`: a longer program is cut in its middle.")
    max_problem_chars: int = Field(
        1000, ge=200, description="For `openai`: a longer problem is cut in its middle, where examples stand."
    )
    max_answer_tokens: int | None = Field(
        None, ge=16, description="For `openai`: longest answer. Default: by the number of programs; doubled if cut."
    )
    timeout: float = Field(
        120.0, gt=0, description="For `openai`: seconds that one call may take, all told.", json_schema_extra=ON_RESUME
    )
    concurrency: int = Field(
        64, ge=1, description="For `openai`: most calls in flight; fewer by itself.", json_schema_extra=ON_RESUME
    )
    requests_per_minute: int | None = Field(
        None, ge=1, description="For `openai`: cap on top of the server's own limit.", json_schema_extra=ON_RESUME
    )
    tokens_per_minute: int | None = Field(
        None, ge=1, description="For `openai`: cap on top of the server's own limit.", json_schema_extra=ON_RESUME
    )
    failover_url: str | None = Field(
        None,
        description="For `openai`: a second server, asked while the first is away; every use is counted.",
        json_schema_extra=ON_RESUME,
    )
    failover_model: str | None = Field(
        None, description="The second server's model. Default: the same name.", json_schema_extra=ON_RESUME
    )
    failover_key_env: str | None = Field(
        None, description="Environment variable of the second server's key.", json_schema_extra=ON_RESUME
    )
    cache_dir: str | None = Field(
        None,
        description="For `openai`: where answers are kept. Default: `judge` in the user's cache folder.",
        json_schema_extra=ON_RESUME,
    )
    cache_mib: int = Field(
        256, ge=0, description="For `openai`: size of the kept answers; 0 keeps none.", json_schema_extra=ON_RESUME
    )
    price_input: float | None = Field(
        None,
        ge=0,
        description="US dollars a million prompt tokens. Default: known for gpt-4.1 models at OpenAI, else unknown.",
        json_schema_extra=ON_RESUME,
    )
    price_cached: float | None = Field(
        None,
        ge=0,
        description="US dollars a million prompt tokens that the server had cached. Default: as `price_input`.",
        json_schema_extra=ON_RESUME,
    )
    price_output: float | None = Field(
        None, ge=0, description="US dollars a million answer tokens.", json_schema_extra=ON_RESUME
    )
    budget_usd: float | None = Field(
        None,
        gt=0,
        description="For `openai`: what the run may spend, over all its starts; it pauses before it would spend more. "
        "Raise it to go on.",
        json_schema_extra=ON_RESUME,
    )
    max_pause: float | None = Field(
        None,
        gt=0,
        description="Seconds of outage after which the run commits and exits 75. Default: wait without end.",
        json_schema_extra=ON_RESUME,
    )
    probe_seconds: float = Field(
        1.0, gt=0, description="First wait between probes in an outage; doubles up to 60.", json_schema_extra=ON_RESUME
    )
    max_unjudged: float = Field(0.02, ge=0, le=1, description="Share of unjudged groups above which the run stops.")
    canary_every: int | None = Field(
        None,
        ge=0,
        description="Steps between looks for drift, when gold groups are judged anew; 0 is never. Default: 25, and "
        "never for `structural`.",
        json_schema_extra=ON_RESUME,
    )
    canary_groups: int = Field(
        4, ge=1, description="Gold groups of each look, always the same ones.", json_schema_extra=ON_RESUME
    )


class ObjectiveSection(Section):
    """How a group's rewards and labels become advantages. Parameters beside the name belong to the objective."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = Field(
        "poly_epo", description="`poly_epo`, `grpo`, another of docs/objectives.md, or package.module:Class."
    )


class LossSection(Section):
    """How advantages meet log-probabilities. Parameters beside the name belong to the loss."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = Field(
        "policy_gradient",
        description="`policy_gradient` (equation 4), `clipped_surrogate`, `gspo`, `cispo`, `flowrl`, or "
        "package.module:Class.",
    )


class TrainConfig(Section):
    """The optimizer's side."""

    seed: int = Field(0, description="Seed of sampling and of the problems' order.")
    steps: int = Field(80, ge=0, description="Optimizer steps.", json_schema_extra=ON_RESUME)
    prompts_per_step: int = Field(20, ge=1, description="Problems a step (|B| of Algorithm 2).")
    mini_batch_prompts: int | None = Field(
        None,
        ge=1,
        description="Problems of one update, those after the first of a step being off-policy. Default: all of a step.",
    )
    refill: int = Field(
        0,
        ge=0,
        description="Dynamic sampling: most further problems a step that take the place of those without any "
        "advantage, which are then left out of the update. 0: none are taken, and none are left out.",
    )
    rollouts: int = Field(8, ge=1, description="Responses a problem (N).")
    lr: float = Field(3e-4, gt=0, description="Learning rate, constant.")
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW betas.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient norm above which the gradient is clipped.")
    max_mismatch: float | None = Field(
        None,
        gt=0,
        description="Mean |learner - sampler| log-probability of a step's tokens above which the run stops before the "
        "update. Default: none; each update's weights are verified in the engine anyway.",
        json_schema_extra=ON_RESUME,
    )
    token_budget: int = Field(
        2048, ge=1, description="Tokens of one micro-batch; a prompt counts once for its responses."
    )
    logits_mib: int = Field(
        512, ge=1, description="Memory of the logits that exist at one time, in MiB; up to three times it is used."
    )
    activation_checkpointing: Literal["off", "products", "layers"] = Field(
        "off",
        description="What the backward pass computes again instead of keeping it: with `layers` all but each layer's "
        "input (least memory, a third more work), with `products` all but matrix products and attention.",
        json_schema_extra=ON_RESUME,
    )
    compile: bool = Field(
        False,
        description="Compile what lies between a layer's matrix products (`torch.compile`): a minute at the start, for "
        "large models on GPUs (docs/gpu.md).",
    )
    ranks: int = Field(
        1,
        ge=1,
        description="Processes that are the learner, a GPU each; weights, gradients and moments are divided over them "
        "(docs/ranks.md).",
        json_schema_extra=ON_RESUME,
    )
    threads: int = Field(1, ge=1, description="Compute threads of each CPU learner process.")
    checkpoint_every: int = Field(
        10, ge=1, description="Steps between checkpoints; steps in between are replayed.", json_schema_extra=ON_RESUME
    )
    keep_last: int = Field(
        3, ge=1, description="Newest checkpoints that are kept; older ones are dropped.", json_schema_extra=ON_RESUME
    )
    keep_every: int | None = Field(
        None,
        ge=1,
        description="Checkpoints of steps that this divides are kept for good. Default: none is.",
        json_schema_extra=ON_RESUME,
    )

    @property
    def prompts_per_update(self) -> int:
        """Problems of one optimizer update."""
        return self.mini_batch_prompts or self.prompts_per_step


class EvaluateConfig(Section):
    """How the policy is measured."""

    every: int = Field(20, ge=0, description="Steps between evaluations on validation; 0 is never.")
    samples: int = Field(128, ge=1, description="Responses a problem on test, first and last.")
    validation_samples: int = Field(16, ge=1, description="Responses a problem on validation.")
    validation_greedy: bool = Field(
        False, description="On validation take the likeliest token each time, one response a problem."
    )
    judge: bool = Field(False, description="Also count strategies by the judge.")


class RewardConfig(Section):
    """How a verdict becomes a number."""

    name: str = Field(
        "passed",
        description="`passed` (1 or 0), `fraction` (of tests), `compute_score`, or "
        "package.module:function(problem, rollout, verdict).",
    )
    compute_score: str | None = Field(
        None,
        description="For `compute_score`: a function of verl's kind as package.module:function, called with "
        "data_source, solution_str, ground_truth and extra_info.",
    )


class RayConfig(Section):
    """The local Ray that is started where none is given."""

    dashboard: bool = Field(True, description="Serve the Ray dashboard.", json_schema_extra=ON_RESUME)


class Config(Section):
    run: RunConfig = Field(default_factory=RunConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)
    problems: ProblemsConfig = Field(default_factory=ProblemsConfig)
    generator: GeneratorConfig = Field(default_factory=GeneratorConfig)
    scorer: ScorerConfig = Field(default_factory=ScorerConfig)
    judge: JudgeConfig = Field(default_factory=JudgeConfig)
    reward: RewardConfig = Field(default_factory=RewardConfig)
    objective: ObjectiveSection = Field(default_factory=ObjectiveSection)
    loss: LossSection = Field(default_factory=LossSection)
    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    ray: RayConfig = Field(default_factory=RayConfig)
