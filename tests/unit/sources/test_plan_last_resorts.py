"""Plans with weights in host memory (S4.3) or deployments to stop (S4.6) are read back as they were written."""

import json
from typing import Any

import pytest

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Plan, StrategyName
from gpuplan.domain.workload import Category
from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import InventoryError
from gpuplan.operations.models import Model
from gpuplan.operations.plan import ServingOptions, plan_model, workload_of
from gpuplan.planning.planner import candidate_of
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.sources import snapshot_json
from gpuplan.sources.plan_json import parse
from tests.fleets import host, probed_fleet, profile
from tests.rooms import runs, shared

CHAT = runs("chat", ("h1", 0), keep_alive=600, requests=0)


def made(*hosts: Host, **asked: Any) -> Plan:
    described = profile("Qwen__Qwen3-32B")
    model = Model(profile=described, category=Category.LLM, path=described.name)
    return plan_model(
        model, Fleet(hosts=hosts), workload_of(ServingOptions(context="8k", **asked), DEFAULT), DEFAULT
    )


def written(plan: Plan) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(plain(plan_document(plan))))
    return document


def test_s4_6_what_is_to_be_stopped_comes_back_from_the_file() -> None:
    plan = made(shared("h1", CHAT), strategies=("evict",))
    saved = parse(json.dumps(written(plan)).encode(), "plan.json")
    best = candidate_of(plan)
    assert best is not None
    assert saved.strategy is StrategyName.EVICT
    assert saved.candidate.evicts == best.evicts
    assert [one.deployment for one in best.evicts] == ["chat"]
    assert saved.candidate.placement == best.placement
    assert saved.serving["strategies"] == ("evict",)


def test_s4_6_a_candidate_that_stops_nobody_says_so() -> None:
    candidates = [
        candidate
        for strategy in written(made(host("h1", "H100", 1)))["strategies"]
        for candidate in strategy["candidates"]
    ]
    assert candidates
    assert all(candidate["evicts"] == [] for candidate in candidates)


def test_s4_3_what_stays_in_host_memory_comes_back_from_the_file() -> None:
    plan = made(host("h1", "4090", 1, ram=200))
    saved = parse(json.dumps(written(plan)).encode(), "plan.json")
    best = candidate_of(plan)
    assert best is not None
    assert saved.candidate.placement == best.placement
    assert saved.candidate.placement[0].cpu_offload_gib > 0
    assert "--cpu-offload-gb" in saved.candidate.vllm_args


def test_all_strategies_are_in_the_document_whatever_fits() -> None:
    for hosts in ((host("h1", "H100", 1),), (shared("h1", CHAT),), (host("h1", "4090", 1, ram=200),)):
        names = [strategy["strategy"] for strategy in written(made(*hosts))["strategies"]]
        assert names == [name.value for name in StrategyName]


@pytest.mark.parametrize(
    "eviction",
    [
        {"gpus": []},
        {"deployment": "", "gpus": []},
        {"deployment": "chat", "gpus": [{"host": "h1", "index": 0}]},
        {"deployment": "chat", "gpus": [], "running_requests": -1},
        {"deployment": "chat", "gpus": [], "keep_alive_seconds": "600"},
    ],
)
def test_an_eviction_that_makes_no_sense_is_refused_with_its_place(eviction: dict[str, Any]) -> None:
    document = written(made(shared("h1", CHAT), strategies=("evict",)))
    chosen = next(one for one in document["strategies"] if one["strategy"] == "evict")
    chosen["candidates"][0]["evicts"] = [eviction]
    with pytest.raises(InventoryError, match="evicts") as caught:
        parse(json.dumps(document).encode(), "plan.json")
    assert caught.value.message.startswith("plan.json")


def test_a_plan_of_before_has_neither() -> None:
    document = written(made(host("h1", "H100", 1)))
    for strategy in document["strategies"]:
        for candidate in strategy["candidates"]:
            del candidate["evicts"]
            for placed in candidate["placement"]:
                del placed["cpu_offload_gib"]
    saved = parse(json.dumps(document).encode(), "plan.json")
    assert saved.candidate.evicts == ()
    assert saved.candidate.placement[0].cpu_offload_gib == 0


def test_s4_6_a_snapshot_keeps_how_busy_a_deployment_was() -> None:
    fleet = probed_fleet()
    text = snapshot_json.dumps(fleet)
    again = snapshot_json.parse(text.encode(), "snapshot.json")
    (one,) = json.loads(text)["hosts"][0]["deployments"]
    assert (one["keep_alive_seconds"], one["running_requests"], one["waiting_requests"]) == (600, 2, 1)
    docker = again.hosts[0].facts.docker
    assert docker is not None
    assert docker.containers[0].keep_alive_seconds == 600
    assert "keep_alive_seconds" in json.dumps(snapshot_json.snapshot_schema())
