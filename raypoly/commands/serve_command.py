"""`raypoly serve`: the verifier over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from raypoly.commands.command_options import Overrides
from raypoly.core.errors import UsageError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    overrides: Overrides = None,
    problems: Annotated[
        str | None, typer.Option(help="Problems that rows name by id: a file, a folder or a pattern.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on. Off loopback a token is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one, and prints it.")] = 8300,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Programs run at once. Default: as many as CPUs, of the cluster where RAY_ADDRESS is set."
        ),
    ] = None,
    waiting: Annotated[int, typer.Option(min=1, help="Programs that may wait; more are answered 429.")] = 4096,
    token_env: Annotated[
        str, typer.Option(help="Environment variable with the token that clients give.")
    ] = "RAYPOLY_SERVE_TOKEN",
    evidence: Annotated[bool, typer.Option("--evidence", help="Find out approaches too.")] = False,
) -> None:
    """Serve verdicts over HTTP to trainers that can't hold raypoly, until Ctrl-C or SIGTERM."""
    import os
    import signal
    import sys
    import threading

    from raypoly.commands.section_config import asked_workers, open_pool, scorer_config
    from raypoly.integrations.http_server import Server, Service
    from raypoly.integrations.in_process import Verifier

    token = os.environ.pop(token_env, "")
    if not token and host not in _LOOPBACK:
        raise UsageError(f"--host {host} can be reached by others: set {token_env} to a token that clients give.")
    config = scorer_config(overrides or [], workers).model_copy(update={"evidence": evidence})
    pool = open_pool(config, asked_workers(config, overrides or [], workers))
    sys.setswitchinterval(0.0005)  # a sandbox's thread has little to do at a time, and a core idles until it does it
    with Verifier(() if problems is None else problems, evidence=evidence, config=config, pool=pool) as verifier:
        try:
            server = Server((host, port), Service(verifier, waiting), token)
        except OSError as error:
            raise UsageError(f"{host}:{port} can't be listened on: {error.strerror}; choose another --port.") from error
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        at = f"http://{host}:{server.server_address[1]}"
        for why in list(verifier.unusable.values())[:1]:
            typer.echo(f"Note: {len(verifier.unusable):,} rows of {problems} can't be used; {why}.", err=True)
        known = f"{len(verifier.problems):,} problems and of those that rows bring"
        typer.echo(f"Verdicts at {at}/v1/verdicts, of {known}.", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Stopped; verdicts that were not sent are computed again when they are asked for.", err=True)
