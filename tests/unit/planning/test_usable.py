"""GPUs that are left out for now, MIG slices, and what a plan says about the hosts it uses."""

from dataclasses import replace

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import Plan, StrategyName, Verdict
from gpuplan.domain.workload import GpuSelection
from gpuplan.errors import NoHostError, UsageError
from gpuplan.planning.offers import supply_of
from gpuplan.planning.planner import candidate_of
from gpuplan.present.findings import word
from gpuplan.units import GIB
from tests.fleets import gpu, host, of, planned

SMALL = "Qwen__Qwen3-4B"
EXPERTS = "Qwen__Qwen3-30B-A3B"
HUGE = "meta-llama__Meta-Llama-3.1-405B"


def with_uuids(made: Host) -> Host:
    return replace(
        made, gpus=tuple(replace(card, uuid=f"GPU-{made.name}-{card.index}") for card in made.gpus)
    )


def ours(
    host_name: str, index: int, deployment: str, *, claim: float = 10, loading: bool = False
) -> OurContainer:
    uuid = f"GPU-{host_name}-{index}"
    return OurContainer(
        id=f"{deployment}-{index}",
        name=f"gpuplan-{deployment}-0",
        deployment=deployment,
        state="running",
        gpus=(uuid,),
        claims=((uuid, int(claim * GIB)),),
        loading=loading,
    )


def running(made: Host, *containers: OurContainer) -> Host:
    return replace(with_uuids(made), facts=HostFacts(docker=Docker(containers=containers)))


def sliced(name: str, slices: int, *, cards: int = 1, size: float = 19.5, spare: int = 0) -> Host:
    """A host whose first card is divided into MIG slices; `spare` whole cards beside the divided one."""
    whole = tuple(gpu(index, "H100") for index in range(cards + spare))
    small = tuple(
        Gpu(
            index=cards + spare + number,
            name="NVIDIA H100 80GB HBM3 MIG 2g.20gb",
            uuid=f"MIG-{name}-{number}",
            compute_capability="9.0",
            total_bytes=int(size * GIB),
            parent=0,
            profile="2g.20gb",
        )
        for number in range(slices)
    )
    return Host(name=name, gpus=(*whole, *small))


def places(made: Plan) -> list[tuple[str, int]]:
    best = candidate_of(made)
    assert best is not None
    return [(place.host, card.index) for place in best.placement for card in place.gpus]


def step(made: Plan, name: str) -> tuple[int, int, tuple[str, ...]]:
    (found,) = [step for step in made.funnel if step.name == name]
    return found.hosts, found.gpus, found.taken


# -- loading and full ---------------------------------------------------


def test_a_gpu_on_which_ours_is_loading_is_left_out_and_the_deployment_named() -> None:
    made = planned(SMALL, running(host("h1", "H100", 2), ours("h1", 0, "chat", loading=True)))
    assert places(made) == [("h1", 1)]
    assert step(made, "not loading") == (1, 1, ("h1:0 with chat",))
    (fact,) = [fact for fact in made.facts if fact.code == "GP404"]
    finding = word(fact)
    assert "h1 GPU 0: left out while deployment chat is loading" in finding.headline
    assert "gpuplan status chat" in str(finding.hint)


def test_ours_that_serves_takes_its_claim_only() -> None:
    made = planned(
        SMALL,
        running(host("h1", "H100", 1, free={0: 79.19}), ours("h1", 0, "chat")),
        arguments="--gpu-memory-utilization 0.8",
    )
    best = candidate_of(made)
    assert best is not None
    (card,) = best.placement[0].gpus
    assert card.allocatable_bytes == card.total_bytes - 10 * GIB
    assert [holding.name for holding in card.held] == ["chat"]


def test_ours_counts_on_a_gpu_that_does_not_tell_who_it_is() -> None:
    """The claim of a container whose GPU was not found may be on any GPU of unknown UUID, and on no other."""
    made = running(host("h1", "H100", 2, free={0: 79.19, 1: 79.19}), ours("h1", 0, "chat", claim=60))
    unnamed = replace(made, gpus=(replace(made.gpus[0], uuid=None), made.gpus[1]))
    given = {offer.index: offer.allocatable_bytes for offer in supply_of(Fleet(hosts=(unnamed,))).offers}
    assert given == {0: int(79.19 * GIB) - 60 * GIB, 1: int(79.19 * GIB)}


def test_when_all_are_loading_the_way_out_is_to_wait() -> None:
    with pytest.raises(NoHostError, match="not loading: 0 hosts with 0 GPUs") as caught:
        planned(SMALL, running(host("h1", "H100", 1), ours("h1", 0, "chat", loading=True)))
    assert "plan again when chat has loaded on h1:0" in str(caught.value.hint)


def test_three_deployments_fill_a_gpu() -> None:
    three = tuple(ours("h1", 0, name, claim=1) for name in ("a", "b", "c"))
    made = planned(SMALL, running(host("h1", "H100", 2, free={0: 79.0, 1: 79.0}), *three))
    assert places(made) == [("h1", 1)]
    assert step(made, "room for a deployment") == (1, 1, ("h1:0 with a and b and c",))
    assert "3 deployments" in word(next(fact for fact in made.facts if fact.code == "GP405")).headline
    two = planned(
        SMALL,
        running(host("h1", "H100", 1, free={0: 79.0}), *three[:2]),
        arguments="--gpu-memory-utilization 0.8",
    )
    assert places(two) == [("h1", 0)]


def test_one_deployment_fills_memory_that_is_shared_with_the_host() -> None:
    shared = running(host("h1", "H100", 1, free={0: 79.0}), ours("h1", 0, "chat"))
    shared = replace(shared, gpus=(replace(shared.gpus[0], unified=True),))
    with pytest.raises(NoHostError) as caught:
        planned(SMALL, shared)
    assert "stop one of chat" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("made", "device", "said"),
    [
        (
            running(host("h1", "H100", 2), ours("h1", 0, "chat", loading=True)),
            "0",
            "chat is still loading on GPU 0",
        ),
        (
            running(host("h1", "H100", 2, free={0: 79.0}), *(ours("h1", 0, name) for name in "abc")),
            "0",
            r"as many deployments as it may hold \(a, b, c\)",
        ),
        (sliced("h1", 2), "0", "in MIG slices only; name them instead: 1, 2"),
        (
            replace(
                host("h1", "H100", 2),
                facts=HostFacts(
                    conditions=(Fact(code="GP608", severity=Severity.ERROR, subject={"gpu": 0}, figures={}),)
                ),
            ),
            "0",
            "does not answer",
        ),
    ],
)
def test_selecting_a_gpu_that_is_left_out_says_why(made: Host, device: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        planned(SMALL, made, selection=(GpuSelection(host="h1", devices=(device,)),))


# -- MIG ----------------------------------------------------------------


def test_slices_are_gpus_of_their_own_and_their_card_is_none() -> None:
    made = planned(SMALL, sliced("h1", 3))
    single = of(made, StrategyName.SINGLE_GPU)
    assert [item.placement[0].gpus[0].index for item in single.candidates] == [1, 2, 3]
    assert step(made, "not divided into MIG slices") == (1, 3, ("h1:0",))


def test_slices_take_a_replica_each() -> None:
    made = planned(SMALL, sliced("h1", 3), replicas=3)
    assert sorted(places(made)) == [("h1", 1), ("h1", 2), ("h1", 3)]


def test_slices_are_selected_by_their_uuid() -> None:
    made = planned(SMALL, sliced("h1", 3), selection=(GpuSelection(host="h1", devices=("MIG-h1-1",)),))
    assert places(made) == [("h1", 2)]


@pytest.mark.parametrize("arguments", ["--tensor-parallel-size 2", "--pipeline-parallel-size 2"])
def test_ranks_that_work_together_never_sit_on_slices(arguments: str) -> None:
    made = planned(SMALL, sliced("h1", 3), sliced("h2", 3), arguments=arguments)
    assert made.recommended is None
    for strategy in (StrategyName.SINGLE_HOST, StrategyName.MULTI_HOST):
        result = of(made, strategy)
        assert result.verdict is Verdict.NO_FIT
        assert "GP308" in {fact.code for fact in result.facts}
        assert not any(len(place.gpus) > 1 for item in result.candidates for place in item.placement)
    finding = word(next(fact for fact in of(made, StrategyName.SINGLE_HOST).facts if fact.code == "GP308"))
    assert "2 ranks cannot work together on MIG slices" in finding.headline
    assert "--replicas" in str(finding.hint)


@pytest.mark.parametrize("devices", [("2", "3"), ("1", "MIG-h1-0")])
def test_a_selection_with_slices_is_no_group(devices: tuple[str, ...]) -> None:
    """Two slices, or a whole card beside a slice, as ranks of one model."""
    selection = (GpuSelection(host="h1", devices=devices),)
    manual = of(planned(SMALL, sliced("h1", 2, spare=1), selection=selection), StrategyName.MANUAL)
    assert manual.verdict is Verdict.NO_FIT
    assert {fact.code for fact in manual.facts if fact.severity is Severity.ERROR} == {"GP308"}


def test_whole_cards_beside_slices_work_together() -> None:
    made = planned(SMALL, sliced("h1", 2, spare=2), arguments="--tensor-parallel-size 2")
    assert places(made) == [("h1", 1), ("h1", 2)]


def test_a_single_slice_is_no_pair() -> None:
    made = planned(SMALL, sliced("h1", 1))
    assert of(made, StrategyName.SINGLE_HOST).verdict is Verdict.NO_FIT
    assert of(made, StrategyName.SINGLE_GPU).verdict is Verdict.FITS


def test_ranks_of_one_server_of_experts_are_no_replicas() -> None:
    large = sliced("h1", 2, size=79)
    alone = planned(EXPERTS, large, replicas=2)
    assert alone.recommended is not None
    together = planned(EXPERTS, large, arguments="--data-parallel-size 2")
    assert together.recommended is None


def test_excluding_a_card_excludes_its_slices() -> None:
    made = sliced("h1", 2, spare=1)
    made = replace(made, gpus=(replace(made.gpus[0], excluded=True), *made.gpus[1:]))
    supply = supply_of(Fleet(hosts=(made,)))
    assert [offer.index for offer in supply.offers] == [1]
    (excluded,) = [step for step in supply.funnel if step.name == "not excluded"]
    assert excluded.taken == ("h1:0", "h1:2", "h1:3")


def test_more_gpus_are_never_slices() -> None:
    made = planned("Qwen__Qwen3-32B", sliced("h1", 7))
    assert {remedy.kind for result in made.strategies for remedy in result.remedies}.isdisjoint({"more_gpus"})


# -- states of hosts ----------------------------------------------------


def state(code: str, severity: Severity = Severity.WARNING, **subject: int) -> Fact:
    return Fact(code=code, severity=severity, subject=subject, figures={"detail": "told", "reasons": "heat"})


def told(made: Plan) -> list[tuple[str, dict[str, object]]]:
    return [(fact.code, dict(fact.subject)) for fact in made.facts if fact.code.startswith("GP6")]


def test_states_of_the_recommended_hosts_are_part_of_the_plan() -> None:
    states = (
        state("GP626", Severity.ERROR),
        state("GP614", gpu=0),
        state("GP614", gpu=1),
        state("GP618", Severity.INFO, gpu=0),
    )
    sick = replace(host("a", "H100", 2), facts=HostFacts(conditions=states))
    other = replace(host("b", "H100", 2), facts=HostFacts(conditions=(state("GP622", Severity.ERROR),)))
    made = planned(SMALL, sick, other, selection=(GpuSelection(host="a", devices=("0",)),))
    assert told(made) == [("GP626", {"host": "a"}), ("GP614", {"host": "a", "gpu": 0})]
    assert all(word(fact).headline.startswith("a") for fact in made.facts if fact.code.startswith("GP6"))


def test_a_state_of_the_card_is_one_of_its_slices() -> None:
    made = sliced("h1", 2)
    made = replace(made, facts=HostFacts(conditions=(state("GP614", gpu=0),)))
    assert told(planned(SMALL, made)) == [("GP614", {"host": "h1", "gpu": 0})]


@pytest.mark.parametrize("code", ["GP608", "GP615"])
def test_a_gpu_that_cannot_be_used_is_left_out_and_told(code: str) -> None:
    made = replace(host("a", "H100", 2), facts=HostFacts(conditions=(state(code, Severity.ERROR, gpu=0),)))
    plan = planned(SMALL, made)
    assert places(plan) == [("a", 1)]
    assert told(plan) == [(code, {"host": "a", "gpu": 0})]


def test_a_fleet_without_facts_has_no_new_steps() -> None:
    made = planned(SMALL, host("a", "H100", 1))
    assert [step.name for step in made.funnel] == [
        "in the fleet",
        "reachable",
        "with GPUs",
        "not excluded",
        "memory known",
        "budget free",
    ]


# -- what CUDA would refuse ---------------------------------------------


def barring(code: str, index: int, mode: str = "") -> Fact:
    return Fact(
        code=code, severity=Severity.ERROR, subject={"gpu": index}, figures={"mode": mode, "state": ""}
    )


@pytest.mark.parametrize("fact", [barring("GP616", 0), barring("GP617", 0, "prohibited")])
def test_a_gpu_on_which_cuda_cannot_start_is_left_out_and_told(fact: Fact) -> None:
    made = replace(host("a", "H100", 2), facts=HostFacts(conditions=(fact,)))
    plan = planned(SMALL, made)
    assert places(plan) == [("a", 1)]
    assert step(plan, "open to CUDA") == (1, 1, ("a:0",))
    assert told(plan) == [(fact.code, {"host": "a", "gpu": 0})]
    with pytest.raises(UsageError, match=f"CUDA cannot start on GPU 0 .*{fact.code}"):
        planned(SMALL, made, selection=(GpuSelection(host="a", devices=("0",)),))


def test_the_slices_of_a_barred_card_are_barred() -> None:
    made = sliced("h1", 2, spare=1)
    made = replace(made, facts=HostFacts(conditions=(barring("GP616", 0),)))
    plan = planned(SMALL, made)
    assert places(plan) == [("h1", 1)]
    assert told(plan) == [("GP616", {"host": "h1", "gpu": 0})]


def test_in_exclusive_mode_whoever_is_there_keeps_the_next_one_out() -> None:
    conditions = HostFacts(conditions=(barring("GP617", 0, "exclusive process"),))
    empty = replace(host("a", "H100", 2), facts=conditions)
    assert places(planned(SMALL, empty)) == [("a", 0)]
    desktop = GpuProcess(pid=7, used_bytes=0)
    taken = replace(empty, gpus=(replace(empty.gpus[0], processes=(desktop,)), empty.gpus[1]))
    assert places(planned(SMALL, taken)) == [("a", 1)]


# -- hosts on which nothing can be started ------------------------------

UNREADY = ["GP602", "GP604", "GP621", "GP622", "GP623", "GP625", "GP626", "GP627", "GP629"]


def unready(made: Host, code: str = "GP626") -> Host:
    return replace(made, facts=HostFacts(conditions=(state(code, Severity.ERROR),)))


def notes(made: Plan) -> list[tuple[object, object]]:
    return [(fact.subject["host"], fact.figures["codes"]) for fact in made.facts if fact.code == "GP406"]


@pytest.mark.parametrize("code", UNREADY)
def test_of_equal_hosts_the_one_that_can_start_it_wins(code: str) -> None:
    made = planned(SMALL, unready(host("a", "H100", 2), code), host("b", "H100", 2))
    assert places(made) == [("b", 0)]
    assert notes(made) == []
    assert {item.placement[0].host for item in of(made, StrategyName.SINGLE_GPU).candidates} == {"a", "b"}


@pytest.mark.parametrize("code", UNREADY)
def test_where_there_is_no_other_host_it_is_told_that_nothing_can_be_started(code: str) -> None:
    made = planned(SMALL, unready(host("a", "H100", 1), code))
    assert places(made) == [("a", 0)]
    assert notes(made) == [("a", [code])]
    assert made.recommended_because[-1] == f"it cannot be started on a as things are: {code} below"
    first = made.facts[0]
    assert (first.code, first.severity) == ("GP406", Severity.WARNING)
    finding = word(first)
    assert "fits, but cannot be started there" in finding.headline
    assert code in finding.headline


def test_states_that_keep_nothing_from_starting_are_no_reason() -> None:
    mild = replace(host("a", "H100", 1), facts=HostFacts(conditions=(state("GP628"), state("GP614", gpu=0))))
    made = planned(SMALL, mild, host("b", "H100", 1))
    assert places(made) == [("a", 0)]
    assert notes(made) == []
    other_vendor = unready(host("a", "H100", 1))
    other_vendor = replace(other_vendor, gpus=(replace(other_vendor.gpus[0], backend="rocm", vendor="amd"),))
    assert notes(planned(SMALL, other_vendor)) == [], "GP626 is about NVIDIA's container toolkit"


def test_more_gpus_that_can_be_used_now_come_before_fewer_that_cannot() -> None:
    made = planned("Qwen__Qwen3-32B", unready(host("a", "H100", 1)), host("b", "L40S", 4))
    assert {name for name, _ in places(made)} == {"b"}
    assert "on hosts where it can be started now" in made.recommended_because[0]


def test_replicas_and_groups_stay_on_hosts_that_can_start_them() -> None:
    replicas = planned(SMALL, unready(host("a", "H100", 2)), host("b", "H100", 2), replicas=2)
    assert places(replicas) == [("b", 0), ("b", 1)]
    three = planned(SMALL, unready(host("a", "H100", 2)), host("b", "H100", 2), replicas=3)
    assert notes(three) == [("a", ["GP626"])]
    fleet = [unready(host(name, "H100", 8)) for name in "ab"] + [host(name, "H100", 8) for name in "cd"]
    group = planned(HUGE, *fleet)
    assert {name for name, _ in places(group)} == {"c", "d"}
    assert notes(group) == []
    uneven = planned(HUGE, *fleet[:2], host("c", "H100", 7), host("d", "H100", 6))
    assert {name for name, _ in places(uneven)} == {"c", "d"}, "not the roomiest, the ones that can"
    mixed = planned(HUGE, *fleet[:3])
    assert "c" in {name for name, _ in places(mixed)}
    assert notes(mixed) == [("a", ["GP626"])]
