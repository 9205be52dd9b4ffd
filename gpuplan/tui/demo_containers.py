"""Containers of ours on recorded hosts, in the forms Docker gives them: what a probe and `gpuplan status` would read.

A host with such a container is the host as it was recorded, less the memory and the port that the container takes.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.deploying.observed import Container, claims, container_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerSpec
from gpuplan.domain.fleet import Gpu, GpuProcess, Host
from gpuplan.planning.allocatable import shares_host_memory
from gpuplan.probing.docker_containers import our_containers
from gpuplan.units import MIB

RUNNING = "running"
_FIRST_PID = 100_000
_PIDS = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoContainer:
    """One container of ours as it is now."""

    host: str
    id: str
    name: str
    image: str
    labels: Mapping[str, str]
    created: str
    """ISO 8601, UTC."""
    state: str = "created"
    health: str | None = None
    started_at: str | None = None
    exit_code: int | None = None
    stop_seconds: int | None = None
    loaded: bool = False
    """Its processes hold the memory the plan predicts."""

    @property
    def inspected(self) -> dict[str, Any]:
        """As `docker inspect` shows it."""
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Created": self.created,
            "State": {
                "Status": self.state,
                "StartedAt": self.started_at,
                "ExitCode": self.exit_code,
                "Health": {"Status": self.health},
            },
            "Config": {"Labels": dict(self.labels), "StopTimeout": self.stop_seconds},
        }

    @property
    def listed(self) -> dict[str, Any]:
        """As `docker ps` shows it."""
        health = f" (health: {self.health})" if self.health == "starting" else ""
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Image": self.image,
            "Labels": dict(self.labels),
            "State": self.state,
            "Status": f"Up 2 minutes{health}" if self.state == RUNNING else self.state.capitalize(),
        }

    @property
    def observed(self) -> Container:
        """As `gpuplan status` reads it; its GPUs are numbered by the host that is looked at."""
        return container_of(self.host, self.inspected)

    def processes(self) -> dict[str, GpuProcess]:
        """Who holds memory for it, by UUID of the GPU: nobody before it has loaded."""
        if not self.loaded or self.state != RUNNING:
            return {}
        held = claims(self.observed)
        return {
            uuid: GpuProcess(
                pid=_FIRST_PID + zlib.crc32(f"{self.id}/{uuid}".encode()) % _PIDS,
                name=f"VLLM::{self.worker(place)}",
                used_bytes=size // MIB * MIB,
                container=self.name,
                user="root",
            )
            for place, (uuid, size) in enumerate(held.items())
        }

    def worker(self, place: int) -> str:
        """What vLLM calls the process of its GPU at this place."""
        asked = json.loads(self.labels.get(labels.REQUEST, "{}")).get("parallelism", {})
        tensor, pipeline, data = (int(asked.get(name, 1)) for name in ("tensor", "pipeline", "data"))
        rank = int(self.labels.get(labels.RANK, "0")) * len(claims(self.observed)) + place
        if tensor * pipeline == 1:
            return f"EngineCore_DP{rank}" if data > 1 else "EngineCore"
        stage = f"_PP{rank // tensor % pipeline}" if pipeline > 1 else ""
        return f"Worker{stage}_TP{rank % tensor}" if tensor > 1 else f"Worker{stage}"

    @property
    def port(self) -> int | None:
        """What it listens on for requests, once it serves."""
        ports = json.loads(self.labels.get(labels.PORTS, "{}"))
        port = ports.get("http") if isinstance(ports, dict) and labels.ENDPOINT in self.labels else None
        return port if self.loaded and self.state == RUNNING and isinstance(port, int) else None


def made(
    spec: ContainerSpec, *, identity: str, generation: str, spec_hash: str, created: str
) -> DemoContainer:
    """A container as `docker create` leaves it."""
    given = {**dict(spec.labels), labels.GENERATION: generation, labels.SPEC_HASH: spec_hash}
    return DemoContainer(
        host=spec.host,
        id=identity,
        name=spec.name,
        image=spec.image,
        labels=dict(sorted(given.items())),
        created=created,
        stop_seconds=spec.stop_seconds,
    )


def with_containers(host: Host, containers: Iterable[DemoContainer]) -> Host:
    """The host with these containers of ours and no others."""
    mine = [one for one in containers if one.host == host.name]
    docker = host.facts.docker
    if docker is None or not mine:
        return host
    held: dict[str, list[GpuProcess]] = {}
    for one in mine:
        for uuid, process in one.processes().items():
            held.setdefault(uuid, []).append(process)
    gpus = tuple(_with_processes(gpu, held.get(gpu.uuid or "", [])) for gpu in host.gpus)
    shared = sum(
        process.used_bytes or 0
        for gpu in host.gpus
        if shares_host_memory(gpu)
        for process in held.get(gpu.uuid or "", [])
    )
    ports = {one.port for one in mine if one.port is not None}
    available = host.ram_available_bytes
    return replace(
        host,
        gpus=gpus,
        ram_available_bytes=None if available is None else max(0, available - shared),
        facts=replace(
            host.facts,
            docker=replace(docker, containers=our_containers([one.listed for one in mine])),
            listening_ports=tuple(sorted({*host.facts.listening_ports, *ports})),
        ),
    )


def _with_processes(gpu: Gpu, processes: list[GpuProcess]) -> Gpu:
    if not processes:
        return gpu
    free = gpu.total_bytes if gpu.free_bytes is None else gpu.free_bytes
    used = sum(process.used_bytes or 0 for process in processes)
    return replace(
        gpu,
        processes=(*gpu.processes, *processes),
        free_bytes=None if free is None else max(0, free - used),
    )
