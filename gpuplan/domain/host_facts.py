"""What a probe learned about a host beside its GPUs. Unknown is `None` or empty, never a guess."""

from dataclasses import dataclass

from gpuplan.domain.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system under a path."""

    purpose: str
    """`model_dir`, `docker_root`, `shm`, `huggingface_cache`."""
    path: str
    total_bytes: int
    free_bytes: int
    """Free to an ordinary user."""
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface that is up or down."""

    name: str
    addresses: tuple[str, ...] = ()
    """IPv4 and global IPv6 with prefix length, `10.0.0.11/24`."""
    up: bool = True
    mtu: int | None = None
    speed_bits_per_second: int | None = None
    rdma_device: str | None = None
    """The InfiniBand or RoCE device behind it."""
    virtual: bool = False
    """Loopback, bridges, veth pairs, tunnels: never chosen for NCCL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    """An InfiniBand or RoCE port."""

    name: str
    port: int = 1
    state: str = ""
    """As the kernel prints it: `ACTIVE`, `DOWN`, …"""
    rate_bits_per_second: int | None = None
    link_layer: str = ""
    """`InfiniBand` or `Ethernet` (RoCE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image present on the host that may run vLLM."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    architecture: str | None = None
    size_bytes: int | None = None
    vllm_version: str | None = None
    ray: bool | None = None
    """Whether Ray is in it; None when nothing tells."""
    cuda_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OurContainer:
    """A container that carries our labels."""

    id: str = ""
    name: str = ""
    deployment: str = ""
    state: str = ""
    """As Docker prints it: `created`, `running`, `exited`, …"""
    role: str = ""
    rank: int | None = None
    image: str = ""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs given to it."""
    claims: tuple[tuple[str, int], ...] = ()
    """UUID and bytes predicted to be used on it, for each GPU where a prediction was recorded."""
    loading: bool = False
    """Started and not yet serving."""
    ports: tuple[int, ...] = ()
    keep_alive_seconds: int | None = None
    """Of idleness, after which a sweep stops it; negative: never, it is pinned. None: no label says (S4.8)."""
    running_requests: int | None = None
    """In flight in its server by `/metrics`; None: it runs none, or did not tell."""
    waiting_requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """The engine, as far as it answered; why it did not is a fact of the host."""

    version: str = ""
    api_version: str = ""
    storage_driver: str = ""
    root_dir: str = ""
    runtimes: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    rootless: bool = False
    architecture: str | None = None
    transport: str = ""
    """How the engine is reached: `socket`, `dial-stdio`, `local`."""
    images: tuple[Image, ...] = ()
    containers: tuple[OurContainer, ...] = ()
    gpu_support: bool | None = None
    """Whether the engine can hand GPUs to containers: a runtime or CDI devices are registered. None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLink:
    """How two GPUs of a host reach each other, as `nvidia-smi topo -m` prints it."""

    a: int
    b: int
    kind: str
    """`NV18`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One machine beside its GPUs and memory."""

    hostname: str | None = None
    machine_id: str | None = None
    architecture: str | None = None
    """`x86_64`, `aarch64`."""
    kernel: str | None = None
    os: str | None = None
    cpu: str | None = None
    cpu_count: int | None = None
    user: str | None = None
    """The login the probe had."""
    clock_offset_seconds: float | None = None
    """The host's clock less ours; uncertain by about half a round trip."""
    driver_version: str | None = None
    runtime_version: str | None = None
    """Newest CUDA, ROCm or CANN the driver serves."""
    ephemeral_ports: tuple[int, int] | None = None
    """First and last port the kernel gives to outgoing connections."""
    listening_ports: tuple[int, ...] = ()
    disks: tuple[Disk, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    data_interface: str | None = None
    """For NCCL, Gloo and Ray: the inventory's, or chosen by the probe."""
    rdma: tuple[RdmaDevice, ...] = ()
    links: tuple[GpuLink, ...] = ()
    docker: Docker | None = None
    conditions: tuple[Fact, ...] = ()
    """States worth telling, missing tools and sick devices among them."""


EMPTY = HostFacts()
