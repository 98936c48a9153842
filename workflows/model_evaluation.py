"""`raypoly evaluate --model` and `--endpoint`: a model on a file of problems, in journalled chunks.

    read problems, make prompts           the folder is named by these and by the model's weights
    plan rounds of samples                more samples add rounds
    chunks of problems in each round      sampled by engines or endpoint, judged by scorers, journalled
    results.json, samples.parquet         from the journal alone, hence the same bytes after any kill

A step of the journal is a chunk of problems in a round; a group is a problem with its samples of that round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from actors.generator import Generator
from actors.scorer_pool import ScorerPool
from raypoly.analysis.evaluation.evaluation_config import (
    ModelEvaluationConfig,
    ask_problems,
    chat_template_of,
    environment_of,
    is_plain,
    template_name,
    weights_digest,
    with_room,
)
from raypoly.analysis.evaluation.evaluation_folder import EvaluationFolder, influential, plan_rounds
from raypoly.analysis.evaluation.evaluation_results import (
    DECIMAL,
    answer_votes,
    evaluation_results,
    majority_results,
    sample_table,
)
from raypoly.analysis.evaluation.evaluation_tables import evaluation_tables
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.commands.command_output import say
from raypoly.core import __version__
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import TooManySetAside, UsageError
from raypoly.core.gguf_models import with_sha256
from raypoly.core.progress_display import show_progress, waiting
from raypoly.core.seeds import derive
from raypoly.core.values import Group
from raypoly.data.preparing.candidates import Candidate
from raypoly.data.preparing.sources import LoadedSources, load_sources
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from raypoly.run.store.sealed_files import encode_table, seal
from workflows.durability.journal import Journal
from workflows.endpoint_samples import EndpointSamples, ModelEndpoint
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.prepare.preparation_actors import Workers
from workflows.prepare.problem_chunks import Chunks, OutcomeCount, Samples, Work
from workflows.startup.starting_model import named_model
from workflows.step.conversations import Conversations, scored_by
from workflows.step.training_group import SkippedGroups, skip_reason

RESULTS = "results.json"
SAMPLES = "samples.parquet"
_PROBLEMS = "problems"
_FOR_GOOD = "These are not asked again; run.fresh=true begins anew."


@dataclass(frozen=True)
class _Asked:
    config: ModelEvaluationConfig
    """With room for the longest prompt."""
    template: str
    problems: Sequence[Candidate]
    """With their prompts."""
    folder: EvaluationFolder


def evaluate_model(config: ModelEvaluationConfig) -> None:
    """Begin an evaluation, go on with it, or show a finished one."""
    ending, console = Shutdown(config.run.grace_seconds), Console()

    async def work() -> None:
        with ending.guard():
            with waiting("Reading model and problems", console):
                asked = await _ask(config, console)
            async with AsyncExitStack() as stack:
                await ModelEvaluation(stack, asked, ending, console).run()

    run_workflow(work(), ending)


async def _ask(config: ModelEvaluationConfig, console: Console) -> _Asked:
    """Check all that can be wrong before the folder exists. Raises `UsageError`."""
    weights = await _weights(config)
    loaded = await asyncio.to_thread(load_sources, {_PROBLEMS: config.problems})
    decides = environment_of(config).decides
    without = [it for it in loaded.candidates if it.problem.tests.kind == "none" and not decides]
    if without:
        raise UsageError(f"Problem {without[0].id} has no tests that could be run, so there is no pass@k to measure.")
    template = await asyncio.to_thread(template_name, config, loaded.candidates)
    problems = await asyncio.to_thread(ask_problems, config, template, loaded.candidates)
    folder = EvaluationFolder.of(config, weights, problems)
    roomy = config if config.endpoint.url is not None else await asyncio.to_thread(with_room, config, problems)
    if config.endpoint.url is not None and not folder.is_begun:
        endpoint = ModelEndpoint(config, is_plain(template), partial(say, console))
        where = f"{config.endpoint.name} at {config.endpoint.url}"
        say(console, f"Asking {where} for a first answer (endpoint.timeout={config.endpoint.timeout:g} s) ...")
        try:
            await endpoint.check()
        finally:
            endpoint.close()
    say(console, str(folder.location))
    say(console, _describe(loaded, template))
    return _Asked(roomy, template, problems, folder)


async def _weights(config: ModelEvaluationConfig) -> str | None:
    model = with_sha256(config.model)
    if model.path is None or model.sha256 is not None:
        return model.sha256
    files = await named_model(model.path)
    return await asyncio.to_thread(weights_digest, files.path)


class ModelEvaluation:
    """One start of an evaluation."""

    def __init__(self, stack: AsyncExitStack, asked: _Asked, ending: Shutdown, console: Console) -> None:
        """Open the folder; the stack closes what is opened."""
        self._asked, self._config, self._stack = asked, asked.config, stack
        self._console, self._note = console, partial(say, console)
        self._store, self._lease = asked.folder.open()
        stack.callback(self._lease.release)
        self._journal = journal = Journal(self._store)
        stack.push_async_callback(journal.close)
        self._run = run = self._config.of_a_run()
        name = asked.folder.location.name
        self._workers = Workers(stack, run, name, self._store, self._lease, journal, ending, self._note)
        self._chunks = Chunks(journal, self._workers.context, self._workers.step_done)
        self._skipped = SkippedGroups(1.0, self._note)

    async def run(self) -> None:
        """Sample what is missing, write and show the results."""
        sampling, problems = self._config.sampling, self._asked.problems
        rounds = plan_rounds(self._store, sampling.samples)
        chunks = -(-len(problems) // sampling.chunk)
        firsts = [number * chunks for number in range(len(rounds))]
        missing = any(self._chunks.left(first, problems, sampling.chunk) for first in firsts)
        with waiting("Starting Ray and its actors", self._console):
            work_of = await self._work() if missing else None
        total, count = len(problems) * rounds[-1].stop, OutcomeCount()
        self._note(f"{total:,} programs of {len(problems):,} problems")
        with show_progress("programs", total, count.so_far, self._console):
            for first, samples in zip(firsts, rounds, strict=True):
                work = None if work_of is None else work_of(samples)
                await self._chunks.outcomes(first, problems, sampling.chunk, work, count)
        steps = [range(first, first + chunks) for first in firsts]
        results, table = await asyncio.to_thread(self._write, steps)
        for shown in evaluation_tables(results, table, self._metadata, self._name):
            self._console.print(shown)
        if results["set_aside"]:
            problem, reason = next(iter(results["set_aside"].items()))
            self._note(f"set aside: {problem}, for one: {reason.rstrip('.')}. {_FOR_GOOD}")
        self._note(f"results: {self._store.place(RESULTS)}")
        self._note(f"samples: {self._store.place(SAMPLES)}")

    async def _work(self) -> Callable[[range], Work]:
        skipped, seeds, greedy = self._skipped, self._seeds, self._config.sampling.greedy
        if self._config.endpoint.url is not None:
            endpoint = ModelEndpoint(self._config, is_plain(self._asked.template), self._note)
            self._stack.callback(endpoint.close)
            await endpoint.check()
            scorers = await self._workers.scorers()
            return lambda samples: EndpointSamples(endpoint, scorers, skipped, partial(seeds, samples), self._config)
        generator, scorers = await self._workers.generator(), await self._workers.scorers()
        talks = self._conversations(generator, scorers)
        return lambda samples: Samples(generator, scorers, skipped, partial(seeds, samples), greedy, talks)

    def _conversations(self, generator: Generator, scorers: ScorerPool) -> Conversations | None:
        config, environment = self._config, self._config.environment
        if not environment.converses:
            return None
        chat = None if is_plain(self._asked.template) else chat_template_of(config)
        template = ObservationTemplate.of_section(environment, chat)
        return Conversations(self._run, environment_of(config), generator, scored_by(scorers), template)

    def _seeds(self, samples: range, problem_id: str) -> tuple[int, ...]:
        return tuple(derive(self._config.sampling.seed, "evaluate model", problem_id, i) for i in samples)

    @property
    def _name(self) -> str:
        name = self._config.endpoint.name or str(self._config.model.path)
        return Path(name).name if Path(name).exists() else name

    @property
    def _metadata(self) -> dict[str, Mapping[str, str]]:
        return {it.id: it.problem.metadata for it in self._asked.problems}

    def _write(self, steps: Sequence[range]) -> tuple[dict[str, Any], pa.Table]:
        config, asked = self._config, self._asked
        groups = self._groups(steps)
        set_aside = {group.problem_id: reason for group in groups if (reason := _set_aside(group))}
        if len(set_aside) == len(groups):
            reason = str(_set_aside(groups[0])).rstrip(".")
            raise TooManySetAside(f"No problem could be judged; of {groups[0].problem_id}: {reason}. {_FOR_GOOD}")
        table = sample_table(groups, self._metadata)
        if config.endpoint.url is not None:  # its tokens are not known
            table = table.drop_columns(["response_tokens"])
        counts = ProblemCounts.of(table)
        assert counts is not None, "a sample table has verdicts"
        results = {
            "model": self._name,
            "samples": config.sampling.samples,
            "template": asked.template,
            "weights": asked.folder.identity["weights"],
            "problem_set": asked.folder.identity["problem_set"],
            "config": influential(config, dotted_values(config)),
            "raypoly": __version__,
            **evaluation_results(groups, set_aside, self._metadata, also=DECIMAL),
            **self._majority([group for group in groups if group.problem_id not in set_aside]),
            "problems": asdict(counts),
        }
        self._store.put_mutable(SAMPLES, encode_table(table, {}))
        self._store.put_mutable(RESULTS, seal(results))
        return results, table

    def _majority(self, groups: Sequence[Group]) -> dict[str, Any]:
        """maj@k of the problems that ask for a value, where there are some."""
        asking = {it.id for it in self._asked.problems if it.problem.tests.kind == "answer"}
        answered = [group for group in groups if group.problem_id in asking]
        return majority_results(answered, list(map(answer_votes, answered))) if answered else {}

    def _groups(self, steps: Sequence[range]) -> list[Group]:
        parts: dict[str, list[Group]] = {}
        for step in chain.from_iterable(steps):
            for group in self._journal.load_step(step).groups:
                parts.setdefault(group.problem_id, []).append(group)
        return [_joined(own, self._config.sampling.samples) for own in parts.values()]


def _joined(parts: Sequence[Group], samples: int) -> Group:
    # A round may hold more than the samples that are asked for.
    rollouts = [rollout for part in parts for rollout in part.rollouts]
    verdicts = [verdict for part in parts for verdict in part.verdicts or ()]
    return replace(parts[0], rollouts=tuple(rollouts[:samples]), findings={"score": tuple(verdicts[:samples])})


def _set_aside(group: Group) -> str | None:
    infra = [verdict.detail for verdict in group.verdicts or () if verdict.status == "infra"]
    return infra[0] if infra else skip_reason(group)


def _describe(loaded: LoadedSources, template: str) -> str:
    words = f"{len(loaded.candidates):,} problems of {len(loaded.decisions):,} rows, prompts.template {template}"
    first = next((decision for decision in loaded.decisions if decision.reason), None)
    return words if first is None else f"{words}; set aside: row {first.facts['row']}, {first.reason}"
