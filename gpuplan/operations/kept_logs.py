"""Logs of containers that are going to be removed unheard: replaced ones, and what interrupted deploys left."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from gpuplan.deploying.observed import Container
from gpuplan.operations.across import on_each
from gpuplan.operations.deploy_run import Run
from gpuplan.operations.saved_logs import file_name, read_log, write_log

SECONDS = 30.0
"""A log that takes longer is not waited for."""


def keep_logs(run: Run, found: Sequence[Container]) -> None:
    """Save the log of each that ever ran, secrets masked. Never raises for a host or a disk."""
    ran = [one for one in found if one.state != "created"]
    if run.directory is not None and ran:
        on_each({one.id: partial(_keep, run, run.directory, one) for one in ran}, SECONDS)


def _keep(run: Run, directory: Path, found: Container) -> None:
    log = read_log(partial(run.opened.engine_of, found.host), found.id)
    if log.lines:
        path = directory / file_name(f"{found.host}-{found.name}-{found.id[:8]}.log")
        with suppress(OSError):
            write_log(path, log.lines, mask=run.masked, cut=log.cut)
