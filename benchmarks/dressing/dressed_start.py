"""Write a tiny model some of whose solutions wear a coat: a ninth of the numbers is summed by a second construct.

    python -m benchmarks.dressing.dressed_start runs/dressed-start     # some three minutes; a Hugging Face folder

configs/experiments/dressing.yaml trains it. The coats change no answer and little of the work, and a judge that names a
program by all constructs that work in it takes each for a strategy of its own.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.dressing.learned_coats import MARK
from raypoly.core.config import ProblemsConfig, WarmStartConfig
from raypoly.core.seeds import derive
from raypoly.data import build_problem_set
from raypoly.data.puzzles import puzzle_of
from raypoly.data.puzzles.puzzle_language import ALL, Puzzle
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution
from raypoly.learner.supervised_examples import Example, encode, make_example, tokenizer_texts
from raypoly.learner.tiny_model import SupervisedTrainer, build_model, build_tokenizer, save_folder

SHARE = 0.36
"""Of the solutions that can wear one; these are 28 %, so that a tenth of all do."""

COATS = {
    "comprehension": "sum([{value} for j in {rest}{keep}])",
    "map": "sum(map(lambda j: {term}, {rest}))",
    "reduce": "reduce(lambda u, j: u + {term}, {rest}, 0)",
}
# What a plain solution iterates over, the same without its first ninth, and that ninth.
_SPLITS = {
    "up_to": (
        ("range(1, n + 1)", f"range(1 + n {MARK}, n + 1)", f"range(1, 1 + n {MARK})"),
        (" = 1\n while", f" = 1 + n {MARK}\n while", f"range(1, 1 + n {MARK})"),
    ),
    "below": (
        ("range(n)", f"range(n {MARK}, n)", f"range(n {MARK})"),
        (" = 0\n while", f" = n {MARK}\n while", f"range(n {MARK})"),
    ),
}


def dress(puzzle: Puzzle, body: str, coat: str) -> str | None:
    """The solution with its first ninth taken by a second construct; None if it can't be divided so."""
    splits = _SPLITS.get(puzzle.source.name, ())
    split = next((one for one in splits if one[0] in body), None)
    head, found, tail = body.rpartition(" return ")
    if split is None or not found or puzzle.aggregate.name == "max":
        return None
    value, keep = (part.template.replace("X", "j") for part in (puzzle.map, puzzle.filter))
    plain = puzzle.filter is ALL
    ninth = COATS[coat].format(
        value=value,
        rest=split[2],
        keep="" if plain else f" if {keep}",
        term=value if plain else f"({value} if {keep} else 0)",
    )
    total, modulo, _ = tail.rstrip().partition(" % 7")
    whole = f"({total} + {ninth}) % 7" if modulo else f"{total} + {ninth}"
    return f"{head} return {whole}\n".replace(split[0], split[1], 1)


def _dressed_example(puzzles: dict[str, Puzzle], example: Example, rng: random.Random) -> Example:
    if rng.random() >= SHARE:
        return example
    dressed = dress(puzzles[example.prompt], example.response, rng.choice(list(COATS)))
    return example if dressed is None else Example(example.prompt, dressed)


def dressed_start(folder: Path) -> float:
    """Train the default warm start with coats and write it to `folder`; returns the share of examples in a coat."""
    config = WarmStartConfig()
    puzzles = {problem.prompt: puzzle_of(problem) for problem in build_problem_set(ProblemsConfig()).splits["train"]}
    rng = random.Random(derive(config.seed, "coats"))
    coated = [
        prompt + text
        for prompt, puzzle in puzzles.items()
        for strategy in STRATEGIES
        for coat in COATS
        if (text := dress(puzzle, render_solution(puzzle, strategy, rng), coat)) is not None
    ]
    tokenizer = build_tokenizer([*tokenizer_texts(list(puzzles.values())), *coated])
    model = build_model(len(tokenizer), config.seed)
    trainer, worn, size = SupervisedTrainer(model, config), 0, config.batch_size
    for step in range(config.steps):
        drawn = (make_example(list(puzzles.values()), config, step * size + place) for place in range(size))
        examples = [_dressed_example(puzzles, example, rng) for example in drawn]
        worn += sum(MARK in example.response for example in examples)
        loss = trainer.step(*encode(tokenizer.backend_tokenizer, examples))
        if step % 20 == 0:
            print(f"step {step} of {config.steps}, loss {loss:.3f}", flush=True)
    save_folder(model, tokenizer, folder)
    return worn / (config.steps * size)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.dressing.dressed_start FOLDER")
    print(f"{dressed_start(Path(sys.argv[1])):.1%} of the examples wear a coat")
