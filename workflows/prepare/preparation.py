"""The driver of a preparation, and its end: the table, the files, and the command that trains on them.

`raypoly/data/preparing` makes its decisions.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import IO

from rich.console import Console

from raypoly.analysis.reports.data_card_page import card_page, draw_card, stage_table
from raypoly.core.errors import UsageError
from raypoly.core.progress_display import show_progress
from raypoly.core.seeds import derive
from raypoly.data.preparing import output_files
from raypoly.data.preparing import problem_selection as selection
from raypoly.data.preparing.candidates import Candidate, PromptMaker, apply_decisions
from raypoly.data.preparing.data_card import card_values, encode_card
from raypoly.data.preparing.decision_log import STAGES, Decision, DecisionLog, StageName
from raypoly.data.preparing.preparation_folder import PreparationFolder, influential, keep_inputs, require_inputs
from raypoly.data.preparing.prepare_config import PrepareConfig, SourceConfig
from raypoly.data.preparing.problem_selection import ChunkOutcome
from raypoly.data.preparing.sources import (
    LoadedSources,
    SourceFile,
    describe_loaded,
    digests_here,
    find_source,
    load_sources,
)
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal
from workflows.durability.journal import Journal
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.prepare.large_files import is_large, read_by_size
from workflows.prepare.preparation_actors import Workers
from workflows.prepare.problem_chunks import (
    Chunks,
    OutcomeCount,
    Samples,
    Solutions,
    Work,
    solution_reason,
)
from workflows.step.training_group import SkippedGroups

_SOLUTIONS_CHUNK = 64  # problems in a step of the journal
_SPLITS = ("train", "validation", "test")

Read = tuple[LoadedSources, LoadedSources | None]
"""The sources, and the evaluation sets if there are any."""

CARD = "card.json"
PAGE = "card.md"
FIGURE = "card.png"
EXCLUDED = "excluded.jsonl"
MODEL = "model.json"
"""The tiny model's folder at the last start: of this machine, so no part of the data."""


def is_done(store: Store, config: PrepareConfig) -> bool:
    """Whether the data set is there. An unreadable one is made again."""
    try:
        found = json.loads(store.read(CARD)) if store.exists(CARD) else {}
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("config") == influential(config)


def show(store: Store, config: PrepareConfig, console: Console) -> None:
    values = json.loads(store.read(CARD))
    console.print(stage_table(values))
    splits = ", ".join(f"{count:,} {name}" for name, count in values["splits"].items())
    lines = [
        f"data: {store.place('data')} ({splits})",
        f"left out: {store.place(EXCLUDED)}",
        f"data card: {store.place(PAGE)}",
        f"figure: {store.place(FIGURE)}",
        _next(store, config, "train" in values["splits"]),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _next(store: Store, config: PrepareConfig, train: bool) -> str:
    """The command that trains on the data, or the key of one that is tested on it."""
    purpose, key = ("to train on it", "problems.path") if train else ("to be tested on it", "problems.test_path")
    if store.location.folder is None:
        return (
            f"{purpose}: copy {store.place('data')} to a folder, and name that as {key} with problems.source=prepared"
        )
    named = f"{key}={store.location.folder}"
    if not train:
        return f"{purpose}: add {shlex.quote(named)} to a training with problems.source=prepared"
    words = ["problems.source=prepared", named, f"model.path={_model(store, config) or 'MODEL'}"]
    words.append(f"generator.max_prompt_tokens={config.generator.max_prompt_tokens}")
    return f"{purpose}: {shlex.join(['python', '-m', 'raypoly.train', *words])}"


def _model(store: Store, config: PrepareConfig) -> str | None:
    """The base model, as a value of `model.path`."""
    if config.model.path is not None:
        return config.model.path
    return str(unseal(store.read(MODEL), store.place(MODEL))["path"]) if store.exists(MODEL) else None


def prepare(config: PrepareConfig) -> None:
    """Begin, go on, or show a finished preparation."""
    folder = PreparationFolder.of(config)
    print(folder.uri, flush=True)
    console = Console()
    if is_done(folder.look(), config):
        require_inputs(folder.look(), digests_here({**config.sources, **config.against}))
    else:
        ending = Shutdown(config.run.grace_seconds)

        async def work() -> None:
            with ending.guard():
                files = await asyncio.to_thread(_find_files, config.sources, config.against)
                large = any(map(is_large, files))
                # before the folder holds anything, so that a corrected config can start there
                makers = await asyncio.to_thread(selection.prompt_makers, config)
                loaded = None if large else await asyncio.to_thread(_load, config, files)
                async with AsyncExitStack() as stack:
                    await Preparation(stack, folder, ending, console).run(files, loaded, makers)

        run_workflow(work(), ending)
    show(folder.look(), config, console)


class Preparation:
    """One start of a preparation."""

    def __init__(
        self, stack: AsyncExitStack, folder: PreparationFolder[PrepareConfig], ending: Shutdown, console: Console
    ) -> None:
        """Open the folder; the stack closes what is opened."""
        config = self._config = folder.config
        self._console = console
        self._store, self._lease = folder.open()
        stack.callback(self._lease.release)
        journal = Journal(self._store)
        stack.push_async_callback(journal.close)
        self._workers = Workers(
            stack, config.of_a_run(), folder.name, self._store, self._lease, journal, ending, self._note
        )
        self._log = DecisionLog(self._store)
        self._chunks = Chunks(journal, self._workers.context, self._workers.step_done)
        self._skipped = SkippedGroups(1.0, self._note)
        self._steps = 0  # of the journal, used by earlier stages

    def _note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    async def run(
        self,
        files: Sequence[SourceFile],
        read: Read | None,
        makers: Mapping[str, PromptMaker | None],
    ) -> None:
        """`read`: the files' content; None if Ray Data reads them. `makers`: of prompts, by source."""
        config = self._config
        keep_inputs(self._store, {file.name: file.sha256 for file in files} | selection.template_digests(config))
        if read is None:
            self._workers.connect()
            read = await asyncio.to_thread(_load, config, files)
        loaded, against = read
        read_before = self._log.stage("load", lambda: loaded.decisions)
        if [*read_before, *self._log.stage("choose", lambda: loaded.choices)] != [*loaded.decisions, *loaded.choices]:
            raise UsageError(
                f"raypoly reads the sources otherwise than when {self._store.uri} was begun: go on with the raypoly of "
                "then, or add run.fresh=true for a new preparation."
            )
        candidates = loaded.candidates
        self._note(describe_loaded(loaded))
        candidates = _left(candidates, await self._solutions(candidates), "solutions")
        evaluation = against.candidates if against is not None else []
        decided = await asyncio.to_thread(
            self._log.stage, "same", lambda: selection.decide_duplicates(candidates, evaluation)
        )
        candidates = _left(candidates, decided, "same")
        candidates = await self._prompts(selection.use_templates(candidates, makers))
        candidates = await self._sampling(candidates)
        self._log.keep("split", selection.decide_splits(candidates, config.split))
        await asyncio.to_thread(self._write, loaded, against, candidates)

    async def _solutions(self, candidates: Sequence[Candidate]) -> list[Decision]:
        rule, known = self._config.solutions, self._log.read("solutions")
        with_solution = [it for it in candidates if it.has_solution] if rule.check else []
        first, self._steps = self._steps, self._steps + -(-len(with_solution) // _SOLUTIONS_CHUNK)
        if known is not None:
            return known
        outcomes = {}
        if with_solution:
            work = None
            if self._chunks.left(first, with_solution, _SOLUTIONS_CHUNK):
                work = Solutions(await self._workers.scorers(), self._skipped)
            done = await self._watched("solutions", first, with_solution, _SOLUTIONS_CHUNK, work, 1)
            outcomes = {outcome.problem_id: outcome for outcome in done}
        decided = []
        for it in candidates:
            outcome = outcomes.get(it.id)
            if outcome is not None:
                reason = solution_reason(outcome.passes, outcome.detail)
                decided.append(Decision(it.id, "solutions", reason, {} if reason else {"solution": "passed"}))
            elif it.has_solution:
                decided.append(Decision(it.id, "solutions"))
            else:
                reason = "it has no solution to check its tests by" if rule.require else ""
                decided.append(Decision(it.id, "solutions", reason, {"solution": "none"}))
        return self._log.keep("solutions", decided)

    async def _prompts(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        config = self._config
        decided = self._log.read("prompts")
        if decided is None:
            texts = await asyncio.to_thread(selection.prompts_of, candidates)
            name = config.prompts.tokenizer or config.model.path
            if config.sampling.samples:
                model = str((await self._workers.model()).path)
                self._store.put_mutable(MODEL, seal({"path": model}))
                name = config.prompts.tokenizer or model
            encode = None if name is None else await asyncio.to_thread(selection.encoder, name)
            limit = config.generator.max_prompt_tokens
            measured = await selection.decide_lengths(candidates, texts, config.prompts, limit, encode)
            decided = self._log.keep("prompts", measured)
        return _left(candidates, decided, "prompts")

    async def _sampling(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those in the band; all without a model."""
        sampling = self._config.sampling
        if not sampling.samples:
            self._log.keep("sampling", [Decision(it.id, "sampling") for it in candidates])
            return list(candidates)
        work = None
        if self._chunks.left(self._steps, candidates, sampling.chunk):
            generator, scorers = await self._workers.generator(), await self._workers.scorers()
            work = Samples(generator, scorers, self._skipped, self._seeds)
        done = await self._watched("samples", self._steps, candidates, sampling.chunk, work, sampling.samples)
        decided = self._log.keep("sampling", selection.decide_band(done, self._config.band))
        return _left(candidates, decided, "sampling")

    def _seeds(self, problem_id: str) -> tuple[int, ...]:
        sampling = self._config.sampling
        return tuple(derive(sampling.seed, "prepare", problem_id, i) for i in range(sampling.samples))

    async def _watched(
        self, what: str, first: int, candidates: Sequence[Candidate], size: int, work: Work | None, programs: int
    ) -> list[ChunkOutcome]:
        """`work`: None if the journal has all."""
        total, count = programs * len(candidates), OutcomeCount()
        self._note(f"{what}: {total:,} programs of {len(candidates):,} problems")
        with show_progress("programs", total, count.so_far, self._console):
            return await self._chunks.outcomes(first, candidates, size, work, count)

    def _write(
        self,
        loaded: LoadedSources,
        against: LoadedSources | None,
        candidates: Sequence[Candidate],
    ) -> None:
        # Files of another band or split are replaced. The card comes last: it says that all are there.
        if self._store.exists(CARD):
            self._store.delete(CARD)
        decisions: dict[StageName, Sequence[Decision]] = {name: self._log.read(name) or [] for name in STAGES}
        where = {decision.problem_id: decision.facts["split"] for decision in decisions["split"]}
        parts = {name: [it for it in candidates if where[it.id] == name] for name in _SPLITS}
        splits = {name: part for name, part in parts.items() if part}
        for name, part in parts.items():
            self._put_data(f"data/{name}.jsonl", part, output_files.write_jsonl)
            self._put_data(f"data/{name}.parquet", part, output_files.write_parquet)
        self._store.put_mutable(EXCLUDED, output_files.encode_exclusions(d for name in STAGES for d in decisions[name]))
        values = card_values(self._config, loaded, against, decisions, splits)
        self._store.put_mutable(FIGURE, draw_card(values))
        self._store.put_mutable(PAGE, card_page(values, FIGURE).encode())
        self._store.put_mutable(CARD, encode_card(values))

    def _put_data(
        self, key: str, part: Sequence[Candidate], write: Callable[[Iterable[Candidate], IO[bytes]], None]
    ) -> None:
        if part:
            with tempfile.NamedTemporaryFile() as file:
                write(part, file)
                file.flush()
                self._store.put_mutable(key, Path(file.name))
        elif self._store.exists(key):
            self._store.delete(key)


def _find_files(sources: dict[str, SourceConfig], against: dict[str, SourceConfig]) -> list[SourceFile]:
    """Evaluation sets last. Raises `UsageError`."""
    twice = sources.keys() & against.keys()
    if twice:
        raise UsageError(f"sources.{min(twice)} and against.{min(twice)} have one name: give each its own.")
    return [find_source(name, source) for name, source in {**sources, **against}.items()]


def _load(config: PrepareConfig, files: Sequence[SourceFile]) -> Read:
    number = len(config.sources)
    loaded = load_sources(config.sources, files[:number], read_by_size)
    return loaded, load_sources(config.against, files[number:], read_by_size) if config.against else None


def _left(candidates: Sequence[Candidate], decided: Sequence[Decision], stage: StageName) -> list[Candidate]:
    """Raises `UsageError` if no candidate is left."""
    left = apply_decisions(candidates, decided)
    if not left:
        one = next(decision for decision in decided if decision.reason)
        hint = " Another band for the same run.dir samples nothing again." if stage == "sampling" else ""
        raise UsageError(f"No problem is left after {stage}; of {one.problem_id}, for one: {one.reason}.{hint}")
    return left
