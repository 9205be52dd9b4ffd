"""Deployments as the labels and states of their containers tell them: no record is kept anywhere else.

A deployment's members are those its labels list, found or not. Of several generations (a deploy that was interrupted,
or is under way) the newest with a container that runs counts; the others are leftovers. No label is trusted to be
what we wrote: what makes no sense is as if it were not there.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerRole, Member, Prediction

MISSING = "missing"
UNKNOWN = "unknown"
_URL = re.compile(
    r"http://(?:(?P<plain>[\w.-]{1,255})|\[(?P<bracketed>[\da-fA-F:.]{2,45})\]):(?P<port>\d{1,5})/?"
)
_NEVER = "0001-01-01T00:00:00Z"


Place = tuple[str, int, int, ContainerRole]
"""Host, server, rank and role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container of ours as `docker inspect` shows it."""

    member: Member
    created: str
    """ISO 8601, UTC, by the host's clock."""
    labels: Mapping[str, str] = field(hash=False)
    stop_seconds: int | None = None
    """How long it may take to end."""

    @property
    def deployment(self) -> str:
        return self.labels.get(labels.DEPLOYMENT, "")

    @property
    def host(self) -> str:
        return self.member.host

    @property
    def id(self) -> str:
        return self.member.id

    @property
    def name(self) -> str:
        """What it is called now."""
        return self.member.container

    @property
    def state(self) -> str:
        return self.member.state

    @property
    def health(self) -> str | None:
        return self.member.health

    @property
    def generation(self) -> str:
        return self.member.generation

    @property
    def place(self) -> Place:
        """What it is in its deployment, whatever it is called now."""
        return place_of(self.member)

    @property
    def helper(self) -> bool:
        return self.member.role is ContainerRole.HELPER


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server is asked: on its host, through the connection to it."""

    server: int
    host: str
    url: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All containers of one deployment."""

    name: str
    current: tuple[Container, ...]
    """Of the generation that counts."""
    leftover: tuple[Container, ...] = ()
    """Of other generations, and helpers that were not removed."""
    members: tuple[Member, ...] = ()
    """Those found and those that are missed, in starting order."""

    @property
    def containers(self) -> tuple[Container, ...]:
        return (*self.current, *self.leftover)

    @property
    def label(self) -> Mapping[str, str]:
        """Labels of the container that serves first, or of any."""
        serving = [one for one in self.current if labels.ENDPOINT in one.labels]
        return next((one.labels for one in (*serving, *self.containers)), {})

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """One for each server, in order."""
        found = {
            one.member.server: endpoint for one in self.current if (endpoint := _endpoint(one)) is not None
        }
        return tuple(found[server] for server in sorted(found))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host with a container of it, and those where one is missed."""
        named = (*(one.member.host for one in self.containers), *(member.host for member in self.members))
        return tuple(dict.fromkeys(named))


def container_of(host: str, document: Mapping[str, Any]) -> Container:
    """A container from its `docker inspect` document."""
    state = _mapping(document.get("State"))
    config = _mapping(document.get("Config"))
    given = {str(key): str(value) for key, value in _mapping(config.get("Labels")).items()}
    health = _mapping(state.get("Health")).get("Status")
    status = str(state.get("Status", ""))
    member = Member(
        host=host,
        container=str(document.get("Name", "")).removeprefix("/"),
        id=str(document.get("Id", "")),
        role=_role(given.get(labels.ROLE, "")),
        rank=_number(given.get(labels.RANK)),
        server=_number(given.get(labels.SERVER)),
        state=status,
        health=health if isinstance(health, str) and health != "none" else None,
        gpus=_words(given.get(labels.GPUS, "")),
        exit_code=state.get("ExitCode") if status in {"exited", "dead", "created"} else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_at=_time(state.get("StartedAt")),
        finished_at=_time(state.get("FinishedAt")),
        message=str(state.get("Error") or "") or None,
        generation=given.get(labels.GENERATION, ""),
        spec_hash=given.get(labels.SPEC_HASH, ""),
    )
    seconds = config.get("StopTimeout")
    return Container(
        member=member,
        created=str(document.get("Created", "")),
        labels=given,
        stop_seconds=seconds if isinstance(seconds, int) and not isinstance(seconds, bool) else None,
    )


def grouped(containers: Iterable[Container], asked: Collection[str]) -> tuple[Group, ...]:
    """Containers by deployment, in order of names; `asked`: hosts that answered, on others nothing is known."""
    named: dict[str, list[Container]] = {}
    for one in containers:
        named.setdefault(one.deployment, []).append(one)
    return tuple(_group(name, found, asked) for name, found in sorted(named.items()))


def prediction(label: str) -> Prediction:
    """The plan's figures from their label; those that make no sense are left out."""
    document = _mapping(_json(label))
    known = {one.name for one in fields(Prediction)}
    figures: dict[str, Any] = {
        name: value
        for name, value in document.items()
        if name in known and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return Prediction(**figures)


def claims(container: Container) -> dict[str, int]:
    """Bytes it is predicted to use, by UUID of the GPU."""
    document = _mapping(_json(container.labels.get(labels.CLAIMS, "")))
    return {
        str(uuid): size
        for uuid, size in document.items()
        if isinstance(size, int) and not isinstance(size, bool)
    }


def _group(name: str, found: Sequence[Container], asked: Collection[str]) -> Group:
    generations: dict[str, list[Container]] = {}
    for one in found:
        if not one.helper:
            generations.setdefault(one.member.generation, []).append(one)
    if not generations:
        return Group(name=name, current=(), leftover=tuple(found))

    def rank(containers: Sequence[Container]) -> tuple[bool, str]:
        runs = any(one.member.state in {"running", "restarting", "paused"} for one in containers)
        return runs, max(one.created for one in containers)

    newest = max(generations.values(), key=rank)
    current = tuple(sorted(newest, key=_order))
    leftover = tuple(one for one in found if one not in current)
    return Group(name=name, current=current, leftover=leftover, members=_members(current, asked))


def _order(container: Container) -> tuple[int, int, str, str]:
    member = container.member
    return member.server, member.rank, member.host, member.container


def _members(current: Sequence[Container], asked: Collection[str]) -> tuple[Member, ...]:
    """The members the labels list, in that order, then any others that were found."""
    found = {place_of(one.member): one.member for one in current}
    named = next((entries for one in current if (entries := listed(one))), [])
    members: list[Member] = []
    for entry in named:
        known = found.pop(place_of(entry), None)
        members.append(known if known is not None else _absent(entry, asked))
    return (*members, *found.values())


def place_of(member: Member) -> Place:
    """What it is in its deployment, whatever it is called now."""
    return member.host, member.server, member.rank, member.role


def listed(container: Container) -> list[Member]:
    """The members of its deployment, as its label names them."""
    document = _json(container.labels.get(labels.MEMBERS, ""))
    return [
        Member(
            host=str(entry.get("host", "")),
            container=str(entry.get("container", "")),
            role=_role(str(entry.get("role", ""))),
            rank=_number(entry.get("rank")),
            server=_number(entry.get("server")),
            state=MISSING,
            generation=container.member.generation,
            spec_hash=container.member.spec_hash,
        )
        for entry in (document if isinstance(document, list) else [])
        if isinstance(entry, Mapping)
    ]


def _absent(entry: Member, asked: Collection[str]) -> Member:
    return Member(
        host=entry.host,
        container=entry.container,
        role=entry.role,
        rank=entry.rank,
        server=entry.server,
        state=MISSING if entry.host in asked else UNKNOWN,
        message=None if entry.host in asked else "its host did not answer, or was not asked",
        generation=entry.generation,
        spec_hash=entry.spec_hash,
    )


def _endpoint(container: Container) -> Endpoint | None:
    url = container.labels.get(labels.ENDPOINT, "")
    parts = _URL.fullmatch(url)
    if parts is None:
        return None
    return Endpoint(
        server=container.member.server,
        host=container.member.host,
        url=url,
        address=parts["plain"] or parts["bracketed"],
        port=int(parts["port"]),
    )


def _role(text: str) -> ContainerRole:
    try:
        return ContainerRole(text)
    except ValueError:
        return ContainerRole.SINGLE


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0


def _words(label: str) -> tuple[str, ...]:
    document = _json(label)
    return tuple(one for one in document if isinstance(one, str)) if isinstance(document, list) else ()


def _time(value: object) -> str | None:
    return value if isinstance(value, str) and value not in {"", _NEVER} else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
