"""What of a file's models runs already: our containers on the fleet, by the names of their deployments.

A deployment is of a model of the file when it has its name, or its name and a number: `chat`, `chat-2`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuplan.domain.deployment import ENDED, ContainerRole
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.host_facts import OurContainer
from gpuplan.domain.plan import Verdict
from gpuplan.operations.packing_models import AskedModel
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Offer, Supply
from gpuplan.planning.packing.layouts import taken_bytes
from gpuplan.planning.packing.moves import Running
from gpuplan.planning.packing.values import Place, Stay
from gpuplan.planning.released import released
from gpuplan.planning.strategies import manual

ALIKE = 0.01
"""Share of a card by which a claim may differ from the planned one and be the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One copy of a model as it runs."""

    deployment: str
    key: str
    """Of its stay: the deployment, with a number where it has several copies."""
    cards: tuple[tuple[Place, int], ...]
    """With the recorded claim; 0 where none was recorded."""
    lost: bool = False
    """Some GPU of it is not among those of its host."""


def seen_copies(fleet: Fleet, names: Sequence[str]) -> dict[str, tuple[Seen, ...]]:
    """Copies that run, by model."""
    found: dict[str, list[tuple[str, OurContainer]]] = {}
    for host in fleet.hosts:
        for container in host.facts.docker.containers if host.facts.docker is not None else ():
            if container.deployment and container.state not in ENDED and container.gpus:
                found.setdefault(container.deployment, []).append((host.name, container))
    places = {
        (host.name, gpu.uuid): gpu.index for host in fleet.hosts for gpu in host.gpus if gpu.uuid is not None
    }
    seen: dict[str, tuple[Seen, ...]] = {}
    for deployment in sorted(found):
        model = model_of(deployment, names)
        if model is not None:
            seen[model] = (*seen.get(model, ()), *_copies(deployment, found[deployment], places))
    return seen


def model_of(deployment: str, names: Sequence[str]) -> str | None:
    """The model a deployment is of: by its name, else by its name without the number at its end."""
    if deployment in names:
        return deployment
    match = re.fullmatch(r"(.+)-[0-9]{1,3}", deployment)
    return match.group(1) if match and match.group(1) in names else None


def _copies(
    deployment: str, containers: Sequence[tuple[str, OurContainer]], places: Mapping[tuple[str, str], int]
) -> list[Seen]:
    replicas = [one for one in containers if one[1].role == ContainerRole.REPLICA.value]
    groups = [[one] for one in replicas] if len(replicas) > 1 else [list(containers)]
    copies = []
    for number, group in enumerate(groups):
        cards: dict[Place, int] = {}
        lost = False
        for host, container in group:
            claims = dict(container.claims)
            for uuid in container.gpus:
                index = places.get((host, uuid))
                if index is None:
                    lost = True
                else:
                    place = (host, index)
                    cards[place] = max(cards.get(place, 0), claims.get(uuid, 0))
        key = deployment if len(groups) == 1 else f"{deployment}#{number}"
        copies.append(Seen(deployment=deployment, key=key, cards=tuple(sorted(cards.items())), lost=lost))
    return copies


def without(fleet: Fleet, seen: Mapping[str, Sequence[Seen]]) -> Fleet:
    """The fleet as it will be once every copy of the file's models is stopped."""
    for deployment in sorted({one.deployment for copies in seen.values() for one in copies}):
        fleet = released(fleet, deployment)
    return fleet


def stay_of(one: AskedModel, copy: Seen, fleet: Fleet, supply: Supply) -> Stay:
    """Whether the copy may stay, judged as `plan --gpus` judges its GPUs with nobody else of the file on them."""
    offers = {(offer.host, offer.index): offer for offer in supply.offers}
    cards = tuple((place, claim) for place, claim in copy.cards if place in offers)
    held = tuple((place, _held(offers[place], claim)) for place, claim in cards)
    away = Stay(deployment=copy.key, cards=held, fit=False)
    if copy.lost or len(cards) < len(copy.cards) or not cards:
        return away
    backends = {offers[place].device.backend for place, _ in cards}
    share = share_of(one, cards, offers)
    judge = Judge(one.request(fleet, gpus_of(cards), share))
    world = one.workload.engine.user_world_size
    if len(backends) > 1 or (world is not None and world != len(cards)):
        return away
    result = manual.evaluate(judge, supply)
    if not result.candidates or result.candidates[0].verdict is not Verdict.FITS:
        return away
    candidate = result.candidates[0]
    ram = max(host.ram_claim_bytes for host in candidate.placement)
    assessment = judge.assess(candidate.parallelism, tuple(offers[place].device for place, _ in cards))
    kept = []
    for place, claim in cards:
        device = offers[place].device
        planned = judge.claim(device, assessment)
        if claim and abs(claim - planned) > ALIKE * device.total_bytes:
            return away
        overhead = judge.start_overhead(device, candidate.parallelism.speaking)
        kept.append((place, max(taken_bytes(judge, device, assessment), claim + overhead)))
    return Stay(deployment=copy.key, cards=tuple(kept), ram_bytes=ram)


def share_of(
    one: AskedModel, cards: Sequence[tuple[Place, int]], offers: Mapping[Place, Offer]
) -> float | None:
    """The share a copy of a model that shares GPUs runs at, by its claim; None where the request says it."""
    if not one.shared:
        return None
    shares = [round(claim / offers[place].total_bytes, 2) for place, claim in cards]
    return max(shares) or None


def gpus_of(cards: Sequence[tuple[Place, int]]) -> tuple[str, ...]:
    """`--gpus` words for these, a host each."""
    hosts: dict[str, list[int]] = {}
    for (host, index), _ in cards:
        hosts.setdefault(host, []).append(index)
    return tuple(f"{host}:{','.join(map(str, sorted(indexes)))}" for host, indexes in hosts.items())


def _held(offer: Offer, claim: int) -> int:
    return min(claim, offer.allocatable_bytes)


def running_of(seen: Mapping[str, Sequence[Seen]], stays: Mapping[str, Stay]) -> tuple[Running, ...]:
    """Deployments as they run, each with all its copies' GPUs; `stays` by key."""
    held: dict[str, Running] = {}
    for model, copies in seen.items():
        for copy in copies:
            stay = stays[copy.key]
            known = held.get(copy.deployment)
            more = Running(item=model, deployment=copy.deployment, cards=stay.cards, ram_bytes=stay.ram_bytes)
            held[copy.deployment] = (
                more if known is None else replace(known, cards=(*known.cards, *more.cards))
            )
    return tuple(held.values())
