"""A container as a systemd unit that runs `docker` in the foreground.

A member of a group is never started again by itself: its group would wait for it in a rendezvous that is over.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuplan.deploying.docker_run import arguments, made_directories, options
from gpuplan.domain.deployment import SECRETS_DIRECTORY, ContainerSpec, DeploymentSpec, Mount

DOCKER = "/usr/bin/docker"
INSTALL = "/usr/bin/install"
SECRETS_OF_UNITS = "/etc/gpuplan/{name}/secrets"
"""Where a unit finds the files with secrets: it has no directory of its own to look in."""
_LONGER = 30
"""Seconds systemd waits longer for the end than Docker does."""


def unit_text(spec: DeploymentSpec, container: ContainerSpec, before: Sequence[ContainerSpec]) -> str:
    """The unit's text; `before` are the containers of the host that are started before it."""
    shared = dict.fromkeys(name for name in (container.pid_from, container.volumes_from) if name)
    earlier = [f"{item.name}.service" for item in before]
    needed = [f"{name}.service" for name in shared]
    rows = [
        "[Unit]",
        f"Description={_plain(f'{spec.served_name}: {container.role.value}, rank {container.rank} (gpuplan {spec.name})')}",
        f"After={' '.join(['docker.service', 'network-online.target', *earlier])}",
        f"Requires={' '.join(['docker.service', *needed])}",
        "Wants=network-online.target",
        *(["StartLimitIntervalSec=3600", "StartLimitBurst=3"] if _is_alone(spec) else []),
        "",
        "[Service]",
        "Type=exec",
        *(["Restart=on-failure", "RestartSec=10"] if _is_alone(spec) else ["Restart=no"]),
        "TimeoutStartSec=infinity",
        f"TimeoutStopSec={container.stop_seconds + _LONGER}",
        *_directories(container),
        f"ExecStartPre=-{DOCKER} rm --force --volumes {container.name}",
        f"ExecStart={_command(spec, container)}",
        f"ExecStop={DOCKER} stop -t {container.stop_seconds} {container.name}",
        "SuccessExitStatus=143",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(rows) + "\n"


def _is_alone(spec: DeploymentSpec) -> bool:
    return len(spec.containers) == 1


def _directories(container: ContainerSpec) -> list[str]:
    """The caches that are missing are made, for the user it runs as."""
    user, _, group = (container.user or "").partition(":")
    owner = f" -o {user} -g {group}" if user.isdigit() and group.isdigit() else ""
    return [f"ExecStartPre={INSTALL} -d{owner} {quoted(path)}" for path in made_directories(container)]


def _command(spec: DeploymentSpec, container: ContainerSpec) -> str:
    """`docker run`, an option a line; with secrets as files that are mounted."""
    directory = SECRETS_OF_UNITS.format(name=spec.name)
    secrets = tuple(
        Mount(source=f"{directory}/{name}", target=f"{SECRETS_DIRECTORY}/{name}", read_only=True)
        for name in sorted(container.secrets)
    )
    given = replace(container, mounts=(*container.mounts, *secrets))
    rows = [
        f"{DOCKER} run",
        *(" ".join(quoted(word) for word in option) for option in options(given)),
        " ".join(quoted(word) for word in (container.image, *arguments(container))),
    ]
    return " \\\n    ".join(rows)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "$": "$$", "%": "%%"}


def quoted(word: str) -> str:
    """A word of a command line as systemd reads it back (systemd.service(5), "Command lines")."""
    text = "".join(_ESCAPES.get(char) or (char if char.isprintable() else _bytes(char)) for char in word)
    simple = text.isascii() and all(char.isalnum() or char in "._/:=,+@%$-" for char in text)
    return text if text and simple else f'"{text}"'


def _bytes(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


def _plain(text: str) -> str:
    """The value of a setting that is not a command line."""
    return "".join(char if char.isprintable() else " " for char in text).replace("%", "%%").rstrip("\\")
