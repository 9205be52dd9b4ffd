"""The command line says what the engine is told, survives a shell, and holds no secret."""

import shlex
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gpuplan.deploying.create_body import body
from gpuplan.deploying.docker_run import (
    command_texts,
    docker_commands,
    docker_create,
    docker_run,
    docker_run_text,
    packed_secrets,
)
from gpuplan.domain.deployment import ContainerSpec
from gpuplan.units import GIB
from tests.unit.deploying.shapes import SHAPES
from tests.unit.deploying.specs import ALL, SECRET, SINGLE

CONTAINERS = [container for spec in ALL.values() for container in spec.containers]
IDS = [f"{container.host}:{container.name}:{container.role}" for container in CONTAINERS]
FLAGS = {"--init", "--detach", "--no-healthcheck"}


def understood(words: tuple[str, ...]) -> dict[str, Any]:
    """The body Docker's client makes of the words, as far as the two are comparable."""
    given: dict[str, list[str]] = {}
    rest = list(words[2:])
    while rest[0].startswith("--"):
        name = rest.pop(0)
        given.setdefault(name, []).append("" if name in FLAGS else rest.pop(0))
    one = {name: values[-1] for name, values in given.items()}
    mounts = [dict(field.partition("=")[::2] for field in _csv(value)) for value in given.get("--mount", [])]
    gpus = [
        field.removeprefix("device=").split(",") for value in given.get("--gpus", []) for field in _csv(value)
    ]
    size = one["--shm-size"]
    return {
        "argv": [one["--entrypoint"], *rest[1:]],
        "Image": rest[0],
        "User": one.get("--user"),
        "Env": sorted(given.get("--env", [])),
        "Labels": dict(label.partition("=")[::2] for label in given.get("--label", [])),
        "StopTimeout": int(one["--stop-timeout"]),
        "Health": one.get("--health-cmd"),
        "Init": "--init" in given,
        "NetworkMode": one["--network"],
        "IpcMode": one["--ipc"],
        "PidMode": one.get("--pid", ""),
        "VolumesFrom": given.get("--volumes-from", []),
        "Volumes": sorted(given.get("--volume", [])),
        "ShmSize": int(size[:-1]) * GIB if size.endswith("g") else int(size),
        "Gpus": gpus,
        "Devices": given.get("--device", []),
        "CapAdd": sorted(given.get("--cap-add", [])),
        "GroupAdd": given.get("--group-add", []),
        "SecurityOpt": given.get("--security-opt", []),
        "Ulimits": sorted(given.get("--ulimit", [])),
        "Mounts": sorted((mount["source"], mount["target"], "readonly" in mount) for mount in mounts),
        "Log": sorted(given["--log-opt"]),
    }


def _csv(text: str) -> list[str]:
    import csv

    return next(csv.reader([text]))


def told(container: ContainerSpec) -> dict[str, Any]:
    """The body in the same terms."""
    made = body(container, image=container.image, labels=dict(container.labels))
    host = made["HostConfig"]
    test = made["Healthcheck"]["Test"]
    return {
        "argv": [*made["Entrypoint"], *made["Cmd"]],
        "Image": made["Image"],
        "User": made.get("User"),
        "Env": made["Env"],
        "Labels": made["Labels"],
        "StopTimeout": made["StopTimeout"],
        "Health": None if test == ["NONE"] else checked(test[1:]),
        "Init": host["Init"],
        "NetworkMode": host["NetworkMode"],
        "IpcMode": host["IpcMode"],
        "PidMode": host.get("PidMode", ""),
        "VolumesFrom": host.get("VolumesFrom", []),
        "Volumes": sorted(made.get("Volumes", {})),
        "ShmSize": host["ShmSize"],
        "Gpus": [request["DeviceIDs"] for request in host.get("DeviceRequests", [])],
        "Devices": [device["PathOnHost"] for device in host.get("Devices", [])],
        "CapAdd": host.get("CapAdd", []),
        "GroupAdd": host.get("GroupAdd", []),
        "SecurityOpt": host.get("SecurityOpt", []),
        "Ulimits": [f"{item['Name']}={item['Soft']}:{item['Hard']}" for item in host.get("Ulimits", [])],
        "Mounts": sorted(
            (item["Source"], item["Target"], item["ReadOnly"]) for item in host.get("Mounts", [])
        ),
        "Log": [f"{name}={value}" for name, value in host["LogConfig"]["Config"].items()],
    }


def checked(command: list[str]) -> str:
    """The command for a shell; a shell's script has no shell around it."""
    if command[:2] == ["/bin/sh", "-c"]:
        return f"set -- {shlex.join(command[4:])}; {command[2]}"
    return shlex.join(command)


@pytest.mark.parametrize("name", SHAPES)
def test_words_of_every_shape_say_what_the_engine_is_told(name: str) -> None:
    for container in SHAPES[name]().containers:
        assert understood(docker_create(container)) == told(container)


@pytest.mark.parametrize("container", CONTAINERS, ids=IDS)
def test_words_say_what_the_engine_is_told(container: ContainerSpec) -> None:
    assert understood(docker_create(container)) == told(container)


@pytest.mark.parametrize("width", [80, 110, 300])
@pytest.mark.parametrize("container", CONTAINERS, ids=IDS)
def test_text_is_the_words_to_a_shell(container: ContainerSpec, width: int, tmp_path: Path) -> None:
    stub = tmp_path / "docker"
    stub.write_text('#!/bin/sh\nprintf "%s\\0" docker "$@"\n')
    stub.chmod(0o755)
    text = next(text for text in command_texts(container, width, indent="  ") if "docker" in text)
    done = subprocess.run(
        ["/bin/sh", "-c", text], env={"PATH": f"{tmp_path}"}, capture_output=True, check=True
    )
    words = tuple(done.stdout.decode().split("\0")[:-1])
    assert words == (docker_create(container) if container.secrets else docker_run(container))


def test_gpus_are_quoted_for_dockers_own_reader() -> None:
    words = docker_run(SINGLE)
    assert words[words.index("--gpus") + 1] == f'"device={",".join(SINGLE.gpus)}"'
    assert f"--gpus '\"device={SINGLE.gpus[0]}," in docker_run_text(SINGLE)


def test_without_secrets_one_command_runs_it_after_its_directories_are_made() -> None:
    made, run = docker_commands(SINGLE)
    assert made == ("mkdir", "-p", "/data/cache/gpuplan")
    assert run[:3] == ("docker", "run", "--detach")


def test_with_secrets_it_is_created_filled_and_started() -> None:
    create, put, start = docker_commands(SECRET)
    assert create[:2] == ("docker", "create")
    assert put[-1].endswith("| docker cp - gpuplan-qwen3-n0:/")
    assert start == ("docker", "start", "gpuplan-qwen3-n0")


def test_the_archive_has_the_files_for_the_user_alone(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    directory.mkdir()
    for name in ("HF_TOKEN", "VLLM_API_KEY", "OTHER"):
        (directory / name).write_text(name.lower())
    done = subprocess.run(packed_secrets(SECRET), cwd=tmp_path, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        members = {member.name: member for member in archive.getmembers()}
    assert sorted(members) == [
        "run/gpuplan/secrets",
        "run/gpuplan/secrets/HF_TOKEN",
        "run/gpuplan/secrets/VLLM_API_KEY",
    ]
    assert {oct(member.mode & 0o077) for member in members.values()} == {"0o0"}
    assert members["run/gpuplan/secrets/HF_TOKEN"].mode & 0o400
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}


def test_no_line_is_wider_than_its_longest_word_needs() -> None:
    for container in CONTAINERS:
        for row in docker_run_text(container, 100).split("\n"):
            assert len(row) <= 100 or len(row.split(" --")) <= 2, row
