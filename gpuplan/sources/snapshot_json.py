"""snapshot.json ⇄ `Fleet`: the fleet as it was seen, read within bounds; what is written reads back the same."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.domain import host_facts
from gpuplan.domain.fleet import Basis, Fleet, Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import Docker, HostFacts
from gpuplan.domain.secret_text import without_secrets
from gpuplan.errors import InventoryError
from gpuplan.sources import device_facts
from gpuplan.sources.device_facts import BACKENDS
from gpuplan.sources.documents import Faults, Location, location, nearest, read_bytes, shown
from gpuplan.sources.tariff_keys import tariff_of

if TYPE_CHECKING:
    from pydantic import ValidationError

    from gpuplan.sources.snapshot_schema import GpuKeys, HostKeys, SnapshotKeys

MAX_BYTES = 128 * 1024**2
_PROBE = "`gpuplan schema snapshot` prints what a snapshot holds"
_SCHEMA = "`gpuplan schema snapshot` prints every key"
_VENDORS = {backend: vendor for vendor, backend in BACKENDS.items()}


def load(path: Path | str) -> Fleet:
    """Read a snapshot; GPU facts it leaves out come from the accelerator catalogue by device name.

    Raises InventoryError naming file, line or key; also for a file of more than `MAX_BYTES`.
    """
    content = read_bytes(path, limit=MAX_BYTES, missing_hint=_PROBE)
    return parse(content, str(path))


def parse(content: bytes, path: str) -> Fleet:
    """Read a snapshot from its bytes; `path` is what faults name."""
    from pydantic import ValidationError

    from gpuplan.sources.snapshot_schema import SNAPSHOT

    faults = Faults(path=path, hint=_SCHEMA)
    if not content.strip():
        raise InventoryError(f"{path}: is empty", hint=_PROBE)
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        keys = SNAPSHOT.validate_json(content)
    except ValidationError as error:
        _refuse(error, content, faults)
        faults.raise_if_any()
        raise AssertionError("a rejected snapshot has faults") from None
    _refuse_mistyped(keys, faults)
    fleet = _Reader(faults).fleet(keys)
    faults.raise_if_any()
    return fleet


def dump(fleet: Fleet) -> dict[str, Any]:
    """The fleet as the value of a snapshot file; unknown facts are left out, an unknown total is null."""
    return {
        "schema_version": 1,
        **_known(taken_at=fleet.taken_at),
        "basis": "assumed" if fleet.basis is Basis.ASSUMED else "measured",
        **_known(notes=list(fleet.notes), image=fleet.image),
        "hosts": [_dump_host(host) for host in fleet.hosts],
    }


def dumps(fleet: Fleet) -> str:
    """The text of a snapshot file; what a terminal would obey, should someone print it there, is escaped."""
    value = dump(fleet)
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        text = json.dumps(value, indent=1)
    return f"{text}\n"


def save(fleet: Fleet, path: Path) -> None:
    """Write a snapshot whole or not at all; OSError when it cannot be. It names hosts and users: mode 0600."""
    import tempfile

    path = path.resolve()  # a link stays one
    if path.exists() and not path.is_file():
        path.write_text(dumps(fleet), encoding="utf-8")  # a pipe or a terminal
        return
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(dumps(fleet))
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def snapshot_schema() -> dict[str, Any]:
    """JSON Schema of a snapshot."""
    from gpuplan.sources.snapshot_schema import SNAPSHOT

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpuplan snapshot",
        **{k: v for k, v in SNAPSHOT.json_schema().items() if k != "title"},
    }


def _refuse(error: "ValidationError", content: bytes, faults: Faults) -> None:
    from gpuplan.sources.faults_of_schema import not_json, refuse_newer, text_of

    details = error.errors(include_url=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        raise not_json(faults.path, content, details[0], hint=_PROBE)
    if any(detail["loc"] == ("schema_version",) for detail in details):
        refuse_newer(
            faults.path, content, hint="upgrade gpuplan, or take the snapshot again with this version"
        )
    for detail in details:
        where = tuple(part for part in detail["loc"] if part != "[key]")
        if where == ("schema_version",):
            faults.add("schema_version", "this key is required and must be 1")
        elif not where:
            faults.add("", 'must be an object with "schema_version": 1 and "hosts"')
        else:
            faults.add(location(where), text_of(detail))


def _refuse_mistyped(keys: "SnapshotKeys", faults: Faults) -> None:
    """Refuse an unknown key near a known one that is absent: `freebytes` would mean that all of it is free."""
    from gpuplan.sources.snapshot_schema import INFORMATIVE, KNOWN_KEYS

    nearest_known: dict[tuple[str, str], str | None] = {}
    for place, where, mapping in _mappings(keys):
        known = KNOWN_KEYS[place]
        if mapping.keys() <= known:
            continue
        for key in mapping.keys() - known:
            if (place, key) not in nearest_known:
                meant = known - INFORMATIVE
                nearest_known[place, key] = nearest(key, meant) if len(nearest_known) < 1000 else None
            near = nearest_known[place, key]
            if near is not None and near not in mapping:
                faults.add(location((*where, key)), f"unknown key; did you mean {near!r}?")


def _mappings(keys: "SnapshotKeys") -> Iterator[tuple[str, Location, Mapping[str, Any]]]:
    yield "snapshot", (), keys
    for index, host in enumerate(keys["hosts"]):
        at = ("hosts", index)
        yield "host", at, host
        if memory := host.get("memory"):
            yield "host memory", (*at, "memory"), memory
        if price := host.get("price"):
            yield "price", (*at, "price"), price
        if power := host.get("power"):
            yield "power", (*at, "power"), power
        for number, gpu in enumerate(host.get("gpus", ())):
            yield "gpu", (*at, "gpus", number), gpu
            yield "gpu memory", (*at, "gpus", number, "memory"), gpu["memory"]


class _Reader:
    """Turns validated keys into the fleet, gathering what contradicts itself."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def fleet(self, keys: "SnapshotKeys") -> Fleet:
        first: dict[str, int] = {}
        hosts = []
        for number, host in enumerate(keys["hosts"]):
            name = host["name"]
            if first.setdefault(name.casefold(), number) != number:
                at = location(("hosts", number, "name"))
                self._faults.add(
                    at, f"{shown(name)!r} is already the name of hosts[{first[name.casefold()]}]"
                )
            hosts.append(self._host(host, number))
        return Fleet(
            hosts=tuple(map(without_secrets, hosts)),
            taken_at=keys.get("taken_at"),
            basis=Basis.ASSUMED if keys.get("basis") == "assumed" else Basis.MEASURED,
            notes=tuple(keys.get("notes", ())),
            image=keys.get("image"),
        )

    def _host(self, host: "HostKeys", number: int) -> Host:
        status = HostStatus(host.get("status", "ok"))
        memory = host.get("memory") or {}
        gpus = sorted(
            (
                self._gpu(gpu, ("hosts", number, "gpus", place), host["name"])
                for place, gpu in enumerate(host.get("gpus", ()))
            ),
            key=lambda gpu: gpu.index,
        )
        self._refuse_repeated(gpus, number)
        total, available = memory.get("total_bytes"), memory.get("available_bytes")
        if total is not None and available is not None and available > total:
            at = location(("hosts", number, "memory", "available_bytes"))
            self._faults.add(at, f"{available} is more than total_bytes, {total}")
        return Host(
            name=host["name"],
            address=host.get("address"),
            status=status,
            failure=self._failure(host, status, number),
            labels=tuple(sorted(host.get("labels", {}).items())),
            gpus=tuple(gpus),
            ram_total_bytes=total,
            ram_available_bytes=available if available is not None else total,
            ram_reserved_bytes=memory.get("reserved_bytes", 0),
            link=host.get("link") or device_facts.link_of(gpus),
            facts=_host_facts(host),
            tariff=tariff_of(host),
        )

    def _failure(self, host: "HostKeys", status: HostStatus, number: int) -> HostFailure | None:
        failure = host.get("failure")
        if failure is not None and status is HostStatus.OK:
            at = location(("hosts", number, "failure"))
            self._faults.add(at, 'a host with a failure needs "status": "unreachable" or "failed"')
        if failure is not None:
            return HostFailure(stage=failure["stage"], detail=failure["detail"])
        if status is HostStatus.OK:
            return None
        return HostFailure(stage="unknown", detail="the snapshot does not say why")

    def _refuse_repeated(self, gpus: list[Gpu], number: int) -> None:
        at = location(("hosts", number, "gpus"))
        if len({gpu.index for gpu in gpus}) == len(gpus) and not any(gpu.uuid for gpu in gpus):
            return
        indices: set[int] = set()
        uuids: set[str] = set()
        for gpu in gpus:
            if gpu.index in indices:
                self._faults.add(at, f"the index {gpu.index} is given twice")
            if gpu.uuid is not None and gpu.uuid in uuids:
                self._faults.add(at, f"the uuid {shown(gpu.uuid)} is given twice")
            indices.add(gpu.index)
            uuids.update((gpu.uuid,) if gpu.uuid is not None else ())

    def _gpu(self, gpu: "GpuKeys", at: Location, host: str) -> Gpu:
        name, memory = gpu["name"], gpu["memory"]
        total = memory["total_bytes"] or None
        facts = device_facts.of_device(name, total)
        unified = gpu.get("unified")
        vendor = gpu.get("vendor") or _VENDORS.get(gpu.get("backend") or "", facts.vendor)
        return Gpu(
            index=gpu["index"],
            name=name,
            uuid=gpu.get("uuid"),
            vendor=vendor,
            backend=gpu.get("backend")
            or (facts.backend if vendor == facts.vendor else BACKENDS.get(vendor, vendor)),
            compute_capability=gpu.get("compute_capability") or facts.compute_capability,
            total_bytes=total,
            free_bytes=self._free(memory, total, at),
            bandwidth_bytes_per_second=gpu.get("bandwidth_bytes_per_second")
            or facts.bandwidth_bytes_per_second,
            processes=tuple(_process(process) for process in gpu.get("processes", ())),
            unified=facts.unified if unified is None else unified,
            reserved_bytes=memory.get("reserved_bytes", 0),
            excluded=gpu.get("excluded", False),
            reported_bytes=memory.get("reported_bytes"),
            parent=gpu.get("parent"),
            profile=gpu.get("profile"),
            pci_bus_id=gpu.get("pci_bus_id"),
            numa_node=gpu.get("numa_node"),
            utilization_percent=gpu.get("utilization_percent"),
            temperature_celsius=gpu.get("temperature_celsius"),
        )

    def _free(self, memory: Mapping[str, Any], total: int | None, at: Location) -> int | None:
        free: int | None = memory.get("free_bytes")
        used: int | None = memory.get("used_bytes")
        if total is None:
            return None
        for key, value in (("free_bytes", free), ("used_bytes", used)):
            if value is not None and value > total:
                self._faults.add(location((*at, "memory", key)), f"{value} is more than total_bytes, {total}")
        return free if free is not None else total - (used or 0)


def _host_facts(host: "HostKeys") -> HostFacts:
    """The facts of a host, gathered from the keys they are spread over."""
    facts = host.get("facts", host_facts.EMPTY)
    docker = host.get("docker")
    interfaces, containers = tuple(host.get("interfaces", ())), tuple(host.get("deployments", ()))
    if containers:
        docker = replace(docker or Docker(), containers=containers)
    if docker is None and not interfaces:
        return facts
    return replace(facts, docker=docker or facts.docker, interfaces=interfaces or facts.interfaces)


def _process(process: Mapping[str, Any]) -> GpuProcess:
    return GpuProcess(
        pid=process["pid"],
        name=process.get("name") or "",
        used_bytes=process.get("used_bytes"),
        container=process.get("container"),
        user=process.get("user"),
    )


def _known(**facts: Any) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact not in (None, [], {}, "")}


def _dump_host(host: Host) -> dict[str, Any]:
    failure = host.failure
    memory = _known(total_bytes=host.ram_total_bytes, available_bytes=host.ram_available_bytes)
    if host.ram_reserved_bytes:
        memory["reserved_bytes"] = host.ram_reserved_bytes
    return {
        "name": host.name,
        **_known(address=host.address),
        "status": host.status.value,
        **_known(failure={"stage": failure.stage, "detail": failure.detail} if failure is not None else None),
        "labels": dict(host.labels),
        **_known(memory=memory, link=host.link),
        "gpus": [_dump_gpu(gpu) for gpu in host.gpus],
        **_dump_facts(host.facts),
        **_plain(host.tariff),
    }


def _dump_facts(facts: HostFacts) -> dict[str, Any]:
    docker = facts.docker
    return _known(
        deployments=_plain(docker.containers) if docker is not None else [],
        docker=_plain(replace(docker, containers=())) if docker is not None else None,
        interfaces=_plain(facts.interfaces),
        facts=_plain(replace(facts, docker=None, interfaces=())),
    )


def _plain(value: Any) -> Any:
    """A value of frozen dataclasses as JSON; what has its default is left out."""
    if is_dataclass(value):
        return {
            field.name: _plain(own)
            for field in fields(value)
            if (own := getattr(value, field.name)) != field.default
        }
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _dump_gpu(gpu: Gpu) -> dict[str, Any]:
    memory: dict[str, Any] = {"total_bytes": gpu.total_bytes}
    if gpu.total_bytes is not None and gpu.free_bytes is not None:
        memory |= {"used_bytes": gpu.total_bytes - gpu.free_bytes, "free_bytes": gpu.free_bytes}
    if gpu.reserved_bytes:
        memory["reserved_bytes"] = gpu.reserved_bytes
    if gpu.reported_bytes is not None:
        memory["reported_bytes"] = gpu.reported_bytes
    return {
        "index": gpu.index,
        **_known(uuid=gpu.uuid),
        "name": gpu.name,
        "vendor": gpu.vendor,
        "backend": gpu.backend,
        **_known(
            compute_capability=gpu.compute_capability,
            bandwidth_bytes_per_second=gpu.bandwidth_bytes_per_second,
        ),
        "unified": gpu.unified,
        **({"excluded": True} if gpu.excluded else {}),
        **_known(
            parent=gpu.parent,
            profile=gpu.profile,
            pci_bus_id=gpu.pci_bus_id,
            numa_node=gpu.numa_node,
            utilization_percent=gpu.utilization_percent,
            temperature_celsius=gpu.temperature_celsius,
        ),
        "memory": memory,
        "processes": [
            {
                "pid": process.pid,
                **_known(
                    name=process.name,
                    used_bytes=process.used_bytes,
                    container=process.container,
                    user=process.user,
                ),
            }
            for process in gpu.processes
        ],
    }
