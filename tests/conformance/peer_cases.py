"""The peer's selector cases in our terms: its fleet, model and request as ours, its answers as sets of booked GPUs.

`tests/data/gpustack/*.json*` hold what GPUStack's vLLM selector was asked and what each of its strategies, run alone,
answered; `fields` in `selector-cases.json` explains them. The peer ignores measured use: what a GPU can still give is
its total less what instances booked on it and less the reserve, so the translation books exactly that.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuplan.domain.fleet import Fleet, Gpu, Host, HostFailure, HostStatus
from gpuplan.domain.model import (
    Embedding,
    Layer,
    Linear,
    ModelProfile,
    Partition,
    Residence,
    ResidentPart,
    Shard,
)
from gpuplan.domain.plan import Candidate, StrategyName
from gpuplan.domain.workload import Category, GpuSelection, Placement, Workload
from gpuplan.engine.arguments import parse
from gpuplan.engine.utilization import gpu_memory_utilization
from gpuplan.engine.versions import EngineVersion
from gpuplan.operations.models import nothing_known
from gpuplan.planning.request import PlanRequest
from gpuplan.units import GIB

DATA = Path(__file__).parent.parent / "data" / "gpustack"
VERSION = EngineVersion(0, 18)
"""Of the peer's time: gpu-memory-utilization is 0.9 unless the user sets it."""
STRATEGIES = {
    "manual": StrategyName.MANUAL,
    "single_gpu": StrategyName.SINGLE_GPU,
    "single_host_multi_gpu": StrategyName.SINGLE_HOST,
    "multi_host": StrategyName.MULTI_HOST,
}
SHORT = {"--tp": "-tp", "--pp": "-pp", "--dp": "-dp", "--dpl": "-dpl"}
"""Spellings only the peer reads."""
HEAD_SIZE = 128
TYPE_STRIDE = 1000
"""The peer numbers the GPUs of each type from 0; on a host with two types ours are told apart by this."""

Card = tuple[str, int]
"""Host and GPU index, as we number them."""


@dataclass(frozen=True, slots=True)
class Spot:
    """What a candidate books: bytes on each GPU, RAM on each host."""

    cards: frozenset[tuple[Card, int]]
    overcommit: bool
    ram: frozenset[tuple[str, int]]

    @property
    def gpus(self) -> frozenset[Card]:
        return frozenset(card for card, _ in self.cards)

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for host, _ in self.gpus)

    @property
    def kind(self) -> StrategyName:
        """The strategy that names such a placement: a single GPU, GPUs of one host, several hosts."""
        if len(self.hosts) > 1:
            return StrategyName.MULTI_HOST
        return StrategyName.SINGLE_HOST if len(self.cards) > 1 else StrategyName.SINGLE_GPU


@dataclass(frozen=True)
class Case:
    """One case of the peer."""

    source: str
    raw: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.source}:{self.raw['id']}"

    @property
    def answer(self) -> Mapping[str, Any]:
        """The selector's full answer."""
        answer: Mapping[str, Any] = self.raw.get("observed") or self.raw["expect"]
        return answer

    @property
    def model(self) -> Mapping[str, Any]:
        model: Mapping[str, Any] = self.raw["model"]
        return model

    @property
    def request(self) -> Mapping[str, Any]:
        request: Mapping[str, Any] = self.raw["request"]
        return request

    @cached_property
    def hosts(self) -> tuple[Mapping[str, Any], ...]:
        """The hosts the request's labels leave."""
        wanted = dict(self.request.get("host_labels") or {}).items()
        return tuple(host for host in self.raw["hosts"] if wanted <= dict(host["labels"]).items())

    @property
    def claim(self) -> int:
        """Bytes the model needs: as the peer estimated, by its formula (study, section 2.1) where it failed before."""
        known = self.answer.get("vram_estimate_bytes") or self.model.get("vram_estimate_bytes")
        return int(known) if known else int(self.model["weight_bytes"] * 1.2) + 2 * GIB

    @property
    def selected(self) -> tuple[Card, ...]:
        """GPUs of a manual selection."""
        manual = self.request["manual"]
        if manual is None:
            return ()
        return tuple(
            _card(self.raw["hosts"], item["host"], item["type"], item["index"]) for item in manual["gpus"]
        )

    @property
    def ram_gib(self) -> int | None:
        """The fixed size of the extended KV cache. A share of the VRAM claim is only booked by the peer, never checked,
        and has no counterpart."""
        cache = self.request.get("extended_kv_cache") or {}
        size = cache.get("ram_size_gib") if cache.get("enabled") else None
        return int(size) if size else None

    @property
    def ram_by_ratio(self) -> bool:
        cache = self.request.get("extended_kv_cache") or {}
        return bool(cache.get("enabled")) and self.ram_gib is None

    def answers(self) -> Iterator[tuple[StrategyName, tuple[Spot, ...]]]:
        """Each strategy the peer ran alone, with its candidates."""
        for name, outcome in (self.answer.get("per_strategy") or {}).items():
            yield STRATEGIES[name], tuple(self._spot(item) for item in outcome.get("candidates") or ())

    def _spot(self, item: Mapping[str, Any]) -> Spot:
        cards: list[tuple[Card, int]] = []
        ram: list[tuple[str, int]] = []
        for part in (item, *item["followers"]):
            ram.append((part["host"], part["ram_claim"] or 0))
            kind = part.get("gpu_type") or item["gpu_type"]
            for index, claim in part["vram_claim"].items():
                cards.append((_card(self.raw["hosts"], part["host"], kind, int(index)), claim))
        return Spot(frozenset(cards), bool(item["overcommit"]), frozenset(ram))


def cases() -> tuple[Case, ...]:
    """Every case that asks the selector for placements."""
    found = []
    for name in ("selector-cases.json", "oddities.json", "random.json.gz"):
        raw = (DATA / name).read_bytes()
        text = gzip.decompress(raw) if name.endswith(".gz") else raw
        source = name.partition(".")[0]
        found += [Case(source, item) for item in json.loads(text)["cases"] if item["kind"] == "select"]
    return tuple(found)


def request_of(case: Case) -> PlanRequest:
    """The case as our planner is asked it.

    Raises UsageError where the peer's request is one we refuse to read.
    """
    words = [
        SHORT.get(word, word)
        for entry in case.request["backend_parameters"]
        for word in str(entry).replace("=", " ", 1).split()
    ]
    engine = parse(words, version=VERSION, model_given=True)
    category = Category(case.model["categories"][0])
    workload = Workload(
        category=category,
        replicas=case.request["replicas"],
        placement=Placement(case.request["placement"]),
        selection=_selection(case),
        vram_claim_bytes=case.claim,
        ram_claim_bytes=None if case.ram_gib is None else case.ram_gib * GIB,
        allow_distributed=case.request["distributed"],
        engine=engine,
    )
    return PlanRequest(
        fleet=Fleet(hosts=tuple(_host(case, host) for host in case.hosts)),
        profile=profile_of(case),
        workload=workload,
        version=VERSION,
        utilization=gpu_memory_utilization(
            engine, category=category, architectures=tuple(case.model["architectures"]), version=VERSION
        ),
    )


def profile_of(case: Case) -> ModelProfile:
    """A profile of the facts divisibility rests on: heads, KV heads, vision heads, vocabulary, layers."""
    facts = {**case.model, **(case.model.get("bypass_config") or {})}
    heads, vocabulary = facts.get("num_attention_heads") or 0, facts.get("vocab_size") or 0
    vision = facts.get("vision_num_attention_heads") or 0
    layers = facts.get("num_hidden_layers") or 1
    parts = []
    if vocabulary:
        table = Embedding(name="embed_tokens", rows=vocabulary, width=1, itemsize=2)
        parts.append(ResidentPart(part=table, residence=Residence.FIRST))
    if vision:
        parts.append(
            ResidentPart(
                part=_attention("visual.qkv", vision, vision), residence=Residence.EVERY, tower="vision"
            )
        )
    attention = (
        (_attention("self_attn.qkv_proj", heads, facts.get("num_key_value_heads") or heads),) if heads else ()
    )
    return replace(
        nothing_known(facts["repo"]),
        architecture=facts["architectures"][0],
        attention_heads=heads,
        vocabulary=vocabulary,
        layer_kinds=(Layer(name="decoder", parts=attention),),
        layer_order=(0,) * layers,
        parts=tuple(parts),
    )


def _attention(name: str, heads: int, kv_heads: int) -> Linear:
    query = Partition(units=heads, unit_size=HEAD_SIZE)
    key = Partition(units=kv_heads, unit_size=HEAD_SIZE, replicable=True)
    return Linear(
        name=name, inputs=Partition(units=1), outputs=(query, key, key), shard=Shard.COLUMN, itemsize=2
    )


def _card(hosts: tuple[Mapping[str, Any], ...], host: str, kind: str, index: int) -> Card:
    found = next((item for item in hosts if item["name"] == host), None)
    kinds = list(dict.fromkeys(gpu["type"] for gpu in found["gpus"])) if found else []
    place = kinds.index(kind) if kind in kinds else len(kinds)
    return host, place * TYPE_STRIDE + index


def _host(case: Case, host: Mapping[str, Any]) -> Host:
    ready = host["state"] == "ready"
    booked = {kind: booked_vram(case, host["name"], kind) for kind in {gpu["type"] for gpu in host["gpus"]}}
    ram = host["ram_total_bytes"] - booked_ram(case, host["name"])
    gpus = [_gpu(case, host, gpu, booked[gpu["type"]]) for gpu in host["gpus"]]
    if host["unified_memory"]:
        held = sum(sum(kind.values()) for kind in booked.values())
        ram = max(0, ram - held - host["reserved"]["vram_bytes"] * len(gpus))
        left = max(0, ram - host["reserved"]["ram_bytes"])
        gpus[0] = replace(
            gpus[0], free_bytes=min(gpus[0].free_bytes or 0, left), unified=True, reserved_bytes=0
        )
    return Host(
        name=host["name"],
        address=host["ip"],
        status=HostStatus.OK if ready else HostStatus.UNREACHABLE,
        failure=None if ready else HostFailure(stage="connect", detail=host["state"]),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        ram_total_bytes=host["ram_total_bytes"],
        ram_available_bytes=max(0, ram),
        ram_reserved_bytes=host["reserved"]["ram_bytes"],
    )


def _gpu(case: Case, host: Mapping[str, Any], gpu: Mapping[str, Any], booked: Mapping[int, int]) -> Gpu:
    total = gpu["memory_total_bytes"]
    vendors = {"cuda": "nvidia", "rocm": "amd", "cann": "ascend"}
    return Gpu(
        index=_card(case.raw["hosts"], host["name"], gpu["type"], gpu["index"])[1],
        name=gpu["name"],
        vendor=vendors[gpu["type"]],
        backend=gpu["type"],
        total_bytes=total,
        free_bytes=None if total is None else max(0, total - booked.get(gpu["index"], 0)),
        reserved_bytes=host["reserved"]["vram_bytes"],
    )


def booked_vram(case: Case, host: str, kind: str) -> dict[int, int]:
    """Bytes instances claim on each GPU of one type, as the peer counts them (study, section 3)."""
    held: dict[int, int] = {}
    for instance in case.raw["instances"]:
        of_kind = instance.get("gpu_type")
        if instance["host"] == host and of_kind in (None, kind) and instance["gpu_indexes"]:
            _add(held, instance["vram_bytes"])
        if of_kind == kind:
            for follower in instance.get("followers") or ():
                if follower["host"] == host:
                    _add(held, follower["vram_bytes"])
    return held


def _add(held: dict[int, int], claims: Mapping[str, int]) -> None:
    for index, claim in claims.items():
        held[int(index)] = held.get(int(index), 0) + claim


def booked_ram(case: Case, host: str) -> int:
    """RAM instances claim on their main host."""
    return sum(instance["ram_bytes"] or 0 for instance in case.raw["instances"] if instance["host"] == host)


def _selection(case: Case) -> tuple[GpuSelection, ...]:
    by_host: dict[str, list[str]] = {}
    for host, index in case.selected:
        by_host.setdefault(host, []).append(str(index))
    return tuple(GpuSelection(host=host, devices=tuple(devices)) for host, devices in by_host.items())


def spot_of(candidate: Candidate) -> Spot:
    """What one of our candidates books."""
    cards = frozenset(
        ((host.host, gpu.index), gpu.claim_bytes) for host in candidate.placement for gpu in host.gpus
    )
    ram = frozenset((host.host, host.ram_claim_bytes) for host in candidate.placement)
    return Spot(cards, candidate.verdict.value == "overcommit", ram)
