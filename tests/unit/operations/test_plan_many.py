"""Several models on one fleet: each placement is what `plan` alone says of it beside the others, and what runs counts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import StrategyName, Verdict
from gpuplan.errors import InventoryError, NoHostError
from gpuplan.operations.packing_models import AskedModel, asked_models
from gpuplan.operations.packing_running import model_of
from gpuplan.operations.plan import plan_model
from gpuplan.operations.plan_many import pack
from gpuplan.planning.packing.answer import Answer
from gpuplan.planning.packing.blocking import Why
from gpuplan.planning.packing.moves import Action, Reason
from gpuplan.planning.usable import MOST_DEPLOYMENTS
from gpuplan.sources.models_yaml import ModelEntry, ModelsFile
from gpuplan.units import GIB
from tests.fleets import CONFIGS, host

SMALL, LARGE = "Qwen__Qwen3-4B", "Qwen__Qwen3-32B"


def entry(name: str, model: str = SMALL, **given: Any) -> ModelEntry:
    """An entry that shares GPUs and needs a quarter of a large card, where nothing else is said."""
    asked = {"context": "8K", "concurrency": 4, "share": True, **given}
    return ModelEntry(
        model=str(CONFIGS / f"{model}.json"), name=name, place=f"models.yaml:1: {name}", **asked
    )


def asked(*entries: ModelEntry) -> tuple[AskedModel, ...]:
    return asked_models(ModelsFile(path="models.yaml", models=entries), None)


def packed(fleet: Fleet, *entries: ModelEntry) -> Answer:
    return pack(asked(*entries), fleet)


def fleet_of(*hosts: Host) -> Fleet:
    return Fleet(hosts=hosts)


def places(answer: Answer, name: str) -> list[tuple[str, tuple[int, ...]]]:
    model = next(one for one in answer.models if one.name == name)
    return [
        (placed.host, tuple(gpu.index for gpu in placed.gpus))
        for copy in model.copies
        for placed in copy.candidate.placement
    ]


def test_models_that_share_fill_one_card_up_to_three() -> None:
    answer = packed(fleet_of(host("h1", "H100", 2)), *(entry(f"m{number}") for number in range(4)))
    assert answer.complete
    assert answer.packing.cost[1] == 2, f"{MOST_DEPLOYMENTS} at most on one"
    per_card = [places(answer, f"m{number}") for number in range(4)]
    assert max(per_card.count(place) for place in per_card) <= MOST_DEPLOYMENTS


def test_a_model_alone_takes_the_share_of_the_engine() -> None:
    answer = packed(fleet_of(host("h1", "H100", 2)), entry("a", share=False), entry("b", share=False))
    assert answer.packing.cost[1] == 2
    assert {copy.share for model in answer.models for copy in model.copies} == {0.92}


def test_every_placement_is_what_plan_says_beside_the_others() -> None:
    """The others as processes that hold what they take; the selection is planned anew with its own words."""
    fleet = fleet_of(host("h1", "H100", 2, free={1: 60}), host("h2", "L40S", 4), host("h3", "A100", 2))
    models = asked(
        entry("chat", LARGE, share=False, replicas=2, priority=5),
        entry("one"),
        entry("two", context="16K"),
        entry("three", replicas=2),
        entry("tp", LARGE, args=("--tensor-parallel-size", "4")),
    )
    answer = pack(models, fleet)
    assert answer.complete
    by_name = {one.name: one for one in models}
    taken = {
        (home.item, number): dict(home.cards)
        for name in by_name
        for number, home in enumerate(answer.packing.of(name))
    }
    for model in answer.models:
        for number, copy in enumerate(model.copies):
            rest = beside(fleet, [cards for key, cards in taken.items() if key != (model.name, number)])
            one = by_name[model.name]
            request = one.request(rest, copy.request["gpus"], copy.share if one.shared else None)
            made = plan_model(one.model, rest, request.workload, one.version)
            (alone,) = next(r for r in made.strategies if r.strategy is StrategyName.MANUAL).candidates
            assert alone.verdict is Verdict.FITS
            assert alone.parallelism == copy.candidate.parallelism
            assert alone.vllm_args == copy.candidate.vllm_args
            assert (alone.memory, alone.throughput) == (copy.candidate.memory, copy.candidate.throughput)
            assert [g.claim_bytes for h in alone.placement for g in h.gpus] == [
                g.claim_bytes for h in copy.candidate.placement for g in h.gpus
            ]


def beside(fleet: Fleet, taken: Sequence[dict[tuple[str, int], int]]) -> Fleet:
    def less(name: str, gpu: Gpu) -> Gpu:
        total = gpu.free_bytes if gpu.free_bytes is not None else gpu.total_bytes or 0
        return replace(gpu, free_bytes=total - sum(cards.get((name, gpu.index), 0) for cards in taken))

    return replace(
        fleet,
        hosts=tuple(replace(h, gpus=tuple(less(h.name, gpu) for gpu in h.gpus)) for h in fleet.hosts),
    )


def test_priority_decides_who_is_left_out_and_it_is_said_who_blocks() -> None:
    one = fleet_of(host("h1", "H100", 1))
    answer = packed(one, entry("cheap", share=False), entry("dear", share=False, priority=2))
    blocked = answer.models[0].blocked
    assert [model.placed for model in answer.models] == [False, True]
    assert blocked is not None
    assert (blocked.why, blocked.without) == (Why.BLOCKED, ("dear",))
    assert [one.item for one in blocked.blockers] == ["dear"]
    assert blocked.more is not None
    assert blocked.more[1] == 1
    (fact,) = [fact for fact in answer.facts if fact.code == "GP260"]
    assert fact.subject == {"model": "cheap"}


def test_two_cheap_models_outweigh_a_dear_one() -> None:
    answer = packed(
        fleet_of(host("h1", "H100", 2)),
        entry("dear", LARGE, share=False, priority=3, args=("--tensor-parallel-size", "2")),
        entry("a", share=False, priority=2),
        entry("b", share=False, priority=2),
    )
    assert [model.placed for model in answer.models] == [False, True, True]


def test_replicas_that_do_not_all_fit_are_not_placed_and_the_number_that_does_is_named() -> None:
    answer = packed(fleet_of(host("h1", "H100", 2)), entry("a", share=False, replicas=3))
    (model,) = answer.models
    assert not model.placed
    assert model.blocked is not None
    assert (model.blocked.why, model.blocked.copies, model.blocked.more is not None) == (Why.FULL, 2, True)


def test_replicas_lie_on_disjoint_gpus_however_small() -> None:
    answer = packed(fleet_of(host("h1", "H100", 3)), entry("a", replicas=3), entry("b", replicas=2))
    assert sorted(places(answer, "a")) == [("h1", (0,)), ("h1", (1,)), ("h1", (2,))]
    assert len(set(places(answer, "b"))) == 2
    names = [copy.deployment for model in answer.models for copy in model.copies]
    assert sorted(names) == ["a", "a-2", "a-3", "b", "b-2"]


def test_a_claim_that_shares_gets_the_share_of_its_claim() -> None:
    answer = packed(
        fleet_of(host("h1", "H100", 1)),
        entry("a", context=None, concurrency=None, vram_claim="20GiB"),
        entry("b", context=None, concurrency=None, vram_claim="40GiB"),
    )
    assert [copy.share for model in answer.models for copy in model.copies] == [0.26, 0.51]


def test_pins_and_anti_affinity_hold() -> None:
    hosts = (host("h1", "H100", 2), replace(host("h2", "H100", 2), labels=(("zone", "b"),)))
    answer = packed(
        fleet_of(*hosts),
        entry("a", replicas=2, anti_affinity=("a",)),
        entry("b", labels=(("zone", "b"),)),
        entry("c", gpus=("h1:1",)),
        entry("d", hosts=("h2",)),
    )
    assert sorted(place[0] for place in places(answer, "a")) == ["h1", "h2"]
    assert [place[0] for place in places(answer, "b")] == ["h2"]
    assert places(answer, "c") == [("h1", (1,))]
    assert [place[0] for place in places(answer, "d")] == ["h2"]
    apart = packed(fleet_of(hosts[0]), entry("a", anti_affinity=("b",)), entry("b"))
    (left_out,) = [model for model in apart.models if not model.placed]
    assert left_out.blocked is not None
    assert left_out.blocked.together


def test_a_model_no_gpu_holds_is_told_with_the_nearest_miss() -> None:
    answer = packed(fleet_of(host("h1", "4090", 1)), entry("big", LARGE), entry("small"))
    assert [model.placed for model in answer.models] == [False, True]
    codes = [fact.code for fact in answer.facts]
    assert codes[0] == "GP261"
    assert len(codes) > 1, "and why"
    assert codes[1] != "GP265"


def test_a_pin_to_cards_that_are_too_small_is_said() -> None:
    answer = packed(
        fleet_of(host("h1", "T4", 1), host("h2", "H100", 1)), entry("a", LARGE, hosts=("h1",), concurrency=1)
    )
    (model,) = answer.models
    assert model.blocked is not None
    assert (model.blocked.why, model.blocked.unpinned) == (Why.PINNED, True)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"hosts": ("h9",)}, "hosts: there is no host 'h9'"),
        ({"gpus": ("h1:7",)}, "gpus: host 'h1' has no GPU '7'"),
        ({"labels": (("zone", "x"),)}, "labels: no host has zone: x"),
        (
            {"anti_affinity": ("chta",)},
            "anti_affinity: there is no model 'chta' in this file; did you mean 'chat'?",
        ),
        ({"context": "12Z"}, "--context 12Z: not a number of tokens"),
        ({"args": ("--max-num-sqs", "4")}, "--max-num-sqs"),
        ({"args": ("--data-parallel-size", "2")}, "replicas are placed one by one"),
        ({"executor": "rya"}, "--executor rya"),
    ],
)
def test_faults_of_an_entry_name_its_place(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InventoryError) as caught:
        packed(fleet_of(host("h1", "H100", 1)), entry("chat", **given))
    assert caught.value.message.startswith("models.yaml:1: chat: ")
    assert fault in caught.value.message


def running(name: str, place: Host, *deployments: tuple[str, int, float]) -> Host:
    """A host as it is probed, with deployments: name, GPU and GiB claimed, all of it in use."""
    uuid = {gpu.index: f"GPU-{name}-{gpu.index}" for gpu in place.gpus}
    used = {gpu.index: sum(gib for _, index, gib in deployments if index == gpu.index) for gpu in place.gpus}
    gpus = tuple(
        replace(
            gpu,
            uuid=uuid[gpu.index],
            free_bytes=(gpu.total_bytes or 0) - int(used[gpu.index] * GIB),
        )
        for gpu in place.gpus
    )
    containers = tuple(
        OurContainer(
            id=f"{number:064}",
            name=f"gpuplan-{deployment}",
            deployment=deployment,
            state="running",
            role="single",
            gpus=(uuid[index],),
            claims=((uuid[index], int(gib * GIB)),),
        )
        for number, (deployment, index, gib) in enumerate(deployments)
    )
    return replace(place, gpus=gpus, facts=HostFacts(docker=Docker(containers=containers)))


def claim_of(card: str = "H100") -> float:
    """GiB a model that does not share claims of a card."""
    (gpu,) = host("h", card, 1).gpus
    return int((gpu.total_bytes or 0) * 0.92) / GIB


def test_what_runs_as_it_is_asked_stays() -> None:
    fleet = fleet_of(running("h1", host("h1", "H100", 2), ("a", 1, claim_of())), host("h2", "H100", 2))
    answer = packed(fleet, entry("a", share=False), entry("b", share=False))
    assert places(answer, "a") == [("h1", (1,))]
    assert answer.models[0].copies[0].stays
    assert [(move.step.action, move.step.deployment) for move in answer.moves] == [
        (Action.KEEP, "a"),
        (Action.START, "b"),
    ]


def test_a_model_that_moves_starts_before_the_old_one_stops() -> None:
    """`a` runs where it is not pinned to."""
    fleet = fleet_of(running("h1", host("h1", "H100", 1), ("a", 0, claim_of())), host("h2", "H100", 1))
    answer = packed(fleet, entry("a", share=False, hosts=("h2",)))
    steps = [(move.step.action, move.step.deployment, move.step.reason) for move in answer.moves]
    assert steps == [(Action.START, "a-2", Reason.MOVES), (Action.STOP, "a", Reason.MOVES)]
    assert answer.moves[0].request is not None
    assert answer.moves[0].request["gpus"] == ["h2:0"]


def test_two_that_wait_for_each_other_say_who_is_down() -> None:
    fleet = fleet_of(
        running("h1", host("h1", "H100", 1), ("a", 0, claim_of())),
        running("h2", host("h2", "H100", 1), ("b", 0, claim_of())),
    )
    answer = packed(
        fleet, entry("a", share=False, hosts=("h2",), priority=2), entry("b", share=False, hosts=("h1",))
    )
    assert answer.complete
    assert [(fact.code, fact.subject["model"]) for fact in answer.facts if fact.code == "GP267"] == [
        ("GP267", "b")
    ]


def test_a_dropped_model_is_told_and_others_deployments_are_named_not_touched() -> None:
    fleet = fleet_of(
        running("h1", host("h1", "H100", 1), ("cheap", 0, claim_of())),
        running("h2", host("h2", "H100", 1), ("elses", 0, 60.0)),
    )
    answer = packed(fleet, entry("cheap", share=False), entry("dear", share=False, priority=9))
    assert [move.step.deployment for move in answer.moves if move.step.action is Action.STOP] == ["cheap"]
    assert "GP268" in [fact.code for fact in answer.facts]
    blocked = answer.models[0].blocked
    assert blocked is not None
    assert blocked.stopping == ("elses",)


def test_a_claim_unlike_the_planned_one_is_not_what_is_asked() -> None:
    fleet = fleet_of(running("h1", host("h1", "H100", 2), ("a", 0, 30.0)))
    answer = packed(fleet, entry("a", share=False))
    assert not answer.models[0].copies[0].stays
    assert places(answer, "a") == [("h1", (1,))], "the old one serves until the new one does"


def test_two_servers_of_one_deployment_stay_or_go_together() -> None:
    one = running("h1", host("h1", "H100", 2), ("a", 0, claim_of()), ("a", 1, claim_of()))
    docker = one.facts.docker
    assert docker is not None
    servers = tuple(replace(each, role="replica") for each in docker.containers)
    fleet = fleet_of(
        replace(one, facts=replace(one.facts, docker=replace(docker, containers=servers))),
        host("h2", "H100", 2),
    )
    kept = packed(fleet, entry("a", share=False, replicas=2))
    assert [(move.step.action, move.step.deployment) for move in kept.moves] == [(Action.KEEP, "a")]
    fewer = packed(fleet, entry("a", share=False))
    actions = [(move.step.action, move.step.deployment) for move in fewer.moves]
    assert actions == [(Action.START, "a-2"), (Action.STOP, "a")]


@pytest.mark.parametrize(
    ("deployment", "model"),
    [("chat", "chat"), ("chat-2", "chat"), ("chat-b", None), ("chat-2-2", "chat-2"), ("other", None)],
)
def test_deployments_are_of_the_model_whose_name_they_have(deployment: str, model: str | None) -> None:
    assert model_of(deployment, ["chat", "chat-2"] if deployment == "chat-2-2" else ["chat"]) == model


def test_a_fleet_without_a_usable_gpu() -> None:
    with pytest.raises(NoHostError):
        packed(fleet_of(Host(name="h1")), entry("a"))


def test_unlike_cards_of_one_host_are_used_together_where_nothing_else_does() -> None:
    mixed = host("h1", "L40S", 1)
    other = host("h1", "4090", 1).gpus[0]
    fleet = fleet_of(replace(mixed, gpus=(*mixed.gpus, replace(other, index=1))))
    answer = packed(
        fleet, entry("a", "Qwen__Qwen3-14B", share=False, context="4K", concurrency=1, args=("-tp", "2"))
    )
    assert places(answer, "a") == [("h1", (0, 1))]


def test_a_model_over_two_hosts() -> None:
    fleet = fleet_of(host("h1", "L40S", 1), host("h2", "L40S", 1))
    answer = packed(
        fleet, entry("a", LARGE, share=False, context="4K", concurrency=1, args=("--quantization", "fp8"))
    )
    assert answer.complete
    alone = packed(fleet, entry("a", "Qwen__Qwen3-14B", share=False, args=("-pp", "2")))
    assert [place[0] for place in places(alone, "a")] == ["h1", "h2"]


def test_the_place_of_the_file_does_not_matter() -> None:
    entries = [entry("a", priority=2), entry("b", share=False), entry("c", LARGE, share=False)]
    fleet = fleet_of(host("h1", "H100", 2), host("h2", "A100", 2))
    first = packed(fleet, *entries)
    second = packed(replace(fleet, hosts=fleet.hosts[::-1]), *reversed(entries))
    assert first.packing.cost == second.packing.cost
