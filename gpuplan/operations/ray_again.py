"""Ray clusters of containers that were started again: their nodes, by the words the containers were made with."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.deploying.observed import Container
from gpuplan.deploying.ray_nodes import PROGRAM, SECONDS, missing, parse
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerRole
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.reached import ReachedFleet

QUERY_SECONDS = SECONDS + 5.0
_ADDRESS = re.compile(r"--node-ip-address=([\w.:\[\]%-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayServer:
    """A server that runs on a Ray cluster."""

    number: int
    head: Container
    nodes: tuple[Container, ...]
    """Head first."""

    @property
    def started(self) -> frozenset[str]:
        """Ids of its nodes."""
        return frozenset(one.id for one in self.nodes)


def ray_servers(containers: Sequence[Container]) -> tuple[RayServer, ...]:
    """The servers that have a Ray head."""
    heads = [one for one in containers if one.member.role is ContainerRole.RAY_HEAD]
    return tuple(
        RayServer(
            number=head.member.server,
            head=head,
            nodes=(
                head,
                *(
                    one
                    for one in containers
                    if one.member.server == head.member.server and one.member.role is ContainerRole.FOLLOWER
                ),
            ),
        )
        for head in heads
    )


def nodes_missing(fleet: ReachedFleet, server: RayServer) -> tuple[str, ...]:
    """The nodes that have not registered with all their GPUs: `10.0.0.12 on h100-b (0 of 8 GPUs)`."""
    outcome = on_each({server.head.host: lambda: _missing(fleet, server)}, QUERY_SECONDS)[server.head.host]
    if isinstance(outcome, Outcome):
        return (f"the head on {server.head.host} ({outcome.why})",)
    return outcome


def _missing(fleet: ReachedFleet, server: RayServer) -> tuple[str, ...]:
    from gpuplan.remote import containers as remote

    planned = []
    for one in server.nodes:
        address = _address(remote.inspect(fleet.engine_of(one.host), one.id))
        if address is not None:
            planned.append((one.host, address, len(one.member.gpus)))
    port = _port(server.head)
    if not planned or planned[0][0] != server.head.host or port is None:
        return ()  # made by another version: the server itself waits for its nodes
    answered = remote.execute(
        fleet.engine_of(server.head.host),
        server.head.id,
        ["python3", "-c", PROGRAM, f"{planned[0][1]}:{port}"],
        timeout=QUERY_SECONDS,
    )
    nodes = parse(answered.stdout.decode(errors="replace")) or ()
    return tuple(
        f"{address} on {host} ({found} of {gpus} GPUs)"
        for host, address, gpus, found in missing(nodes, planned)
    )


def _address(document: object) -> str | None:
    config = document.get("Config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        return None
    words = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    found = (_ADDRESS.search(str(word)) for word in words)
    return next((match[1] for match in found if match is not None), None)


def _port(head: Container) -> int | None:
    try:
        ports = json.loads(head.labels.get(labels.PORTS, ""))
        return int(ports["ray"][0])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
