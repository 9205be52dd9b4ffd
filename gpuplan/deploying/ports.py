"""Ports of a deployment: one for HTTP per server, those its members meet at, and a block for a Ray cluster.

All lie in the ranges of the inventory. A port that any member has in use is not taken; those the replaced deployment had
are taken again, so that a redeployment changes nothing. Everything else members talk over is a port the kernel gives.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuplan.deploying.grouping import Group
from gpuplan.domain.deployment import Launch
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.inventory import VllmSettings
from gpuplan.domain.labels import PORTS, SERVER
from gpuplan.domain.workload import EngineArguments
from gpuplan.errors import UsageError

RAY_BLOCK = 100
"""Ports of one Ray cluster on every member (S1.14)."""
RAY_WORKERS = 10
"""The first of the block that workers listen on."""
DATA_PARALLEL_BLOCK = 10
"""vLLM keeps so many free from VLLM_DP_MASTER_PORT on (`utils/network_utils.py:get_open_port`)."""

HTTP, MASTER, RPC, DATA_PARALLEL, RAY = "http", "master", "dp_rpc", "dp_master", "ray"
_SIZES = {DATA_PARALLEL: DATA_PARALLEL_BLOCK, RAY: RAY_BLOCK}
Taken = Mapping[str, frozenset[int]]
Preferred = Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPorts:
    """Of one server; None where its launch needs none."""

    http: int
    master: int | None = None
    rpc: int | None = None
    data_parallel: int | None = None
    """First of `DATA_PARALLEL_BLOCK`."""
    ray: int | None = None
    """First of `RAY_BLOCK`: the GCS."""

    def label(self, *, leader: bool) -> dict[str, object]:
        """What the containers on one host hold, for the label `PORTS`: names to a port or to [first, last]."""
        held: dict[str, object] = {}
        if leader:
            held = {HTTP: self.http, MASTER: self.master, RPC: self.rpc}
            if self.data_parallel is not None:
                held[DATA_PARALLEL] = [self.data_parallel, self.data_parallel + DATA_PARALLEL_BLOCK - 1]
        if self.ray is not None:
            held[RAY] = [self.ray, self.ray + RAY_BLOCK - 1]
        return {name: port for name, port in held.items() if port is not None}


def allot(
    groups: Sequence[Group],
    settings: VllmSettings,
    taken: Taken,
    preferred: Preferred,
    engine: EngineArguments,
) -> tuple[ServerPorts, ...]:
    """Ports of every server, no two of them on one host.

    A port the user wrote is taken as it is. Raises UsageError where it is in use, or a range is exhausted: the message
    names the range and its key in the inventory.
    """
    used = {host: set(ports) for host, ports in taken.items()}
    return tuple(_of_server(group, settings, used, preferred, engine) for group in groups)


def _of_server(
    group: Group,
    settings: VllmSettings,
    used: dict[str, set[int]],
    preferred: Preferred,
    engine: EngineArguments,
) -> ServerPorts:
    hosts = [node.host for node in group.nodes]
    service = _Range("service_ports", settings.service_ports)
    several, launch = group.several, group.launch
    ranks = group.replicas > 1 and several

    def one(name: str, written: int | None = None, size: int = 1) -> int:
        wanted = preferred.get((group.number, name))
        if written is not None:
            return _written(name, written, hosts, used)
        return _pick(service, hosts, used, size=size, wanted=wanted)

    http = one(HTTP, engine.port)
    meets = launch in {Launch.NATIVE_MP, Launch.NATIVE_NESTED}
    return ServerPorts(
        http=http,
        master=one(MASTER, engine.master_port) if meets else None,
        rpc=one(RPC, engine.data_parallel_rpc_port) if ranks else None,
        data_parallel=one(DATA_PARALLEL, size=DATA_PARALLEL_BLOCK) if ranks else None,
        ray=_pick(
            _Range("ray_ports", settings.ray_ports),
            hosts,
            used,
            size=RAY_BLOCK,
            step=RAY_BLOCK,
            wanted=preferred.get((group.number, RAY)),
        )
        if launch is Launch.RAY
        else None,
    )


@dataclass(frozen=True, slots=True)
class _Range:
    key: str
    bounds: tuple[int, int]


def _pick(
    wanted_of: _Range,
    hosts: Sequence[str],
    used: dict[str, set[int]],
    *,
    size: int = 1,
    step: int = 1,
    wanted: int | None = None,
) -> int:
    first, last = wanted_of.bounds
    starts: list[int] = [*((wanted,) if wanted is not None else ()), *range(first, last - size + 2, step)]
    for start in starts:
        block = set(range(start, start + size))
        inside = first <= start and start + size - 1 <= last
        if inside and not any(block & used.get(host, set()) for host in hosts):
            for host in hosts:
                used.setdefault(host, set()).update(block)
            return start
    where = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    kind = "port" if size == 1 else f"block of {size} ports"
    raise UsageError(
        f"no {kind} in vllm.{wanted_of.key} ({first}-{last}) is free on {where}",
        hint=f"widen {wanted_of.key} under vllm: in the inventory, or stop a deployment (gpuplan status)",
    )


def _written(name: str, port: int, hosts: Sequence[str], used: dict[str, set[int]]) -> int:
    flag = {HTTP: "--port", MASTER: "--master-port", RPC: "--data-parallel-rpc-port"}[name]
    for host in hosts[:1]:
        if port in used.get(host, set()):
            raise UsageError(
                f"{flag} {port}: the port is in use on {host}",
                hint=f"leave {flag} out for a free one of vllm.service_ports",
            )
        used.setdefault(host, set()).add(port)
    return port


def taken_ports(
    fleet: Fleet, *, replacing: str = "", preferred: Preferred | None = None
) -> dict[str, frozenset[int]]:
    """Ports in use by host: what listens, and what our containers hold; not what the replaced deployment holds.

    `preferred`: the replaced deployment's ports, which tell its blocks.
    """
    blocks = {
        port
        for (_server, name), start in (preferred or {}).items()
        for port in range(start, start + _SIZES.get(name, 1))
    }
    found: dict[str, frozenset[int]] = {}
    for host in fleet.hosts:
        ours = host.facts.docker.containers if host.facts.docker is not None else ()
        others = {port for one in ours if one.deployment != replacing for port in one.ports}
        own = {port for one in ours if one.deployment == replacing for port in (*one.ports, *blocks)}
        found[host.name] = frozenset((set(host.facts.listening_ports) - own) | others)
    return found


def preferred_ports(labels: Iterable[Mapping[str, str]]) -> dict[tuple[int, str], int]:
    """The ports a running deployment has, from the labels of its containers; unreadable ones are left out."""
    found: dict[tuple[int, str], int] = {}
    for each in labels:
        number = each.get(SERVER, "0")
        try:
            document = json.loads(each.get(PORTS, ""))
        except (ValueError, RecursionError):
            continue
        if not isinstance(document, dict) or not number.isdecimal():
            continue
        for name, port in document.items():
            start = port[0] if isinstance(port, list) and port else port
            if isinstance(start, int) and not isinstance(start, bool):
                found[int(number), str(name)] = start
    return found
