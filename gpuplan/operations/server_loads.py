"""Requests in flight in our servers on a host that is being probed, from their `/metrics`, over the probe's connection.

A plan asks for them to name an idle deployment before a busy one (S4.6). A server that does not answer in time leaves
them unknown; a probe never fails for it.
"""

import time
from collections.abc import Iterable
from dataclasses import replace

from gpuplan.domain.deployment import Load
from gpuplan.domain.host_facts import OurContainer
from gpuplan.engine.metrics import load_of
from gpuplan.probing.docker import DockerReport
from gpuplan.remote.connection import Connection, ConnectionFailed, HostCallFailed

ASK_SECONDS = 2.0
"""For one server."""
BUDGET_SECONDS = 6.0
"""For all servers of a host."""


def with_loads(connection: Connection, report: DockerReport) -> DockerReport:
    """The report with what the servers of our containers say of their requests. Never raises for a server."""
    if report.docker is None or not report.servers:
        return report
    loads = _loads(connection, report.servers)
    containers = tuple(_with_load(one, loads.get(one.id)) for one in report.docker.containers)
    return replace(report, docker=replace(report.docker, containers=containers))


def _with_load(container: OurContainer, load: Load | None) -> OurContainer:
    if load is None:
        return container
    return replace(container, running_requests=load.running, waiting_requests=load.waiting)


def _loads(connection: Connection, servers: Iterable[tuple[str, str, int]]) -> dict[str, Load]:
    """What each server tells, by the id of its container, as far as the budget lasts."""
    from gpuplan.remote.http import ask

    deadline = time.monotonic() + BUDGET_SECONDS
    found = {}
    for identity, address, port in servers:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            answer = ask(connection, address, port, path="/metrics", timeout=min(ASK_SECONDS, left))
        except ConnectionFailed:
            break
        except HostCallFailed:
            continue
        if answer.status == 200:
            found[identity] = load_of(answer.body.decode("utf-8", "replace"))
    return found
