"""Directories on hosts: made by the login, and found to be one and the same where hosts share a file system."""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.transfers import Emit
from gpuplan.remote.connection import Connection
from gpuplan.remote.words import printable

SHELL_SECONDS = 30.0
_LOCAL = ("/", "tmpfs", "overlay", "none", "rootfs")
"""Devices that no two hosts share, as `df` names them."""


class ReachedHosts(Protocol):
    """The part of an open fleet that is needed here."""

    @property
    def fleet(self) -> Fleet: ...
    @property
    def connections(self) -> Mapping[str, Connection]: ...


def prepare_directories(opened: ReachedHosts, spec: DeploymentSpec, emit: Emit) -> tuple[Fact, ...]:
    """Make the directories of mounts that are ours to make, as the login; failures are facts (GP849)."""
    del emit
    wanted: dict[str, dict[str, None]] = {}
    for container in spec.containers:
        for mount in container.mounts:
            if mount.make:
                wanted.setdefault(container.host, {})[mount.source] = None
    return make_directories(opened, {host: tuple(paths) for host, paths in wanted.items()})


_MAKE = """\
export LC_ALL=C
for d in @paths@; do
  case "$d" in '~/'*) d=$HOME/${d#'~/'} ;; esac
  if said=$(mkdir -p "$d" 2>&1) && [ -w "$d" ]; then continue; fi
  printf 'gpuplan-unmade\\t%s\\t%s\\n' "$d" "${said:-this login may not write there}" | tr '\\r' ' '
done
echo gpuplan-end
"""


def make_directories(opened: ReachedHosts, paths: Mapping[str, Sequence[str]]) -> tuple[Fact, ...]:
    """Make the directories of each host, parents included; those that cannot be made or written to are facts (GP849)."""
    calls = {
        host: partial(
            _shell, opened, host, _MAKE.replace("@paths@", " ".join(shlex.quote(path) for path in items))
        )
        for host, items in paths.items()
    }
    told = []
    for host, answer in on_each(calls, seconds=SHELL_SECONDS + 5).items():
        text = answer.why if isinstance(answer, Outcome) else answer
        rows = [line.split("\t") for line in text.splitlines() if line.startswith("gpuplan-unmade\t")]
        told += [
            _fact("GP849", host, path=row[1], detail=printable(row[2]), user=_user(opened, host))
            for row in rows
            if len(row) > 2
        ]
        if not rows and "gpuplan-end" not in text:
            told.append(_fact("GP636", host, what="making directories", detail=printable(text)))
    return tuple(told)


def _shell(opened: ReachedHosts, host: str, script: str) -> str:
    done = opened.connections[host].run(["sh", "-s"], stdin=script.encode(), timeout=SHELL_SECONDS)
    return done.stdout.decode(errors="replace")


def _user(opened: ReachedHosts, host: str) -> str | None:
    return next((item.facts.user for item in opened.fleet.hosts if item.name == host), None)


def _fact(code: str, host: str, **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.ERROR, subject={"host": host}, figures=figures)


def one_of_each(
    hosts: Sequence[str],
    opened: ReachedHosts,
    *,
    directories: Mapping[str, str],
    devices: Mapping[str, str],
) -> tuple[str, ...]:
    """The first host of each file system: a file that each of them writes is looked for by the others.

    `directories`: per host the one in question, there and writable. `devices`: what `df` names it; hosts whose names
    differ, or are those of local disks, are not asked.
    """
    names = [devices.get(host, "") for host in hosts]
    doubtful = [
        host
        for host, device in zip(hosts, names, strict=True)
        if device and not device.startswith(_LOCAL) and names.count(device) > 1
    ]
    seen = _marks(opened, {host: directories[host] for host in doubtful})
    kept: list[str] = []
    for host in hosts:
        if not any(first in seen.get(host, ()) for first in kept):
            kept.append(host)
    return tuple(kept)


def _marks(opened: ReachedHosts, directories: Mapping[str, str]) -> dict[str, set[str]]:
    """Per host, whose marks it sees in its directory, its own among them."""
    if not directories:
        return {}
    word = f".gpuplan-{secrets.token_hex(6)}"
    numbers = {str(number): host for number, host in enumerate(directories)}
    places = {host: shlex.quote(path) for host, path in directories.items()}
    own = {host: f"{places[host]}/{word}-{number}" for number, host in numbers.items()}
    everywhere(opened, {host: f": >{path}\n" for host, path in own.items()})
    listed = everywhere(opened, {host: f"ls -a {path}\n" for host, path in places.items()})
    everywhere(opened, {host: f"rm -f {path}\n" for host, path in own.items()})
    return {
        host: {name for number, name in numbers.items() if f"{word}-{number}" in text.split()}
        for host, text in listed.items()
    }


def everywhere(opened: ReachedHosts, scripts: Mapping[str, str]) -> dict[str, str]:
    """What a piece of shell prints on each host; nothing where it failed."""
    calls = {host: partial(_shell, opened, host, text) for host, text in scripts.items()}
    answers = on_each(calls, seconds=SHELL_SECONDS + 5)
    return {host: "" if isinstance(answer, Outcome) else answer for host, answer in answers.items()}
