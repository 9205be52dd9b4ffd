"""What a container needs of its host to use the chosen GPUs, and nothing more: never `privileged` (S1.15).

NVIDIA: a device request by UUID; no CUDA_VISIBLE_DEVICES beside it, devices are renumbered inside. AMD: the kernel's
two device files, limited by HIP_VISIBLE_DEVICES. Ascend: the chips' own files, which the driver numbers from 0 inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.deploying.addresses import Place
from gpuplan.deploying.grouping import Node
from gpuplan.domain.deployment import Mount
from gpuplan.domain.host_facts import RdmaDevice
from gpuplan.domain.plan import PlacedGpu

ULIMITS = (("stack", 67108864),)
"""Of every container. The number of open files is the engine's: vLLM raises it to what is allowed by itself, and an engine
that is held to less itself would start no container that asks for more."""
RDMA_ULIMITS = (("memlock", -1), *ULIMITS)
"""InfiniBand and RoCE pin what they send; nothing else of vLLM's counts against this limit."""
_ASCEND_MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_ASCEND_FILES = (
    "/etc/ascend_install.info",
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/bin/npu-smi",
    "/usr/local/dcmi",
)
"""Of the driver's installation (vllm-ascend, quick start)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Devices and rights of one container."""

    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    rdma: tuple[str, ...] = ()
    """RDMA devices that NCCL may use."""


def vendor_of(place: Place, node: Node) -> str:
    """Of the node's cards; all of one vendor (S0.11)."""
    cards = [place.gpu(gpu.index) for gpu in node.gpus]
    return next((card.vendor for card in cards if card is not None), "nvidia")


def identity(place: Place, placed: PlacedGpu) -> str:
    """The UUID of a GPU or MIG slice, its index where nobody told one."""
    card = place.gpu(placed.index)
    uuid = placed.uuid or (card.uuid if card is not None else None)
    return uuid or str(placed.index)


def access_of(place: Place, node: Node, *, user: str | None, rdma: Sequence[str] = ()) -> Access:
    """Devices, rights and the variables that choose among them, for the GPUs of a node."""
    devices: tuple[str, ...] = ("/dev/infiniband",) if rdma else ()
    capabilities: tuple[str, ...] = ("IPC_LOCK",) if rdma else ()
    indexes = [gpu.index for gpu in node.gpus]
    match vendor_of(place, node):
        case "amd":
            return Access(
                devices=("/dev/dri", *devices, "/dev/kfd"),
                groups=("video",) if user is None else ("render", "video"),
                capabilities=(*capabilities, "SYS_PTRACE"),
                security=("seccomp=unconfined",),
                env=(("HIP_VISIBLE_DEVICES", ",".join(map(str, sorted(indexes)))),),
                rdma=tuple(rdma),
            )
        case "ascend":
            chips = tuple(f"/dev/davinci{index}" for index in sorted(indexes))
            return Access(
                devices=(*chips, *_ASCEND_MANAGERS),
                mounts=tuple(Mount(source=path, target=path, read_only=True) for path in _ASCEND_FILES),
                env=(("ASCEND_RT_VISIBLE_DEVICES", ",".join(map(str, range(len(chips))))),),
            )
        case _:
            return Access(
                gpus=tuple(identity(place, gpu) for gpu in node.gpus),
                devices=devices,
                capabilities=capabilities,
                rdma=tuple(rdma),
            )


def rdma_devices(places: Sequence[Place]) -> dict[str, tuple[str, ...]]:
    """Active RDMA devices by host, of one link layer on all of them; empty where a member has none.

    NCCL does not mix InfiniBand and RoCE; InfiniBand is preferred.
    """
    for layer in ("infiniband", "ethernet"):
        found = {place.name: _active(place.host.facts.rdma, layer) for place in places}
        if all(found.values()):
            return found
    return {}


def _active(ports: Sequence[RdmaDevice], layer: str) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            port.name
            for port in ports
            if port.state.upper() == "ACTIVE" and (port.link_layer or "InfiniBand").lower() == layer
        )
    )


def is_310p(place: Place, node: Node) -> bool:
    """Whether an Ascend 310P is among the cards: it has no graph mode and no bfloat16 (S1.9)."""
    cards = [place.gpu(gpu.index) for gpu in node.gpus]
    return any(card is not None and "310P" in card.name.upper() for card in cards)


def shares_memory(place: Place, node: Node) -> bool:
    """Whether a card takes its memory from the host (GB10, Grace)."""
    cards = [place.gpu(gpu.index) for gpu in node.gpus]
    return any(card is not None and card.unified for card in cards)
