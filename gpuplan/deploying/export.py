"""A deployment as files that run without gpuplan: Compose, systemd, a shell script. Never with a secret's value.

Each starts the same containers `deploy` would; what `deploy` does beside it (locks, checks, undoing) they do not.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from gpuplan.deploying.compose import service
from gpuplan.deploying.docker_run import SECRETS_HERE, made_directories
from gpuplan.deploying.script import script_text
from gpuplan.deploying.systemd import SECRETS_OF_UNITS, unit_text
from gpuplan.deploying.yaml_text import yaml_text
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec

Files = Mapping[str, str]
"""Text by file name; names may have one directory in front."""


def compose(spec: DeploymentSpec) -> Files:
    """`compose-HOST.yaml` for each host (Compose Specification, `docker compose` 2 and later)."""
    return {f"compose-{file_name(host)}.yaml": _compose(spec, host) for host in spec.hosts}


def _compose(spec: DeploymentSpec, host: str) -> str:
    containers = _on(spec, host)
    document: dict[str, Any] = {
        "name": project_name(f"gpuplan-{spec.name}"),
        "services": {container.name: service(container) for container in containers},
    }
    how = [
        f"on {one_line(host)}: docker compose -f compose-{file_name(host)}.yaml up -d",
        *_order(spec),
        *_directory_lines(containers),
        *_secret_lines(containers, f"./{SECRETS_HERE}"),
    ]
    return _head(spec, how) + yaml_text(document)


def systemd(spec: DeploymentSpec) -> Files:
    """`HOST/CONTAINER.service` for each container, to be put into /etc/systemd/system of that host."""
    return {
        f"{file_name(container.host)}/{container.name}.service": _unit(spec, container)
        for container in spec.containers
    }


def _unit(spec: DeploymentSpec, container: ContainerSpec) -> str:
    here = _on(spec, container.host)
    before = here[: here.index(container)]
    how = [
        f"on {one_line(container.host)}, as /etc/systemd/system/{container.name}.service:",
        f"systemctl daemon-reload && systemctl enable --now {container.name}",
        *_order(spec),
        *_secret_lines((container,), SECRETS_OF_UNITS.format(name=spec.name)),
    ]
    return _head(spec, how) + unit_text(spec, container, before)


def script(spec: DeploymentSpec) -> Files:
    """`script.sh`, which starts, stops and removes all of it from this machine over `ssh`."""
    hosts = ", ".join(one_line(host) for host in spec.hosts)
    how = [
        "sh script.sh up | status | down",
        f"over ssh, to {hosts}: names that ~/.ssh/config has to know",
        *_secret_lines(spec.containers, f"./{SECRETS_HERE}"),
    ]
    return {"script.sh": "#!/bin/sh\n" + _head(spec, how) + script_text(spec)}


def file_name(host: str) -> str:
    """A host's name as (part of) a file's."""
    name = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in host)
    return name.lstrip(".-") or "host"


def project_name(name: str) -> str:
    """A name as Compose takes it for a project: lower case letters, digits, `-` and `_`."""
    return "".join(char if char in "_-" or char.isalnum() else "-" for char in file_name(name).lower())


def one_line(text: str) -> str:
    """Text that cannot leave a comment."""
    return "".join(char if char.isprintable() else " " for char in text)


def _on(spec: DeploymentSpec, host: str) -> tuple[ContainerSpec, ...]:
    return tuple(container for container in spec.containers if container.host == host)


def _head(spec: DeploymentSpec, how: Iterable[str]) -> str:
    lines = [
        f"{spec.name}: {spec.model} by vLLM {spec.vllm_version}, written by gpuplan",
        *(server.endpoint for server in spec.servers),
        *how,
        *spec.notes,
    ]
    return "".join(f"# {one_line(line)}\n" for line in lines) + "\n"


def _order(spec: DeploymentSpec) -> list[str]:
    """What no file of one host can see to."""
    if len(spec.hosts) == 1:
        return []
    order = ", ".join(f"{one_line(item.host)}:{item.name}" for item in spec.containers)
    return [f"start within minutes of each other, in this order: {order}"]


def _directory_lines(containers: Iterable[ContainerSpec]) -> list[str]:
    paths = dict.fromkeys(path for container in containers for path in made_directories(container))
    return [f"before: mkdir -p {shlex.join(paths)}"] if paths else []


def _secret_lines(containers: Iterable[ContainerSpec], directory: str) -> list[str]:
    names = sorted({name for container in containers for name in container.secrets})
    if not names:
        return []
    files = ", ".join(f"{directory}/{name}" for name in names)
    return [f"secrets, each a file without a newline at its end that the container's user can read: {files}"]
