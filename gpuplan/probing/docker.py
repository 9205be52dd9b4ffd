"""The Docker engine of a host: what it is, what it holds, whether it can hand out GPUs, and why not if not.

Fetching and reading are apart: `fetch` gathers documents within a time limit, `report` makes values of them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.host_facts import Docker, Image
from gpuplan.probing import docker_images
from gpuplan.probing.docker_access import COMMANDS, DockerAccess, SocketSeen, parse
from gpuplan.probing.docker_containers import OUR_FILTER, container_names, our_containers, servers
from gpuplan.probing.json_values import items, mapping, text, texts
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.probing.tool_failure import one_line
from gpuplan.remote.connection import Connection
from gpuplan.remote.docker_engine import Cause, Engine, EngineFailed, RequestRefused, Transport, engine

__all__ = [
    "COMMANDS",
    "DockerAccess",
    "DockerDocuments",
    "DockerReport",
    "SocketSeen",
    "access",
    "fetch",
    "open_engine",
    "probe",
    "read",
    "report",
]

DEFAULT_SOCKET = "/var/run/docker.sock"
MOST_IMAGES = 64
"""Images looked into; of further ones name and size are told."""
_MOST_DEVICES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerDocuments:
    """The engine's answers, as they came."""

    version: Mapping[str, Any]
    info: Any = None
    images: Any = None
    inspected: Mapping[str, Any] = field(default_factory=dict)
    """`/images/{id}/json` by id."""
    histories: Mapping[str, Any] = field(default_factory=dict)
    """`/images/{id}/history` by id."""
    ours: Any = None
    """Containers with our label, stopped ones too."""
    running: Any = None
    unanswered: tuple[tuple[str, str], ...] = ()
    """What could not be had, and the engine's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerReport:
    """What a probe learned about the engine of a host."""

    docker: Docker | None = None
    conditions: tuple[Fact, ...] = ()
    """Without a host in their subject; it is added when the report is assembled."""
    containers: tuple[tuple[str, str], ...] = ()
    """Id and name of every running container, by id: whose a process is."""
    servers: tuple[tuple[str, str, int], ...] = ()
    """Id, address and port of our containers that serve."""


def access(outputs: Mapping[str, Output]) -> DockerAccess:
    """How an engine may be reached, from what the commands of this probe printed."""
    return parse(outputs.get(COMMANDS[0].name, NOT_RUN))


def probe(
    connection: Connection, way: DockerAccess, *, nvidia: bool, timeout: float = 10, budget: float = 30
) -> DockerReport:
    """Reach the engine, read it and let it go.

    `nvidia`: the host has NVIDIA GPUs, and Docker should be able to hand them out. `timeout` holds for one request,
    `budget` for all, in seconds. Raises ConnectionFailed.
    """
    missing = _nowhere(way)
    if missing is not None:
        return DockerReport(conditions=(missing,))
    try:
        found = open_engine(connection, way, timeout=timeout)
    except EngineFailed as failed:
        return DockerReport(conditions=(unreachable(failed, way),))
    try:
        return read(found, way, nvidia=nvidia, budget=budget)
    finally:
        found.close()


def open_engine(connection: Connection, way: DockerAccess, *, timeout: float = 10) -> Engine:
    """The engine behind the socket that was seen. Raises EngineFailed, ConnectionFailed."""
    path = way.socket.path if way.socket is not None else DEFAULT_SOCKET
    return engine(connection, socket_path=path, cli=way.cli is not None, timeout=timeout)


def read(found: Engine, way: DockerAccess, *, nvidia: bool, budget: float = 30) -> DockerReport:
    """Everything a probe asks an engine that answered. Raises ConnectionFailed."""
    return report(fetch(found, budget=budget), way, nvidia=nvidia, transport=found.transport)


def fetch(found: Engine, *, budget: float) -> DockerDocuments:
    """Ask in turn, over one stream; what is refused or late is noted and the rest is asked for.

    After an answer that did not come the others are not waited for longer than what is left of the budget.
    """
    deadline = time.monotonic() + budget
    unanswered: list[tuple[str, str]] = []

    def ask(
        what: str, path: str, parameters: Mapping[str, str] | None = None, *, newest: bool = False
    ) -> Any:
        left = deadline - time.monotonic()
        try:
            return found.get(path, parameters, newest=newest, timeout=max(0.0, min(left, found.timeout)))
        except (EngineFailed, RequestRefused) as failed:
            unanswered.append((what, failed.detail))
            return None

    info = ask("docker info", "/info", newest=True)  # CDI devices are told from API 1.50 on only
    ours = ask("docker containers", "/containers/json", {"all": "1", "filters": OUR_FILTER})
    running = ask("docker containers", "/containers/json")
    images = ask("docker images", "/images/json")
    inspected: dict[str, Any] = {}
    histories: dict[str, Any] = {}
    for identity in _worth_a_look(images)[:MOST_IMAGES]:
        inspected[identity] = ask("docker images", f"/images/{identity}/json")
        histories[identity] = ask("docker images", f"/images/{identity}/history")
    return DockerDocuments(
        version=found.version,
        info=info,
        images=images,
        inspected=inspected,
        histories=histories,
        ours=ours,
        running=running,
        unanswered=tuple(unanswered),
    )


def report(
    documents: DockerDocuments, way: DockerAccess, *, nvidia: bool, transport: Transport
) -> DockerReport:
    """The documents as values, and the states in them that need the user's eye."""
    info = documents.info
    support = _gpu_support(documents, way, nvidia=nvidia)
    root = text(info, "DockerRootDir")
    rootless = any(option.startswith("name=rootless") for option in texts(info, "SecurityOptions"))
    machine = text(info, "Architecture") or text(documents.version, "Arch")
    found = Docker(
        version=text(documents.version, "Version"),
        api_version=text(documents.version, "ApiVersion"),
        storage_driver=text(info, "Driver"),
        root_dir=root,
        runtimes=tuple(sorted(mapping(info, "Runtimes"))),
        cdi_devices=_cdi_devices(info),
        rootless=rootless,
        architecture=docker_images.machine(machine),
        transport=transport.value,
        images=_images(documents),
        containers=our_containers(_list(documents.ours)),
        gpu_support=support,
    )
    conditions = []
    if transport is Transport.DIAL_STDIO:
        conditions.append(_fact("GP624", Severity.INFO))
    if nvidia and support is False:
        conditions.append(_fact("GP626", Severity.ERROR, toolkit_version=way.toolkit_version))
    if rootless or root.startswith("/var/snap/"):
        conditions.append(
            _fact("GP628", Severity.WARNING, root_dir=root, kind="rootless" if rootless else "snap")
        )
    conditions += [
        _fact("GP636", Severity.WARNING, what=what, detail=one_line(detail))
        for what, detail in dict(reversed(documents.unanswered)).items()
    ]
    names = container_names(_list(documents.running))
    return DockerReport(
        docker=found,
        conditions=tuple(conditions),
        containers=tuple(sorted(names.items())),
        servers=servers(_list(documents.ours)),
    )


def unreachable(failed: EngineFailed, way: DockerAccess) -> Fact:
    """Why there is no engine to speak with, from what connecting said and what the probe saw on the host."""
    seen = way.socket
    detail = one_line(failed.detail)
    cause = failed.cause
    if seen is not None and not seen.permitted and cause in {Cause.FORWARDING, Cause.PERMISSION, Cause.OTHER}:
        cause = Cause.PERMISSION
    elif seen is not None and seen.listening is False and way.daemon is False and cause is Cause.FORWARDING:
        cause, detail = Cause.NOT_RUNNING, f"no process listens on {seen.path}"
    elif cause is Cause.NO_SOCKET and way.installed:
        cause = Cause.NOT_RUNNING
    match cause:
        case Cause.NO_SOCKET:
            return _fact("GP621", Severity.ERROR)
        case Cause.PERMISSION:
            return _forbidden(way, detail)
        case Cause.API_VERSION:
            return _fact("GP627", Severity.ERROR, api_version=failed.api_version, detail=detail)
        case Cause.NOT_RUNNING | Cause.FORWARDING | Cause.OTHER:
            return _fact(cause.value, Severity.ERROR, detail=detail)


def _nowhere(way: DockerAccess) -> Fact | None:
    """The state of a host on which there is nothing to connect to; None when it is worth trying."""
    if way.socket is not None:
        return None if way.permitted else _forbidden(way, f"{way.socket.path}: permission denied")
    if way.endpoint:
        detail = f"the docker CLI of the host speaks to {way.endpoint}, which is no socket of this host"
        return _fact("GP629", Severity.ERROR, detail=one_line(detail))
    if way.installed:
        where = ", ".join(dict.fromkeys(each.path for each in way.sockets)) or DEFAULT_SOCKET
        return _fact("GP623", Severity.ERROR, detail=one_line(f"no socket at {where}"))
    return _fact("GP621", Severity.ERROR) if way.answered else None


def _forbidden(way: DockerAccess, detail: str) -> Fact:
    path = way.socket.path if way.socket is not None else DEFAULT_SOCKET
    return _fact("GP622", Severity.ERROR, user=way.user, groups=list(way.groups), path=path, detail=detail)


def _gpu_support(documents: DockerDocuments, way: DockerAccess, *, nvidia: bool) -> bool | None:
    """Whether GPUs can be given to containers.

    A runtime of the vendor is registered; CDI devices are known to the engine; or the vendor's hook is on the PATH,
    which is when dockerd registers its own device driver (moby, daemon/nvidia_linux.go). An engine that reads CDI
    (Engine 25 with the feature on, Podman always) finds a specification that lies on the host. Without any of these
    an NVIDIA GPU cannot be had; devices of other vendors can still be passed as plain device files: unknown.
    """
    vendors = ("nvidia",) if nvidia else ("nvidia", "amd", "ascend")
    runtimes = mapping(documents.info, "Runtimes")
    reads_cdi = bool(items(documents.info, "CDISpecDirs")) or _is_podman(documents.version)
    hooks = {"nvidia": way.hook, "amd": way.amd_hook}
    for vendor in vendors:
        if (
            any(name == vendor or name.startswith(f"{vendor}-") for name in runtimes)
            or any(device.startswith(f"{vendor}.com/gpu=") for device in _cdi_devices(documents.info))
            or hooks.get(vendor)
            or (reads_cdi and vendor in way.cdi_vendors)
        ):
            return True
    return False if nvidia and documents.info is not None else None


def _cdi_devices(info: Any) -> tuple[str, ...]:
    devices = (
        text(entry, "ID") for entry in items(info, "DiscoveredDevices") if text(entry, "Source") == "cdi"
    )
    return tuple(sorted(device for device in devices if device)[:_MOST_DEVICES])


def _is_podman(version: Any) -> bool:
    return any("podman" in text(part, "Name").lower() for part in items(version, "Components"))


def _worth_a_look(images: Any) -> list[str]:
    return [
        text(entry, "Id")
        for entry in _list(images)
        if text(entry, "Id") and docker_images.may_run_vllm(entry)
    ]


def _images(documents: DockerDocuments) -> tuple[Image, ...]:
    found = (
        docker_images.image(
            entry,
            documents.inspected.get(text(entry, "Id")),
            _list(documents.histories.get(text(entry, "Id"))),
        )
        for entry in _list(documents.images)
        if docker_images.may_run_vllm(entry)
    )
    return tuple(sorted(found, key=lambda each: (each.tags or each.digests, each.id)))


def _list(document: Any) -> list[Any]:
    return document if isinstance(document, list) else []


def _fact(code: str, severity: Severity, **figures: Any) -> Fact:
    return Fact(code=code, severity=severity, subject={}, figures=figures)
