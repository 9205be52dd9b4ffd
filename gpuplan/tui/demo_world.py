"""The recorded hosts and what runs on them now: the one place where the demo's deployments change anything.

The recording is never written to: everything is in memory and gone with the app. Whoever asks gets values.
"""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Protocol

from gpuplan.deploying.host_lock import Holder
from gpuplan.deploying.observed import Group, grouped
from gpuplan.deploying.state_rules import Health, deployment_of
from gpuplan.deploying.timestamps import seconds
from gpuplan.domain import labels
from gpuplan.domain.deployment import Actual, Deployment, Load, Member, State
from gpuplan.domain.fleet import Fleet, Host, HostStatus
from gpuplan.domain.host_facts import Image
from gpuplan.domain.inventory import Inventory
from gpuplan.engine.startup_log import actual_of
from gpuplan.errors import NoDeployment
from gpuplan.operations.status import DeploymentSeen, StatusReport
from gpuplan.planning.released import released
from gpuplan.sources import inventory_yaml, snapshot_json
from gpuplan.sources.documents import did_you_mean, shown
from gpuplan.tui.demo_containers import DemoContainer, with_containers
from gpuplan.tui.demo_script import LogLine, load_at, start_lines

RECORDINGS = files("gpuplan.tui") / "recordings"
FAILS = ("demo", "fails")
"""The label of a host on which every deployment ends badly, so that this can be seen, too."""
CACHED = (
    ("h100-a", "Qwen/Qwen3-32B"),
    ("h100-b", "Qwen/Qwen3-32B"),
    ("h200-a", "meta-llama/Llama-3.3-70B-Instruct"),
)
"""Models whose weights lie on a host before anything is deployed."""
_UP = frozenset({State.RUNNING, State.UNHEALTHY})
Place = tuple[str, str]
"""Host and name of a container."""


class Clock(Protocol):
    """Time as the demo knows it."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def wait(self, length: float, stop: threading.Event) -> bool:
        """Let so many seconds pass; True at once when `stop` is set."""
        ...


class RealClock:
    """The time of this machine."""

    def now(self) -> float:
        return time.time()

    def wait(self, length: float, stop: threading.Event) -> bool:
        return stop.wait(length)


def iso(at: float) -> str:
    """As Docker writes a time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class DemoWorld:
    """Hosts, containers, logs. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.inventory: Inventory = _inventory()
        recorded = snapshot_json.parse((RECORDINGS / "fleet.json").read_bytes(), "fleet.json")
        containers = _containers()
        for name in {one.labels[labels.DEPLOYMENT] for one in containers}:
            recorded = released(recorded, name)
        self._lock = threading.RLock()
        self._bare = {host.name: host for host in recorded.hosts}
        self._fleet = recorded
        self._containers: dict[Place, DemoContainer] = {}
        self._lines: dict[str, tuple[LogLine, ...]] = {}
        self._weights = set(CACHED)
        self._locks: dict[str, Holder] = {}
        moved = clock.now() - (seconds(recorded.taken_at or "") or 0.0)
        for one in containers:
            began = (seconds(one.started_at or "") or 0.0) + moved
            shifted = replace(one, started_at=iso(began), created=iso(began - 4))
            self._containers[one.host, one.name] = shifted
            self._lines[one.id] = start_lines(shifted, began)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._bare)

    def fleet(self) -> Fleet:
        """As a reading would show it now."""
        with self._lock:
            hosts = tuple(with_containers(host, self._containers.values()) for host in self._bare.values())
        taken = datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return replace(self._fleet, hosts=hosts, taken_at=taken)

    def host(self, name: str) -> Host:
        with self._lock:
            return with_containers(self._bare[name], self._containers.values())

    def fails(self, hosts: Iterable[str]) -> bool:
        return any(FAILS in self._bare[name].labels for name in hosts)

    # ------------------------------------------------------------------ what deploys change

    def lock(self, hosts: Sequence[str], holder: Holder) -> tuple[str, Holder] | None:
        """Lock all of these hosts, or say which one is locked by whom."""
        with self._lock:
            held = next(((host, self._locks[host]) for host in hosts if host in self._locks), None)
            if held is None:
                self._locks |= dict.fromkeys(hosts, holder)
            return held

    def unlock(self, hosts: Sequence[str]) -> None:
        with self._lock:
            for host in hosts:
                self._locks.pop(host, None)

    def put(self, container: DemoContainer) -> None:
        """Have a container, instead of one of that name on that host."""
        with self._lock:
            self._containers[container.host, container.name] = container

    def change(self, place: Place, **changes: Any) -> DemoContainer:
        """Give a container another state."""
        with self._lock:
            changed = replace(self._containers[place], **changes)
            self._containers[place] = changed
            return changed

    def rename(self, place: Place, name: str) -> None:
        with self._lock:
            renamed = replace(self._containers.pop(place), name=name)
            self._containers[renamed.host, name] = renamed

    def remove(self, place: Place) -> None:
        with self._lock:
            gone = self._containers.pop(place, None)
            if gone is not None:
                self._lines.pop(gone.id, None)

    def prints(self, container: DemoContainer, lines: Sequence[LogLine]) -> None:
        """What a container prints in its present start."""
        with self._lock:
            self._lines[container.id] = tuple(lines)

    def has_image(self, host: str, reference: str) -> bool:
        docker = self._bare[host].facts.docker
        return docker is not None and any(reference in image.tags for image in docker.images)

    def bring_image(self, host: str, image: Image) -> None:
        with self._lock:
            bare = self._bare[host]
            if bare.facts.docker is not None:
                docker = replace(bare.facts.docker, images=(*bare.facts.docker.images, image))
                self._bare[host] = replace(bare, facts=replace(bare.facts, docker=docker))

    def has_weights(self, host: str, model: str) -> bool:
        with self._lock:
            return (host, model) in self._weights

    def bring_weights(self, host: str, model: str) -> None:
        with self._lock:
            self._weights.add((host, model))

    # ------------------------------------------------------------------ what is asked

    def containers(self, deployment: str) -> tuple[DemoContainer, ...]:
        """Of a deployment, in starting order."""
        with self._lock:
            found = [
                one for one in self._containers.values() if one.labels.get(labels.DEPLOYMENT) == deployment
            ]
        return tuple(sorted(found, key=lambda one: (one.observed.member.server, one.observed.member.rank)))

    def container(self, place: Place) -> DemoContainer | None:
        with self._lock:
            return self._containers.get(place)

    def lines(self, identity: str) -> tuple[LogLine, ...]:
        """Printed by a container while it started, those of the future left out."""
        now = self.clock.now()
        with self._lock:
            return tuple(line for line in self._lines.get(identity, ()) if line.at <= now)

    def groups(self) -> tuple[Group, ...]:
        with self._lock:
            found = [one.observed for one in self._containers.values()]
        answering = [host.name for host in self._bare.values() if host.status is HostStatus.OK]
        return grouped(found, answering)

    def group(self, name: str) -> Group:
        """The deployment of that name. Raises UsageError."""
        groups = self.groups()
        for group in groups:
            if group.name == name:
                return group
        known = [group.name for group in groups]
        listed = f"deployments: {', '.join(map(shown, known))}" if known else "nothing is deployed"
        raise NoDeployment(f"there is no deployment {shown(name)}{did_you_mean(name, known)}", hint=listed)

    def status(self, name: str | None = None) -> StatusReport:
        """As `gpuplan status` reports it. Raises UsageError for a name that is not there."""
        groups = self.groups() if name is None else (self.group(name),)
        answering = [host for host in self._bare.values() if host.status is HostStatus.OK]
        return StatusReport(
            deployments=tuple(DeploymentSeen(deployment=self.deployment(group)) for group in groups),
            silent=tuple(host for host in self._bare.values() if host.status is not HostStatus.OK),
            hosts=len(answering),
        )

    def deployment(self, group: Group) -> Deployment:
        """A group with what its servers answer now."""
        loads = self.loads(group)
        found = deployment_of(
            group,
            health={number: Health(status=200) for number in loads},
            loads=tuple(loads.values()),
        )
        members = tuple(self._numbered(member) for member in found.members)
        if found.state in _UP | {State.STARTING}:
            found = replace(found, actual=self.actual(members))
        if found.state not in _UP:
            return replace(found, members=members)
        began = [seconds(member.started_at or "") or 0.0 for member in members]
        uptime = max(0, round(self.clock.now() - max(began, default=0.0)))
        return replace(found, members=members, uptime_seconds=uptime)

    def loads(self, group: Group) -> dict[int, Load]:
        """By number of the server, for those that serve."""
        now, found = self.clock.now(), {}
        for one in group.current:
            container = self.container((one.host, one.name))
            if container is not None and container.port is not None:
                began = seconds(container.started_at or "") or now
                found[one.member.server] = load_at(container, now - began)
        return found

    def actual(self, members: Sequence[Member]) -> Actual:
        """What the engines printed, and what their GPUs report."""
        lines = {member.id: [(line.at, line.text) for line in self.lines(member.id)] for member in members}
        used = set()
        for member in members:
            for gpu in self.host(member.host).gpus:
                held = [one.used_bytes or 0 for one in gpu.processes if one.container == member.container]
                if held:
                    used.add((member.host, gpu.index, sum(held)))
        return replace(actual_of(lines), used_bytes=tuple(sorted(used)))

    def _numbered(self, member: Member) -> Member:
        indexes = [gpu.index for gpu in self._bare[member.host].gpus if gpu.uuid in member.gpus]
        return replace(member, gpu_indexes=tuple(indexes))


def _inventory() -> Inventory:
    from importlib.resources import as_file

    with as_file(RECORDINGS / "demo-inventory.yaml") as path:
        return replace(inventory_yaml.load(path), path="demo-inventory.yaml")


def _containers() -> tuple[DemoContainer, ...]:
    return tuple(DemoContainer(**entry) for entry in json.loads((RECORDINGS / "containers.json").read_text()))
