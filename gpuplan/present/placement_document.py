"""Where a candidate goes, as data: hosts, their GPUs, and who has the memory that cannot be claimed."""

from dataclasses import dataclass

from gpuplan.domain.plan import Holding, PlacedGpu, PlacedHost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class HoldingDocument:
    """Memory of a GPU that cannot be claimed, and whose it is; null bytes: how much is not known."""

    owner: str
    bytes: int | None
    name: str
    container: str | None
    user: str | None
    pid: int | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PlacedGpuDocument:
    """One GPU of a placement."""

    index: int
    uuid: str | None
    claim_bytes: int
    allocatable_bytes: int
    total_bytes: int
    held: tuple[HoldingDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PlacedHostDocument:
    """The GPUs of one host in a placement."""

    host: str
    role: str
    gpus: tuple[PlacedGpuDocument, ...]
    ram_claim_bytes: int
    driver_version: str | None
    cpu_offload_gib: int
    """GiB of weights that the plan leaves in host memory for each GPU; 0 also where the user decided it."""


def placed_host(host: PlacedHost) -> PlacedHostDocument:
    """One host of a placement as data."""
    return PlacedHostDocument(
        host=host.host,
        role=host.role.value,
        gpus=tuple(_placed_gpu(gpu) for gpu in host.gpus),
        ram_claim_bytes=host.ram_claim_bytes,
        driver_version=host.driver_version,
        cpu_offload_gib=host.cpu_offload_gib,
    )


def _placed_gpu(gpu: PlacedGpu) -> PlacedGpuDocument:
    return PlacedGpuDocument(
        index=gpu.index,
        uuid=gpu.uuid,
        claim_bytes=gpu.claim_bytes,
        allocatable_bytes=gpu.allocatable_bytes,
        total_bytes=gpu.total_bytes,
        held=tuple(_holding(holding) for holding in gpu.held),
    )


def _holding(holding: Holding) -> HoldingDocument:
    return HoldingDocument(
        owner=holding.owner.value,
        bytes=holding.bytes,
        name=holding.name,
        container=holding.container,
        user=holding.user,
        pid=holding.pid,
        basis=holding.basis.value,
    )
