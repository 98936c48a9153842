"""One training step beside TRL's `GRPOTrainer`, on this machine's CPU.

    uv pip install trl==1.16.0
    python -m benchmarks.step [--rounds 7] [--trl-threads 1] [--json FILE]        # the tiny model, puzzles; 5 minutes
    python -m benchmarks.step --model smollm2-q4 --engine vllm                    # a language model, plain tasks

Both sides: the tiny model after a short supervised start (made once, 30 seconds), the same 20 puzzles a step x 8
responses of at most 56 tokens at temperature 1, float32, the same Dr.GRPO loss (no std, no KL) and AdamW, programs
executed, two at a time. With a language model (`--model`: a folder, a GGUF file or smollm2-q4; its tokenizer has a chat
template): the same 8 plain tasks a step x 8 responses of at most 160 tokens at temperature 0.8, the same prompts, two
threads for each side; both multiply in bfloat16 and keep weights, gradients and moments in float32.

For the tiny model TRL has two arms: with raypoly's sandboxes lent to it, and with a Manager and a fork for each
program, as public trainers' graders have it (no isolation; the same verdicts). A language model's TRL has the
sandboxes. Each arm is a process tree of its own, and all are in memory at once: with SmolLM2 TRL and one engine take
some 19 GiB, and `--engine` leaves the other one out. After some steps to warm up they take turns step by step, and a
ratio is the median of the rounds' ratios. `least` is the quickest round, which other work on the machine lengthened
least. `busy` is CPU seconds / (seconds x cores). `rows` entered the loss, `dropped` did not. Memory is taken in an
extra step: all of an arm's processes, shared pages counted once. The update is measured apart, on the same sampled rows
with no advantage zero, as many threads on both sides; its memory is its process's largest. Exit code 1 where a target
is missed.

What is not comparable:
- raypoly's step has what TRL's has not: rollouts, verdicts and update durable in a journal, new weights verified in the
  engine, a digest of the weights, Ray. All of it is counted, in time and in memory. TRL has no judge, no evidence of
  how programs work, and its evaluation and checkpoints are off: raypoly's are off as well.
- raypoly samples ahead while programs run, in several processes with threads of their own; TRL is one process. With the
  tiny model it may have two threads (`--trl-threads 2`), which is slower on a machine that does anything else.
- Responses differ after the first update: the sides draw other random numbers. A short one costs less, so look at
  `tokens`.
- `--trl-dtype "bfloat16 weights"` rounds TRL's weights, gradients and moments too; that is no equal update.
- TRL's vLLM engine is not an arm: 1.16 knows vLLM up to 0.31, starts it without `enforce_eager`, which on a CPU
  compiles, and hands it weights one tensor at a time. `--trl-vllm` tries it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.steps.setting import Setting, setting_of
from raypoly.core.errors import UsageError
from tests.support import process_costs
from tests.support.paced_process import PacedProcess
from tests.support.step_tables import MeasuredArm, check_targets, stage_lines, step_table

_ENGINES = ("transformers", "vllm")


def taking_turns(
    arms: Sequence[PacedProcess], setting: Setting, memory: Callable[[int], int] | None
) -> list[MeasuredArm]:
    """The setting's rounds of each arm, one at a time; with `memory`, one more in which it is looked at."""
    cores = len(os.sched_getaffinity(0))
    found = [MeasuredArm(arm.name, cores=cores) for arm in arms]
    for number in range(setting.warm_up + setting.rounds):
        for arm, measured in zip(arms, found, strict=True):
            before = process_costs.cpu_seconds(arm.pid)
            step = arm.step()
            measured.first_norm = step.grad_norm or measured.first_norm
            if number >= setting.warm_up:
                measured.steps.append(step)
                measured.cpu_seconds.append(process_costs.cpu_seconds(arm.pid) - before)
            print(".", end="", file=sys.stderr, flush=True)
    for arm, measured in zip(arms, found, strict=True):
        if memory is None:
            measured.memory_bytes = process_costs.largest_resident_bytes(arm.pid)
            continue
        with process_costs.peak(lambda pid=arm.pid: memory(pid)) as values:  # type: ignore[misc]
            arm.step()
        measured.memory_bytes = max(values, default=None)
    print(file=sys.stderr)
    return found


def whole_steps(setting: Setting, trl_vllm: bool, engines: Sequence[str]) -> list[MeasuredArm]:
    """TRL's arms, then raypoly's with each of these engines."""
    from benchmarks.steps import ours, trl

    with ExitStack() as stack:
        ways = [("transformers", grader) for grader in setting.trl_graders] + [("vllm", "sandboxes")] * trl_vllm
        theirs = [
            stack.enter_context(PacedProcess(f"TRL, {engine}, {grader}", trl.step_by_step, setting, engine, grader))
            for engine, grader in ways
        ]
        arms = [
            stack.enter_context(PacedProcess(f"raypoly, {engine}", ours.step_by_step, setting, engine))
            for engine in engines
        ]
        return taking_turns([*theirs, *arms], setting, process_costs.resident_bytes)


def updates(setting: Setting) -> list[MeasuredArm]:
    """TRL's update and raypoly's on the same rows."""
    from benchmarks.steps import ours, trl

    rows = ours.sampled(setting)
    with ExitStack() as stack:
        arms = [
            stack.enter_context(PacedProcess("TRL", trl.updates, setting, rows)),
            stack.enter_context(PacedProcess("raypoly", ours.updates, setting, rows)),
        ]
        return taking_turns(arms, setting, None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="default: 7 for the tiny model, else 3")
    parser.add_argument("--model", help="a folder, a .gguf file or smollm2-q4; default: a tiny one, made once")
    parser.add_argument("--trl-threads", type=int, help="in a step; default: 1 for the tiny model, else 2")
    parser.add_argument(
        "--trl-dtype",
        choices=("float32", "bfloat16", "bfloat16 weights"),
        help="default: float32 for the tiny model, else bfloat16",
    )
    parser.add_argument("--trl-rows", type=int, help="in one of TRL's micro-batches; default: 160 for tiny, else 8")
    parser.add_argument("--trl-vllm", action="store_true")
    parser.add_argument("--engine", choices=_ENGINES, help="raypoly's in a step; default: both, each an arm")
    parser.add_argument("--only", choices=("step", "update"))
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("trl") is None:
        parser.error("TRL is not installed: pip install 'raypoly[bench]', or uv pip install trl==1.16.0.")
    try:
        setting = setting_of(given.model)
    except UsageError as error:
        parser.error(str(error))
    changes = {name: getattr(given, name) for name in ("rounds", "trl_threads", "trl_dtype", "trl_rows")}
    setting = replace(setting, **{name: value for name, value in changes.items() if value is not None})
    if setting.sequences % setting.trl_rows:
        parser.error(f"--trl-rows={setting.trl_rows} does not divide a step's {setting.sequences} responses.")
    found: dict[str, list[MeasuredArm]] = {}
    verdicts: list[tuple[bool, str]] = []
    if given.only != "step":
        theirs, ours = found["update"] = updates(setting)
        print(step_table(f"The update, {setting.sequences} rows", [theirs, ours]))
        print(f"gradient norm of the first: {theirs.first_norm:.7g}, {ours.first_norm:.7g}\n", flush=True)
        verdicts += check_targets(theirs, [ours], setting.update_target, "update")
    if given.only != "update":
        engines = _ENGINES if given.engine is None else (given.engine,)
        arms = found["step"] = whole_steps(setting, given.trl_vllm, engines)
        print(step_table(f"The step, {setting.prompts} x {setting.rollouts} responses", arms))
        print(f"\nBusy in a step's stages, which overlap in raypoly's:\n{stage_lines(arms)}\n", flush=True)
        for theirs in arms[: -len(engines)]:
            verdicts += check_targets(theirs, arms[-len(engines) :], setting.step_target, f"step, {theirs.name}")
    for met, what in verdicts:
        print(("met     " if met else "MISSED  ") + what)
    if given.json is not None:
        given.json.write_text(json.dumps({name: [asdict(arm) for arm in arms] for name, arms in found.items()}))
    sys.exit(0 if all(met for met, _ in verdicts) else 1)


if __name__ == "__main__":
    main()
