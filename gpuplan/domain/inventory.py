"""What the user wrote down about the fleet, validated and with defaults applied."""

from dataclasses import dataclass

from gpuplan.domain.tariff import NO_TARIFF, Tariff

LOCAL = "local"
"""The address of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGpus:
    """`gpus:` of a host: hardware the user vouches for, used with `--no-probe`."""

    name: str
    """Catalogue name as written."""
    count: int
    memory_bytes: int | None = None
    """Set for hardware outside the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """One host as the user wrote it down, defaults applied."""

    name: str
    address: str
    """`LOCAL` is this machine."""
    user: str | None = None
    port: int | None = None
    """None: as `~/.ssh/config` says, else 22."""
    identity_file: str | None = None
    model_dir: str | None = None
    interface: str | None = None
    data_address: str | None = None
    jump: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    reserve_vram_bytes: int = 0
    """Per GPU."""
    reserve_ram_bytes: int = 0
    exclude_gpus: tuple[int, ...] = ()
    gpus: tuple[DeclaredGpus, ...] = ()
    """Several entries describe a host with unlike cards."""
    ram_bytes: int | None = None
    tariff: Tariff = NO_TARIFF


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """How vLLM is started on every host."""

    image: str | None = None
    shm_size_bytes: int = 10 * 1024**3
    ray_ports: tuple[int, int] = (41000, 41999)
    """Inclusive."""
    service_ports: tuple[int, int] = (40000, 40063)
    """Inclusive."""
    env: tuple[tuple[str, str], ...] = ()
    registry: str | None = None
    """Registry that takes the place of the public ones for images gpuplan chooses itself (S2.4): `mirror.lan:5000`."""
    user: str | None = None
    """`uid:gid` the containers run as; None: the image's (S2.9)."""
    cache_dir: str = "~/.cache/gpuplan"
    """On every host: compile caches, one directory an image. `~` is the login's home."""
    huggingface_home: str = "~/.cache/huggingface"
    """On every host: where models of the hub lie, or are downloaded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The whole file."""

    path: str
    hosts: tuple[HostEntry, ...]
    vllm: VllmSettings = VllmSettings()
