"""The options of `raypoly judge label|audit|cache`. Work is imported late, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raypoly.core.errors import UsageError

judge_app = typer.Typer(no_args_is_help=True, help="Label groups of programs, audit a judge, look after its answers.")

JudgeOverrides = Annotated[list[str] | None, typer.Argument(metavar="judge.key=value", show_default=False)]
JudgeName = Annotated[
    str | None, typer.Option("--judge", help="structural, openai, http, ensemble, or package.module:Class.")
]


@judge_app.command()
def label(
    file: Annotated[
        str | None,
        typer.Argument(help="Rows {id, problem, programs, entry_point?, prelude?}: docs/audit.md.", show_default=False),
    ] = None,
    overrides: JudgeOverrides = None,
    judge: JudgeName = None,
    out: Annotated[str | None, typer.Option(help="Where {id, labels, judge} go; - is standard output.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what the judge saw of each group.")] = False,
    run: Annotated[
        str | None, typer.Option(help="Label a run's groups again instead, and say what differs; it stays as it is.")
    ] = None,
) -> None:
    """Cluster groups of programs by strategy, those of a file or of a run."""
    from raypoly.commands.judge_label import label_file, relabel
    from raypoly.commands.section_config import choose_judge
    from raypoly.core.interrupt import describe_interrupt, interruptible

    if run is not None:
        words = [*([] if file is None else [file]), *(overrides or [])]  # no file stands before the keys
        if show:
            raise UsageError("--show goes with a file: leave it out beside --run.")
        with interruptible(describe_interrupt(out)):
            relabel(run, out, judge, words)
        return
    if file is None:
        raise UsageError("Give a file of groups, or --run, a run whose groups are labelled again.")
    with interruptible(describe_interrupt(out)):
        label_file(Path(file), out, choose_judge(judge, overrides or []), show)


@judge_app.command()
def audit(
    overrides: JudgeOverrides = None,
    gold: Annotated[
        str | None, typer.Option(help="Rows {id, problem, programs, labels}. Default: the own set.")
    ] = None,
    judge: JudgeName = None,
    against: Annotated[
        str | None, typer.Option(help="A second judge's name, or a key to change: judge.view=raw.")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(help="ari=0.7: exit with 1 below it. More may follow: f1=0.8.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Times that each group is labelled; 2 show how steady it is.")] = 1,
    consistency: Annotated[bool, typer.Option(help="Label renamed, commented ... copies as well.")] = True,
    worst: Annotated[int, typer.Option(min=0, help="Show as many of the groups that went worst.")] = 0,
    json: Annotated[str | None, typer.Option(help="A file for all of it.")] = None,
) -> None:
    """Measure a judge by groups whose strategies people have labelled."""
    from raypoly.commands.judge_audit import audit_file
    from raypoly.commands.section_config import choose_judge, choose_other_judge, split_requirements
    from raypoly.core.interrupt import interruptible

    words, required = split_requirements(overrides or [], require or [])
    choices = [choose_judge(judge, words)]
    choices += [] if against is None else [choose_other_judge(choices[0], against)]
    with interruptible("Interrupted; answers that a server gave are kept."):
        audit_file(
            None if gold is None else Path(gold),
            choices,
            require=required,
            runs=runs,
            consistency=consistency,
            worst=worst,
            json_out=None if json is None else Path(json),
        )


@judge_app.command()
def cache(
    overrides: JudgeOverrides = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget all kept answers.")] = False,
) -> None:
    """Show how many answers of servers are kept, or forget them."""
    from raypoly.commands.section_config import choose_judge
    from raypoly.strategies.judge.openai.answer_cache import describe_cache

    typer.echo(describe_cache(choose_judge(None, overrides or []).judge, clear))
