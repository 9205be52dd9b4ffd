"""Deployments written by hand, one for each way a container can be made."""

import json

from gpuplan.domain import labels
from gpuplan.domain.deployment import (
    ContainerRole,
    ContainerSpec,
    DeploymentSpec,
    HealthCheck,
    Launch,
    Mount,
    Prediction,
    Server,
)
from gpuplan.units import GIB

IMAGE = "vllm/vllm-openai:v0.33.0"
UUIDS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")
CACHE = Mount(source="/data/cache/gpuplan", target="/root/.cache/vllm", make=True)
MODELS = Mount(source="/data/models", target="/data/models", read_only=True)


def named(role: ContainerRole, rank: int = 0, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted(
            {
                labels.MANAGED: "true",
                labels.DEPLOYMENT: "qwen3",
                labels.ROLE: role.value,
                labels.RANK: str(rank),
                labels.REQUEST: json.dumps({"model": "Qwen/Qwen3-32B", "context": 32768}),
                labels.CREATED_BY: "0.1.0",
                labels.PREDICTED: json.dumps({"weights_bytes": 61 * GIB}),
                **more,
            }.items()
        )
    )


SINGLE = ContainerSpec(
    host="h100-a",
    name="gpuplan-qwen3-n0",
    role=ContainerRole.SINGLE,
    image=IMAGE,
    entrypoint=("vllm", "serve"),
    command=("/data/models/Qwen/Qwen3-32B", "--served-model-name", "qwen3", "--port", "40000", "--host", "10.0.0.11"),
    env=(("OMP_NUM_THREADS", "1"), ("VLLM_CACHE_ROOT", "/root/.cache/vllm")),
    gpus=UUIDS,
    gpu_indexes=(0, 1),
    mounts=(CACHE, MODELS),
    user="1000:1000",
    ulimits=(("memlock", -1), ("nofile", 1048576), ("stack", 67108864)),
    health=HealthCheck(command=("python3", "-c", "print('it''s \"$PATH\"')")),
    labels=named(ContainerRole.SINGLE),
)  # fmt: skip
SECRET = ContainerSpec(
    host="h100-a",
    name="gpuplan-qwen3-n0",
    role=ContainerRole.LEADER,
    image=IMAGE,
    entrypoint=("bash", "-c"),
    command=('set -a; . /run/x; exec vllm serve "$@"', "bash", "a b", "--x=%h $HOME"),
    env=(("ODD", "a=b c\"d'e$f%g"),),
    secrets=("VLLM_API_KEY", "HF_TOKEN"),
    gpus=("GPU-11111111-2222-3333-4444-555555555555",),
    gpu_indexes=(0,),
    devices=("/dev/infiniband", "/dev/gdrdrv"),
    mounts=(Mount(source='/data/a,b "c"', target="/m"),),
    capabilities=("SYS_NICE", "IPC_LOCK"),
    security=("label=disable",),
    shm_bytes=16 * GIB + 1,
    labels=named(ContainerRole.LEADER),
)
AMD = ContainerSpec(
    host="mi300",
    name="gpuplan-amd-n0",
    role=ContainerRole.SINGLE,
    image="vllm/vllm-openai-rocm:v0.33.0",
    entrypoint=("vllm", "serve"),
    command=("m",),
    gpus=("0",),
    gpu_indexes=(0,),
    devices=("/dev/kfd", "/dev/dri/renderD128"),
    groups=("44", "105"),
    security=("seccomp=unconfined",),
    labels=named(ContainerRole.SINGLE),
)


def server(launch: Launch, *, number: int = 0, host: str = "h100-a", port: int = 40000) -> Server:
    return Server(
        number=number,
        launch=launch,
        host=host,
        address="10.0.0.11",
        port=port,
        endpoint=f"http://10.0.0.11:{port}",
        ray_addresses=(("h100-a", "10.0.0.11", 2), ("h100-b", "10.0.0.12", 1))
        if launch is Launch.RAY
        else (),
    )


def deployed(*containers: ContainerSpec, servers: tuple[Server, ...] = ()) -> DeploymentSpec:
    return DeploymentSpec(
        name="qwen3",
        model="Qwen/Qwen3-32B",
        served_name="qwen3",
        vllm_version="0.33.0",
        image=IMAGE,
        servers=servers or (server(Launch.SINGLE),),
        containers=containers,
        predicted=Prediction(weights_bytes=31 * GIB, kv_cache_bytes=8 * GIB, kv_cache_tokens=60_000),
        injected=("--host", "10.0.0.11", "--port", "40000", "--served-model-name", "qwen3"),
        notes=("/health and /metrics are open to whoever reaches 10.0.0.11",),
        request={"model": "Qwen/Qwen3-32B"},
    )


def ray() -> DeploymentSpec:
    """Head and server on one host, a follower on another."""
    head = ContainerSpec(
        host="h100-a",
        name="gpuplan-qwen3-ray",
        role=ContainerRole.RAY_HEAD,
        image=IMAGE,
        entrypoint=("ray", "start"),
        command=("--head", "--block", "--port", "41000"),
        gpus=UUIDS,
        gpu_indexes=(0, 1),
        secrets=("RAY_AUTH_TOKEN",),
        volumes=("/tmp",),
        stop_seconds=45,
        labels=named(ContainerRole.RAY_HEAD),
    )
    follower = ContainerSpec(
        host="h100-b",
        name="gpuplan-qwen3-n1",
        role=ContainerRole.FOLLOWER,
        rank=1,
        image=IMAGE,
        entrypoint=("ray", "start"),
        command=("--block", "--address", "10.0.0.11:41000"),
        gpus=("GPU-b",),
        gpu_indexes=(3,),
        secrets=("RAY_AUTH_TOKEN",),
        stop_seconds=45,
        labels=named(ContainerRole.FOLLOWER, 1),
    )
    leader = ContainerSpec(
        host="h100-a",
        name="gpuplan-qwen3-n0",
        role=ContainerRole.LEADER,
        image=IMAGE,
        entrypoint=("vllm", "serve"),
        command=("Qwen/Qwen3-32B", "--distributed-executor-backend", "ray"),
        secrets=("RAY_AUTH_TOKEN",),
        volumes_from=head.name,
        pid_from=head.name,
        health=HealthCheck(command=("true",)),
        labels=named(ContainerRole.LEADER),
    )
    return deployed(head, follower, leader, servers=(server(Launch.RAY),))


def native() -> DeploymentSpec:
    """Two ranks on two hosts, no Ray."""
    follower = ContainerSpec(
        host="h100-b",
        name="gpuplan-qwen3-n1",
        role=ContainerRole.FOLLOWER,
        rank=1,
        image=IMAGE,
        entrypoint=("vllm", "serve"),
        command=("m", "--nnodes", "2", "--node-rank", "1", "--headless"),
        gpus=("GPU-b",),
        gpu_indexes=(3,),
        labels=named(ContainerRole.FOLLOWER, 1),
    )
    return deployed(SECRET, follower, servers=(server(Launch.NATIVE_MP),))


ALL = {"single": deployed(SINGLE), "amd": deployed(AMD), "ray": ray(), "native": native()}
