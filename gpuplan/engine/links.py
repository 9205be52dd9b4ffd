"""What it takes ranks to exchange tensors: latency of a collective, then bytes over the link.

Latencies are those of small messages: vLLM's custom all-reduce over NVLink (5 to 10 µs), NCCL over PCIe through host
memory (20 to 40 µs), NCCL between hosts over RDMA (30 to 60 µs) and over TCP (150 µs and more). They and the shares are
round numbers of that order; no link was measured for them (`engine.throughput` says how far off the whole is).
"""

from dataclasses import dataclass

from gpuplan.domain.hardware import Accelerator

SWITCHED = ("nvlink", "xgmi", "hccs")
LATENCY = {"nvlink": 6e-6, "xgmi": 12e-6, "hccs": 15e-6, "pcie": 20e-6}
"""Seconds of an all-reduce of two ranks."""
LATENCY_PER_RANK = {"nvlink": 0.6e-6, "xgmi": 1.5e-6, "hccs": 2e-6, "pcie": 4e-6}
"""Seconds that each further rank adds."""
SHARE = {"nvlink": 0.7, "xgmi": 0.6, "hccs": 0.6, "pcie": 0.5}
"""Of a link's rate in one direction that collectives reach; over PCIe data may pass through host memory."""
DEFAULT_RATE = {"nvlink": 300e9, "xgmi": 200e9, "hccs": 90e9, "pcie": 16e9}
"""Bytes per second where the card's data sheet has no figure for this kind of link."""
RDMA_LATENCY = 40e-6
RDMA_LATENCY_PER_HOST = 5e-6
TCP_LATENCY = 180e-6
"""Seconds of a collective between hosts."""
NETWORK_SHARE = 0.7
"""Of the network's rate that collectives reach."""
ASSUMED_NETWORK = 12_500_000_000
"""Bytes per second between hosts where nothing is known of the network: 100 Gbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Where the ranks of one replica stand."""

    hosts: int = 1
    link: str | None = None
    """Between the GPUs of a host: nvlink, xgmi, hccs, pcie; None: as the card is built."""
    network_bytes_per_second: int | None = None
    """Of the slowest host; None: unknown."""
    rdma: bool = True

    @property
    def network_known(self) -> bool:
        return self.network_bytes_per_second is not None


def link_kind(card: Accelerator, topology: Topology) -> str:
    """How GPUs of one host reach each other; PCIe where nothing is known."""
    name = (topology.link or card.link or "pcie").lower()
    return name if name in LATENCY else "pcie"


def link_rate(card: Accelerator, kind: str) -> float:
    """Bytes per second that collectives reach."""
    known = card.link_bytes_per_second if card.link == kind else None
    return (known or DEFAULT_RATE[kind]) * SHARE[kind]


def network_rate(topology: Topology) -> float:
    """Bytes per second between hosts that collectives reach."""
    return (topology.network_bytes_per_second or ASSUMED_NETWORK) * NETWORK_SHARE


def all_reduce_seconds(size: float, ranks: int, across: int, card: Accelerator, topology: Topology) -> float:
    """One all-reduce of `size` bytes over `ranks` ranks that stand on `across` hosts."""
    if ranks <= 1:
        return 0.0
    if across > 1:
        return _latency_between(across, topology) + 2 * (ranks - 1) / ranks * size / network_rate(topology)
    kind = link_kind(card, topology)
    latency = LATENCY[kind] + LATENCY_PER_RANK[kind] * (ranks - 2)
    return latency + 2 * (ranks - 1) / ranks * size / link_rate(card, kind)


def exchange_seconds(size: float, ranks: int, across: int, card: Accelerator, topology: Topology) -> float:
    """Tokens sent to the ranks of their experts and back: `size` bytes leave each rank in all."""
    if ranks <= 1:
        return 0.0
    if across > 1:
        return 2 * _latency_between(across, topology) + size / network_rate(topology)
    kind = link_kind(card, topology)
    return 2 * (LATENCY[kind] + LATENCY_PER_RANK[kind] * (ranks - 2)) + size / link_rate(card, kind)


def hop_seconds(size: float, card: Accelerator, topology: Topology) -> float:
    """Hidden states from one pipeline stage to the next."""
    if topology.hosts > 1:
        return _latency_between(2, topology) + size / network_rate(topology)
    kind = link_kind(card, topology)
    return LATENCY[kind] + size / link_rate(card, kind)


def _latency_between(hosts: int, topology: Topology) -> float:
    if not topology.rdma:
        return TCP_LATENCY * (hosts - 1)
    return RDMA_LATENCY + RDMA_LATENCY_PER_HOST * (hosts - 2)
