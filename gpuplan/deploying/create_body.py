"""What Docker's engine is told of a container, and the same read back from what it made.

One spelling of every setting (Engine API 1.40 and later, `POST /containers/create`): the body that is sent, the hash
that decides whether anything changed and the comparison with `docker inspect` all rest on it. Nothing is privileged.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuplan.domain.deployment import ContainerSpec, HealthCheck, Mount
from gpuplan.domain.labels import GENERATION, SPEC_HASH

Body = dict[str, Any]

STOP_SIGNAL = "SIGTERM"
LOG_DRIVER = "json-file"
LOG_OPTIONS = (("max-file", "3"), ("max-size", "50m"))
"""At most 150 MB of log a container on the host's disk."""
RESTART = "no"
"""The group is what is started again, never one of its members."""
NETWORK = "host"
IPC = "private"
"""Shared memory of its own, of `shm_bytes`."""
_NANOSECONDS = 1_000_000_000
_OTHER_VENDORS = ("/dev/kfd", "/dev/davinci")
"""Device files by which AMD and Ascend cards are given; such a container makes no device request."""


def create_body(container: ContainerSpec, *, image_id: str, generation: str, spec_hash: str) -> Body:
    """The JSON body that creates a container from the image with this id; `generation` and `spec_hash` become labels.

    With another container's process ids there is no init of its own: the engine adds one to a private PID namespace
    only (moby `daemon/oci_linux.go`).
    """
    labels = {**dict(container.labels), GENERATION: generation, SPEC_HASH: spec_hash}
    return body(container, image=image_id, labels=labels)


def body(container: ContainerSpec, *, image: str, labels: Mapping[str, str]) -> Body:
    """The body with exactly these labels; `image` is an id or a reference."""
    made: Body = {
        "Image": image,
        "Entrypoint": list(container.entrypoint),
        "Cmd": list(container.command),
        "Env": sorted(f"{name}={value}" for name, value in container.env),
        "Labels": dict(sorted(labels.items())),
        "Healthcheck": _health(container.health),
        "StopSignal": STOP_SIGNAL,
        "StopTimeout": container.stop_seconds,
        "HostConfig": _host_config(container),
    }
    if container.user is not None:
        made["User"] = container.user
    if container.volumes:
        made["Volumes"] = {path: {} for path in sorted(container.volumes)}
    return made


def has_device_request(container: ContainerSpec) -> bool:
    """Whether its GPUs are asked of the NVIDIA toolkit; AMD's and Ascend's are given as device files."""
    others = any(device.startswith(_OTHER_VENDORS) for device in container.devices)
    return bool(container.gpus) and not others


def has_init(container: ContainerSpec) -> bool:
    """Whether an init of its own reaps its processes: where it shares another container's process ids, that one's does."""
    return container.pid_from is None


def _health(check: HealthCheck | None) -> Body:
    """The image's own check is switched off where there is none: a follower answers no HTTP."""
    if check is None:
        return {"Test": ["NONE"]}
    return {
        "Test": ["CMD", *check.command],
        "Interval": check.interval_seconds * _NANOSECONDS,
        "Timeout": check.timeout_seconds * _NANOSECONDS,
        "StartPeriod": check.start_seconds * _NANOSECONDS,
        "Retries": check.retries,
    }


def _host_config(container: ContainerSpec) -> Body:
    made: Body = {
        "NetworkMode": NETWORK,
        "IpcMode": IPC,
        "ShmSize": container.shm_bytes,
        "Init": has_init(container),
        "RestartPolicy": {"Name": RESTART},
        "LogConfig": {"Type": LOG_DRIVER, "Config": dict(LOG_OPTIONS)},
    }
    optional: Body = {
        "PidMode": f"container:{container.pid_from}" if container.pid_from else "",
        "VolumesFrom": [container.volumes_from] if container.volumes_from else [],
        "DeviceRequests": [_device_request(container.gpus)] if has_device_request(container) else [],
        "Devices": [_device(path) for path in container.devices],
        "CapAdd": sorted(container.capabilities),
        "GroupAdd": list(container.groups),
        "SecurityOpt": list(container.security),
        "Ulimits": [_ulimit(name, limit) for name, limit in sorted(container.ulimits)],
        "Mounts": [_mount(mount) for mount in sorted(container.mounts, key=lambda mount: mount.target)],
    }
    return made | {key: value for key, value in optional.items() if value}


def _device_request(gpus: tuple[str, ...]) -> Body:
    """No `Count`: the engine refuses both a count and ids."""
    return {"Driver": "nvidia", "DeviceIDs": list(gpus), "Capabilities": [["gpu"]]}


def _device(path: str) -> Body:
    return {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"}


def _ulimit(name: str, limit: int) -> Body:
    return {"Name": name, "Soft": limit, "Hard": limit}


def _mount(mount: Mount) -> Body:
    """A bind of the `Mounts` kind: a source that is missing is an error, where `Binds` would make it, owned by root."""
    return {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}


def inspected(
    document: Mapping[str, Any],
    *,
    image: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
) -> Body:
    """What `create_body` would say of a container that is there, from its `docker inspect` document.

    The engine's defaults are left out. `image` is the inspect document of its image, whose environment, labels,
    volumes and user the engine mixed in: without it they are taken for the container's own. `names`: id to name of the
    host's containers; the engine (20.10, measured) keeps the id of the one whose process ids are shared.
    """
    config, host = _given(document, "Config"), _given(document, "HostConfig")
    beneath = _given(image or {}, "Config")
    made: Body = {
        "Image": config.get("Image", ""),
        "Entrypoint": list(config.get("Entrypoint") or ()),
        "Cmd": list(config.get("Cmd") or ()),
        "Env": sorted(_less(config.get("Env") or (), beneath.get("Env") or ())),
        "Labels": _labels(config, beneath),
        "Healthcheck": _read_health(_given(config, "Healthcheck")),
        "StopSignal": config.get("StopSignal") or STOP_SIGNAL,
        "StopTimeout": config.get("StopTimeout"),
        "HostConfig": _read_host_config(host, names or {}),
    }
    user = config.get("User")
    if user and user != beneath.get("User"):
        made["User"] = user
    volumes = _less(config.get("Volumes") or (), beneath.get("Volumes") or ())
    if volumes:
        made["Volumes"] = {path: {} for path in sorted(volumes)}
    return made


def _given(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return document.get(key) or {}


def _less(items: Iterable[str], others: Iterable[str]) -> list[str]:
    taken = set(others)
    return [item for item in items if item not in taken]


def _labels(config: Mapping[str, Any], beneath: Mapping[str, Any]) -> dict[str, str]:
    inherited = _given(beneath, "Labels")
    labels = _given(config, "Labels")
    return {key: labels[key] for key in sorted(labels) if inherited.get(key) != labels[key]}


def _read_health(check: Mapping[str, Any]) -> Body:
    test = list(check.get("Test") or ["NONE"])
    if test == ["NONE"]:
        return {"Test": test}
    figures = {key: check.get(key, 0) for key in ("Interval", "Timeout", "StartPeriod", "Retries")}
    return {"Test": test, **figures}


def _read_host_config(host: Mapping[str, Any], names: Mapping[str, str]) -> Body:
    log = _given(host, "LogConfig")
    made: Body = {
        "NetworkMode": host.get("NetworkMode", ""),
        "IpcMode": host.get("IpcMode", ""),
        "ShmSize": host.get("ShmSize", 0),
        "Init": bool(host.get("Init")),
        "RestartPolicy": {"Name": _given(host, "RestartPolicy").get("Name") or RESTART},
        "LogConfig": {"Type": log.get("Type", ""), "Config": dict(log.get("Config") or {})},
    }
    optional: Body = {
        "Privileged": bool(host.get("Privileged")),
        "PidMode": _pid_mode(host.get("PidMode") or "", names),
        "VolumesFrom": list(host.get("VolumesFrom") or ()),
        "DeviceRequests": [_read_request(request) for request in host.get("DeviceRequests") or ()],
        "Devices": [dict(device) for device in host.get("Devices") or ()],
        "CapAdd": sorted(name.removeprefix("CAP_") for name in host.get("CapAdd") or ()),
        "GroupAdd": list(host.get("GroupAdd") or ()),
        "SecurityOpt": list(host.get("SecurityOpt") or ()),
        "Ulimits": [
            {key: limit[key] for key in ("Name", "Soft", "Hard")}
            for limit in sorted(host.get("Ulimits") or (), key=lambda limit: str(limit["Name"]))
        ],
        "Mounts": [
            {
                "Type": mount.get("Type"),
                "Source": mount.get("Source"),
                "Target": mount.get("Target"),
                "ReadOnly": bool(mount.get("ReadOnly")),
            }
            for mount in sorted(host.get("Mounts") or (), key=lambda mount: str(mount.get("Target")))
        ],
    }
    return made | {key: value for key, value in optional.items() if value}


def _pid_mode(mode: str, names: Mapping[str, str]) -> str:
    kind, _, other = mode.partition(":")
    return f"{kind}:{names.get(other, other).removeprefix('/')}" if other else mode


def _read_request(request: Mapping[str, Any]) -> Body:
    return {
        "Driver": request.get("Driver", ""),
        "DeviceIDs": list(request.get("DeviceIDs") or ()),
        "Capabilities": [list(item) for item in request.get("Capabilities") or ()],
    }
