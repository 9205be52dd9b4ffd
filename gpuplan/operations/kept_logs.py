"""Logs of containers that are going to be removed unheard: replaced ones, and what interrupted deploys left."""

import os
from collections import deque
from collections.abc import Sequence
from functools import partial

from gpuplan.deploying.observed import Container
from gpuplan.domain.secret_text import masked
from gpuplan.operations.across import on_each
from gpuplan.operations.deploy_run import Run

FIRST_LINES, LAST_LINES = 6000, 4000
"""Of each log that is saved."""
SECONDS = 30.0
"""A log that takes longer is not waited for."""


def keep_logs(run: Run, found: Sequence[Container]) -> None:
    """Save the log of each that ever ran, secrets masked, in a file of mode 0600. Never raises for a host or a disk."""
    ran = [one for one in found if one.state != "created"]
    if run.directory is not None and ran:
        on_each({one.id: partial(_keep, run, one) for one in ran}, SECONDS)


def _keep(run: Run, found: Container) -> None:
    from gpuplan.remote.containers import logs

    first: list[str] = []
    last: deque[str] = deque(maxlen=LAST_LINES)
    with logs(run.opened.engine_of(found.host), found.id, follow=False) as stream:
        for line in stream:
            kept = first if len(first) < FIRST_LINES else last
            kept.append(f"{line.at} {run.secrets.masked(masked(line.text))}\n")
    if not first or run.directory is None:
        return
    path = run.directory / f"{found.host}-{found.name}-{found.id[:8]}.log".replace(os.sep, "_")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.writelines((*first, *last))
    except OSError:
        return
