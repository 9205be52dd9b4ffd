"""A fleet without names, addresses and users, to be shown to strangers; every number stays.

Hosts are numbered in the order of their names, so that a plan of the redacted fleet places as the real one does.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.host_facts import Disk, Docker, HostFacts, Image, Interface, OurContainer
from gpuplan.sources.redacted_text import StandIns

NOTE = "names, addresses and users were replaced"
_KEPT = frozenset(
    {
        "api_version", "architecture", "cuda_version", "data_interface", "driver_version", "kind", "link_layer", "purpose",
        "role", "runtime_version", "state", "storage_driver", "transport", "version", "vllm_version",
    }
)  # fmt: skip
"""Facts that name nobody, whatever words a label shares with them."""
_SYSTEM_GROUPS = frozenset({"adm", "docker", "podman", "render", "root", "sudo", "users", "video", "wheel"})
Value = TypeVar("Value")


def redacted(fleet: Fleet) -> Fleet:
    """The same fleet; equal names get equal stand-ins, also inside texts of failures, disks and conditions."""
    names = StandIns()
    digits = len(str(len(fleet.hosts)))
    for number, name in enumerate(sorted(host.name for host in fleet.hosts), 1):
        names.give(name, f"host-{number:0{digits}}")
    for host in fleet.hosts:
        _introduce(host, names)
    for host in fleet.hosts:
        _host(host, names)  # what one text gives away is hidden in all of them
    names.learn()
    return replace(
        fleet,
        hosts=tuple(_host(host, names) for host in fleet.hosts),
        notes=(*(names.text(note) for note in fleet.notes), NOTE),
        image=names.image(fleet.image) if fleet.image is not None else None,
    )


def _introduce(host: Host, names: StandIns) -> None:
    """Learn every word of a host that names somebody or something of the house."""
    facts = host.facts
    names.number(facts.hostname, "hostname")
    names.number(facts.machine_id, "machine")
    names.number(facts.user, "user")
    for address in _addresses(host):
        names.address(address)
    for gpu in host.gpus:
        for process in gpu.processes:
            names.number(process.user, "user")
            names.number(process.container, "container")
    for container in facts.docker.containers if facts.docker is not None else ():
        names.number(container.deployment, "deployment")
        names.number(container.name, "container")
    for fact in facts.conditions:
        for group in _groups(fact.figures):
            names.number(group, "group")
    for key, value in host.labels:
        names.number(value, f"{key}")


def _groups(figures: Mapping[str, Any]) -> Iterable[str]:
    """The login's groups, those every system has left out."""
    groups = figures.get("groups")
    named = groups if isinstance(groups, list | tuple) else ()
    return (group for group in named if isinstance(group, str) and group not in _SYSTEM_GROUPS)


def _addresses(host: Host) -> Iterable[str]:
    if host.address is not None:
        yield host.address
    for interface in host.facts.interfaces:
        yield from interface.addresses


def _host(host: Host, names: StandIns) -> Host:
    failure = host.failure
    return replace(
        host,
        name=names.word(host.name),
        address=names.word(host.address) if host.address is not None else None,
        failure=replace(failure, detail=names.message(failure.detail)) if failure is not None else None,
        labels=tuple((key, names.word(value)) for key, value in host.labels),
        gpus=tuple(_gpu(gpu, names) for gpu in host.gpus),
        facts=_facts(host.facts, names),
    )


def _gpu(gpu: Gpu, names: StandIns) -> Gpu:
    processes = (
        replace(
            process,
            name=names.text(process.name),
            user=names.word(process.user) if process.user is not None else None,
            container=names.word(process.container) if process.container is not None else None,
        )
        for process in gpu.processes
    )
    return replace(gpu, processes=tuple(processes))


def _facts(facts: HostFacts, names: StandIns) -> HostFacts:
    return replace(
        _texts(facts, names.text),
        hostname=names.word(facts.hostname) if facts.hostname is not None else None,
        machine_id=names.word(facts.machine_id) if facts.machine_id is not None else None,
        user=names.word(facts.user) if facts.user is not None else None,
        disks=tuple(_disk(disk, names) for disk in facts.disks),
        interfaces=tuple(_interface(item, names) for item in facts.interfaces),
        docker=_docker(facts.docker, names) if facts.docker is not None else None,
        conditions=tuple(
            replace(
                fact,
                subject=_in_all(fact.subject, names.text),
                figures=_in_all(fact.figures, names.message),
            )
            for fact in facts.conditions
        ),
    )


def _disk(disk: Disk, names: StandIns) -> Disk:
    return replace(
        disk,
        path=names.text(disk.path),
        device=names.device(disk.device) if disk.device is not None else None,
    )


def _interface(interface: Interface, names: StandIns) -> Interface:
    return replace(interface, addresses=tuple(names.address(address) for address in interface.addresses))


def _docker(docker: Docker, names: StandIns) -> Docker:
    return replace(
        _texts(docker, names.text),
        images=tuple(_image(image, names) for image in docker.images),
        containers=tuple(_container(container, names) for container in docker.containers),
    )


def _image(image: Image, names: StandIns) -> Image:
    return replace(
        image,
        tags=tuple(names.image(tag) for tag in image.tags),
        digests=tuple(names.image(digest) for digest in image.digests),
    )


def _container(container: OurContainer, names: StandIns) -> OurContainer:
    return replace(
        _texts(container, names.text),
        name=names.word(container.name),
        deployment=names.word(container.deployment),
        image=names.image(container.image),
    )


def _texts(value: Value, change: Callable[[str], str]) -> Value:
    """A frozen dataclass with its own texts changed, and those of the dataclasses it holds in tuples."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes: dict[str, Any] = {}
    for field in fields(value):
        own = getattr(value, field.name)
        if field.name in _KEPT:
            continue
        if isinstance(own, str):
            changes[field.name] = change(own)
        elif isinstance(own, tuple):
            changes[field.name] = tuple(
                change(item) if isinstance(item, str) else _texts(item, change) for item in own
            )
    return replace(value, **changes)


def _in_all(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with its texts changed; keys stay."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: _in_all(item, change) for key, item in value.items()}
        case list() | tuple():
            return [_in_all(item, change) for item in value]
        case _:
            return value
