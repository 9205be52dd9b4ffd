"""How fast a placement is likely to answer: tokens per second, what holds them back, and what the figures rest on."""

from dataclasses import dataclass
from enum import StrEnum

from gpuplan.domain.fleet import Basis


class Bound(StrEnum):
    """What most of the time of a step goes to."""

    MEMORY = "memory"
    """Reading weights and caches from the GPU's memory."""
    COMPUTE = "compute"
    LINKS = "links"
    """Exchange between ranks."""
    LAUNCHES = "launches"
    """Starting kernels, and the host's work between steps."""
    OFFLOAD = "offload"
    """Reading weights from the host's memory (`--cpu-offload-gb`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSpeed:
    """Tokens generated per second while so many users are answered at once."""

    users: int
    """Over all replicas."""
    context: int
    """Tokens in the cache of each."""
    per_user: float
    total: float
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadCost:
    """What it costs that some weights stay in host memory."""

    read_bytes: int
    """Of host memory by one GPU in every decode step, at the users that were asked for."""
    bytes_per_second: int
    """At which it reads them."""
    bus: str
    """`PCIe 4`."""
    whole_per_user: float
    """Tokens per second of a user if the same cards held all weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What a placement is likely to give; the true figure lies between `low` and `high` times the one shown."""

    decode: DecodeSpeed
    """At the users and the context that were asked for."""
    others: tuple[DecodeSpeed, ...]
    """One user with a short context, and as many as the cache holds."""
    prefill_tokens_per_second: float
    """Prompt tokens read per second, all replicas together."""
    prefill_bound: Bound
    first_token_seconds: float
    """Until the first token of a prompt as long as the context, which nothing else delays."""
    low: float
    high: float
    basis: Basis
    formula: str
    inputs: tuple[tuple[str, int | float | str], ...]
    source: str
    notes: tuple[str, ...] = ()
    """What the figures leave out."""
    offload: OffloadCost | None = None
    """None where no weights stay in host memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoThroughput:
    """Why there is no figure."""

    reason: str
