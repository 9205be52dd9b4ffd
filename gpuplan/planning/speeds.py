"""Tokens per second of the candidates of a finished plan: computed once per shape and kind of cards, never while placing."""

from dataclasses import dataclass, field, replace

from gpuplan.domain.fleet import Gpu, Host
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.plan import Candidate, PlacedHost, StrategyResult, Verdict
from gpuplan.domain.throughput import NoThroughput, Throughput
from gpuplan.engine.links import Topology
from gpuplan.engine.throughput import Serving, throughput
from gpuplan.planning.ranking import ranked
from gpuplan.planning.request import PlanRequest, no_cards, with_offload

Answer = Throughput | NoThroughput
ACTIVE = "ACTIVE"


@dataclass(slots=True)
class Speeds:
    """Answers of one request, each made once."""

    request: PlanRequest
    _hosts: dict[str, Host] = field(default_factory=dict)
    _gpus: dict[str, dict[int, Gpu]] = field(default_factory=dict)
    _answers: dict[tuple[object, ...], Answer] = field(default_factory=dict)
    _cards: dict[tuple[str, int | None], Accelerator | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._hosts = {host.name: host for host in self.request.fleet.hosts}

    def told(self, result: StrategyResult) -> StrategyResult:
        """The result with the speed of every candidate that can run, ties broken by it; as it is without a catalogue."""
        if not result.candidates or self.request.accelerators is no_cards:
            return result
        candidates = [
            replace(candidate, throughput=self._of(candidate))
            if candidate.verdict in (Verdict.FITS, Verdict.OVERCOMMIT)
            else candidate
            for candidate in result.candidates
        ]
        return replace(result, candidates=tuple(ranked(candidates, self.request.workload.placement)))

    def _of(self, candidate: Candidate) -> Answer:
        memory = candidate.memory
        if memory is None:
            return NoThroughput(reason="only a claim is known")
        replica = _first_replica(candidate)
        gpus = [self._gpu(host.host, gpu.index) for host, count in replica for gpu in host.gpus[:count]]
        names = tuple(dict.fromkeys(host.host for host, _ in replica))
        topology = self._topology(names)
        key = (
            candidate.parallelism,
            id(memory),
            topology,
            *((gpu.name, gpu.total_bytes, gpu.parent is None) for gpu in gpus),
        )
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._computed(candidate, gpus, topology)
        return known

    def _computed(self, candidate: Candidate, gpus: list[Gpu], topology: Topology) -> Answer:
        memory, workload = candidate.memory, self.request.workload
        assert memory is not None
        if any(gpu.parent is not None for gpu in gpus):
            return NoThroughput(reason="what a MIG slice gets of its card's bandwidth is not known")
        cards = [self._card(gpu) for gpu in gpus]
        for card, gpu in zip(cards, gpus, strict=True):
            if card is None:
                return NoThroughput(reason=f"{gpu.name} is not in the catalogue of accelerators")
        shape = candidate.parallelism
        return throughput(
            Serving(
                profile=self.request.profile,
                engine=with_offload(self.request, candidate.placement[0].cpu_offload_gib).workload.engine,
                version=self.request.version,
                parallelism=shape,
                together=self.request.profile.expert_count > 0 and workload.engine.data_parallel_size > 1,
                cards=tuple(card for card in cards if card is not None),
                topology=topology,
                context=max(memory.max_model_len, 1),
                users=(workload.concurrency or 1) * shape.data,
                batched_tokens=memory.max_num_batched_tokens,
                sequences=memory.max_num_seqs,
                held=memory.max_concurrency,
            )
        )

    def _gpu(self, host: str, index: int) -> Gpu:
        known = self._gpus.get(host)
        if known is None:
            known = self._gpus[host] = {gpu.index: gpu for gpu in self._hosts[host].gpus}
        return known[index]

    def _card(self, gpu: Gpu) -> Accelerator | None:
        """What the catalogue knows of a GPU; of one known by its size alone, of the likeliest kind."""
        name = gpu.kinds[0].name if gpu.kinds else gpu.name
        key = (name, gpu.total_bytes)
        if key not in self._cards:
            self._cards[key] = self.request.accelerators(name, gpu.total_bytes)
        return self._cards[key]

    def _topology(self, names: tuple[str, ...]) -> Topology:
        hosts = [self._hosts[name] for name in names]
        links = {host.link for host in hosts}
        link = links.pop() if len(links) == 1 else None
        if len(hosts) == 1:
            return Topology(link=link)
        rates = [_network(host) for host in hosts]
        known = [rate for rate, _ in rates if rate is not None]
        return Topology(
            hosts=len(hosts),
            link=link,
            network_bytes_per_second=min(known) // 8 if len(known) == len(hosts) else None,
            rdma=all(rdma for _, rdma in rates),
        )


def _first_replica(candidate: Candidate) -> list[tuple[PlacedHost, int]]:
    """The hosts of the first replica, each with how many of its GPUs are in it: ranks lie over the GPUs in order."""
    left = max(candidate.parallelism.world_size, 1)
    found = []
    for host in candidate.placement:
        count = min(left, len(host.gpus))
        found.append((host, count))
        left -= count
        if left <= 0:
            break
    return found


def _network(host: Host) -> tuple[int | None, bool]:
    """Bits per second of the fastest way out, and whether it is RDMA; nothing known counts as RDMA of an assumed rate."""
    active = [
        device.rate_bits_per_second
        for device in host.facts.rdma
        if device.state == ACTIVE and device.rate_bits_per_second
    ]
    if active:
        return max(active), True
    wired = [
        face.speed_bits_per_second
        for face in host.facts.interfaces
        if face.up and not face.virtual and face.speed_bits_per_second
    ]
    return (max(wired), False) if wired else (None, True)
