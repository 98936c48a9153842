"""Judge drift: the judge's agreement with gold labels, measured every so many steps beside training.

    monitor.start_if_due(step)      # returns at once
    monitor.take_agreement()        # mean agreement, once a measurement has ended; else None

The gold groups are the same for every run and arm, so a change of the curve is a change of the judge. A measurement
never holds up a step or changes its labels.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence

from actors.judge import JudgeClient
from actors.scorer_pool import AFTER_ALL, ScorerPool
from raypoly.core.config import Config, JudgeConfig
from raypoly.core.errors import RaypolyError
from raypoly.core.seeds import derive
from raypoly.strategies.judge.gold import GoldGroup, read_gold_groups
from raypoly.strategies.judge.label_agreement import adjusted_rand, ids_of
from raypoly.strategies.judge.program_groups import ObservedGroup, group_of_gold

EVERY = 25
"""Steps between measurements, by default."""


def check_interval(config: JudgeConfig) -> int:
    """Steps between measurements; 0 for never, which is the default of a judge that can't change."""
    if config.canary_every is None:
        return 0 if config.name in ("structural", "local") else EVERY
    return config.canary_every


def pick_gold_groups(count: int, golds: Sequence[GoldGroup]) -> list[GoldGroup]:
    order = list(golds)
    random.Random(derive("judge canary")).shuffle(order)
    return sorted(order, key=lambda gold: gold.certainty != "high")[:count]


class JudgeDriftMonitor:
    def __init__(self, config: Config, scorers: ScorerPool, judge: JudgeClient, note: Callable[[str], None]) -> None:
        self._every, self._count = check_interval(config.judge), config.judge.canary_groups
        self._scorers, self._judge, self._note = scorers, judge, note
        self._measuring: asyncio.Task[float | None] | None = None
        self._seen: list[tuple[GoldGroup, ObservedGroup]] = []

    def start_if_due(self, step: int) -> None:
        if self._every and step % self._every == 0 and self._measuring is None:
            self._measuring = asyncio.get_running_loop().create_task(self._try_to_measure())

    def take_agreement(self) -> float | None:
        """Mean adjusted Rand index of a measurement that ended since the last call; None if none has."""
        if self._measuring is None or not self._measuring.done():
            return None
        ended, self._measuring = self._measuring, None
        return ended.result()

    def stop(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()

    async def measure_agreement(self) -> float:
        """Measure now. Raises the errors of the scorers and the judge."""
        if not self._seen:
            golds = pick_gold_groups(self._count, read_gold_groups())
            seen = await asyncio.gather(*map(self._run, golds))
            self._seen = list(zip(golds, seen, strict=True))
        agreements = await asyncio.gather(*(self._agreement(*pair) for pair in self._seen))
        return math.fsum(agreements) / len(agreements)

    async def _try_to_measure(self) -> float | None:
        try:
            return await self.measure_agreement()
        except RaypolyError as error:
            # unknown, not a mean over fewer groups, which would look like drift
            self._note(f"The judge's agreement with the gold groups is unknown this time: {error}")
            return None

    async def _run(self, gold: GoldGroup) -> ObservedGroup:
        group = group_of_gold(gold)
        codes = [program if program.strip() else None for program in group.programs]
        return ObservedGroup(group, tuple(await self._scorers.score(group.problem, codes, order=AFTER_ALL)))

    async def _agreement(self, gold: GoldGroup, seen: ObservedGroup) -> float:
        # a cached answer shows no drift
        labels = await self._judge.label(seen.group.problem, seen.rollouts, seen.verdicts, fresh=True)
        return adjusted_rand(ids_of(labels), gold.labels)
