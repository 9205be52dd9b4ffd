"""What runs is what was announced: for every shape that these hosts can hold, each container as Docker tells of it
equals the container of `deploy --dry-run`, and the exported files say the same.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuplan.deploying.create_body import inspected
from gpuplan.domain.labels import GENERATION, SPEC_HASH
from tests.hosts.deploying import LONGEST, OURS, Site, lay_site
from tests.hosts.fleet import STAND_IN, Fleet, TestHost
from tests.thorough import thorough

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
EXPERTS, LARGE, SMALL = "Qwen__Qwen3-30B-A3B", "Qwen__Qwen3-32B", "Qwen__Qwen3-4B"
DUMMY = ("--load-format", "dummy")
KEY = "sk-planted-key-of-the-shapes"
AT = {GENERATION, SPEC_HASH}
"""Labels that only a deploy knows."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is asked for, and what it must come to."""

    model: str = LARGE
    words: Sequence[str] = ()
    without: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """GPUs that the inventory excludes."""
    engine: Sequence[str] = ()
    key: str = ""
    """The API key of whoever deploys."""
    roles: Sequence[str]
    """Of the containers, in starting order."""
    hosts: int
    word: str = ""
    """What some container's arguments or environment must hold."""


def on(*hosts: str) -> tuple[str, ...]:
    return tuple(word for host in hosts for word in ("--gpus", host))


IMAGE = ("--image", STAND_IN.tag)
"""For the host whose driver is older: another image would be chosen for it."""
EXPERT = ("--enable-expert-parallel", "--data-parallel-size")
SHAPES = {
    "replicas-two-on-a-host-with-a-key": Shape(
        model=SMALL,
        words=("--replicas", "4", "--host", "gpu-a", "--host", "gpu-b", "--host", "gpu-c"),
        key=KEY,
        roles=["replica"] * 4,
        hosts=3,
    ),
    "tensor-and-pipeline-on-one-host": Shape(
        words=("--host", "gpu-a"), engine=("-tp", "2", "-pp", "2"), roles=["single"], hosts=1, word="-pp 2"
    ),
    "native-over-two": Shape(
        words=on("gpu-a:0,1", "gpu-b:0,1"),
        engine=("-tp", "2", "-pp", "2"),
        roles=["leader", "follower"],
        hosts=2,
        word="--nnodes 2",
    ),
    "native-over-three": Shape(
        words=on("gpu-a:2", "gpu-b:3", "gpu-c:4"),
        engine=("-tp", "1", "-pp", "3"),
        roles=["leader", "follower", "follower"],
        hosts=3,
        word="--nnodes 3",
    ),
    "experts-by-data-parallel-ranks": Shape(
        model=EXPERTS,
        words=on("gpu-a:0,1", "gpu-b:0,1"),
        engine=(*EXPERT, "4"),
        roles=["leader", "follower"],
        hosts=2,
        word="--data-parallel-start-rank 2",
    ),
    "nested": Shape(
        model=EXPERTS,
        words=(*IMAGE, *on("gpu-a:0", "gpu-b:0", "gpu-c:0", "gpu-d:0")),
        engine=(*EXPERT, "2", "-pp", "2"),
        roles=["leader", "follower", "follower", "follower"],
        hosts=4,
        word="--node-rank 3",
    ),
    "ray-even": Shape(
        words=("--executor", "ray", *on("gpu-a:0,1", "gpu-b:0,1")),
        engine=("-tp", "2", "-pp", "2"),
        roles=["ray-head", "follower", "leader"],
        hosts=2,
        word="--distributed-executor-backend ray",
    ),
    "ray-uneven-with-a-layer-partition": Shape(
        words=(*IMAGE, "--strategy", "multi_host", "--host", "gpu-a", "--host", "gpu-d"),
        without={"gpu-a": range(1, 8), "gpu-d": [1]},
        engine=("-pp", "3", "--max-model-len", "8192"),
        roles=["ray-head", "follower", "leader"],
        hosts=2,
        word="VLLM_PP_LAYER_PARTITION=",
    ),
    "embedding": Shape(
        model=SMALL,
        words=("--category", "embedding", "--host", "gpu-c"),
        roles=["single"],
        hosts=1,
        word="pooling",
    ),
}


@pytest.fixture
def site(four_hosts: Fleet, tmp_path: Path) -> Iterator[Site]:
    made = lay_site(four_hosts, tmp_path)
    for name in (EXPERTS, LARGE, SMALL):
        config = (CONFIGS / f"{name}.json").read_text()
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
        for host in four_hosts:
            host.write(f"/srv/models/{name}/config.json", config)
    yield made
    four_hosts.clean()


def meant(site: Site, shape: Shape) -> Site:
    """The site with the inventory and the model of a shape."""
    entries = {host: {"exclude_gpus": list(gpus)} for host, gpus in shape.without.items()}
    path = site.fleet.inventory(site.directory / "inventory.yaml", entries=entries)
    return replace(site, inventory=path, model=site.directory / shape.model)


def announced(site: Site, shape: Shape) -> dict[str, Any]:
    done = look(site, shape, "-o", "json", "--dry-run")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def look(site: Site, shape: Shape, *words: str) -> subprocess.CompletedProcess[str]:
    chosen = meant(site, shape)
    return chosen.run(
        "deploy",
        str(chosen.model),
        *words,
        *shape.words,
        engine=(*DUMMY, *shape.engine),
        VLLM_API_KEY=shape.key,
    )


def started(host: TestHost) -> dict[str, dict[str, Any]]:
    """Our containers of a host by name, as `create_body` would say it; labels that only a deploy knows left out."""
    ids = host.text("docker", "ps", "-aq", "--no-trunc", "--filter", OURS).split()
    documents = json.loads(host.text("docker", "inspect", *ids)) if ids else []
    names = {document["Id"]: document["Name"] for document in documents}
    bodies = {}
    for document in documents:
        image = json.loads(host.text("docker", "image", "inspect", document["Image"]))[0]
        body = inspected(document, image=image, names=names)
        assert body["Image"] in {image["Id"], *image["RepoTags"]}
        body["Labels"] = {key: value for key, value in body["Labels"].items() if key not in AT}
        bodies[document["Name"].removeprefix("/")] = {**body, "Image": ""}
    return bodies


def of_dry_run(document: Mapping[str, Any], host: str) -> dict[str, dict[str, Any]]:
    return {
        one["container"]: {**one["create"], "Image": ""}
        for one in document["containers"]
        if one["host"] == host
    }


def differences(found: Any, wanted: Any, at: str = "") -> list[str]:
    """Every value that is another one, with its place."""
    if not (isinstance(found, dict) and isinstance(wanted, dict)):
        return [] if found == wanted else [f"{at}: {found!r} and not {wanted!r}"]
    keys = sorted({*found, *wanted})
    return [text for key in keys for text in differences(found.get(key), wanted.get(key), f"{at}/{key}")]


SLOW = ("native-over-two", "nested", "ray-even", "embedding")
"""Shapes whose parts other shapes have too."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=thorough) if name in SLOW else name for name in SHAPES]
)
def test_docker_has_what_the_dry_run_announced(site: Site, name: str) -> None:
    shape = SHAPES[name]
    document = announced(site, shape)
    containers = document["containers"]
    assert [one["role"] for one in containers] == list(shape.roles)
    assert len({one["host"] for one in containers}) == shape.hosts
    said = [" ".join((*one["create"]["Cmd"], *one["create"]["Env"])) for one in containers]
    assert any(shape.word in text for text in said), said

    done = meant(site, shape).deploy(*shape.words, engine=(*DUMMY, *shape.engine), VLLM_API_KEY=shape.key)
    assert done.last["state"] == "running"
    for host in site.fleet:
        assert differences(started(host), of_dry_run(document, host.name)) == []
    if shape.key:
        told = json.dumps([document, done.lines, [started(host) for host in site.fleet]])
        assert KEY not in told
        assert all(one["secrets"] == ["VLLM_API_KEY"] for one in containers)


def test_the_exported_script_starts_the_same(site: Site, tmp_path: Path) -> None:
    shape = SHAPES["ray-uneven-with-a-layer-partition"]
    document = announced(site, shape)
    directory = tmp_path / "script"
    look(site, shape, "--export", "script", "--into", str(directory))
    (script,) = directory.glob("*.sh")
    assert KEY not in script.read_text()
    (directory / "secrets").mkdir()
    for secret in {name for one in document["containers"] for name in one["secrets"]}:
        (directory / "secrets" / secret).write_text(KEY)
    for host in site.fleet:
        host.put_tool("docker", '[ "$1" = pull ] || exec /usr/bin/docker "$@"')
    run_script(site, script, "up")
    for host in site.fleet:
        assert differences(folded(started(host)), folded(of_dry_run(document, host.name))) == []
    run_script(site, script, "down")
    assert site.all_ours() == []


def folded(bodies: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without what `docker create` cannot say: several words of entrypoint, a check without a shell, a request's driver."""
    made = {}
    for name, body in bodies.items():
        host = body["HostConfig"]
        requests = [{**request, "Driver": ""} for request in host.get("DeviceRequests", ())]
        made[name] = {
            **body,
            "Entrypoint": None,
            "Cmd": body["Entrypoint"] + body["Cmd"],
            "Healthcheck": {**body["Healthcheck"], "Test": body["Healthcheck"]["Test"] == ["NONE"]},
            "HostConfig": {**host, "DeviceRequests": requests},
        }
    return made


def run_script(site: Site, script: Path, verb: str) -> None:
    """Run it with hosts called as in the inventory; OpenSSH takes its configuration from no other place."""
    programs = site.directory / "bin"
    programs.mkdir(exist_ok=True)
    settings = site.directory / "ssh_config"
    settings.write_text(
        f"IdentityFile {site.fleet.identity}\nUserKnownHostsFile {site.fleet.known_hosts}\nUser root\n"
        + "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in site.fleet)
    )
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {settings} "$@"\n')
    (programs / "ssh").chmod(0o755)
    done = subprocess.run(
        ["sh", str(script), verb],
        env=site.environment(PATH=f"{programs}:{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_exported_compose_files_say_the_same(site: Site, tmp_path: Path) -> None:
    shape = SHAPES["ray-uneven-with-a-layer-partition"]
    wanted = {one["container"]: one["create"] for one in announced(site, shape)["containers"]}
    look(site, shape, "--export", "compose", "--into", str(tmp_path / "compose"))
    services = {
        service["container_name"]: _single(service)
        for path in (tmp_path / "compose").glob("*.yaml")
        for service in yaml.safe_load(path.read_text())["services"].values()
    }
    assert set(services) == set(wanted)
    for name, body in wanted.items():
        service, host = services[name], body["HostConfig"]
        assert service["entrypoint"] + service["command"] == body["Entrypoint"] + body["Cmd"]
        assert sorted(f"{key}={value}" for key, value in service["environment"].items()) == body["Env"]
        assert service["labels"] == body["Labels"]
        assert service["shm_size"] == host["ShmSize"]
        assert (service["network_mode"], service["ipc"]) == (host["NetworkMode"], host["IpcMode"])
        reserved = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", ())
        given = [one["DeviceIDs"] for one in host.get("DeviceRequests", ())]
        assert [one["device_ids"] for one in reserved] == given


def _single(value: Any) -> Any:
    """With every `$` that is doubled for Compose as it comes to be."""
    match value:
        case str():
            return value.replace("$$", "$")
        case list():
            return [_single(item) for item in value]
        case dict():
            return {key: _single(item) for key, item in value.items()}
        case _:
            return value
