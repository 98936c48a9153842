"""`raypoly watch`: a run's page, as it goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from raypoly.core.errors import UsageError

EXAMPLES = """Examples:

raypoly watch RUN

raypoly watch RUN --port 8400"""


def watch(
    run: Annotated[str, typer.Argument(metavar="RUN", show_default=False)],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one, and prints it.")] = 0,
) -> None:
    """Show a run's page in a browser of this machine and follow the run, until Ctrl-C or SIGTERM. Writes nothing."""
    import signal
    import threading

    from raypoly.analysis.reports.live_page import LiveRun, WatchServer

    watched = LiveRun(run)
    try:
        server = WatchServer(port, watched)
    except OSError as error:
        raise UsageError(f"127.0.0.1:{port} can't be listened on: {error.strerror}; choose another --port.") from error
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    typer.echo(f"The run's page: {server.address} (Ctrl-C ends it, and not the run)", err=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
    finally:
        server.server_close()
