"""What the engine is told: everything of the spec, nothing privileged, and read back as it was said."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.deploying.create_body import create_body, inspected
from gpuplan.domain.deployment import ContainerSpec, Mount
from gpuplan.domain.labels import GENERATION, MANAGED, SPEC_HASH
from tests.unit.deploying.specs import ALL, AMD, IMAGE, SECRET, SINGLE, UUIDS, ray

ID = "sha256:" + "ab" * 32
DATA = Path(__file__).parents[2] / "data" / "created"
CONTAINERS = [container for spec in ALL.values() for container in spec.containers]


def made(container: ContainerSpec) -> dict[str, Any]:
    return create_body(container, image_id=ID, generation="g1", spec_hash="h1")


def test_the_whole_body() -> None:
    assert SINGLE.health is not None
    body = made(replace(SINGLE, labels=((MANAGED, "true"),)))
    assert body == {
        "Image": ID,
        "Entrypoint": ["vllm", "serve"],
        "Cmd": list(SINGLE.command),
        "Env": ["OMP_NUM_THREADS=1", "VLLM_CACHE_ROOT=/root/.cache/vllm"],
        "User": "1000:1000",
        "Labels": {MANAGED: "true", GENERATION: "g1", SPEC_HASH: "h1"},
        "Healthcheck": {
            "Test": ["CMD", *SINGLE.health.command],
            "Interval": 10_000_000_000,
            "Timeout": 5_000_000_000,
            "StartPeriod": 7_200_000_000_000,
            "Retries": 3,
        },
        "StopSignal": "SIGTERM",
        "StopTimeout": 30,
        "HostConfig": {
            "NetworkMode": "host",
            "IpcMode": "private",
            "ShmSize": 10 * 1024**3,
            "Init": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-file": "3", "max-size": "50m"}},
            "DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": list(UUIDS), "Capabilities": [["gpu"]]}],
            "Ulimits": [
                {"Name": "memlock", "Soft": -1, "Hard": -1},
                {"Name": "nofile", "Soft": 1048576, "Hard": 1048576},
                {"Name": "stack", "Soft": 67108864, "Hard": 67108864},
            ],
            "Mounts": [
                {"Type": "bind", "Source": "/data/models", "Target": "/data/models", "ReadOnly": True},
                {
                    "Type": "bind",
                    "Source": "/data/cache/gpuplan",
                    "Target": "/root/.cache/vllm",
                    "ReadOnly": False,
                },
            ],
        },
    }


def test_no_container_is_privileged() -> None:
    for container in CONTAINERS:
        assert "rivileged" not in json.dumps(made(container))


def test_other_vendors_get_device_files() -> None:
    host = made(AMD)["HostConfig"]
    assert "DeviceRequests" not in host
    assert [device["PathOnHost"] for device in host["Devices"]] == ["/dev/kfd", "/dev/dri/renderD128"]
    assert host["GroupAdd"] == ["44", "105"]


def test_infiniband_beside_gpus_stays_a_device_request() -> None:
    host = made(SECRET)["HostConfig"]
    assert host["DeviceRequests"][0]["DeviceIDs"] == list(SECRET.gpus)
    assert host["Devices"][0]["PathOnHost"] == "/dev/infiniband"


def test_a_server_beside_its_ray_head_shares_process_ids_and_volumes() -> None:
    head, _, leader = (made(container) for container in ray().containers)
    assert head["Volumes"] == {"/tmp": {}}
    assert head["HostConfig"]["Init"] is True
    assert leader["HostConfig"]["PidMode"] == "container:gpuplan-qwen3-ray"
    assert leader["HostConfig"]["VolumesFrom"] == ["gpuplan-qwen3-ray"]
    assert leader["HostConfig"]["Init"] is False


def test_without_a_check_the_images_own_is_off() -> None:
    assert made(AMD)["Healthcheck"] == {"Test": ["NONE"]}


def test_names_of_secrets_are_nowhere_in_the_body() -> None:
    assert "VLLM_API_KEY" not in json.dumps(made(SECRET))


def engine(body: dict[str, Any]) -> dict[str, Any]:
    """The inspect document of an engine that mixes in the image's settings and spells out its defaults."""
    config = {key: value for key, value in body.items() if key != "HostConfig"}
    config["Env"] = [*body["Env"], "PATH=/usr/bin"]
    config["Labels"] = {**body["Labels"], "maintainer": "somebody"}
    host = {
        "Privileged": False,
        "Binds": None,
        "Devices": [],
        "CapAdd": None,
        "DeviceRequests": None,
        "GroupAdd": None,
        "SecurityOpt": None,
        "Ulimits": None,
        "PidMode": "",
        "VolumesFrom": None,
        "CgroupnsMode": "host",
        **body["HostConfig"],
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    }
    host["DeviceRequests"] = [
        {**request, "Count": 0, "Options": {}} for request in body["HostConfig"].get("DeviceRequests", [])
    ]
    host["CapAdd"] = [f"CAP_{name}" for name in body["HostConfig"].get("CapAdd", [])]
    for mount in host.get("Mounts", []):
        mount.pop("ReadOnly", None) if not mount["ReadOnly"] else None
    return {"Id": "c1", "Name": "/x", "Config": {"Hostname": "h", "Tty": False, **config}, "HostConfig": host}


BENEATH = {
    "Config": {"Env": ["PATH=/usr/bin"], "Labels": {"maintainer": "somebody"}, "User": "", "Volumes": None}
}


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: f"{container.host}:{container.name}")
def test_what_is_there_reads_as_what_was_said(container: ContainerSpec) -> None:
    document = engine(json.loads(json.dumps(made(container))))
    assert inspected(document, image=BENEATH) == made(container)


def recorded() -> tuple[dict[str, Any], dict[str, Any]]:
    """What an engine was told and what it then showed of it, and its image."""
    document = json.loads((DATA / "docker-20.10.24.json").read_text())
    return document["containers"], document["image"]


@pytest.mark.parametrize("case", recorded()[0])
def test_a_real_engine_shows_what_it_was_told(case: str) -> None:
    containers, image = recorded()
    inspects = [entry["inspect"] for entry in containers.values()]
    names = {inspect["Id"]: inspect["Name"] for inspect in inspects}
    assert inspected(containers[case]["inspect"], image=image, names=names) == containers[case]["body"]


def test_a_difference_shows() -> None:
    document = engine(made(SINGLE))
    document["HostConfig"]["Privileged"] = True
    document["HostConfig"]["ShmSize"] = 64 * 1024**2
    found = inspected(document, image=BENEATH)["HostConfig"]
    assert found["Privileged"] is True
    assert found["ShmSize"] == 64 * 1024**2


def test_order_of_what_has_none_makes_no_difference() -> None:
    other = replace(
        SINGLE,
        env=tuple(reversed(SINGLE.env)),
        mounts=tuple(reversed(SINGLE.mounts)),
        ulimits=tuple(reversed(SINGLE.ulimits)),
        labels=tuple(reversed(SINGLE.labels)),
    )
    assert json.dumps(made(other)) == json.dumps(made(SINGLE))


def test_a_directory_of_ours_is_an_ordinary_mount_for_the_engine() -> None:
    ours, theirs = (Mount(source="/a", target="/b", make=make) for make in (True, False))
    assert made(replace(SINGLE, mounts=(ours,))) == made(replace(SINGLE, mounts=(theirs,)))


def test_image_id_is_what_it_is_made_from() -> None:
    assert made(SINGLE)["Image"] == ID
    assert IMAGE not in json.dumps(made(SINGLE))
