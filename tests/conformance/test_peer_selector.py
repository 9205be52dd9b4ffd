"""The peer's placements are ours too, with equal claims, unless a numbered correction of S0 says otherwise.

Every candidate of every strategy the peer ran alone is looked up among ours. A missing one must be explained by a
predicate that checks, on the facts of that very case, that one of the corrections applies; and the same the other way
round, where we find a placement and the peer finds none. The table at the end says which correction excuses which case.
A placement counts under the strategy that names it: the peer's several-GPU search, run alone, may answer with one GPU,
and its several-hosts search with one host.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import pytest

from gpuplan.domain.plan import Candidate, Plan, StrategyName, Verdict
from gpuplan.errors import GpuplanError, NoHostError, UsageError
from gpuplan.planning.offers import Supply, supply_of
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.units import ceil_div, round_up
from tests.conformance.peer_cases import Card, Case, Spot, cases, request_of, spot_of


@dataclass(frozen=True)
class Asked:
    """A case, what we answer, and the facts the corrections are about."""

    case: Case

    @cached_property
    def request(self) -> PlanRequest | None:
        """None where we refuse to read the arguments."""
        try:
            return request_of(self.case)
        except UsageError:
            return None

    @cached_property
    def outcome(self) -> Plan | GpuplanError:
        try:
            return plan(request_of(self.case))
        except (UsageError, NoHostError) as refusal:
            return refusal

    @property
    def refused(self) -> bool:
        return not isinstance(self.outcome, Plan)

    def ours(self, *strategies: StrategyName) -> list[Candidate]:
        if not isinstance(self.outcome, Plan):
            return []
        offered = (c for s in self.outcome.strategies if s.strategy in strategies for c in s.candidates)
        return [candidate for candidate in offered if candidate.verdict is not Verdict.NO_FIT]

    def spots(self, *strategies: StrategyName) -> list[Spot]:
        return [spot_of(candidate) for candidate in self.ours(*strategies)]

    @property
    def known(self) -> PlanRequest:
        if self.request is None:
            raise AssertionError(f"{self.case.id}: the arguments were refused")
        return self.request

    @cached_property
    def supply(self) -> Supply:
        return supply_of(self.known.fleet)

    @cached_property
    def memory(self) -> Mapping[Card, tuple[int, int]]:
        """Total and allocatable bytes of each usable card."""
        return {(o.host, o.index): (o.total_bytes, o.allocatable_bytes) for o in self.supply.offers}

    def room(self, card: Card) -> int:
        """Bytes a rank may hold on a card."""
        total, allocatable = self.memory[card]
        share = self.known.utilization
        return allocatable if share is None else math.floor(total * share)

    @property
    def copies(self) -> int:
        workload = self.known.workload
        return workload.replicas * workload.engine.data_parallel_size

    @property
    def data_parallel(self) -> int:
        return self.known.workload.engine.data_parallel_size

    @property
    def world(self) -> int | None:
        """GPUs of one copy by the user's sizes."""
        engine = self.known.workload.engine
        if not {"tensor_parallel_size", "pipeline_parallel_size"} & engine.user_set:
            return None
        return engine.tensor_parallel_size * engine.pipeline_parallel_size

    @property
    def need(self) -> int:
        """Bytes one rank of a copy must hold when the user's sizes are given."""
        return ceil_div(self.case.claim, self.world or 1)

    def _fact(self, name: str) -> int:
        return int((self.case.model.get("bypass_config") or {}).get(name) or self.case.model.get(name) or 0)

    def peer_divides(self, ranks: int) -> bool:
        """The peer's rule, asked of a number of GPUs: heads, vision heads and the vocabulary as it stands."""
        vision = (
            0 if self.known.workload.engine.language_model_only else self._fact("vision_num_attention_heads")
        )
        sizes = (self._fact("num_attention_heads"), vision, self._fact("vocab_size"))
        return not any(size % ranks for size in sizes)

    def divides(self, ranks: int) -> bool:
        """The exact rule for a tensor-parallel size: KV heads too, and the vocabulary padded to 64."""
        vision = (
            0 if self.known.workload.engine.language_model_only else self._fact("vision_num_attention_heads")
        )
        heads = self._fact("num_attention_heads")
        kv_heads = self._fact("num_key_value_heads") or heads
        shared = not kv_heads or kv_heads % ranks == 0 or ranks % kv_heads == 0
        return shared and not (
            heads % ranks or vision % ranks or round_up(self._fact("vocab_size"), 64) % ranks
        )

    def fits_below(self, spot: Spot) -> bool:
        """We place a copy on fewer cards, all of them among the peer's."""
        strategies = (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST, StrategyName.MULTI_HOST)
        return any(ours.gpus < spot.gpus for ours in self.spots(*strategies) if not ours.overcommit)


# -- why a candidate of the peer is not among ours ----------------------


def _world_size_exceeded(asked: Asked, spot: Spot) -> bool:
    """1: the peer takes more GPUs than the given sizes, until the number divides the heads."""
    world = asked.world
    return (
        world is not None and asked.data_parallel == 1 and len(spot.gpus) > world and asked.fits_below(spot)
    )


def _not_a_tensor_size(asked: Asked, spot: Spot) -> bool:
    """1: that many ranks cannot share the KV heads, which the peer does not look at; fewer GPUs do, in another shape."""
    count = len(spot.gpus) // len(spot.hosts)
    return asked.world is None and not asked.divides(count) and asked.fits_below(spot)


def _fewer_than_the_peer_tries(asked: Asked, spot: Spot) -> bool:
    """1: fewer GPUs do, in a number the peer refuses because it does not divide the vocabulary before padding."""
    smaller = {len(ours.gpus) for ours in asked.spots(StrategyName.SINGLE_HOST) if ours.gpus < spot.gpus}
    return asked.world is None and any(asked.divides(n) and not asked.peer_divides(n) for n in smaller)


def _need_not_replicated(asked: Asked, spot: Spot) -> bool:
    """1: data-parallel copies each need all of the model, which these cards do not hold."""
    return asked.data_parallel > 1 and any(asked.room(card) < asked.need for card in spot.gpus)


def _copies_one_by_one(asked: Asked, spot: Spot) -> bool:
    """1: the cards of data-parallel copies, which we place copy by copy."""
    return (
        asked.data_parallel > 1
        and len(spot.gpus) == asked.data_parallel * (asked.world or 1)
        and asked.fits_below(spot)
    )


def _pooled(asked: Asked, spot: Spot) -> bool:
    """2: unequal cards are summed; the smallest does not hold its part."""
    return asked.data_parallel == 1 and min(map(asked.room, spot.gpus)) * len(spot.gpus) < asked.case.claim


def _whole_cards_booked(asked: Asked, spot: Spot) -> bool:
    """2: without gmu the peer books all that is free on several cards; a rank needs its part."""
    part = ceil_div(asked.case.claim, len(spot.gpus))
    same = [ours for ours in asked.spots(spot.kind) if ours.gpus == spot.gpus]
    return asked.known.utilization is None and any(
        {claim for _, claim in ours.cards} == {part} for ours in same
    )


def _truncated(asked: Asked, spot: Spot) -> bool:
    """3: the parts are rounded down, so their sum falls short of the need by less than a byte a card."""
    count, claim = len(spot.gpus), asked.case.claim
    cut = spot.overcommit and claim % count > 0 and {part for _, part in spot.cards} == {claim // count}
    return cut and any(
        ours.gpus == spot.gpus and not ours.overcommit for ours in asked.spots(StrategyName.MANUAL)
    )


def _part_of_the_selection(asked: Asked, spot: Spot) -> bool:
    """7: all replicas together use fewer cards than were selected."""
    selected = frozenset(asked.case.selected)
    return spot.gpus < selected and asked.copies * len(spot.gpus) < len(selected)


def _overcommit_unseen(asked: Asked, spot: Spot) -> bool:
    """7: the selection does not fit what is free on its cards, or the RAM of its host."""
    same = [ours for ours in asked.spots(StrategyName.MANUAL) if ours.cards == spot.cards and ours.overcommit]
    busy = any(asked.memory[card][1] < claim for card, claim in spot.cards)
    ram = {host.host: host.ram_available_bytes or 0 for host in asked.supply.hosts}
    short = any(need > ram[host] for host, need in spot.ram)
    return bool(same) and not spot.overcommit and (busy or short)


def _one_of_the_replicas(asked: Asked, spot: Spot) -> bool:
    """9: the peer names places for one replica; we place all of them, this one among them."""
    whole = asked.copies > 1 and len(spot.gpus) * asked.copies == len(asked.case.selected)
    return whole and any(spot.cards < ours.cards for ours in asked.spots(StrategyName.MANUAL))


def _replicas_share_cards(asked: Asked, spot: Spot) -> bool:
    """9: there are not enough selected cards for all replicas: the peer would put several on one."""
    return asked.copies > 1 and len(spot.gpus) * asked.copies > len(asked.case.selected) and asked.refused


def _whole_hosts_only(asked: Asked, spot: Spot) -> bool:
    """10: whole hosts in inventory order, where part of them is enough."""
    kinds = {
        (host.host, host.backend): {(o.host, o.index) for o in host.offers} for host in asked.supply.hosts
    }
    whole = any(
        spot.gpus == frozenset().union(*(kinds.get((host, backend), set()) for host in spot.hosts))
        for backend in {backend for _, backend in kinds}
    )
    return whole and asked.fits_below(spot)


Reason = Callable[[Asked, Spot], bool]
ANYWHERE: tuple[tuple[int, Reason], ...] = (
    (1, _world_size_exceeded),
    (1, _not_a_tensor_size),
    (1, _fewer_than_the_peer_tries),
    (1, _need_not_replicated),
    (1, _copies_one_by_one),
    (2, _pooled),
    (2, _whole_cards_booked),
)
OF_A_SELECTION: tuple[tuple[int, Reason], ...] = (
    (3, _truncated),
    (7, _part_of_the_selection),
    (7, _overcommit_unseen),
    (9, _one_of_the_replicas),
    (9, _replicas_share_cards),
)
OF_SEVERAL_HOSTS: tuple[tuple[int, Reason], ...] = ((10, _whole_hosts_only),)


def _excuse(asked: Asked, strategy: StrategyName, spot: Spot) -> int | None:
    """The correction that explains why this candidate of the peer is not ours."""
    if asked.request is None:
        return 8 if _utilization_out_of_range(asked) else None
    reasons = OF_A_SELECTION if strategy is StrategyName.MANUAL else ANYWHERE
    if strategy is StrategyName.MULTI_HOST:
        reasons = (*ANYWHERE, *OF_SEVERAL_HOSTS)
    return next((number for number, applies in reasons if applies(asked, spot)), None)


def _utilization_out_of_range(asked: Asked) -> bool:
    """8: gpu-memory-utilization, as the peer read it, is no share."""
    share = asked.case.answer.get("gmu")
    stated = any("--gpu-memory-utilization" in str(word) for word in asked.case.request["backend_parameters"])
    error = asked.case.answer["strategy"] == "error"
    return stated and (error or share is None or not 0 < share <= 1)


# -- why we find a placement where the peer finds none ------------------


def _tensor_size_or_stages(asked: Asked, spot: Spot) -> bool:
    """1: a number of GPUs the peer refuses as a tensor-parallel size: the vocabulary is padded, or stages divide layers."""
    return not asked.peer_divides(len(spot.gpus) // len(spot.hosts))


def _copies_apart(asked: Asked, spot: Spot) -> bool:
    """1: the peer counts data-parallel copies into the world size of one placement."""
    return asked.data_parallel > 1 and len(spot.gpus) == (asked.world or 1)


def _at_least(asked: Asked, spot: Spot) -> bool:
    """3: a card whose free share is exactly gmu is enough; the peer asks for more."""
    share = asked.known.utilization or 0.0
    return any(
        not allocatable / total > share for total, allocatable in (asked.memory[card] for card in spot.gpus)
    )


def _parts_of_hosts(asked: Asked, spot: Spot) -> bool:
    """10: part of a host, or unequal numbers of GPUs."""
    taken = {host: sum(card[0] == host for card in spot.gpus) for host in spot.hosts}
    there = {host: sum(card[0] == host for card in asked.memory) for host in spot.hosts}
    return taken != there or len(set(taken.values())) > 1


def _distributed_instance_there(asked: Asked, spot: Spot) -> bool:
    """S1.14: the peer's fixed Ray ports allow one distributed instance a host; ours are derived per deployment."""
    busy = {
        part["host"]
        for instance in asked.case.raw["instances"]
        if instance.get("followers")
        for part in (instance, *instance["followers"])
    }
    return len(spot.hosts) > 1 and bool(busy & spot.hosts)


FOUND: Mapping[StrategyName, tuple[tuple[int | str, Reason], ...]] = {
    StrategyName.MANUAL: (("S1.14", _distributed_instance_there),),
    StrategyName.SINGLE_GPU: ((1, _copies_apart),),
    StrategyName.SINGLE_HOST: ((3, _at_least), (1, _tensor_size_or_stages)),
    StrategyName.MULTI_HOST: ((10, _parts_of_hosts), (1, _tensor_size_or_stages)),
}


def _odd_vocabulary(asked: Asked) -> bool:
    """1: the peer refuses the user's tensor-parallel size for a vocabulary the engine pads."""
    size = asked.known.workload.engine.tensor_parallel_size
    return asked.divides(size) and not asked.peer_divides(size)


def _memory_unknown(asked: Asked) -> bool:
    """5: a card of unknown or no memory is left out; the peer breaks down."""
    return bool(asked.supply.unknown_memory)


def _world_size_of_replicas(asked: Asked) -> bool:
    """9: the selection is what all replicas take together; the peer compares it with one."""
    mismatch = "world_size_mismatch" in asked.case.answer["error"]["figures"]
    return mismatch and asked.copies > 1 and len(asked.case.selected) == (asked.world or 1) * asked.copies


RAISED: tuple[tuple[int, Callable[[Asked], bool]], ...] = (
    (1, _odd_vocabulary),
    (5, _memory_unknown),
    (9, _world_size_of_replicas),
)

# -- the comparison -----------------------------------------------------


@cache
def asked_of(case_id: str) -> Asked:
    return Asked(next(case for case in cases() if case.id == case_id))


def _is_ours(asked: Asked, strategy: StrategyName, spot: Spot) -> bool:
    kinds = (strategy,) if strategy is StrategyName.MANUAL else (spot.kind, StrategyName.DATA_PARALLEL)
    return any(
        ours.cards == spot.cards
        and ours.overcommit == spot.overcommit
        and (asked.case.ram_by_ratio or ours.ram == spot.ram)
        for ours in asked.spots(*kinds)
    )


def compare(asked: Asked) -> tuple[int, set[int | str], list[str]]:
    """Candidates of the peer that are ours, the corrections that excuse the rest, and what nothing excuses."""
    same, excuses, open_ends = 0, set[int | str](), list[str]()
    for strategy, spots in asked.case.answers():
        for spot in spots:
            if _is_ours(asked, strategy, spot):
                same += 1
            elif (number := _excuse(asked, strategy, spot)) is not None:
                excuses.add(number)
            else:
                open_ends.append(f"{strategy.value}: {sorted(spot.cards)} of the peer is not among ours")
        for ours in asked.spots(strategy) if not spots else ():
            if ours.overcommit:
                continue
            reasons = (label for label, applies in FOUND[strategy] if applies(asked, ours))
            if (label := next(reasons, None)) is not None:
                excuses.add(label)
            else:
                open_ends.append(f"{strategy.value}: {sorted(ours.cards)} of ours, none of the peer's")
    if asked.case.answer["strategy"] == "error" and not asked.refused:
        label = next((number for number, applies in RAISED if applies(asked)), None)
        if label is None:
            open_ends.append("the peer refuses the request, we do not")
        else:
            excuses.add(label)
    return same, excuses, open_ends


IDS = tuple(case.id for case in cases())


@pytest.mark.parametrize("case_id", IDS)
def test_peer_placements_are_ours_or_corrected(case_id: str) -> None:
    _, excuses, open_ends = compare(asked_of(case_id))
    assert not open_ends
    assert excuses == EXCUSED.get(case_id, set())


@pytest.mark.parametrize("case_id", IDS)
def test_our_placements_obey_the_corrected_rule(case_id: str) -> None:
    """Each card has its part and the engine's share free, by arithmetic of this test's own."""
    asked = asked_of(case_id)
    kinds = (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST, StrategyName.MULTI_HOST, StrategyName.MANUAL)
    for candidate in asked.ours(*kinds):
        if candidate.verdict is not Verdict.FITS:
            continue
        shape, cards = candidate.parallelism, spot_of(candidate).cards
        part = ceil_div(asked.case.claim, shape.world_size)
        assert (
            len(cards) == sum(len(host.gpus) for host in candidate.placement) == shape.world_size * shape.data
        )
        assert asked.divides(shape.tensor)
        assert asked.world in (None, shape.world_size)
        for card, booked in cards:
            assert part <= asked.room(card)
            assert booked <= asked.memory[card][1]


def test_most_placements_need_no_excuse() -> None:
    same = sum(compare(asked_of(case_id))[0] for case_id in IDS)
    offered = sum(len(spots) for case_id in IDS for _, spots in asked_of(case_id).case.answers())
    assert (same, offered) == AGREED


AGREED = (161, 219)
"""Candidates of the peer that are ours, and all of them."""
EXCUSED: Mapping[str, set[int | str]] = {
    "selector-cases:manual_select_1+1_gpus_2_workers_with_gpus_per_replica": {7},
    "selector-cases:manual_select_3+1_gpus_2_workers_with_gpus_per_replica_2": {7},
    "selector-cases:headless_5089_tp8_dp2_dpl1_2x_h100": {1},
    "selector-cases:headless_tp8_dp3_dpl1_3x_h100": {1},
    "selector-cases:manual_select_1_cuda+1_rocm": {7},
    "selector-cases:manual_select_2_cuda+2_rocm_with_gpus_per_replica_2": {7},
    "selector-cases:test_auto_schedule_single_work_multi_gpu-3": {1},
    "selector-cases:test_output_schedule_msg-2": {7},
    "oddities:pp3-takes-4": {1},
    "oddities:pp3-on-3-gpus-refused": {1},
    "oddities:tp2-pp3-takes-8": {1},
    "oddities:gmu-1-single-ok": {3},
    "oddities:gmu-1-multi-refused": {3},
    "oddities:exact-ratio-becomes-multi-host": {3},
    "oddities:nonllm-multi-host-on-full-gpus": {2},
    "oddities:nonllm-manual-on-full-gpu": {7},
    "oddities:nonllm-manual-rounding": {3},
    "oddities:manual-ram-ignored": {7},
    "oddities:uneven-gpus-summed": {2},
    "oddities:odd-vocab-tp2": {1},
    "oddities:odd-vocab-auto": {1},
    "oddities:heads-28-6-gpus": {1},
    "oddities:gmu-0-llm": {8},
    "oddities:memory-unknown": {5},
    "oddities:memory-zero": {5},
    "oddities:manual-host-not-ready": {7},
    "oddities:manual-three-default-two": {7},
    "oddities:manual-mixed-types-per-replica": {7},
    "oddities:one-distributed-manual": {"S1.14"},
    "oddities:unequal-hosts-not-combined": {10},
    "oddities:manual-fewer-cards-than-replicas": {9},
    "oddities:dp-local-long-flag": {1},
    "oddities:dp-local-short-flag": {1},
    "random:r00007": {1},
    "random:r00013": {1},
    "random:r00016": {1},
    "random:r00025": {7},
    "random:r00046": {1},
    "random:r00058": {7},
    "random:r00061": {10},
    "random:r00067": {7},
    "random:r00076": {7},
    "random:r00082": {7},
    "random:r00086": {10},
    "random:r00100": {7},
    "random:r00116": {7},
    "random:r00146": {7},
    "random:r00156": {1, 10},
    "random:r00159": {9},
    "random:r00163": {7},
    "random:r00166": {7},
    "random:r00172": {7},
    "random:r00205": {10},
    "random:r00208": {10},
    "random:r00221": {10},
    "random:r00233": {9},
    "random:r00243": {7},
    "random:r00266": {7},
    "random:r00278": {7},
    "random:r00287": {1},
    "random:r00305": {7},
    "random:r00358": {7},
    "random:r01155": {3},
    "random:r02046": {1},
}
"""By case: the numbers of the corrections of S0 (or the row of another seed) that explain every difference."""
