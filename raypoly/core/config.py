"""The keys of a run and their defaults: one pydantic section per part, with a sentence for each key.

`raypoly.core.settings.load` reads YAML and dotted overrides into a `Config`.
A `resumable` key may change when a run is resumed; any other difference is refused.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from raypoly.core.hardware import multiplies_in_bfloat16

Shape = Literal["constant", "linear", "cosine"]
"""Of a learning rate's decay (`raypoly.learner.learning_rate`)."""
OutputComparison = Literal["exact", "lines", "tokens", "tolerance"]
ComparisonChoice = Literal["format", OutputComparison]
"""How what a program printed or returned is compared; `format`: as its problem's row or format says."""
Offloaded = Literal["none", "optimizer", "all"]
ON_RESUME: dict[str, Any] = {"on_resume": True}
"""Marks a key that affects no result: it may change when a run is resumed."""


def resumable(default: Any, *, description: str, **rules: Any) -> Any:
    """The field of a key that is marked `ON_RESUME`; `rules` are pydantic's, such as `ge=0`."""
    return Field(default, description=description, json_schema_extra=ON_RESUME, **rules)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


RUN_NAME = r"\w .,+=@()-"
"""Characters of `run.name`, as a regular expression's class has them."""


class RunConfig(Section):
    """Where a run lives, and whom it tells."""

    name: str = Field("tiny", description="First part of the run folder's name.")
    dir: str | None = resumable(
        None,
        description="The run folder: a path or a URI such as s3://, gs:// or az:// (docs/durability.md). "
        "Default: under $RAYPOLY_RUNS, else ~/raypoly-runs, named by what is computed.",
    )
    scratch: str | None = resumable(
        None,
        description="For remote storage: a local folder for copies that must be files. You may delete it. Default: "
        "`scratch` in the user's cache folder.",
    )
    storage_timeout: float = resumable(
        30.0,
        gt=0,
        description="For remote storage: seconds after which an unanswered request has failed. A driver that has not "
        "renewed its lease for twice as long may be replaced.",
    )
    storage_patience: float = resumable(
        300.0,
        ge=0,
        description="For remote storage: seconds over which a failing request is repeated before the run stops.",
    )
    fresh: bool = resumable(False, description="Start a new run beside the existing one (-2, -3 ...).")
    retries: int = resumable(
        10,
        ge=0,
        description="How many lost actors and nodes are replaced before the run stops. Every three minutes of progress "
        "give one back.",
    )
    stall_seconds: float = resumable(
        900.0,
        gt=0,
        description="Seconds without progress after which a stage's stacks are written and it is restarted. The second "
        "time, the run stops. A pause for the judge does not count.",
    )
    grace_seconds: float = resumable(
        100.0,
        gt=0,
        description="Most seconds from SIGTERM or Ctrl-C to the end. A checkpoint is saved if there is time.",
    )
    max_set_aside: float = resumable(
        0.02, ge=0, le=1, description="The run stops above this share of groups whose problem's tests can't be run."
    )
    on_pause: str | None = resumable(
        None,
        description="A shell command to run once when training pauses for the judge. What has not ended by the end of "
        "the pause is killed.",
    )
    model_dtype: Literal["float32", "bfloat16"] = resumable(
        "float32",
        description="Type of the finished model's weights, in `model/`. bfloat16 halves the files, and rounds what "
        "another run would start from. Checkpoints are float32.",
    )
    push_to_hub: str | None = resumable(
        None,
        description="Upload the finished model, with a card of the run's numbers, to this repository of the Hugging "
        "Face hub, `owner/name`. A new one is private. Needs `hf auth login` or HF_TOKEN. Not in an experiment.",
    )
    tensorboard: bool = resumable(
        False, description="Also write TensorBoard events, of steps and evaluations, to <run>/tensorboard."
    )
    wandb_project: str | None = resumable(
        None, description="Also log steps and evaluations to this Weights & Biases project (needs wandb)."
    )

    @field_validator("name")
    @classmethod
    def _one_part_of_a_path(cls, value: str) -> str:
        if not re.fullmatch(rf"\w[{RUN_NAME}]*", value) or value.endswith(" ") or len(value.encode()) > 150:
            raise ValueError(
                "it names a folder: begin with a letter or digit, and take letters, digits, blanks and . , + = @ ( ) _ "
                "- alone, at most 150 bytes"
            )
        return value

    @field_validator("push_to_hub")
    @classmethod
    def _a_repository(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", value):
            raise ValueError("it names a repository of the Hugging Face hub: owner/name")
        return value


class ModelConfig(Section):
    """The policy's starting point."""

    path: str | None = Field(
        None,
        description="A Hugging Face folder, a hub id, a `.gguf` file that transformers reads, or `smollm2-q4` (a "
        "packaged one: docs/models.md). Default: the tiny model of `warm_start`.",
    )
    sha256: str | None = Field(
        None,
        description="Of the GGUF file at `path`. raypoly sets it, so that another file is another run. Set it to be "
        "sure of the file.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Type in which learner and engine multiply. Weights and gradients are always float32. `auto` is "
        "read as `bfloat16` where the machine that reads it multiplies in it, else as `float32`.",
    )
    lora_rank: int | None = Field(
        None,
        ge=1,
        description="Train only LoRA adapters of this rank, on every linear layer but the head (needs peft). "
        "Checkpoints hold the adapters; the engine gets merged weights. Default: train all weights.",
    )
    lora_alpha: int = Field(32, ge=1, description="Adapters are scaled by this divided by their rank.")

    @field_validator("dtype", mode="before")
    @classmethod
    def _measured(cls, dtype: Any) -> Any:
        return ("bfloat16" if multiplies_in_bfloat16() else "float32") if dtype == "auto" else dtype


class WarmStartConfig(Section):
    """The tiny model's supervised start, used when model.path is not set. It is cached in the user's cache folder."""

    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of the initial weights and of the supervised data.")
    steps: int = Field(220, ge=1, description="Supervised optimizer steps.")
    batch_size: int = Field(128, ge=1, description="Solutions in a supervised step.")
    lr: float = Field(3e-3, gt=0, description="Peak learning rate (cosine to zero).")
    wrong_fraction: float = Field(0.7, ge=0, lt=1, description="Share of solutions that are wrong on purpose.")
    planned: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of solutions, right and wrong alike, that are shown after a method of their strategy: such "
        "a model can follow a plan, and not make one (docs/cppo.md).",
    )


class ProblemsConfig(Section):
    """Which problems to train on, and how they are shown."""

    source: str = Field(
        "puzzles", description="`puzzles`, `tasks`, `jsonl`, `hub`, `prepared`, `verl`, or package.module:Class."
    )
    path: str | None = Field(
        None,
        description="For `jsonl`: a file of rows in a format of docs/problem-formats.md, a folder of such files, or a "
        "pattern (`part-*.parquet`). For `hub`: a data set on the Hugging Face hub, as owner/name, or a folder in the "
        "hub's layout. For `prepared`: the folder that `raypoly prepare` printed. For `verl`: a Parquet file or a "
        "folder of them (docs/from-verl.md).",
    )
    revision: str | None = Field(
        None,
        description="For `hub`: the data set's commit or tag. A branch may bring other rows next time. A folder needs "
        "none.",
    )
    subset: str | None = Field(
        None, description="For `hub`: the data set's configuration, which the hub calls subset. Default: its default."
    )
    split: str | None = Field(None, description="For `hub`: the data set's split to train on. Default: `train`.")
    validation_split: str | None = Field(
        None,
        description="For `hub`: the data set's split with the validation problems, all of them, instead of "
        "problems.validation held out of problems.split.",
    )
    test_split: str | None = Field(None, description="For `hub`: the same for the test problems.")
    validation_path: str | None = Field(
        None,
        description="Where the validation problems are, as problems.path. For `jsonl`, `verl`: all problems of that "
        "place, instead of problems.validation held out of problems.path. For `prepared`: another preparation's split.",
    )
    test_path: str | None = Field(
        None,
        description="Where the test problems are, as problems.path. For `jsonl`, `verl`: all problems of that place, "
        "instead of problems.test held out of problems.path. For `prepared`: another preparation's split.",
    )
    exclude: str | None = Field(
        None,
        description="For all but `puzzles` and `tasks`: an exclusion list from `raypoly score --validate`. Its "
        "problems are left out.",
    )
    since: str | None = Field(
        None,
        description="For `jsonl`, `hub`: the first day, YYYY-MM-DD, of the problems to take, by their source's date. "
        "Problems without a date are left out.",
    )
    until: str | None = Field(None, description="For `jsonl`, `hub`: the last day of the problems to take, inclusive.")
    chat_template: str | None = Field(
        None,
        description="For `verl` and `template`: folder, GGUF file or hub id of the tokenizer whose chat template "
        "renders messages, usually the same as model.path. `plain` takes only the messages' texts.",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Variables of the chat template by name, such as {enable_thinking: false} for Qwen3, which then "
        "answers without a thought (docs/models.md). One that the template does not have is refused.",
    )
    template: str = Field(
        "none",
        description="How prompts are made: as the source has them (`none`), by a template for base models (`base`) or "
        "for chat models (`chat`, needs `chat_template`), as the bare statement (`statement`, or `message` for chat "
        "models), or by your own file (docs/data.md).",
    )
    comparison: ComparisonChoice = Field(
        "format",
        description="How outputs and results are compared with the expected ones (docs/problem-formats.md): as each "
        "problem's row or format says (`format`), or all in one way.",
    )
    over_long: Literal["refuse", "drop", "cut"] = Field(
        "refuse",
        description="What to do with a prompt above generator.max_prompt_tokens: refuse the run before "
        "it starts (`refuse`; where the tokenizer is not here yet, when the prompt is met), leave its problem out "
        "(`drop`), or take words from the middle of its statement (`cut`).",
    )
    order: Literal["epochs", "pass_rate"] = Field(
        "epochs",
        description="Which problems a step trains on: each once an epoch (`epochs`), or drawn with a preference for "
        "those that the run's rollouts pass about half of the time (`pass_rate`, docs/data.md).",
    )
    seed: int = Field(0, description="Seed of generated problems and of the split.")
    budgets: bool | Literal["drawn"] = Field(
        True,
        description="Hidden resource budgets of puzzles, in fixed shares. Off is the control; with `drawn` the seed "
        "draws the shares too, so that how much one strategy solves is nobody's choice.",
    )
    compositions: bool = Field(
        True, description="Also the tasks that apply one kind to what another returns. Off leaves the easier ones."
    )
    validation: int = Field(64, ge=0, description="Validation problems, for choosing. The default shrinks with data.")
    test: int = Field(64, ge=0, description="Test problems, for claiming. The default shrinks with data.")

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
    """The engine that samples rollouts."""

    engine: str = Field("vllm", description="`vllm`, `transformers`, or package.module:Class.")
    engines: int = Field(1, ge=1, description="Engines, each a copy of the policy. They share a step's groups.")
    placement: Literal["auto", "colocated", "split", "cpu"] = resumable(
        "auto",
        description="Where engines live: on the learner's GPU, asleep while it works (`colocated`); on their own GPUs "
        "(`split`); on no GPU (`cpu`). `auto` decides by the number of GPUs: none, one or more.",
    )
    transport: Literal["auto", "objects", "ipc", "nccl", "gloo"] = resumable(
        "auto",
        description="Weight sync, the route of new weights to an engine: Ray's object store (`objects`), CUDA IPC "
        "(`ipc`), NCCL (`nccl`). `auto` gives vLLM `ipc` where `colocated` and `nccl` where `split`. "
        "On a CPU `objects` and `gloo` replace these two, to rehearse them.",
    )
    temperature: float = Field(1.0, gt=0, description="Sampling temperature.")
    max_tokens: int = Field(
        56,
        ge=1,
        description="Longest response, in tokens (T_max of equation 4); of a conversation all that the policy writes.",
    )
    max_prompt_tokens: int = Field(136, ge=1, description="Longest prompt, in tokens; see problems.over_long.")
    threads: int = Field(1, ge=1, description="Compute threads of a CPU engine.")
    memory_gib: float = resumable(1.0, gt=0, description="KV cache of a CPU engine, in GiB, at most.")
    gpu_memory_fraction: float = resumable(0.45, gt=0, le=1, description="Share of a GPU for an engine that is awake.")
    max_sequences: int = Field(256, ge=1, description="Sequences decoded at once.")
    engine_args: dict[str, Any] = Field(
        default_factory=dict,
        description="For `vllm`: further arguments of its EngineArgs by name, such as {kv_cache_dtype: fp8}. raypoly "
        "passes them on unread (docs/gpu.md), and refuses those that it sets itself.",
    )
    turns: Literal["free", "ordered"] = Field(
        "free",
        description="With an environment: a rollout goes on as soon as its own observation is there (`free`), or turn "
        "by turn with all others of the step (`ordered`: slower, and the same bits each time on a CPU).",
    )
    _observations: int = PrivateAttr(0)

    @property
    def longest_row(self) -> int:
        """Tokens of the longest prompt and response, with the observations of a conversation."""
        return self.max_prompt_tokens + self.max_tokens + self._observations


class ScorerConfig(Section):
    """The pool of sandboxes that run candidate programs."""

    workers: int = resumable(2, ge=1, description="Scorer actors, at least.")
    max_workers: int | None = resumable(
        None, ge=1, description="Scorer actors, at most: more start while programs wait. Default: scorer.workers."
    )
    cpus: float | None = resumable(
        None,
        gt=0,
        description="CPUs that Ray reserves for a scorer actor. Default: 1 on a cluster that has one to spare beside "
        "all scorer.workers; else 0.1, as on one machine, where the stages of a step take turns.",
    )
    spare_gpu_node: float = resumable(
        4.0,
        ge=0,
        description="CPUs of a cluster's node with a GPU that are left to the engines there; at most half of them.",
    )
    label: str | None = resumable(
        None,
        pattern=r"^[^\s=]+=[^\s=]+$",
        description="Nodes for scorer actors: those whose Ray label has this value, such as raypoly.role=scorer.",
    )
    idle_seconds: float = resumable(
        60.0, gt=0, description="A scorer actor beyond scorer.workers ends after so many seconds without work."
    )
    isolation: Literal["required", "none"] = resumable(
        "required",
        description="`required` refuses to start where programs can't be confined. `none` runs them unprotected.",
    )
    python: str | None = Field(
        None,
        description="The interpreter that programs run in, Python 3.11 or later, with numpy and sortedcontainers if it "
        "has them. Default: raypoly's own, which also reads programs: it must know their syntax.",
    )
    cpu_seconds_per_test: float = Field(
        6.0,
        gt=0,
        description="CPU seconds for a test. With a known solution: at most max(1, 10 x its slowest).",
    )
    cpu_seconds_per_program: float = Field(60.0, gt=0, description="CPU seconds for all tests of a program.")
    memory_mib: int = Field(512, ge=16, description="Memory a program may use above the runner's own, in MiB.")
    all_tests: bool = Field(
        False, description="Go on with the other tests after one failed. `reward.name=fraction` turns this on."
    )
    evidence: bool = Field(
        True,
        description="Find out how each program works: its canonical form and, by runs with parts left out, its "
        "approach. Without it a short program costs half as much, or a third without budgets, no strategies are "
        "counted, and only a judge of texts can label.",
    )


class JudgeConfig(Section):
    """The judge decides which programs of a group share a strategy. Keys for `openai` that are not about its server are
    for `local` too."""

    name: str = Field(
        "structural", description="`structural`, `openai`, `local`, `http`, `ensemble`, or package.module:Class."
    )
    members: list[str] = Field(
        default_factory=list, description="For `ensemble`: the judges to ask, two or more. The majority decides."
    )
    labels: Literal["judge", "execution", "agreed"] = Field(
        "judge",
        description="Whose labels are used: the judge's; those of execution, as with `judge.name=structural`; or both "
        "(`agreed`: two programs differ only where both say so).",
    )
    when: Literal["needed", "sampled", "always"] = Field(
        "needed",
        description="`needed`: if the objective needs labels; `sampled`: else a tenth of the groups; `always`: all.",
    )
    url: str | None = Field(None, description="For `http`: the judge's address.")
    api_key_env: str | None = resumable(
        None,
        description="Environment variable that holds the judge's key. Default for `openai` at its public address, if "
        "api_key_file is not set either: OPENAI_API_KEY.",
    )
    api_key_file: str | None = resumable(None, description="For `openai`: a file that holds the judge's key.")
    base_url: str | None = resumable(
        None,
        description="For `openai`: address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1. Default: "
        "OpenAI's public address.",
    )
    model: str = Field(
        "gpt-4.1-mini",
        description="The model that clusters. For `local`: a Hugging Face folder, a hub id or a `.gguf` file.",
    )
    sha256: str | None = Field(
        None, description="Of a `local` model's files here. raypoly sets it, so that another model is another run."
    )
    engine: str = Field(
        "vllm",
        description="For `local`: `vllm`, which holds answers to their JSON schema, or `transformers`, which does not.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="For `local`: the type in which its engine multiplies."
    )
    max_prompt_tokens: int = Field(
        6144, ge=64, description="For `local`: longest question. A group with a longer one is unjudged."
    )
    gpu_memory_fraction: float = resumable(
        0.2, gt=0, lt=1, description="For `local`: its engine's share of the learner's first GPU."
    )
    memory_gib: float = resumable(1.0, gt=0, description="For `local`: KV cache on a CPU, in GiB, at most.")
    threads: int = Field(1, ge=1, description="For `local`: compute threads on a CPU.")
    view: Literal["canonical", "raw"] = Field(
        "canonical", description="For `openai`: show programs in canonical form, or as they were written (`raw`)."
    )
    votes: int = Field(1, ge=1, le=15, description="For `openai`: shuffled calls a group. The majority wins.")
    temperature: float | None = Field(
        0.0, ge=0, description="For `openai`: sampling temperature. null leaves it to the server."
    )
    prompt_file: str | None = Field(
        None,
        description="For `openai`: a text file of instructions that replaces the built-in ones; one with {programs} is "
        "all that is sent, with {problem}, {programs} and {count} filled.",
    )
    answer_schema: Literal["portable", "indexed", "map"] = Field(
        "portable",
        description="For `openai`: `indexed` fixes every index in the grammar, for servers that know prefixItems "
        '(vLLM). `map` is `chain_of_thought` and a cluster under each of the keys "1" to "n", for a '
        "prompt_file that asks for it.",
    )
    max_program_chars: int = Field(8000, ge=200, description="For `openai`: cut longer programs in the middle.")
    max_problem_chars: int = Field(
        1000, ge=200, description="For `openai`: cut longer problems in the middle, where the examples are."
    )
    max_answer_tokens: int | None = Field(
        None, ge=16, description="For `openai`: longest answer. Default: by the number of programs. Doubled if cut."
    )
    timeout: float = resumable(
        120.0,
        gt=0,
        description="For `openai`: most seconds for one call in all. For `http`: most seconds without an answer. A "
        "server that can't be reached is found sooner (docs/judge.md).",
    )
    concurrency: int = resumable(
        64, ge=1, description="For `openai`: most calls in flight; it adapts. For `local`: most answers at once."
    )
    requests_per_minute: int | None = resumable(
        None, ge=1, description="For `openai`: your own limit, on top of the server's."
    )
    tokens_per_minute: int | None = resumable(
        None, ge=1, description="For `openai`: your own limit, on top of the server's."
    )
    failover_url: str | None = resumable(
        None, description="For `openai`: a second server, asked while the first is away. Every use is counted."
    )
    failover_model: str | None = resumable(None, description="The second server's model. Default: the same name.")
    failover_key_env: str | None = resumable(
        None, description="Environment variable that holds the second server's key."
    )
    cache_dir: str | None = resumable(
        None, description="For `openai`: the folder of cached answers. Default: `judge` in the user's cache folder."
    )
    cache_mib: int = resumable(256, ge=0, description="For `openai`: size of the cached answers; 0 is none.")
    price_input: float | None = resumable(
        None,
        ge=0,
        description="US dollars a million prompt tokens. Default: known for OpenAI's gpt-4.1 models, else unknown.",
    )
    price_cached: float | None = resumable(
        None,
        ge=0,
        description="US dollars a million prompt tokens that the server had cached. Default: as `price_input`.",
    )
    price_output: float | None = resumable(None, ge=0, description="US dollars a million answer tokens.")
    budget_usd: float | None = resumable(
        None,
        gt=0,
        description="For `openai`: what the run may spend, over all its starts. It pauses before it would spend more; "
        "raise the budget to go on.",
    )
    max_pause: float | None = resumable(
        None,
        gt=0,
        description="Seconds of outage after which the run commits and exits with 75. Default: wait without end.",
    )
    probe_seconds: float = resumable(1.0, gt=0, description="First wait between probes in an outage; doubles up to 60.")
    max_unjudged: float = Field(0.02, ge=0, le=1, description="The run stops above this share of unjudged groups.")
    canary_every: int | None = resumable(
        None,
        ge=0,
        description="Steps between checks for drift, which judge gold groups anew; 0 is never. Default: 25, and never "
        "for `structural` and `local`.",
    )
    canary_groups: int = resumable(4, ge=1, description="Gold groups in each check, always the same ones.")

    @model_validator(mode="before")
    @classmethod
    def _labels_of_execution_are_the_structural_judges(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("labels") == "execution":
            return given | {"name": "structural"}
        return given


class PluginSection(Section):
    """A part of the run that is found by name. It owns the parameters beside its name."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys beside the name."""
        return dict(self.model_extra or {})


class ObjectiveSection(PluginSection):
    """The advantage estimator: how a group's rewards and labels become advantages. It owns the parameters beside it."""

    name: str = Field(
        "poly_epo", description="`poly_epo`, `grpo`, another of docs/objectives.md, or package.module:Class."
    )


class LossSection(PluginSection):
    """How advantages meet log-probabilities. The loss owns the parameters beside its name."""

    name: str = Field(
        "policy_gradient",
        description="`policy_gradient` (equation 4), `clipped_surrogate`, `gspo`, `cispo`, `flowrl`, or "
        "package.module:Class.",
    )


class ScaffoldSection(PluginSection):
    """How rollouts are asked for. The scaffold owns the parameters beside its name."""

    name: str | None = Field(
        None,
        description="`direct`, `plan_search`, another of docs/scaffolds.md, or package.module:Class. "
        "Default: the objective's, or else `direct`.",
    )


class EnvironmentSection(PluginSection):
    """What answers a rollout's turns (docs/environments.md). It owns the parameters beside these."""

    name: str = Field("single_turn", description="`single_turn`, `repair`, `python`, or package.module:Class.")
    max_turns: int = Field(4, ge=1, le=64, description="Most turns of the policy in a rollout.")
    max_observation_tokens: int = Field(
        256,
        ge=32,
        description="Tokens of an observation with its template, but for a prompt that this repeats; a longer one is "
        "cut in the middle.",
    )
    max_tool_seconds: float = Field(
        60.0, gt=0, description="CPU seconds of tools in a rollout, after which it ends with its last turn."
    )
    observation_template: str | None = Field(
        None,
        description="How an observation is put to a model without a chat template: a text with {observation}, and "
        "{prompt} for the problem's own. Default: a paragraph, and the prompt again where code is completed.",
    )

    @property
    def converses(self) -> bool:
        """Whether rollouts have more than one turn."""
        return self.name != "single_turn"

    def most_observations(self, prompt: int) -> int:
        """Tokens of a rollout's observations, at most, each with a prompt of so many."""
        return (self.max_turns - 1) * (self.max_observation_tokens + prompt) if self.converses else 0


class CreditSection(Section):
    """Which turns of a conversation get the advantage of its rollout."""

    turns: Literal["all", "last", "discounted"] = Field(
        "all",
        description="Every turn of the policy (`all`), the last one (`last`), or turn k of K by "
        "advantage x discount^(K - k) (`discounted`). An objective's own credit for tokens stays as it is.",
    )
    discount: float = Field(0.9, gt=0, le=1, description="For `discounted`.")


class StopSection(Section):
    """Where a run ends before train.steps."""

    measure: str | None = resumable(
        None,
        pattern=r"^-?\w\S*$",
        description="End the run at a plateau of this measure of metrics.jsonl: the mean of its last steps is no "
        "longer above that of as many before. A minus sign is for what should fall: `-loss`. Default: train.steps.",
    )
    window: int = resumable(10, ge=1, description="Steps in each of the two means of a plateau.")
    least_gain: float = resumable(0.01, description="A plateau is reached where the later mean gains less than this.")


class TrainConfig(Section):
    """Steps, batch, optimizer, memory and checkpoints."""

    seed: int = Field(0, description="Seed of sampling and of the problems' order.")
    steps: int = resumable(80, ge=0, description="Optimizer steps.")
    stop: StopSection = Field(default_factory=StopSection, description="Ends a run at a plateau.")
    prompts_per_step: int = Field(20, ge=1, description="Problems in a step (|B|, Algorithm 2). Default: at most all.")
    mini_batch_prompts: int | None = Field(
        None,
        ge=1,
        description="Problems in an update. A step's later updates are off-policy. Default: the whole step.",
    )
    ahead: int = Field(
        0,
        ge=0,
        le=1,
        description="1 samples step s + 1 while step s learns (docs/ranks.md): rollouts are one update older than the "
        "weights that learn from them, which the loss has to correct. Engine and learner need devices of their own.",
    )
    ahead_mode: Literal["submission", "in_flight"] = Field(
        "submission",
        description="When new weights reach a step that is sampled ahead: `submission` when it is whole, so that a run "
        "repeats bit for bit; `in_flight` between two tokens, as soon as they are learned, so that fewer are stale.",
    )
    refill: int = Field(
        0,
        ge=0,
        description="Dynamic sampling: most further problems in a step, sampled to replace groups whose advantages are "
        "all zero, which the update then leaves out. 0 turns it off: nothing is sampled again or left out.",
    )
    rollouts: int = Field(8, ge=1, description="Responses for each problem (N).")
    lr: float = Field(3e-4, gt=0, description="Learning rate; with a warm-up or a decay, the highest.")
    schedule: Shape = Field(
        "constant",
        description="The learning rate after the warm-up. `linear` and `cosine` decay towards zero over "
        "train.schedule_steps. The last of these has the lowest rate, and so have all steps that a run is extended by.",
    )
    warmup_steps: int = Field(0, ge=0, description="Steps over which the learning rate rises to train.lr.")
    schedule_steps: int | None = Field(
        None,
        ge=1,
        description="Steps of warm-up and decay together. Default: train.steps of the run's first start, also where "
        "train.steps changes later.",
    )
    weight_decay: float = Field(0.0, ge=0, description="AdamW weight decay.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW betas.")
    max_grad_norm: float = Field(1.0, gt=0, description="Clip gradients above this norm.")
    max_mismatch: float | None = resumable(
        None,
        gt=0,
        description="Stop before an update if the mean |learner - sampler| log-probability of the step's tokens is "
        "above this. Default: no limit; each update's weights are proved in the engine anyway.",
    )
    token_budget: int = Field(
        2048,
        ge=1,
        description="Tokens in a micro-batch. A prompt counts once for its responses; padded rows each count as the "
        "longest.",
    )
    logits_mib: int = Field(
        512,
        ge=1,
        description="Memory of the logits that exist at one time, in MiB; on a CPU at most 16. Up to three times as "
        "much is used.",
    )
    activation_checkpointing: Literal["off", "products", "layers"] = resumable(
        "off",
        description="What the backward pass recomputes: everything but each layer's input (`layers`: least memory, a "
        "third more work), or everything but matrix products and attention (`products`).",
    )
    offload: Offloaded = resumable(
        "none",
        description="What leaves a GPU that learner and engine share for the machine's memory: AdamW's moments but for "
        "the update (`optimizer`); besides them weights while the engine is awake (`all`). It changes no bit of a "
        "result, only time (docs/gpu.md).",
    )
    compile: bool | None = Field(
        None,
        description="Compile the model's layers (`torch.compile`, docs/gpu.md), which takes a minute at the start. "
        "Default: on a GPU with `model.dtype: bfloat16`, where rows are packed and it works; the start says so.",
    )
    ranks: int = resumable(
        1,
        ge=1,
        description="Learner processes, a GPU each. They divide weights, gradients and moments (docs/ranks.md).",
    )
    threads: int = Field(1, ge=1, description="Compute threads of each learner process on a CPU.")
    checkpoint_every: int = resumable(10, ge=1, description="Steps between checkpoints. A restart replays the others.")
    keep_last: int = resumable(3, ge=1, description="Newest checkpoints to keep; older ones are dropped.")
    keep_every: int | None = resumable(
        None, ge=1, description="Keep for good the checkpoints of steps that this divides. Default: none."
    )

    @property
    def in_flight(self) -> bool:
        """Whether weights change while a step is sampled."""
        return self.ahead > 0 and self.ahead_mode == "in_flight"

    @property
    def prompts_per_update(self) -> int:
        """Problems of one optimizer update."""
        return self.mini_batch_prompts or self.prompts_per_step

    @property
    def horizon(self) -> int:
        """Steps of warm-up and decay together."""
        return self.schedule_steps or self.steps


class StagesConfig(Section):
    """What is found out about a group between its rollouts and its advantages. `stages.NAME.KEY` is a key of the stage
    NAME."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, dict[str, Any]]
    own: list[str] = Field(
        default_factory=list,
        description="Stages of your own, each `package.module:Class`: what else is found out about a group before its "
        "advantages (docs/add-a-stage.md).",
    )

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The keys of each stage that has some, by its name."""
        return dict(self.model_extra or {})


class EvaluatedScaffold(PluginSection):
    """A scaffold of an evaluation. It owns the parameters beside its name."""

    name: str


class EvaluateConfig(Section):
    """How the policy is measured."""

    every: int = Field(20, ge=0, description="Steps between evaluations on validation; 0 is never.")
    samples: int = Field(128, ge=1, description="Responses for each test problem, before and after training.")
    validation_samples: int = Field(16, ge=1, description="Responses for each validation problem.")
    validation_greedy: bool = Field(
        False, description="On validation take the likeliest token each time, one response for each problem."
    )
    scaffolds: list[str | EvaluatedScaffold] = Field(
        default_factory=list,
        description="How samples are asked for: scaffolds by name, or as {name: tuple, plan_tokens: 512} with "
        "parameters (docs/scaffolds.md), all on the same problems and seeds. The first one's numbers are the "
        "evaluation's. Default: the run's own.",
    )
    ks: list[Annotated[int, Field(ge=1)]] = Field(
        default_factory=list,
        description="Further k of pass@k beside 1, 2, 4 ..., as far as there are samples, and whole blocks of a "
        "scaffold.",
    )
    select: Literal["first", "last", "random"] = Field(
        "first",
        description="Which k of a block's attempts count in pass@k, for scaffolds whose attempts are drawn jointly "
        "(docs/scaffolds.md); `random` is the mean over all choices.",
    )
    choose: Literal["none", "majority"] = Field(
        "none",
        description="`majority` is self-consistency (maj@k): of k samples, the one with the most common answer "
        "counts, or the one whose program gives the most common results on the problem's example inputs, "
        "whatever its verdict.",
    )
    judge: bool = Field(
        False,
        description="Also count strategies by the judge, which sees train.rollouts samples at once, in order, and no "
        "fewer than eight; the structural judge sees all.",
    )
    categories: str | None = Field(
        None,
        description="A file of methods that two people labelled (docs/scaffolds.md). Then the judge, one that grades, "
        "also classifies each method or program, for D_alg.",
    )


class TermSection(PluginSection):
    """A term of the reward, which owns the parameters beside these."""

    name: str | None = Field(
        None, description="`length`, another of docs/rewards.md, or package.module:Class. Default: NAME."
    )
    weight: float = Field(description="What one unit of the term is worth, in rewards.")
    when: Literal["passed", "failed", "always"] = Field(
        "always",
        description="Which responses have the term; it is 0 for the others. `passed`: an outcome of 1 or more.",
    )


class RewardConfig(Section):
    """The reward: an outcome, which says whether a response is right, and weighted terms beside it."""

    name: str = Field(
        "passed",
        description="The outcome: `passed` (1 or 0), `fraction` (of tests), `threshold`, or package.module:function of "
        "yours, with raypoly's, verl's or TRL's parameters (docs/rewards.md).",
    )
    threshold: float = Field(1.0, gt=0, le=1, description="For `threshold`: the share of tests from which it is 1.")
    terms: dict[str, TermSection] = Field(
        default_factory=dict,
        description="What is paid beside the outcome, by a name of yours (docs/rewards.md).",
    )
    when_cut: Literal["score", "drop"] = Field(
        "score",
        description="A response that a limit ended is worth what its last program is (`score`), or unknown and left "
        "out (`drop`).",
    )
    workers: int = resumable(2, ge=1, description="Processes that run functions and terms of yours beside the step.")
    timeout: float = resumable(
        120.0,
        gt=0,
        description="Seconds for one call of a function of yours. Later its server counts as away: the run pauses.",
    )
    max_unknown: float = resumable(
        0.1,
        ge=0,
        le=1,
        description="Stop when the outcome of more than this share of rollouts is unknown.",
    )

    @property
    def runs_all_tests(self) -> bool:
        """Whether the outcome is a share of all tests."""
        return self.name in ("fraction", "threshold")


class DistillConfig(Section):
    """On-policy distillation: a teacher says of each sampled token how likely it finds it (docs/credit.md)."""

    teacher: str | None = Field(
        None,
        description="A Hugging Face folder, a hub id, a `.gguf` file, or a finished run's folder; with `server` the "
        "model's name there. Default: no teacher.",
    )
    sha256: str | None = Field(
        None, description="Of a teacher's files here. raypoly sets it, so that another teacher is another run."
    )
    server: str | None = resumable(
        None,
        description="The address of a server that takes token ids and gives log-probabilities of a prompt, as vLLM's "
        "does, such as http://127.0.0.1:8000/v1 (generator.temperature=1 alone).",
    )
    api_key_env: str | None = resumable(None, description="Environment variable that holds the server's key.")
    weight: float = Field(1.0, gt=0, description="What a nat of log p_teacher - log p_sampler adds to an advantage.")
    clip: float = Field(10.0, gt=0, description="Nats within which that difference of a token is held.")
    dtype: Literal["float32", "bfloat16"] | None = Field(
        None, description="The type of the teacher's weights and products. Default: model.dtype."
    )
    placement: Literal["learner", "engine"] = Field(
        "learner",
        description="`learner`: the learner's code, on its device in its turn. `engine`: an engine of generator.engine "
        "beside it (temperature 1 alone).",
    )
    gpu_memory_fraction: float = resumable(
        0.2, gt=0, lt=1, description="For `engine`: the share of the learner's GPU that it takes."
    )
    timeout: float = resumable(120.0, gt=0, description="Most seconds for one answer of the server.")
    concurrency: int = resumable(16, ge=1, description="Most requests in flight at the server; it adapts.")


class RayConfig(Section):
    """The local Ray, which starts where no cluster is given."""

    dashboard: bool = resumable(True, description="Serve the Ray dashboard.")


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
    scaffold: ScaffoldSection = Field(default_factory=ScaffoldSection)
    environment: EnvironmentSection = Field(default_factory=EnvironmentSection)
    credit: CreditSection = Field(default_factory=CreditSection)
    stages: StagesConfig = Field(default_factory=StagesConfig)
    distill: DistillConfig = Field(default_factory=DistillConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    ray: RayConfig = Field(default_factory=RayConfig)

    @model_validator(mode="after")
    def _engines_have_room_for_observations(self) -> Config:
        settings = self.environment
        own = settings.observation_template
        repeated = self.problems.chat_template in (None, "plain") if own is None else "{prompt}" in own
        prompt = self.generator.max_prompt_tokens if repeated else 0
        self.generator._observations = settings.most_observations(prompt)
        return self
