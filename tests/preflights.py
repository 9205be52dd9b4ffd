"""Hosts as a preflight sees them, whole, for tests that take one thing away."""

from dataclasses import replace
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import Disk, Docker, HostFacts, Image, Interface
from gpuplan.domain.inventory import HostEntry
from gpuplan.planning.preflight import preflight
from gpuplan.planning.preflight_measures import HostMeasures, Measured, ModelNeed, PortTest, Wanted
from gpuplan.planning.preflight_report import Preflight, Rung, RungName
from gpuplan.units import GIB

IMAGE = "vllm/vllm-openai:v0.33.0"
MODEL = ModelNeed(name="Qwen/Qwen3-32B", reference="Qwen/Qwen3-32B", weights_bytes=61 * GIB)
BUILD = Image(
    id="sha256:0123456789abcdef",
    tags=(IMAGE,),
    digests=("vllm/vllm-openai@sha256:aaaa",),
    architecture="amd64",
    size_bytes=30 * GIB,
    vllm_version="0.33.0",
    cuda_version="13.0.1",
)
DOCKER = Docker(
    version="28.1.1",
    storage_driver="overlay2",
    root_dir="/var/lib/docker",
    runtimes=("nvidia", "runc"),
    architecture="x86_64",
    transport="socket",
    images=(BUILD,),
    gpu_support=True,
)
FACTS = HostFacts(
    architecture="x86_64",
    user="ubuntu",
    clock_offset_seconds=0.02,
    driver_version="580.95.05",
    ephemeral_ports=(49152, 65535),
    disks=(
        Disk(
            purpose="docker_root",
            path="/var/lib/docker",
            total_bytes=900 * GIB,
            free_bytes=400 * GIB,
            device="sda",
        ),
        Disk(
            purpose="model_dir",
            path="/data/models",
            total_bytes=900 * GIB,
            free_bytes=300 * GIB,
            device="sdb",
        ),
        Disk(purpose="shm", path="/dev/shm", total_bytes=256 * GIB, free_bytes=256 * GIB),
    ),
    interfaces=(
        Interface(name="lo", addresses=("127.0.0.1/8",), virtual=True, mtu=65536),
        Interface(
            name="eth0", addresses=("fd00::1/64", "10.0.0.1/24"), mtu=9000, speed_bits_per_second=100 * 10**9
        ),
    ),
    data_interface="eth0",
    docker=DOCKER,
)
FREE = HostMeasures(ports=PortTest(tool="python3"))


def host(name: str = "h1", **facts: Any) -> Host:
    """Two H100 on a host on which everything is well, its facts changed as given."""
    return Host(
        name=name,
        address=f"{name}.example.org",
        gpus=tuple(
            Gpu(index=index, name="NVIDIA H100 80GB HBM3", uuid=f"GPU-{name}-{index}", total_bytes=80 * GIB)
            for index in range(2)
        ),
        ram_total_bytes=512 * GIB,
        ram_available_bytes=500 * GIB,
        facts=replace(FACTS, **{"machine_id": f"machine-{name}", **facts}),
    )


def lost(name: str, stage: str, detail: str) -> Host:
    """A host that was not reached."""
    return Host(
        name=name,
        address=f"{name}.example.org",
        status=HostStatus.UNREACHABLE,
        failure=HostFailure(stage=stage, detail=detail),
    )


def state(code: str, severity: Severity, subject: dict[str, Any] | None = None, **figures: Any) -> Fact:
    return Fact(code=code, severity=severity, subject=subject or {}, figures=figures)


def wanted(**changes: Any) -> Wanted:
    entries = {
        name: HostEntry(name=name, address=name, model_dir="/data/models") for name in ("h1", "h2", "h3")
    }
    return Wanted(**{"image": IMAGE, "entries": entries, **changes})


def judged(*hosts: Host, asked: Wanted | None = None, measured: Measured | None = None) -> Preflight:
    """A preflight; on hosts not named in `measured` every port was free."""
    given = measured or Measured()
    measures = {item.name: given.hosts.get(item.name, FREE) for item in hosts}
    return preflight(hosts, asked or wanted(), replace(given, hosts=measures))


def rung(report: Preflight, name: RungName, at: str = "h1") -> Rung:
    """One rung of a host, or, where hosts have none of that name, of those across."""
    rungs = [item for ladder in report.hosts if ladder.host == at for item in ladder.rungs]
    return next(item for item in (*rungs, *report.across) if item.name is name)
