"""Accelerators as facts: what the driver reports, not what the datasheet advertises."""

from dataclasses import dataclass

from gpuplan.domain.fleet import Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One kind of device a placement can use: a whole card, or the die the driver shows as a device."""

    name: str
    """Catalogue key, `H100-80GB`; for hardware outside the catalogue, the name the user gave."""
    memory_bytes: int
    """Total memory as the runtime sees it (cudaMemGetInfo, hipMemGetInfo): what vLLM takes its share of."""
    memory_basis: Basis
    """MEASURED in a log, COMPUTED from a sibling, ASSUMED from the datasheet, EXACT when the user gave it."""
    source: str
    """Where `memory_bytes` comes from."""
    also_bytes: tuple[int, ...] = ()
    """Other totals such cards report under other drivers, to two decimals of a GiB, as logs print them."""
    variant_of: str | None = None
    """The card this one is a regional variant of. It reports the same size: by its size alone it is never assumed."""
    taken_for: "tuple[Accelerator, ...]" = ()
    """For hardware given by its size alone: the kinds of card that report this size, the likeliest first."""
    device_names: tuple[str, ...] = ()
    """As the driver prints them, the usual one first. Sizes of one model may share a name."""
    aliases: tuple[str, ...] = ()
    vendor: str = "nvidia"
    backend: str = "cuda"
    """cuda, rocm, cann."""
    compute_capability: str | None = None
    """As NVIDIA writes it, `9.0`; None when unknown or not NVIDIA."""
    architecture: str | None = None
    """hopper, cdna3, davinci, …"""
    reported_mib: int | None = None
    """What nvidia-smi or npu-smi prints as total, in MiB: more than a process can ever have."""
    bandwidth_bytes_per_second: int | None = None
    """Device memory, datasheet peak; the lowest where variants share a name."""
    link: str | None = None
    """To the other GPUs of the host: nvlink, xgmi, hccs, pcie. None when it is built in alone, or unknown."""
    link_bytes_per_second: int | None = None
    """One direction, all links of one GPU together."""
    unified: bool = False
    """The memory is the host's memory."""
    half_flops: int | None = None
    """Dense 16-bit matrix operations per second (bf16, or fp16 before Ampere), datasheet."""
    fp8_flops: int | None = None
    """Dense; None where the hardware has no fp8 units."""
    tdp_watts: int | None = None
    """Of the device at most, data sheet; None where cards that share its name differ, or it is not published."""

    @property
    def device_name(self) -> str:
        """The name the engine sees, on which some of its defaults depend (`a100`)."""
        return self.device_names[0] if self.device_names else self.name
