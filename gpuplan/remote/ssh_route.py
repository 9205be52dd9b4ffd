"""Where a connection goes: the inventory's keys over the SSH configuration's, and the jump hosts on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuplan.domain.inventory import LOCAL, HostEntry
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.ssh_authentication import Credentials
from gpuplan.remote.ssh_config import SshConfig, local_user
from gpuplan.remote.ssh_config_files import ConfigUnusable, expand_home
from gpuplan.remote.ssh_settings import SshSettings
from gpuplan.remote.words import printable

KEEPALIVE = 15
"""Seconds between keepalives, where the configuration has no ServerAliveInterval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Everything needed to reach one host and to know it."""

    host: str
    port: int
    jumps: tuple[str, ...]
    """The jump hosts in order, as they are written; empty: none."""
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    credentials: Credentials
    connect_seconds: float
    keepalive: int


def route_to(
    entry: HostEntry, settings: SshSettings, config: SshConfig, jumps: tuple[str, ...] | None = None
) -> Route:
    """`jumps`: the way there when a chain already says it. Raises ConnectionFailed (stage RESOLVE)."""
    try:
        found = config.lookup(entry.address, user=entry.user, port=entry.port)
    except ConfigUnusable as problem:
        raise ConnectionFailed(
            Stage.RESOLVE, f"the SSH configuration: {printable(str(problem))}"
        ) from problem
    way = entry.jump or found.proxy_jump
    if jumps is None:
        jumps = () if way in {None, "none"} else tuple(part.strip() for part in (way or "").split(","))
    agent = found.identity_agent or settings.environ.get("SSH_AUTH_SOCK")
    user = entry.user or found.user or local_user()
    ssh = settings.home / ".ssh"
    return Route(
        host=found.host_name,
        port=entry.port or found.port or 22,
        jumps=jumps,
        proxy_command=None if jumps or entry.jump else found.proxy_command,
        known_hosts=(
            *_paths(found.user_known_hosts, (ssh / "known_hosts", ssh / "known_hosts2")),
            *_paths(found.global_known_hosts, settings.system_known_hosts),
        ),
        host_key_alias=found.host_key_alias,
        credentials=Credentials(
            user=user,
            host=entry.name,
            inventory_file=_file(entry.identity_file, settings.home),
            config_files=tuple(Path(name) for name in found.identity_files),
            certificate_files=tuple(Path(name) for name in found.certificate_files),
            identities_only=found.identities_only,
            agent=None if agent == "none" else agent or None,
            home=settings.home,
        ),
        connect_seconds=found.connect_timeout or settings.timeouts.connect,
        keepalive=found.alive_interval or KEEPALIVE,
    )


def _paths(named: Sequence[str] | None, otherwise: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(otherwise) if named is None else tuple(Path(name) for name in named)


def _file(name: str | None, home: Path) -> Path | None:
    return Path(expand_home(name, home)) if name else None


def jump_entry(jump: str, hosts: Mapping[str, HostEntry]) -> HostEntry:
    """`[USER@]HOST[:PORT]` or `ssh://…`; HOST is a host of the inventory, or a name as ssh knows it."""
    text = jump.removeprefix("ssh://").rstrip("/")
    user, at, place = text.rpartition("@")
    host, port = place, ""
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") == 1:
        host, _, port = place.partition(":")
    wrong = port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)
    if not host or wrong or (at and not user):
        raise ConnectionFailed(
            Stage.JUMP, f"jump host {printable(jump, 100)}: not of the form [USER@]HOST[:PORT]"
        )
    entry = hosts.get(host) or HostEntry(name=host, address=host)
    if entry.address == LOCAL:
        raise ConnectionFailed(Stage.JUMP, f"jump host {printable(jump, 100)} is this machine")
    return replace(entry, user=user or entry.user, port=int(port) if port else entry.port)
