"""`gpuplan plan -f models.yaml`: every model of a file placed on one fleet, together; nothing is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Candidate, Holding, Owner, StrategyResult, Verdict
from gpuplan.errors import NoHostError
from gpuplan.operations.fleet import FleetOptions, load_inventory, read_fleet
from gpuplan.operations.packing_facts import refusals, unreached
from gpuplan.operations.packing_models import AskedModel, asked_models, located, pinned
from gpuplan.operations.packing_running import (
    Seen,
    gpus_of,
    running_of,
    seen_copies,
    share_of,
    stay_of,
    without,
)
from gpuplan.planning.allocatable import ours_by_gpu, ours_on
from gpuplan.planning.costs import Costs
from gpuplan.planning.judge import Judge
from gpuplan.planning.notes import annotated
from gpuplan.planning.offers import Offer, Supply, launchable, supply_of
from gpuplan.planning.packing.answer import Answer, Copy, ModelAnswer, Move
from gpuplan.planning.packing.blocking import Blocked, Others, Why, blocked
from gpuplan.planning.packing.facts import about_blocked, about_gap, about_steps
from gpuplan.planning.packing.layouts import Way, ways
from gpuplan.planning.packing.moves import Action, Course, Running, Step, course, deployment_of
from gpuplan.planning.packing.solve import solve
from gpuplan.planning.packing.values import Card, Home, Item, Layout, Packing, Problem, Stay
from gpuplan.planning.planner import check_user_sizes
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.speeds import Speeds
from gpuplan.planning.strategies import manual
from gpuplan.planning.usable import MOST_DEPLOYMENTS, MOST_UNTRUSTED
from gpuplan.sources.models_yaml import load_models

MOST_ROUNDS = 8
"""Packings that are made until every placement of one is what `plan` says."""


NO_ROOM = 2**62
"""Bytes that no card has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Everything the packing starts from."""

    models: Mapping[str, AskedModel]
    fleet: Fleet
    """Without the file's models."""
    supply: Supply
    seen: Mapping[str, tuple[Seen, ...]]
    ways: Mapping[str, tuple[Way, ...]]
    running: tuple[Running, ...]
    taken: tuple[str, ...]
    """Names of other deployments."""


def plan_many(path: Path | str, options: FleetOptions) -> Answer:
    """Read the file, the models and the fleet; place them.

    Raises InventoryError for what is wrong in the file, and what `make_plan` raises for the fleet.
    """
    file = load_models(path)
    explicit = options.inventory is not None
    inventory = load_inventory(options) if explicit or options.snapshot is None else None
    if options.probes:
        # a mistyped model is told before anybody waits for hosts
        asked = asked_models(file, inventory.vllm.image if inventory is not None else None)
        fleet = read_fleet(options, inventory)
    else:
        fleet = read_fleet(options, inventory)
        asked = asked_models(file, inventory.vllm.image if inventory is not None else fleet.image)
    answer = pack(asked, fleet)
    return replace(
        answer, path=file.path, inventory=str(options.inventory) if options.inventory is not None else None
    )


def pack(asked: Sequence[AskedModel], fleet: Fleet) -> Answer:
    """Place models that were read on a fleet that was read."""
    start, problem = _problem(asked, fleet)
    packing, candidates = _packed(start, problem)
    steps = course(problem, packing, start.running, start.taken)
    reasons = {one.item: one for one in blocked(problem, packing, _others(start.supply, start.models))}
    models = tuple(_answer(start, one, packing, candidates, steps, reasons.get(one.name)) for one in asked)
    moves = tuple(_move(start, step) for step in steps.steps)
    facts = []
    for name, reason in reasons.items():
        one = start.models[name]
        facts.append(about_blocked(reason, one.entry.replicas, one.entry.priority))
        if reason.why is Why.NEVER:
            facts += refusals(one, start.fleet, start.supply)
    return Answer(
        path="",
        models=models,
        moves=moves,
        packing=packing,
        hosts=len({card.host for card in problem.cards}),
        gpus=len(problem.cards),
        fleet_basis=fleet.basis.value,
        taken_at=fleet.taken_at,
        inventory=None,
        facts=(*facts, *about_steps(steps.steps), *about_gap(packing), *unreached(fleet)),
    )


def _problem(asked: Sequence[AskedModel], fleet: Fleet) -> tuple[_Asked, Problem]:
    names = [one.name for one in asked]
    seen = seen_copies(fleet, names)
    bare = without(fleet, seen)
    supply = supply_of(bare)
    supply = launchable(supply) or supply
    if not supply.offers:
        funnel = ", ".join(f"{step.name}: {step.gpus} GPUs" for step in supply.funnel)
        raise NoHostError(
            f"no usable GPU in the fleet ({funnel})", hint="declare GPUs in the inventory, or check the hosts"
        )
    found: dict[object, tuple[Way, ...]] = {}
    all_ways = {one.name: _ways(one, bare, supply, found) for one in asked}
    stays = {copy.key: stay_of(one, copy, bare, supply) for one in asked for copy in seen.get(one.name, ())}
    start = _Asked(
        models={one.name: one for one in asked},
        fleet=bare,
        supply=supply,
        seen=seen,
        ways=all_ways,
        running=running_of(seen, stays),
        taken=_other_names(bare),
    )
    items = tuple(
        Item(
            name=one.name,
            layouts=tuple(way.layout for way in all_ways[one.name]),
            copies=one.entry.replicas,
            priority=one.entry.priority,
            cards=(cards := pinned(one, bare)),
            apart=frozenset(one.entry.anti_affinity),
            stays=tuple(_where_pinned(stays[copy.key], cards) for copy in seen.get(one.name, ())),
        )
        for one in asked
    )
    return start, Problem(cards=_cards(supply, bare), items=items, ram=_ram(supply))


def _ways(
    one: AskedModel, fleet: Fleet, supply: Supply, found: dict[object, tuple[Way, ...]]
) -> tuple[Way, ...]:
    """Entries that ask the same of the same model are judged once."""
    key = (id(one.model), one.options, one.version, one.shared)
    if key not in found:
        judge = Judge(one.request(fleet))
        located(one.entry, lambda: check_user_sizes(judge))
        found[key] = ways(judge, supply, shared=one.shared)
    return found[key]


def _where_pinned(stay: Stay, cards: frozenset[tuple[str, int]] | None) -> Stay:
    """A copy that runs where its model is not pinned to may not stay."""
    if cards is None or all(place in cards for place, _ in stay.cards):
        return stay
    return replace(stay, fit=False)


def _cards(supply: Supply, fleet: Fleet) -> tuple[Card, ...]:
    slots = {}
    for host in fleet.hosts:
        ours = ours_by_gpu(host)
        for gpu in host.gpus:
            untrusted = gpu.unified or (gpu.free_bytes is None and host.facts.docker is not None)
            there = {share.container.deployment for share in ours_on(gpu, ours)}
            most = MOST_UNTRUSTED if untrusted else MOST_DEPLOYMENTS
            slots[host.name, gpu.index] = max(0, most - len(there))
    ordered = sorted(supply.offers, key=lambda offer: (offer.host, offer.index))
    return tuple(
        Card(
            host=offer.host,
            index=offer.index,
            kind=offer.device,
            room_bytes=offer.allocatable_bytes,
            total_bytes=offer.total_bytes,
            slots=slots[offer.host, offer.index],
        )
        for offer in ordered
    )


def _ram(supply: Supply) -> dict[str, int]:
    return {host.host: host.ram_available_bytes or 0 for host in supply.hosts}


def _packed(start: _Asked, problem: Problem) -> tuple[Packing, dict[Home, Candidate]]:
    """A packing of which every placement is what `plan` says; what it does not confirm is not tried again."""
    rounds = 0
    while True:
        packing = solve(problem)
        candidates, refused = _confirmed(start, packing)
        refused += _parted(start, packing)
        if not refused:
            return packing, candidates
        rounds += 1
        if rounds == MOST_ROUNDS:
            return _without(start, packing, refused), candidates
        problem = _barred(problem, refused)


def _without(start: _Asked, packing: Packing, refused: Sequence[Home]) -> Packing:
    """The packing less every model of which a placement was refused."""
    out = {home.item for home in refused} | set(packing.left_out)
    lost = sum(start.models[name].entry.priority for name in out)
    return replace(
        packing,
        homes=tuple(home for home in packing.homes if home.item not in out),
        left_out=tuple(name for name in start.models if name in out),
        cost=(lost, *packing.cost[1:]),
    )


def _barred(problem: Problem, refused: Sequence[Home]) -> Problem:
    """Without the layouts and stays that were not confirmed."""
    items = []
    for item in problem.items:
        layouts = {home.layout for home in refused if home.item == item.name and home.layout is not None}
        stays = {home.stays for home in refused if home.item == item.name}
        items.append(
            replace(
                item,
                layouts=tuple(
                    _impossible(layout) if number in layouts else layout
                    for number, layout in enumerate(item.layouts)
                ),
                stays=tuple(
                    replace(stay, fit=False) if stay.deployment in stays else stay for stay in item.stays
                ),
            )
        )
    return replace(problem, items=tuple(items))


def _impossible(layout: Layout) -> Layout:
    """In its place, so that the others keep their numbers: no card has so much room."""
    hosts = tuple(tuple(replace(part, bytes=NO_ROOM) for part in parts) for parts in layout.hosts)
    return replace(layout, hosts=hosts)


def _confirmed(start: _Asked, packing: Packing) -> tuple[dict[Home, Candidate], list[Home]]:
    """What `plan --gpus` says of each home beside all others, and the homes it refuses."""
    candidates: dict[Home, Candidate] = {}
    refused = []
    for home in packing.homes:
        one = start.models[home.item]
        judge = Judge(one.request(start.fleet, gpus_of(home.cards), _share(start, home)))
        result = manual.evaluate(judge, beside(start.supply, packing.homes, home))
        if result.candidates and result.candidates[0].verdict is Verdict.FITS:
            candidates[home] = _told(judge.request, result)
        else:
            refused.append(home)
    return candidates, refused


def _told(request: PlanRequest, result: StrategyResult) -> Candidate:
    """The candidate with its speed, its cost and its findings, as a plan has them."""
    speeds, costs = Speeds(request=request), Costs(request=request)
    return annotated(request, costs.told(speeds.told(result))).candidates[0]


def _parted(start: _Asked, packing: Packing) -> list[Home]:
    """Homes in a deployment of which other copies do not stay: it stays or goes as a whole."""
    kept = [home for home in packing.homes if home.stays is not None]
    parted = []
    for home in kept:
        name = deployment_of(home.stays or "")
        copies = sum(copy.deployment == name for copy in start.seen.get(home.item, ()))
        if copies != sum(deployment_of(other.stays or "") == name for other in kept):
            parted.append(home)
    return parted


def _share(start: _Asked, home: Home) -> float | None:
    """gpu_memory_utilization that was derived for a home; None: as the request has it."""
    if home.layout is not None:
        return start.ways[home.item][home.layout].share
    offers = {(offer.host, offer.index): offer for offer in start.supply.offers}
    seen = next(copy for copy in start.seen[home.item] if copy.key == home.stays)
    return share_of(start.models[home.item], seen.cards, offers)


def beside(supply: Supply, homes: Sequence[Home], own: Home) -> Supply:
    """The supply as one copy finds it when all others run: what they take is held by them."""
    taken: dict[tuple[str, int], list[Holding]] = {}
    for home in homes:
        if home is not own:
            for place, size in home.cards:
                taken.setdefault(place, []).append(Holding(owner=Owner.OURS, bytes=size, name=home.item))
    return replace(
        supply,
        hosts=tuple(
            replace(
                host,
                offers=tuple(_less(offer, taken.get((offer.host, offer.index), ())) for offer in host.offers),
            )
            for host in supply.hosts
        ),
    )


def _less(offer: Offer, held: Sequence[Holding]) -> Offer:
    if not held:
        return offer
    left = offer.allocatable_bytes - sum(holding.bytes or 0 for holding in held)
    return replace(offer, allocatable_bytes=max(0, left), held=(*offer.held, *held))


def _answer(
    start: _Asked,
    one: AskedModel,
    packing: Packing,
    candidates: Mapping[Home, Candidate],
    steps: Course,
    reason: Blocked | None,
) -> ModelAnswer:
    copies = tuple(
        Copy(
            deployment=steps.names[home],
            stays=home.stays is not None,
            share=(request := one.request(start.fleet, gpus_of(home.cards), _share(start, home))).utilization,
            candidate=candidates[home],
            request=request.echo,
        )
        for home in packing.of(one.name)
    )
    return ModelAnswer(
        name=one.name,
        reference=one.entry.model,
        priority=one.entry.priority,
        replicas=one.entry.replicas,
        copies=copies,
        blocked=reason,
    )


def _move(start: _Asked, step: Step) -> Move:
    if step.action is not Action.START or step.layout is None:
        return Move(step=step)
    share = start.ways[step.item][step.layout].share
    request = start.models[step.item].request(start.fleet, gpus_of(step.cards), share)
    return Move(step=step, request=request.echo)


def _other_names(fleet: Fleet) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                container.deployment
                for host in fleet.hosts
                if host.facts.docker is not None
                for container in host.facts.docker.containers
                if container.deployment
            }
        )
    )


def _others(supply: Supply, models: Mapping[str, AskedModel]) -> Others:
    """Deployments that are not of the file, with what they hold."""
    found: dict[str, list[tuple[tuple[str, int], int]]] = {}
    for offer in supply.offers:
        for holding in offer.held:
            if holding.owner is Owner.OURS and holding.name and holding.name not in models:
                found.setdefault(holding.name, []).append(((offer.host, offer.index), holding.bytes or 0))
    return {name: tuple(cards) for name, cards in found.items()}
