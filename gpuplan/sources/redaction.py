"""A fleet without names, addresses and users, to be shown to strangers; every number stays.

Hosts are numbered in the order of their names, so that a plan of the redacted fleet places as the real one does.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.host_facts import Docker, HostFacts, Image, Interface, OurContainer

NOTE = "names, addresses and users were replaced"
_ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"
    r"|[0-9a-fA-F:]*[0-9a-fA-F]::[0-9a-fA-F:]*|::[0-9a-fA-F]+)(?![\w:])"
)
_HOME = re.compile(r"(?<=/home/)[^/\s:'\"]+")
_LOGIN = re.compile(r"[\w.-]+(?=@)")
_ORDINARY = frozenset({"root", "local", "localhost", "127.0.0.1", "::1", "0.0.0.0", ""})
"""Say nothing about anybody."""
_SHORTEST = 3
"""Shorter words are replaced where they stand alone as a value, not inside a text: `a` is in every sentence."""
Value = TypeVar("Value")


def redacted(fleet: Fleet) -> Fleet:
    """The same fleet; equal names get equal stand-ins, also inside texts of failures, disks and conditions."""
    names = _StandIns()
    digits = len(str(len(fleet.hosts)))
    for number, name in enumerate(sorted(host.name for host in fleet.hosts), 1):
        names.give(name, f"host-{number:0{digits}}")
    for host in fleet.hosts:
        _introduce(host, names)
    return replace(
        fleet,
        hosts=tuple(_host(host, names) for host in fleet.hosts),
        notes=(*(names.text(note) for note in fleet.notes), NOTE),
        image=names.image(fleet.image) if fleet.image is not None else None,
    )


class _StandIns:
    """What each word is replaced by."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._pattern: re.Pattern[str] | None = None

    def give(self, word: str | None, stand_in: str) -> None:
        if word is not None and word not in _ORDINARY:
            self._given.setdefault(word, stand_in)
            self._pattern = None

    def number(self, word: str | None, kind: str) -> None:
        """Give a word the next stand-in of its kind: `user-3`."""
        if word is not None and word not in _ORDINARY and word not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self.give(word, f"{kind}-{self._counts[kind]}")

    def word(self, word: str) -> str:
        return self._given.get(word, word)

    def address(self, address: str) -> str:
        """`10.0.0.11/24` → `address-1/24`."""
        place, slash, length = address.partition("/")
        self.number(place, "address")
        return self.word(place) + slash + length

    def image(self, tag: str) -> str:
        """A tag without the registry and path of a house's own."""
        registry, slash, rest = tag.partition("/")
        if slash and ("." in registry or ":" in registry) and not registry.endswith(_PUBLIC_REGISTRIES):
            self.number(registry, "registry")
            return f"{self.word(registry)}/{rest.rpartition('/')[2]}"
        return tag

    def text(self, text: str) -> str:
        """A text in which every known word, and everything that looks like an address or a login, is replaced."""
        if text in self._given:
            return self._given[text]
        if self._pattern is None:
            words = sorted((word for word in self._given if len(word) >= _SHORTEST), key=len, reverse=True)
            self._pattern = re.compile(
                rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)" if words else r"(?!)"
            )
        text = self._pattern.sub(lambda match: self.word(match.group()), text)
        text = _ADDRESS.sub(lambda match: self.address(match.group()), text)
        for pattern in (_HOME, _LOGIN):
            text = pattern.sub(self._user, text)
        return text

    def _user(self, match: re.Match[str]) -> str:
        if match.group() not in self._given.values():
            self.number(match.group(), "user")
        return self.word(match.group())


_PUBLIC_REGISTRIES = ("docker.io", "ghcr.io", "quay.io", "nvcr.io", "gcr.io")


def _introduce(host: Host, names: _StandIns) -> None:
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
    for key, value in host.labels:
        names.number(value, f"{key}")


def _addresses(host: Host) -> Iterable[str]:
    if host.address is not None:
        yield host.address
    for interface in host.facts.interfaces:
        yield from interface.addresses


def _host(host: Host, names: _StandIns) -> Host:
    failure = host.failure
    return replace(
        host,
        name=names.word(host.name),
        address=names.word(host.address) if host.address is not None else None,
        failure=replace(failure, detail=names.text(failure.detail)) if failure is not None else None,
        labels=tuple((key, names.word(value)) for key, value in host.labels),
        gpus=tuple(_gpu(gpu, names) for gpu in host.gpus),
        facts=_facts(host.facts, names),
    )


def _gpu(gpu: Gpu, names: _StandIns) -> Gpu:
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


def _facts(facts: HostFacts, names: _StandIns) -> HostFacts:
    return replace(
        _texts(facts, names.text),
        hostname=names.word(facts.hostname) if facts.hostname is not None else None,
        machine_id=names.word(facts.machine_id) if facts.machine_id is not None else None,
        user=names.word(facts.user) if facts.user is not None else None,
        interfaces=tuple(_interface(item, names) for item in facts.interfaces),
        docker=_docker(facts.docker, names) if facts.docker is not None else None,
        conditions=tuple(
            replace(
                fact, subject=_mapping(fact.subject, names.text), figures=_mapping(fact.figures, names.text)
            )
            for fact in facts.conditions
        ),
    )


def _interface(interface: Interface, names: _StandIns) -> Interface:
    return replace(interface, addresses=tuple(names.address(address) for address in interface.addresses))


def _docker(docker: Docker, names: _StandIns) -> Docker:
    return replace(
        _texts(docker, names.text),
        images=tuple(_image(image, names) for image in docker.images),
        containers=tuple(_container(container, names) for container in docker.containers),
    )


def _image(image: Image, names: _StandIns) -> Image:
    return replace(
        image,
        tags=tuple(names.image(tag) for tag in image.tags),
        digests=tuple(names.image(digest) for digest in image.digests),
    )


def _container(container: OurContainer, names: _StandIns) -> OurContainer:
    return replace(
        _texts(container, names.text),
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
        if isinstance(own, str):
            changes[field.name] = change(own)
        elif isinstance(own, tuple):
            changes[field.name] = tuple(
                change(item) if isinstance(item, str) else _texts(item, change) for item in own
            )
    return replace(value, **changes)


def _mapping(mapping: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {key: change(value) if isinstance(value, str) else value for key, value in mapping.items()}
