"""`gpuplan plan … --solve -o json`: the plan asked backwards, the shape scripts depend on (`schema_version` 1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.throughput import Throughput
from gpuplan.planning.solve import CardNeed, KindNeed, Need, Reach, Solution

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NeedDocument:
    """A placement of the fewest GPUs."""

    strategy: str
    gpus: int
    hosts: int
    total_bytes: int
    """Memory of all of them."""
    tensor: int
    pipeline: int
    data: int
    expert: bool
    layer_partition: tuple[int, ...] | None
    placement: Mapping[str, tuple[int, ...]]
    """GPU indexes by host."""
    context: int | None
    """Tokens each request has; null: only a claim is known."""
    tokens_per_second: float | None
    """For each user; null: not known."""
    tokens_per_second_total: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class KindDocument:
    """One kind of GPU of the fleet."""

    device: str
    card_bytes: int
    gpus: int
    hosts: int
    now: tuple[NeedDocument, ...]
    idle: tuple[NeedDocument, ...]
    """Were nothing else running; empty where `now` is not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PointDocument:
    """A point of the curve."""

    concurrency: int
    context: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReachDocument:
    """How far the recommended placement goes."""

    placement: NeedDocument
    context: int
    """Tokens at most for each of the requests asked for."""
    concurrency: int | None
    """Requests at most at the context asked for; null: none was."""
    curve: tuple[PointDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CardDocument:
    """One card of the catalogue."""

    name: str
    card_bytes: int
    need: NeedDocument


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SolveDocument:
    """What it takes."""

    schema_version: int
    request: Mapping[str, Any]
    model: Mapping[str, Any]
    fleet: tuple[KindDocument, ...] | None
    """null: there is no fleet to ask about."""
    fleet_note: str | None
    reach: ReachDocument | None
    cards: tuple[CardDocument, ...]
    too_small: tuple[str, ...]


def solve_document(solution: Solution) -> SolveDocument:
    """The whole answer as data."""
    return SolveDocument(
        schema_version=SCHEMA_VERSION,
        request=solution.request,
        model=solution.model,
        fleet=None if solution.fleet is None else tuple(_kind(kind) for kind in solution.fleet),
        fleet_note=solution.fleet_note,
        reach=None if solution.reach is None else _reach(solution.reach),
        cards=tuple(_card(card) for card in solution.cards),
        too_small=solution.too_small,
    )


def _kind(kind: KindNeed) -> KindDocument:
    return KindDocument(
        device=kind.device,
        card_bytes=kind.card_bytes,
        gpus=kind.gpus,
        hosts=kind.hosts,
        now=tuple(_need(need) for need in kind.now),
        idle=tuple(_need(need) for need in kind.idle),
    )


def _reach(reach: Reach) -> ReachDocument:
    return ReachDocument(
        placement=_need(Need(strategy=reach.strategy, candidate=reach.candidate)),
        context=reach.context,
        concurrency=reach.concurrency,
        curve=tuple(PointDocument(concurrency=users, context=length) for users, length in reach.curve),
    )


def _card(card: CardNeed) -> CardDocument:
    return CardDocument(name=card.name, card_bytes=card.card_bytes, need=_need(card.need))


def _need(need: Need) -> NeedDocument:
    candidate, shape = need.candidate, need.candidate.parallelism
    told = candidate.throughput if isinstance(candidate.throughput, Throughput) else None
    places: dict[str, tuple[int, ...]] = {}
    for host in candidate.placement:
        places[host.host] = (*places.get(host.host, ()), *(gpu.index for gpu in host.gpus))
    return NeedDocument(
        strategy=need.strategy.value,
        gpus=need.gpus,
        hosts=need.hosts,
        total_bytes=need.total_bytes,
        tensor=shape.tensor,
        pipeline=shape.pipeline,
        data=shape.data,
        expert=shape.expert,
        layer_partition=shape.layer_partition,
        placement=places,
        context=None if candidate.memory is None else candidate.memory.max_model_len,
        tokens_per_second=None if told is None else told.decode.per_user,
        tokens_per_second_total=None if told is None else told.decode.total,
    )
