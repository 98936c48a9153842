"""The command `raypoly` and its exit codes.

Exit codes: 0 done, 1 failed, 2 the command line or config is wrong and nothing was started, 75 paused too long (the
same command goes on), 130 interrupted. On SIGTERM, training commits and exits with 0; the others exit with 143.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
import typer.core

from raypoly.commands import (
    check_command,
    doctor_command,
    evaluate_command,
    experiment_commands,
    judge_command,
    prepare_command,
    report_command,
    score_command,
    serve_command,
    train_command,
    watch_command,
)
from raypoly.core import __version__
from raypoly.core.errors import MissingPackage, RaypolyError
from raypoly.core.plugins import load_plugin, recipe_commands
from raypoly.run.crash import Crash

_EXAMPLES = """Examples:

raypoly train --dry-run

raypoly train train.steps=6 evaluate.samples=16

raypoly train --config my.yaml objective.name=grpo

raypoly evaluate --run FOLDER --split test

raypoly evaluate --model smollm2-q4 --problems human-eval --samples 10

raypoly COMMAND --help says more; all keys are in docs/configuration.md."""


# the class of wrong options and arguments, of which typer exports no name
_WRONG_USE = cast("type[Exception]", typer.BadParameter.__bases__[0])


class ReportingGroup(typer.core.TyperGroup):
    """Commands whose `RaypolyError`s become one sentence and an exit code; also those of recipes, loaded late."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = recipe_commands().get(cmd_name)
        return super().get_command(ctx, cmd_name) if place is None else _command_of(place)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _WRONG_USE as error:
            from raypoly.core.settings import no_such_option

            option, asked = getattr(error, "option_name", ""), getattr(error, "ctx", None)
            if asked is None or asked.info_name not in ("train", "doctor") or not (told := no_such_option(option)):
                raise
            typer.echo(told, err=True)
            raise typer.Exit(2) from error
        except RaypolyError as error:
            # Ray wraps an actor's error: the original has the message without the remote traceback.
            original = getattr(error, "cause", None) or error
            typer.echo(str(original), err=True)
            raise typer.Exit(error.exit_code) from error
        except ModuleNotFoundError as error:
            missing = MissingPackage.of(error)
            if missing is None:
                raise
            typer.echo(str(missing), err=True)
            raise typer.Exit(missing.exit_code) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            what = f"{error.filename or 'A file'} could not be written ({error.strerror})"
            typer.echo(f"{what}; free some space and run the same command again.", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            typer.echo(str(error) or "Interrupted. The same command goes on from here.", err=True)
            raise typer.Exit(getattr(error, "exit_code", 130)) from error


app = typer.Typer(
    cls=ReportingGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _command_of(place: str) -> Any:
    alone = typer.Typer(add_completion=False)
    alone.command()(load_plugin(place, {}, "command"))
    return typer.main.get_command(alone)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"raypoly {__version__}")
        raise typer.Exit


@app.callback(epilog=_EXAMPLES)
def _raypoly(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Reinforcement learning from verifiable rewards over sets of rollouts, on Ray."""


app.command(epilog=train_command.EXAMPLES)(train_command.train)
app.command(epilog=evaluate_command.EXAMPLES)(evaluate_command.evaluate)
app.command()(prepare_command.prepare)
app.command()(experiment_commands.experiment)
app.command(epilog=report_command.EXAMPLES)(report_command.report)
app.command(epilog=watch_command.EXAMPLES)(watch_command.watch)
app.command()(doctor_command.doctor)
app.command()(score_command.score)
app.command(epilog=check_command.EXAMPLES)(check_command.check)
app.command()(serve_command.serve)
app.add_typer(judge_command.judge_app, name="judge")


def main(arguments: Sequence[str] | None = None, name: str = "raypoly") -> None:
    """Run the console command with `arguments` (without the program's name). Raises `SystemExit` at its end."""
    sys.excepthook = Crash.hook
    command = typer.main.get_command(app)
    command(args=list(sys.argv[1:] if arguments is None else arguments), prog_name=name)


if __name__ == "__main__":
    main()
