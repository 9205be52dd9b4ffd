"""A container as a service of a Compose file, with every setting `create_body` has."""

from typing import Any

from gpuplan.deploying.create_body import (
    IPC,
    LOG_DRIVER,
    LOG_OPTIONS,
    NETWORK,
    RESTART,
    STOP_SIGNAL,
    has_device_request,
    has_init,
)
from gpuplan.deploying.docker_run import SECRETS_HERE
from gpuplan.domain.deployment import SECRETS_DIRECTORY, ContainerSpec, HealthCheck

Service = dict[str, Any]


def service(container: ContainerSpec) -> Service:
    """The service, its keys those of the Compose Specification; `$` is doubled, as Compose would take it for a variable."""
    made: Service = {
        "container_name": container.name,
        "image": container.image,
        "entrypoint": list(container.entrypoint),
        "command": list(container.command),
        "environment": dict(container.env),
        "user": container.user,
        "network_mode": NETWORK,
        "ipc": IPC,
        "shm_size": container.shm_bytes,
        "init": has_init(container),
        "restart": RESTART,
        "stop_signal": STOP_SIGNAL,
        "stop_grace_period": f"{container.stop_seconds}s",
        "healthcheck": _health(container.health),
        "logging": {"driver": LOG_DRIVER, "options": dict(LOG_OPTIONS)},
        "labels": dict(container.labels),
        **_access(container),
        **_shared(container),
    }
    needed = {"command", "init"}
    return {key: _literal(value) for key, value in made.items() if value or key in needed}


def _access(container: ContainerSpec) -> Service:
    """GPUs, device files, rights, directories."""
    request = {"driver": "nvidia", "device_ids": list(container.gpus), "capabilities": ["gpu"]}
    devices = {"resources": {"reservations": {"devices": [request]}}}
    return {
        "deploy": devices if has_device_request(container) else {},
        "devices": [f"{path}:{path}" for path in container.devices],
        "group_add": list(container.groups),
        "cap_add": list(container.capabilities),
        "security_opt": list(container.security),
        "ulimits": {name: {"soft": limit, "hard": limit} for name, limit in container.ulimits},
        "volumes": _volumes(container),
    }


def _volumes(container: ContainerSpec) -> list[Service]:
    binds = [_bind(mount.source, mount.target, read_only=mount.read_only) for mount in container.mounts]
    secrets = [
        _bind(f"./{SECRETS_HERE}/{name}", f"{SECRETS_DIRECTORY}/{name}", read_only=True)
        for name in sorted(container.secrets)
    ]
    anonymous: list[Service] = [{"type": "volume", "target": path} for path in container.volumes]
    return [*binds, *secrets, *anonymous]


def _bind(source: str, target: str, *, read_only: bool) -> Service:
    """A source that is missing is an error: by default Compose makes a directory of it, owned by root."""
    return {
        "type": "bind",
        "source": source,
        "target": target,
        "read_only": read_only,
        "bind": {"create_host_path": False},
    }


def _shared(container: ContainerSpec) -> Service:
    """What it has in common with another service; Compose starts that one first."""
    others = dict.fromkeys(name for name in (container.pid_from, container.volumes_from) if name)
    return {
        "pid": f"service:{container.pid_from}" if container.pid_from else "",
        "volumes_from": [container.volumes_from] if container.volumes_from else [],
        "depends_on": list(others),
    }


def _health(check: HealthCheck | None) -> Service:
    if check is None:
        return {"disable": True}
    return {
        "test": ["CMD", *check.command],
        "interval": f"{check.interval_seconds}s",
        "timeout": f"{check.timeout_seconds}s",
        "retries": check.retries,
        "start_period": f"{check.start_seconds}s",
    }


def _literal(value: Any) -> Any:
    match value:
        case str():
            return value.replace("$", "$$")
        case dict():
            return {key: _literal(item) for key, item in value.items()}
        case list():
            return [_literal(item) for item in value]
        case _:
            return value
