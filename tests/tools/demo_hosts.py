"""The hosts of the demo's recording, each as the commands of a probe would have printed it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.tools.demo_cards import Cards, Process, cards, failed, from_recording

__all__ = ["Process", "Recorded", "host"]

PROBES = Path(__file__).parents[1] / "data" / "probes"
HOSTS = Path(__file__).parents[1] / "data" / "hosts"
SOCKET = "/var/run/docker.sock"
OF_OTHERS = ("amd_pci", "npu_pci", "npu_cann")
"""What is empty on a host without GPUs of other vendors; their tools are not there."""
VLLM_BYTES = 23_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a host answers: sections (text, or text and exit code) and documents by socket."""

    sections: Mapping[str, Any]
    sockets: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a host is made of, beside its cards."""

    cpu: str = "Intel(R) Xeon(R) Platinum 8480+"
    threads: int = 224
    memory: str = "h100-idle"
    """The recording whose /proc/meminfo it has."""
    os: str = "Ubuntu 24.04.3 LTS"
    kernel: str = "6.8.0-87-generic"
    architecture: str = "x86_64"
    data_gbit: int = 100
    rails: int = 0
    """InfiniBand ports."""
    models_gib: tuple[int, int] = (14_000, 9_200)
    """Size and free space of the file system of models."""
    docker_gib: tuple[int, int] = (1_760, 940)
    images: tuple[str, ...] = ("vllm/vllm-openai:v0.33.0",)
    toolkit: bool = True
    others: Mapping[str, str] = field(default_factory=dict)
    """Name and image of containers that are not ours."""


KINDS: Mapping[str, Kind] = {
    "h100-a": Kind(rails=8),
    "h100-b": Kind(rails=8),
    "h100-c": Kind(
        memory="h100-busy",
        rails=8,
        images=("vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.30.0"),
        others={"chat-prod": "vllm/vllm-openai:v0.30.0", "finetune-qwen": "pytorch/pytorch:2.9.0"},
    ),
    "h200-a": Kind(rails=8, models_gib=(28_000, 17_500)),
    "a100-mig": Kind(memory="a100-mig", cpu="AMD EPYC 7543 32-Core Processor", threads=128, data_gbit=25),
    "mixed-a": Kind(
        memory="l40s-4090",
        cpu="AMD EPYC 7543 32-Core Processor",
        threads=64,
        data_gbit=10,
        models_gib=(3_600, 810),
        images=(),
    ),
    "rtx-a": Kind(
        memory="l40s-4090",
        cpu="AMD EPYC 7543 32-Core Processor",
        threads=64,
        data_gbit=10,
        models_gib=(3_600, 1_250),
    ),
    "spark-a": Kind(
        memory="gb10",
        cpu="Cortex-X925",
        threads=20,
        architecture="aarch64",
        kernel="6.14.0-1013-nvidia",
        data_gbit=200,
        models_gib=(3_600, 2_400),
        docker_gib=(3_600, 2_400),
    ),
    "l40s-a": Kind(
        memory="l40s-4090", cpu="AMD EPYC 7543 32-Core Processor", threads=64, data_gbit=25, toolkit=False
    ),
    "l40s-b": Kind(memory="l40s-4090", cpu="AMD EPYC 7543 32-Core Processor", threads=64, data_gbit=25),
    "h100-d": Kind(memory="broken-driver", rails=8),
}


def host(
    name: str,
    address: str,
    *,
    processes: Sequence[Process] = (),
    containers: Sequence[Mapping[str, Any]] = (),
    ports: Sequence[int] = (),
) -> Recorded:
    """A host that answers, with what of ours runs on it."""
    kind = KINDS[name]
    devices = _cards(name, processes)
    sections = {
        **_machine(name, kind),
        **_network(address, kind, ports),
        **_disks(kind),
        **devices.sections,
        **dict.fromkeys(OF_OTHERS, ""),
        "docker_access": _access(kind),
    }
    others = [_other(container, image) for container, image in kind.others.items()]
    return Recorded(sections=sections, sockets={SOCKET: _engine(name, kind, [*others, *containers])})


def container_id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _cards(name: str, ours: Sequence[Process]) -> Cards:
    match name:
        case "h100-a" | "h100-b":
            return from_recording("h100-idle", name, ours)
        case "h100-c":
            chat, tune = container_id("chat-prod"), container_id("finetune-qwen")
            owners = ((48213, "root", chat), (48214, "root", chat), (51877, "alice", ""))
            more = (
                Process(index=3, pid=60233, name="python", mebibytes=41_260, user="bob", container=tune),
                Process(index=4, pid=60234, name="python", mebibytes=41_260, user="bob", container=tune),
            )
            return from_recording("h100-busy", name, (*more, *ours), owners=owners)
        case "h200-a":
            return cards("h100-idle", range(8), name, ours, of="NVIDIA H200", mebibytes=(143771, 615))
        case "rtx-a":
            return cards("l40s-4090", (2, 2, 2, 2), name, ours, link="SYS", screen=False)
        case "l40s-a":
            return cards("l40s-4090", (0, 1, 0, 1), name, ours, link="NODE")
        case "l40s-b":
            return cards("l40s-4090", (0, 1), name, ours, link="NODE")
        case "h100-d":
            return failed("broken-driver")
        case _:
            return from_recording({"mixed-a": "l40s-4090", "spark-a": "gb10"}.get(name, name), name, ours)


def _machine(name: str, kind: Kind) -> dict[str, str]:
    machine = hashlib.sha256(f"machine {name}".encode()).hexdigest()[:32]
    return {
        "host_identity": (
            f"machine_id={machine}\nhostname={name}\narchitecture={kind.architecture}\nkernel={kind.kernel}\n"
            f"user=ops\ngroups=ops docker video\ncpu_count={kind.threads}\ncontainer=\n"
        ),
        "host_os": f'PRETTY_NAME="{kind.os}"\nNAME="Ubuntu"\nID=ubuntu\n',
        "host_cpu": f"Model name:                           {kind.cpu}\n",
        "host_memory": (HOSTS / kind.memory / "meminfo").read_text(),
    }


def _network(address: str, kind: Kind, ports: Sequence[int]) -> dict[str, str]:
    """A port for logins, one for data, and InfiniBand rails without an address of their own."""
    last = address.rpartition(".")[2]
    rails = [f"ibp{26 + 17 * number}s0" for number in range(kind.rails)]
    links = [
        ("lo", "UNKNOWN", 65536, ("127.0.0.1/8",), "LOOPBACK", -1),
        ("eno1", "UP", 1500, (f"{address}/24",), "BROADCAST", 1000),
        ("enp65s0f0np0", "UP", 9000, (f"203.0.113.{last}/24",), "BROADCAST", kind.data_gbit * 1000),
        *((rail, "DOWN", 4092, (), "BROADCAST", -1) for rail in rails),
        ("docker0", "DOWN", 1500, ("172.17.0.1/16",), "BROADCAST", -1),
    ]
    listening = [f"LISTEN 0 4096 0.0.0.0:{port} 0.0.0.0:*" for port in (22, *ports)]
    rdma = [
        f"mlx5_{number};1;4: ACTIVE;400 Gb/sec (4X NDR);InfiniBand;{rail} "
        for number, rail in enumerate(rails)
    ]
    if kind.data_gbit >= 100:
        rdma.append(f"mlx5_{len(rails)};1;4: ACTIVE;{kind.data_gbit} Gb/sec (4X EDR);Ethernet;enp65s0f0np0 ")
    return {
        "net_addresses": json.dumps([_link(number, *link) for number, link in enumerate(links, start=1)]),
        "net_devices": "".join(
            f"{name} {state.lower()} {mtu} {speed if speed > 0 else '-'} {32 if name.startswith('ib') else 1} "
            f"{'-' if name in {'lo', 'docker0'} else 'physical'}\n"
            for name, state, mtu, _, _, speed in links
        ),
        "net_rdma": "".join(f"{line}\n" for line in rdma),
        "net_listening": "".join(f"{line}\n" for line in listening),
        "net_ports": "32768\t60999\n",
        "net_route": (
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
            "eno1\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        ),
    }


def _link(
    number: int, name: str, state: str, mtu: int, addresses: Sequence[str], flag: str, _speed: int
) -> dict[str, Any]:
    flags = [flag, "UP", *(["LOWER_UP"] if state != "DOWN" else [])]
    return {
        "ifindex": number,
        "ifname": name,
        "flags": flags,
        "mtu": mtu,
        "operstate": state,
        "link_type": "infiniband" if name.startswith("ib") else "ether",
        "addr_info": [
            {"family": "inet", "local": one.partition("/")[0], "prefixlen": int(one.partition("/")[2])}
            for one in addresses
        ],
    }


def _disks(kind: Kind) -> dict[str, str]:
    shm = 512 if kind.threads > 100 else 64
    return {
        "host_disk_model_dir": _df("/data/models", "/dev/mapper/vg0-models", kind.models_gib, "/data"),
        "host_disk_docker_root": _df("/var/lib/docker", "/dev/nvme0n1p3", kind.docker_gib, "/var/lib/docker"),
        "host_disk_huggingface_cache": _df(
            "/home/ops/.cache/huggingface", "/dev/mapper/vg0-models", kind.models_gib, "/home"
        ),
        "host_disk_shm": _df("/dev/shm", "tmpfs", (shm, shm), "/dev/shm"),
    }


def _df(asked: str, device: str, gib: tuple[int, int], mounted: str) -> str:
    total, free = (size * 1024**2 for size in gib)
    return (
        f"asked={asked}\nFilesystem 1024-blocks Used Available Capacity Mounted on\n"
        f"{device} {total} {total - free} {free} {100 * (total - free) // total}% {mounted}\n"
    )


def _access(kind: Kind) -> str:
    hook = (
        "hook /usr/bin/nvidia-container-runtime-hook\ntoolkit NVIDIA Container Toolkit CLI version 1.18.0\n"
    )
    return (
        "user ops\ngroups ops docker video\ncli /usr/bin/docker\ndockerd /usr/bin/dockerd\ndaemon yes\n"
        f"{hook if kind.toolkit else ''}"
        f"socket system socket yes yes yes {SOCKET}\ncontext unix://{SOCKET}\n"
        f"socket context socket yes yes yes {SOCKET}\n"
    )


def _engine(name: str, kind: Kind, containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answers of the recorded engine 24, told as of this host."""
    documents = json.loads((PROBES / "docker" / "engine-24-nvidia-runtime" / "documents.json").read_text())
    version, info = documents["version"], documents["info"]
    arm = kind.architecture == "aarch64"
    version |= {"Arch": "arm64" if arm else "amd64", "KernelVersion": kind.kernel}
    info |= {"Architecture": kind.architecture, "NCPU": kind.threads, "DefaultRuntime": "runc", "Name": name}
    if not kind.toolkit:
        info["Runtimes"] = {key: value for key, value in info["Runtimes"].items() if key != "nvidia"}
    answers: dict[str, Any] = {
        "/version": version,
        "/info": info,
        "/containers/json": list(containers),
        "/images/json": [],
    }
    for reference in kind.images:
        repository, _, tag = reference.partition(":")
        identity = f"sha256:{hashlib.sha256(reference.encode()).hexdigest()}"
        digest = hashlib.sha256(f"digest {reference}".encode()).hexdigest()
        answers["/images/json"].append(
            {
                "Id": identity,
                "RepoTags": [reference],
                "RepoDigests": [f"{repository}@sha256:{digest}"],
                "Created": 1760000000,
                "Size": VLLM_BYTES,
                "Labels": {"org.opencontainers.image.ref.name": "ubuntu"},
            }
        )
        answers[f"/images/{identity}/json"] = {
            "Id": identity,
            "Architecture": "arm64" if arm else "amd64",
            "Os": "linux",
            "Config": {
                "Env": ["CUDA_VERSION=13.0.1", f"VLLM_VERSION={tag.removeprefix('v')}"],
                "Labels": {"org.opencontainers.image.ref.name": "ubuntu"},
                "Entrypoint": ["vllm", "serve"],
            },
        }
        answers[f"/images/{identity}/history"] = []
    return answers


def _other(name: str, image: str) -> dict[str, Any]:
    return {
        "Id": container_id(name),
        "Names": [f"/{name}"],
        "Image": image,
        "Labels": {},
        "State": "running",
        "Status": "Up 3 days",
    }
