"""Checks of a config, a machine and the problems before anything starts.

for remark in check_config(config, run_dir): print(remark)      # a `UsageError` has all mistakes, a sentence a line
require_tests(problem_set, config)                              # "not run" is never taken for "wrong"
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from raypoly import data as problems
from raypoly.algorithms import losses, objectives
from raypoly.algorithms.group_stage import own_stages
from raypoly.algorithms.objectives.distillation import Distillation
from raypoly.algorithms.objectives.objective import STAGE_OF, needed_stages
from raypoly.core.config import Config, DistillConfig, JudgeConfig
from raypoly.core.endpoint_config import check_address
from raypoly.core.errors import MissingHere, MissingKey, UsageError
from raypoly.core.gguf_models import GgufModel, teacher_place
from raypoly.core.plugins import load_plugin
from raypoly.data.formats import files_of
from raypoly.data.hub import hub_split
from raypoly.data.problem_set import ProblemSet
from raypoly.data.templates import ChatTemplate, load_tokenizer
from raypoly.data.verl_rows import NO_TEMPLATE
from raypoly.planning.devices import ELSEWHERE, GIB, FreeResources, choose_device, layout_of, this_machine
from raypoly.planning.model_shape import config_of, context_of, is_mixture, no_hub_model, require_whole, teacher_folder
from raypoly.planning.placement import needs_gpu, refuse_placement
from raypoly.rollouts import engines, environments, scaffolds
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from raypoly.rollouts.scaffolds.run_scaffolds import distinct_prompts, is_sampled, of_evaluations
from raypoly.rollouts.teacher_model import check_tokenizers
from raypoly.run.sinks import check_packages
from raypoly.strategies import judge
from raypoly.strategies.judge import judge_keys
from raypoly.strategies.judge.algorithm_categories import read_labelled_methods
from raypoly.verifier.math_answers import MISSING, knows_math
from raypoly.verifier.rewards import Rewards
from raypoly.verifier.rewards.reward_function import KNOWN as REWARDS
from raypoly.verifier.rewards.terms import build_terms
from raypoly.verifier.rewards.terms.known_terms import GRADES, JudgeTerm
from raypoly.verifier.sandbox.zygote_client import find_interpreter

BASE_MEMORY = 4.0
"""GiB: Ray's own processes 1.7, an engine beside its cache 1.2, learner and driver 1.1 (a tiny model)."""
ENGINE_MEMORY = 1.2
"""GiB of each engine after the first, a judge's too, beside weights and cache."""
WORKER_MEMORY = 0.3
"""GiB of one scorer actor with its warm runner, beside the memory that a program may use."""
MATHS_MEMORY = 0.08
"""GiB of a scorer's second zygote, from the first answer of mathematics on."""
_RANK_MEMORY = 0.8  # giB of each further learner process (a tiny model)
_HUB_SECONDS = 5.0
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
_BASE_DISK = 0.5  # giB: caches, checkpoints of a tiny model, logs


def check_config(config: Config, run_dir: Path, here: FreeResources | None = None, remote: bool = False) -> list[str]:
    """Raise `UsageError` with all mistakes; return remarks on unusual settings.

    `run_dir` is a folder on this machine. A `remote` run keeps no rollouts in it. With `ELSEWHERE`, what is missing on
    this machine (a key, an interpreter) is only a remark.
    """
    errors = list(_errors(config))
    missing = [error for error in errors if isinstance(error, MissingHere) and here is ELSEWHERE]
    wrong = dict.fromkeys(str(error) for error in errors if error not in missing)  # several checks may meet the same
    if wrong:
        raise UsageError("\n".join(wrong))
    check_room(config, here or this_machine(run_dir), remote)
    return [*_remarks(config), *(f"for the machine that will run this: {error}" for error in missing)]


def asks_judge(config: Config) -> bool:
    """Whether the run uses its judge at all."""
    objective = objectives.of_run(config)
    grades = any(isinstance(named.term, JudgeTerm) for named in build_terms(config))
    evaluate = config.evaluate.judge or config.evaluate.categories is not None
    return "judge" in needed_stages(objective) or config.judge.when != "needed" or evaluate or grades


def _errors(config: Config) -> Iterator[UsageError]:
    """A check yields sentences, or calls what raises one."""
    for check in _CHECKS:
        try:
            yield from map(UsageError, check(config) or ())
        except UsageError as error:
            yield error


def _names(config: Config) -> None:
    # The engine's actor loads the engine, since its packages load slowly.
    for key, engine in (("generator.engine", config.generator.engine), ("judge.engine", config.judge.engine)):
        if ":" not in engine and engine not in engines.KNOWN:
            load_plugin(engine, engines.KNOWN, key)
    load_plugin(config.judge.name, judge.KNOWN, "judge.name")
    load_plugin(config.problems.source, problems.KNOWN, "problems.source")


def _scaffold(config: Config) -> Iterator[str]:
    scaffold, evaluate = scaffolds.of_run(config), config.evaluate
    scaffold.check(config.train.rollouts)
    scaffold.check_training()
    if "drafts" in objectives.of_run(config).needs and not scaffold.planned_drafts(config.train.rollouts):
        yield (
            f"objective.name={config.objective.name} pays plans, and scaffold.name={scaffolds.name_of_run(config)} has "
            "none: name a scaffold that writes some, such as tuple (docs/cppo.md)."
        )
    for samples in (evaluate.samples, evaluate.validation_samples) if evaluate.every else ():
        for name, asked in of_evaluations(config).items():
            asked.check(samples)
            if not asked.planned_attempts(samples):
                yield (
                    f"scaffold.name={name} has no attempts that could be measured: set evaluate.every=0, or another "
                    "scaffold in evaluate.scaffolds."
                )


def _environment(config: Config) -> Iterator[str]:
    settings = config.environment
    environments.of_run(config)
    ObservationTemplate.of_section(settings, ChatTemplate.of(config.problems))
    if settings.converses and not scaffolds.of_run(config).samples:
        yield (
            f"environment.name={settings.name} answers turns, and scaffold.name={scaffolds.name_of_run(config)} "
            "samples none: choose another scaffold."
        )
    if not settings.converses and config.credit.turns != "all":
        yield f"credit.turns={config.credit.turns} is for rollouts of several turns: set environment.name."
    if config.credit.turns != "all" and losses.of_run(config).fits_advantages:
        yield (
            f"credit.turns={config.credit.turns} gives each turn an advantage of its own, and loss.name="
            f"{config.loss.name} fits one a response: choose another loss."
        )


def _loss(config: Config) -> Iterator[str]:
    objective, loss = objectives.of_run(config), losses.of_run(config)
    if loss.needs_sampler and not scaffolds.of_run(config).samples:
        yield (
            f"loss.name={config.loss.name} weighs tokens by the ratio to their sampler, and scaffold.name="
            f"{scaffolds.name_of_run(config)} samples nothing: set loss.name=policy_gradient loss.importance_cap=null, "
            "without loss.mask_low and loss.mask_high."
        )
    if loss.fits_advantages and objective.leaves_out:
        yield (
            f"objective.name={config.objective.name} leaves out rollouts by an advantage of zero, but loss.name="
            f"{config.loss.name} trains on zeros too: choose another objective."
        )


def _token_credit(config: Config) -> Iterator[str]:
    """`loss.kl_in_reward` and `distill`."""
    objective, loss, distill = objectives.of_run(config), losses.of_run(config), config.distill
    if isinstance(objective, Distillation) and distill.teacher is None:
        yield "objective.name=distillation needs a teacher: set distill.teacher."
    if distill.server and not distill.teacher:
        yield "distill.server needs the model's name there: set distill.teacher."
    by_server_or_engine = distill.server or distill.placement == "engine"
    if distill.teacher is not None and by_server_or_engine and config.generator.temperature != 1:
        yield (
            f"generator.temperature={config.generator.temperature:g}, but a teacher's server or engine gives "
            "log-probabilities at temperature 1 alone: set generator.temperature=1, or take a teacher's folder with "
            "distill.placement=learner."
        )
    if distill.server:
        check_address("distill.server", distill.server, "distill.api_key_env", bool(distill.api_key_env))
        judge_keys.read_key(distill.api_key_env, "distill.api_key_env", distill.server)
    elif distill.teacher is not None:
        place = teacher_folder(distill.teacher)
        yield from _model_at(distill.teacher, "distill.teacher", str(place or distill.teacher))
        if place is not None and config.model.path is not None and Path(config.model.path).expanduser().is_dir():
            both = load_tokenizer(config.model.path, "model.path"), load_tokenizer(str(place), "distill.teacher")
            check_tokenizers(*both, distill.teacher)
    what = "distill.teacher" if distill.teacher else f"loss.kl_in_reward={loss.config.kl_in_reward:g}"
    if distill.teacher is None and not loss.config.kl_in_reward:
        return
    scaffold = scaffolds.of_run(config)
    if not scaffold.samples:
        yield (
            f"{what} compares with what the sampler said, and scaffold.name={scaffolds.name_of_run(config)} samples "
            "nothing: choose another scaffold."
        )
    if loss.fits_advantages:
        yield f"{what} gives each token an advantage of its own, and loss.name={config.loss.name} fits one a response."
    if objective.trains_drafts:
        yield f"{what} has no credit for drafts, which this run trains: choose another objective or scaffold."


def _updates(config: Config) -> Iterator[str]:
    loss, train = losses.of_run(config), config.train
    given = f"train.mini_batch_prompts={train.mini_batch_prompts}"
    if train.prompts_per_step % train.prompts_per_update:
        yield (
            f"{given} does not divide train.prompts_per_step={train.prompts_per_step}: all updates of a step have the "
            "same number of problems."
        )
    elif train.prompts_per_update < train.prompts_per_step and scaffolds.of_run(config).samples and not loss.corrects:
        yield (
            f"{given} makes a step's later updates off-policy, which loss.name={config.loss.name} does not correct: "
            "set loss.name=clipped_surrogate, gspo or cispo, or loss.importance_cap."
        )


def _ahead(config: Config) -> Iterator[str]:
    train, loss = config.train, losses.of_run(config)
    if not train.ahead:
        if train.ahead_mode == "in_flight":
            yield "train.ahead_mode=in_flight is of a step that is sampled ahead: set train.ahead=1, or drop it."
        return
    if train.refill:
        yield (
            f"train.ahead=1 samples a step before it is known which of its groups teach, and train.refill="
            f"{train.refill} samples more for those that don't: set one of them to 0."
        )
    if train.prompts_per_update < train.prompts_per_step:
        yield (
            f"train.ahead=1 samples with the weights of a step's beginning, and train.mini_batch_prompts="
            f"{train.mini_batch_prompts} changes them in its middle: set train.ahead=0, or drop the other."
        )
    if train.max_mismatch is not None:
        yield (
            f"train.max_mismatch={train.max_mismatch:g} is of the weights that sampled, and with train.ahead=1 a step "
            "learns with newer ones: drop one of them."
        )
    if not scaffolds.of_run(config).samples:
        yield f"train.ahead=1, and scaffold.name={scaffolds.name_of_run(config)} samples nothing: set train.ahead=0."
    elif not loss.corrects:
        yield (
            f"train.ahead=1 learns from rollouts of older weights, which loss.name={config.loss.name} does not "
            "correct: set loss.importance_cap=2, or loss.name=clipped_surrogate, gspo or cispo."
        )


def _schedule(config: Config) -> Iterator[str]:
    train = config.train
    if train.schedule != "constant" and train.warmup_steps >= train.horizon:
        yield (
            f"train.schedule={train.schedule} has no step to decay in: warm-up and decay together are {train.horizon} "
            f"steps and train.warmup_steps={train.warmup_steps} of them warm up: lower train.warmup_steps, or set "
            "train.schedule_steps."
        )


def _keys(config: Config) -> None:
    judge_keys.check_addresses(config.judge)
    if judge_keys.asks_openai(config.judge):
        judge_keys.read_first_key(config.judge)
        judge_keys.read_failover_key(config.judge)
    key = config.judge.api_key_env
    if key is not None and not os.environ.get(key):
        raise MissingKey(f"judge.api_key_env={key}, but the environment variable {key} is not set: export {key}=...")


_OF_SERVERS = (
    *("base_url", "url", "api_key_env", "api_key_file", "failover_url", "failover_model", "failover_key_env"),
    *("requests_per_minute", "tokens_per_minute", "price_input", "price_cached", "price_output", "budget_usd"),
    "canary_every",
)


def _local_judge(config: Config) -> Iterator[str]:
    judge = config.judge
    if "local" in judge.members:
        yield (
            "judge.members names local, and an ensemble holds no model: set judge.name=local, or serve the model "
            "(vllm serve) and name openai."
        )
    if judge.name != "local":
        return
    if given := [key for key in _OF_SERVERS if getattr(judge, key)]:
        yield f"judge.{given[0]} is about a server, and judge.name=local asks a model here: drop one of the two."
    if judge.model == JudgeConfig.model_fields["model"].default:
        yield "judge.name=local needs judge.model: a Hugging Face folder, a hub id or a .gguf file."
        return
    place = teacher_place(judge.model)
    yield from _model_at(judge.model, "judge.model", str(place), trained=False)
    if (place / "config.json").is_file():
        require_whole(place, f"judge.model={judge.model}")
    longest, context = engines.engine_of_judge(judge).longest_row, context_of(judge.model)
    if context is not None and longest > context:
        yield (
            f"judge.model={judge.model} reads {context} tokens, and a question with its answer may have {longest}: "
            "lower judge.max_prompt_tokens or judge.max_answer_tokens."
        )


def _judge(config: Config) -> Iterator[str]:
    yield from _local_judge(config)
    if not config.scorer.evidence and asks_judge(config) and _reads_evidence(config.judge):
        agreed = config.judge.labels == "agreed"
        asked = "judge.labels=agreed" if agreed else f"judge.name={config.judge.name}"
        yield (
            f"{asked} needs scorer.evidence: leave it on, ask no judge (objective.name=grpo "
            "judge.when=needed evaluate.judge=false), or use judge.name=openai judge.view=raw judge.labels=judge."
        )


def _reads_evidence(judge: JudgeConfig) -> bool:
    if judge.labels == "agreed":
        return True
    if judge.name == "ensemble":
        return judge.view == "canonical" or "structural" in judge.members
    return judge.name == "structural" or (judge.name in ("openai", "local") and judge.view == "canonical")


def _evidence(config: Config) -> Iterator[str]:
    if not config.scorer.evidence and "statements" in objectives.of_run(config).needs:
        yield (
            f"objective.name={config.objective.name} needs the statements of programs, which need scorer.evidence: "
            "leave it on."
        )


def _problems(config: Config) -> Iterator[str]:
    source, path = config.problems.source, config.problems.path
    own = {f"problems.{name}": getattr(config.problems, name) for name in ("validation_path", "test_path")}
    if source in ("puzzles", "tasks"):
        read = {"problems.path": path, **own, "problems.exclude": config.problems.exclude}
        if given := [f"{name}={place}" for name, place in read.items() if place is not None]:
            yield (
                f"{given[0]} would be ignored, since {source} are made, not read: set problems.source=jsonl (or hub, "
                "verl, prepared), or drop it."
            )
    elif source == "hub":
        if given := [name for name, place in own.items() if place is not None]:
            yield (
                f"{given[0]} is no split of the data set: give {given[0].replace('_path', '_split')}, or prepare "
                "both data sets and set problems.source=prepared."
            )
        hub_split(config.problems).check(f"problems.path={path}")
    names = ("revision", "subset", "split", "validation_split", "test_split")
    by_name = [name for name in names if getattr(config.problems, name) is not None]
    if source in problems.KNOWN and source != "hub" and by_name:
        yield f"problems.{by_name[0]} is of a data set by name: set problems.source=hub, or drop it."
    elif source in ("jsonl", "verl") and path is None:
        yield f"problems.source={source} needs problems.path, a file of problems."
    elif source in ("jsonl", "verl"):
        for name, place in {"problems.path": path, **own}.items():
            for file in files_of(Path(place).expanduser()) if place is not None else ():
                if not file.is_file():
                    yield f"{name}={place} is not a file."
        if source == "verl" and config.problems.chat_template is None:
            yield NO_TEMPLATE


def _reward(config: Config) -> Iterator[str]:
    rewards = Rewards.of_run(config)
    source = config.problems.source
    if rewards.outcome.form == "verl" and source in problems.KNOWN and source != "verl":
        yield (
            f"reward.name={config.reward.name} needs the ground truths of verl's rows, and problems.source="
            f"{source} has none: set problems.source=verl."
        )
    found = {*STAGE_OF.values(), GRADES, *(stage.name for stage in own_stages(config, objectives.of_run(config)))}
    for name, named in rewards.terms.items():
        if missing := sorted(named.reads - found):
            yield f"reward.terms.{name} needs what the stage {missing[0]} finds: add that stage to stages.own."
    graded = [name for name, named in rewards.terms.items() if isinstance(named.term, JudgeTerm)]
    if len(graded) > 1:
        yield f"reward.terms.{graded[1]}: the judge grades one term, {graded[0]}: ask one question for both."
    if graded and not hasattr(load_plugin(config.judge.name, judge.KNOWN, "judge.name"), "grade"):
        yield f"reward.terms.{graded[0]} needs a judge that grades: set judge.name=openai (docs/judge.md)."
    if objectives.of_run(config).terms == "own" and not rewards.terms:
        yield (
            f"objective.name={config.objective.name} needs terms beside the outcome: set reward.terms.NAME.weight, or "
            "objective.name=grpo."
        )


def _model(config: Config) -> Iterator[str]:
    if config.model.path is not None:
        yield from _model_at(config.model.path, "model.path", config.model.path)


def _model_at(path: str, key: str, place: str, trained: bool = True) -> Iterator[str]:
    """`place`: where its files are."""
    gguf, folder = GgufModel.find(path, key), Path(place).expanduser()
    if gguf is not None:
        gguf.config()  # raises here
    elif folder.is_dir():
        if not (folder / "config.json").is_file():
            yield f"{key}={path} holds no config.json: it is not a Hugging Face folder."
        elif config_of(place) is None:
            yield f"{key}={path}: its config.json is no JSON object: copy the model again."
    elif folder.is_file():
        yield (
            f"{key}={path} is a file, and a model is a folder, a name on the Hugging Face hub or a .gguf file; "
            f"problems of your own are problems.source=jsonl problems.path={path}."
        )
    elif folder.parent.is_dir() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path):  # else a hub id, `owner/name`
        yield f"{key}={path} does not exist."
    if trained and is_mixture(place):
        yield (
            f"{key}={path} is a mixture of experts, whose routing and balancing loss the learner does not train: "
            f"set {key} to a dense model."
        )


def require_gpu(config: Config) -> None:
    """Raise `UsageError` where the run asks for devices that a Ray of this machine's own has not."""
    asks = needs_gpu(config.generator) or config.train.offload != "none" or config.train.ahead
    if asks and not os.environ.get("RAY_ADDRESS"):
        layout_of(config, choose_device(None, 0))


def require_model(path: str | None, run: Path | None) -> None:
    """Raise `UsageError` for a folder that is not whole, and a name that neither the Hugging Face hub nor its cache
    on this machine gives; not where the run's folder is there already, or on a store."""
    if path is None or run is None or run.exists():
        return
    folder = Path(path).expanduser()
    if folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise UsageError(
            f"model.path={path} holds no tokenizer (tokenizer.json or tokenizer.model): copy its files there."
        )
    if folder.is_dir():
        require_whole(folder, f"model.path={path}")
        return
    if config_of(path):
        return
    from huggingface_hub import HfApi  # half a second, which a folder does not need

    try:
        HfApi().model_info(path, timeout=_HUB_SECONDS)
    except Exception as error:
        raise no_hub_model(path, error) from error


def _lengths(config: Config) -> Iterator[str]:
    longest = config.generator.longest_row
    if config.train.token_budget < longest:
        yield (
            f"train.token_budget={config.train.token_budget} is less than one longest sequence "
            f"({_longest_is(config)} = {longest}): raise it, or lower one of these."
        )


def _placement(config: Config) -> None:
    if config.generator.placement != "auto":  # which is known where the GPUs are
        refuse_placement(config.train, config.generator.placement)


def _context(config: Config) -> Iterator[str]:
    teacher = None if config.distill.server else config.distill.teacher
    readers = {"model": context_of(config.model.path)}
    if teacher is not None:
        readers["teacher"] = context_of(str(teacher_folder(teacher) or teacher))
    for who, context in readers.items():
        if context is not None and config.generator.longest_row > context:
            yield (
                f"The {who} reads {context} tokens, and a row may have {config.generator.longest_row} "
                f"({_longest_is(config)}): lower one of these."
            )


def _longest_is(config: Config) -> str:
    more = config.generator.longest_row - config.generator.max_prompt_tokens - config.generator.max_tokens
    observed = f" + {more} of observations (environment.max_turns, environment.max_observation_tokens)" if more else ""
    return f"generator.max_prompt_tokens + generator.max_tokens{observed}"


def _evaluation(config: Config) -> Iterator[str]:
    evaluate = config.evaluate
    if evaluate.validation_greedy and evaluate.validation_samples > 1:
        yield (
            f"evaluate.validation_greedy gives the same response {evaluate.validation_samples} times: set "
            "evaluate.validation_samples=1."
        )
    if evaluate.categories is not None:
        if not hasattr(load_plugin(config.judge.name, judge.KNOWN, "judge.name"), "grade") or config.judge.votes > 1:
            yield "evaluate.categories needs a judge that grades, and one vote: set judge.name=openai judge.votes=1."
        read_labelled_methods(evaluate.categories)


_CHECKS: Sequence[Callable[[Config], Iterator[str] | None]] = (
    _names,
    lambda config: objectives.of_run(config).check(config.train.rollouts),
    _scaffold,
    _environment,
    _loss,
    _token_credit,
    _updates,
    _ahead,
    _schedule,
    lambda config: refuse_asking_between(config, config.generator.placement == "colocated", _asking(config)),
    _placement,
    lambda config: engines.check_engine_args(config.generator),
    _keys,
    _judge,
    _evidence,
    _problems,
    _reward,
    _model,
    _lengths,
    _context,
    _evaluation,
    check_packages,
    lambda config: find_interpreter(config.scorer.python) and None,
)


def asks_learner_device(distill: DistillConfig) -> bool:
    """Whether a teacher has its turn on the learner's device."""
    return distill.teacher is not None and not distill.server and distill.placement == "learner"


def _asking(config: Config) -> Sequence[str]:
    given = {"reference_logprobs": losses.of_run(config).config.kl_in_reward > 0}
    given["teacher_logprobs"] = asks_learner_device(config.distill)
    asked = "judge" in needed_stages(objectives.of_run(config)) or config.judge.when != "needed"
    given["judge"] = judge.in_engine(config.judge) and asked
    return [name for name, asks in given.items() if asks]


def refuse_asking_between(config: Config, sleeps: bool, stages: Sequence[str] = ()) -> None:
    """Raise `UsageError` if the learner would be asked about groups before sampling ends, on a device that it gets
    (`sleeps`) only afterwards. `stages`: names of the stages that ask it."""
    asking = [f"The stage {name} asks" for name in stages]
    if "prompt_logprobs" in needed_stages(objectives.of_run(config)):
        asking.insert(0, f"objective.name={config.objective.name} asks")
    if sleeps and config.train.refill and asking:
        raise UsageError(
            f"{asking[0]} the learner's device about each group, which with "
            f"generator.placement=colocated has to wait until nothing more is sampled, and train.refill="
            f"{config.train.refill} samples more when groups are valued: set train.refill=0, or "
            "generator.placement=split."
        )


def check_room(config: Config, here: FreeResources, remote: bool = False) -> None:
    """Raise `UsageError` if memory or disk are too small for the run. On a cluster that is joined the actors' memory is
    their nodes'."""
    workers = config.scorer.workers * (WORKER_MEMORY + config.scorer.memory_mib / 1024)
    more_engines = (config.generator.engines - 1) * (ENGINE_MEMORY + config.generator.memory_gib)
    if judge.in_engine(config.judge) and asks_judge(config):
        more_engines += ENGINE_MEMORY + config.judge.memory_gib
    more_ranks = _RANK_MEMORY * (config.train.ranks - 1)
    memory = BASE_MEMORY + more_ranks
    if is_sampled(config):
        memory += config.generator.memory_gib + more_engines + workers
    if here.memory < memory * GIB and not os.environ.get("RAY_ADDRESS"):
        raise UsageError(
            f"This run needs about {memory:.1f} GiB of memory and {here.memory / GIB:.1f} GiB are free: close "
            "something, or lower generator.memory_gib, generator.engines, scorer.workers, scorer.memory_mib or "
            "train.ranks."
        )
    disk = _BASE_DISK + (0.0 if remote else _rollout_bytes(config) / GIB)
    if here.disk < disk * GIB:
        raise UsageError(
            f"This run needs about {disk:.1f} GiB of disk and {here.disk / GIB:.1f} GiB are free: set run.dir."
        )


def _rollout_bytes(config: Config) -> float:
    # A token's id and log-probability (8) and text (4), 4 for each log-probability after another prompt, and 1 KiB a
    # rollout of verdict and label.
    rollouts = config.train.steps * config.train.prompts_per_step * config.train.rollouts
    # With a KL or a teacher 4 for what the other model says, and 4 for the token's advantage.
    crossed = "cross_logprobs" in objectives.of_run(config).needs
    others = (losses.of_run(config).config.kl_in_reward > 0) + (config.distill.teacher is not None)
    behind = 4.0 * distinct_prompts(scaffolds.of_run(config), config.train.rollouts) if crossed else 0.0
    tokens = config.generator.longest_row - config.generator.max_prompt_tokens
    return rollouts * ((12.0 + behind + 4 * (others + bool(others))) * tokens + 1024)


def _remarks(config: Config) -> list[str]:
    samples, remarks = config.evaluate.samples, []
    if samples < 64:
        remarks.append(f"evaluate.samples={samples}: pass@k is measured up to k={samples} only.")
    if samples < 8:
        remarks.append(f"evaluate.samples={samples}: distinct correct strategies need 8 samples and are not measured.")
    if config.run.push_to_hub is not None:
        from huggingface_hub import get_token  # half a second, which most runs do not need

        if get_token() is None:
            remarks.append(
                f"run.push_to_hub={config.run.push_to_hub}: there is no token of the Hugging Face hub; before the run "
                "ends, use hf auth login or set HF_TOKEN."
            )
    return remarks


def require_tests(problem_set: ProblemSet, config: Config) -> None:
    """Raise `UsageError` if problems to train on have no tests, or an answer in place of them, and the reward or the
    objective needs what only programs have."""
    train = problem_set.splits["train"]
    decides = environments.of_run(config).decides
    if not decides and (untested := [problem.id for problem in train if problem.tests.kind == "none"]):
        what = f"{len(untested)} of {len(train)} training problems have no tests to run ({untested[0]})"
        if config.reward.name in REWARDS and objectives.of_run(config).reads_rewards:
            raise UsageError(
                f"{what}, so reward.name={config.reward.name} can't judge their answers: set reward.name="
                "package.module:function, or leave them out by problems.exclude."
            )
        _require_no_program(what, ("outcomes", "statements"), config)
    if asked := [problem.id for problem in train if problem.tests.kind == "answer"]:
        what = f"{len(asked)} of {len(train)} training problems are answered by a value, not a program ({asked[0]})"
        _require_no_program(what, ("statements",), config)  # its outcome is what was answered
    if not knows_math():
        every = [problem for split in problem_set.splits.values() for problem in split]
        if asked := [problem.id for problem in every if problem.tests.comparison == "math"]:
            raise UsageError(f"{len(asked)} of {len(every)} problems ask for mathematics ({asked[0]}), and {MISSING}.")


def _require_no_program(what: str, of_programs: Collection[str], config: Config) -> None:
    """`what` begins the error; `of_programs` are the `needs` of an objective that can't be met."""
    needs = objectives.of_run(config).needs
    missing = [need for need in sorted(needs) if need in of_programs]
    if "labels" in needs and not judge.reads_texts(config.judge):
        raise UsageError(
            f"{what}, and judge.name={config.judge.name} finds strategies in programs alone, which objective.name="
            f"{config.objective.name} needs: set judge.name=openai, which reads texts too, or objective.name=grpo."
        )
    if missing:
        raise UsageError(
            f"{what}, and objective.name={config.objective.name} needs {missing[0]}, which are those of programs: "
            "set objective.name=grpo, or leave them out by problems.exclude."
        )
