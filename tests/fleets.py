"""Fleets, models and requests for tests, by hand."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Basis, Fleet, Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import (
    Disk,
    Docker,
    GpuLink,
    HostFacts,
    Image,
    Interface,
    OurContainer,
    RdmaDevice,
)
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Plan, StrategyName, StrategyResult
from gpuplan.domain.workload import Workload
from gpuplan.engine.architectures import describe
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import version_of
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.sources.device_facts import completed
from gpuplan.units import GIB

CONFIGS = Path(__file__).parent / "data" / "configs"
CARDS = {
    "H100": ("NVIDIA H100 80GB HBM3", 79.19, "9.0"),
    "A100": ("NVIDIA A100-SXM4-80GB", 79.25, "8.0"),
    "4090": ("NVIDIA GeForce RTX 4090", 23.52, "8.9"),
    "L40S": ("NVIDIA L40S", 44.39, "8.9"),
    "T4": ("Tesla T4", 14.56, "7.5"),
}


def gpu(index: int, card: str, free: float | None = None) -> Gpu:
    """A card with `free` GiB free (all of it)."""
    name, total, capability = CARDS[card]
    return Gpu(
        index=index,
        name=name,
        compute_capability=capability,
        total_bytes=int(total * GIB),
        free_bytes=None if free is None else int(free * GIB),
    )


def host(
    name: str, card: str, count: int, *, free: dict[int, float] | None = None, ram: float | None = None
) -> Host:
    """A host of equal cards; `free` is GiB by index, `ram` GiB."""
    return Host(
        name=name,
        gpus=tuple(gpu(index, card, (free or {}).get(index)) for index in range(count)),
        ram_available_bytes=None if ram is None else int(ram * GIB),
    )


@cache
def profile(name: str) -> ModelProfile:
    """A model by its file in tests/data/configs."""
    return describe(name.replace("__", "/"), json.loads((CONFIGS / f"{name}.json").read_text()))


def planned(
    name: str,
    *hosts: Host,
    arguments: str = "",
    version: str = "0.33.0",
    utilization: float | None = 0.92,
    siblings: tuple[ModelProfile, ...] = (),
    **workload: Any,
) -> Plan:
    """A plan for a model on hosts."""
    engine = parse([arguments] if arguments else [], version=version_of(version))
    return plan(
        PlanRequest(
            fleet=Fleet(hosts=hosts),
            profile=profile(name),
            workload=Workload(engine=engine, **workload),
            version=version_of(version),
            utilization=engine.gpu_memory_utilization or utilization,
            siblings=lambda: siblings,
        )
    )


def of(made: Plan, strategy: StrategyName) -> StrategyResult:
    """One strategy's part of a plan."""
    return next(result for result in made.strategies if result.strategy is strategy)


def probed_fleet() -> Fleet:
    """A fleet as a probe leaves it, every fact of it filled in; names, addresses and users are all invented."""
    process = GpuProcess(
        pid=4242, name="/home/alice/venv/bin/python", used_bytes=GIB, container="alice-lab", user="alice"
    )
    card = replace(
        gpu(0, "H100", 70.0), uuid="GPU-5f0cc8a1-0000-0000-0000-000000000000", processes=(process,)
    )
    card = replace(
        card,
        reported_bytes=85520809984,
        pci_bus_id="0000:17:00.0",
        numa_node=0,
        utilization_percent=40,
        temperature_celsius=61,
        bandwidth_bytes_per_second=3_352_000_000_000,
    )
    slice_ = Gpu(
        index=1,
        name="NVIDIA A100-SXM4-80GB",
        uuid="MIG-1",
        total_bytes=GIB,
        free_bytes=GIB,
        parent=0,
        profile="1g.10gb",
    )
    facts = HostFacts(
        hostname="gpu-one.acme.example",
        machine_id="0123456789abcdef0123456789abcdef",
        architecture="x86_64",
        kernel="6.1.0-18-amd64",
        os="Debian GNU/Linux 12 (bookworm)",
        cpu="Intel(R) Xeon(R) Platinum 8480+",
        cpu_count=224,
        user="alice",
        clock_offset_seconds=-0.25,
        driver_version="580.82.07",
        runtime_version="13.0",
        ephemeral_ports=(32768, 60999),
        listening_ports=(22, 8000),
        disks=(
            Disk(
                purpose="model_dir",
                path="/home/alice/models",
                total_bytes=2 * GIB,
                free_bytes=GIB,
                device="/dev/sda1",
            ),
        ),
        interfaces=(
            Interface(
                name="eth0",
                addresses=("10.20.30.40/24", "fd00::11/64"),
                mtu=9000,
                speed_bits_per_second=10**11,
                rdma_device="mlx5_0",
            ),
            Interface(name="docker0", addresses=("172.17.0.1/16",), up=False, virtual=True),
        ),
        data_interface="eth0",
        rdma=(
            RdmaDevice(
                name="mlx5_0", state="ACTIVE", rate_bits_per_second=4 * 10**11, link_layer="InfiniBand"
            ),
        ),
        links=(GpuLink(a=0, b=1, kind="NV18"),),
        docker=Docker(
            version="29.0.1",
            api_version="1.52",
            storage_driver="overlay2",
            root_dir="/var/lib/docker",
            runtimes=("nvidia", "runc"),
            cdi_devices=("nvidia.com/gpu=0",),
            architecture="x86_64",
            transport="socket",
            gpu_support=True,
            images=(
                Image(
                    id="sha256:1",
                    tags=("vllm/vllm-openai:v0.33.0", "registry.acme.example:5000/alice/vllm:1"),
                    architecture="amd64",
                    size_bytes=GIB,
                    vllm_version="0.33.0",
                    ray=False,
                    cuda_version="13.0",
                ),
            ),
            containers=(
                OurContainer(
                    id="abc",
                    name="gpuplan-secret-project-n0",
                    deployment="secret-project",
                    state="running",
                    role="leader",
                    rank=0,
                    image="vllm/vllm-openai:v0.33.0",
                    gpus=("GPU-5f0cc8a1-0000-0000-0000-000000000000",),
                    claims=(("GPU-5f0cc8a1-0000-0000-0000-000000000000", GIB),),
                    loading=True,
                    ports=(40000,),
                    keep_alive_seconds=600,
                    running_requests=2,
                    waiting_requests=1,
                ),
            ),
        ),
        conditions=(
            Fact(
                code="GP622",
                severity=Severity.ERROR,
                subject={},
                figures={"user": "alice", "groups": "users", "path": "/var/run/docker.sock"},
            ),
        ),
    )
    seen = Host(
        name="acme-gpu-1",
        address="10.20.30.40",
        labels=(("team", "acme-research"),),
        gpus=(completed(card), completed(slice_)),
        ram_total_bytes=4 * GIB,
        ram_available_bytes=3 * GIB,
        ram_reserved_bytes=GIB,
        link="nvlink",
        facts=facts,
    )
    lost = Host(
        name="acme-gpu-2",
        address="gpu2.acme.example",
        status=HostStatus.UNREACHABLE,
        failure=HostFailure(
            stage="authenticate", detail="alice@gpu2.acme.example (10.20.30.41): the server refused every key"
        ),
    )
    return Fleet(
        hosts=(seen, lost),
        taken_at="2026-11-21T02:00:00Z",
        basis=Basis.MEASURED,
        notes=("acme-gpu-2 was down",),
        image="vllm/vllm-openai:v0.33.0",
    )
