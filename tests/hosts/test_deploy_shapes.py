"""What runs is what was announced: for every shape that these hosts can hold, each container as Docker tells of it
equals the container of `deploy --dry-run`, and the exported files say the same.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuplan.deploying.create_body import inspected
from gpuplan.domain.labels import GENERATION, SPEC_HASH
from tests.hosts.deploying import OURS, Site, lay_site
from tests.hosts.fleet import Fleet, TestHost

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
    engine: Sequence[str] = ()
    environ: Mapping[str, str] | None = None
    roles: Sequence[str]
    """Of the containers, in starting order."""
    hosts: int
    word: str = ""
    """What some container's arguments or environment must hold."""


def on(*hosts: str) -> tuple[str, ...]:
    return tuple(word for host in hosts for word in ("--gpus", host))


EXPERT = ("--enable-expert-parallel", "--data-parallel-size")
SHAPES = {
    "replicas-two-on-a-host-with-a-key": Shape(
        model=SMALL,
        words=("--replicas", "4", "--host", "gpu-a", "--host", "gpu-b", "--host", "gpu-c"),
        environ={"VLLM_API_KEY": KEY},
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
        words=on("gpu-a:0", "gpu-b:0", "gpu-c:0", "gpu-d:0"),
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
        words=on("gpu-a:0", "gpu-d:0,2"),
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


def announced(site: Site, shape: Shape) -> dict[str, Any]:
    done = look(site, shape, "-o", "json", "--dry-run")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def look(site: Site, shape: Shape, *words: str) -> subprocess.CompletedProcess[str]:
    model = str(site.directory / shape.model)
    return site.run(
        "deploy", model, *words, *shape.words, engine=(*DUMMY, *shape.engine), **(shape.environ or {})
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


@pytest.mark.parametrize("name", SHAPES)
def test_docker_has_what_the_dry_run_announced(site: Site, name: str) -> None:
    shape = SHAPES[name]
    document = announced(site, shape)
    containers = document["containers"]
    assert [one["role"] for one in containers] == list(shape.roles)
    assert len({one["host"] for one in containers}) == shape.hosts
    said = [" ".join((*one["create"]["Cmd"], *one["create"]["Env"])) for one in containers]
    assert any(shape.word in text for text in said), said

    at_work = replace(site, model=site.directory / shape.model)
    done = at_work.deploy(*shape.words, engine=(*DUMMY, *shape.engine), **(shape.environ or {}))
    assert done.last["state"] == "running"
    for host in site.fleet:
        assert started(host) == of_dry_run(document, host.name)
    if shape.environ:
        told = json.dumps([document, done.lines, [started(host) for host in site.fleet]])
        assert KEY not in told
        assert all(one["secrets"] == ["VLLM_API_KEY"] for one in containers)


@pytest.mark.parametrize(
    "name", ["replicas-two-on-a-host-with-a-key", "native-over-two", "ray-uneven-with-a-layer-partition"]
)
def test_exported_files_say_the_same(site: Site, name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    wanted = announced(site, shape)["containers"]
    for kind in ("script", "compose"):
        look(site, shape, "--export", kind, "--into", str(tmp_path / kind))
    (script,) = (tmp_path / "script").glob("*.sh")
    lines = script.read_text().replace("\\\n", " ").splitlines()
    made = [
        shlex.split(line)[1:]
        for line in lines
        if line.strip().startswith("on ") and " docker create " in line
    ]
    hand = [
        [one["host"], "docker", "create", *words] for one in wanted for words in [_options(one["commands"])]
    ]
    assert made == hand
    services = {
        (service["container_name"]): service
        for path in (tmp_path / "compose").rglob("*.y*ml")
        for service in yaml.safe_load(path.read_text())["services"].values()
    }
    assert {one["container"] for one in wanted} == set(services)
    for one in wanted:
        service, body = services[one["container"]], one["create"]
        assert _undoubled(service["command"]) == body["Cmd"]
        assert _undoubled(service["entrypoint"]) == body["Entrypoint"]
        environment = {key: str(value).replace("$$", "$") for key, value in service["environment"].items()}
        assert sorted(f"{key}={value}" for key, value in environment.items()) == body["Env"]
        assert {key: value.replace("$$", "$") for key, value in service["labels"].items()} == body["Labels"]
        (request,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert request["device_ids"] == body["HostConfig"]["DeviceRequests"][0]["DeviceIDs"]
        assert service["shm_size"] == body["HostConfig"]["ShmSize"]
    assert all(KEY not in path.read_text() for path in tmp_path.rglob("*") if path.suffix in {".sh", ".yaml"})


def _options(commands: Sequence[Sequence[str]]) -> list[str]:
    """What follows `docker create` or `docker run --detach`."""
    (words,) = (words for words in commands if tuple(words[:2]) in {("docker", "create"), ("docker", "run")})
    return [word for word in words[2:] if word != "--detach"]


def _undoubled(words: Sequence[str]) -> list[str]:
    return [word.replace("$$", "$") for word in words]
