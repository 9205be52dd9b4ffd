"""Each knob of a remedy: where it is offered, where it is not, and what two of them do together."""

from dataclasses import replace

import pytest

from gpuplan.domain.fleet import Fleet, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import Remedy, StrategyName, Verdict
from gpuplan.domain.workload import GpuSelection
from gpuplan.planning.offers import supply_of
from gpuplan.planning.planner import candidate_of, plan
from gpuplan.planning.remedies.case import Case, few_of_each
from gpuplan.planning.remedies.place_knobs import experts
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.strategies import single_gpu
from tests.fleets import host, of, planned, profile

SMALL = "Qwen__Qwen3-8B"


def tight(
    model: str,
    card: str,
    *,
    arguments: str = "",
    concurrency: int = 8,
    more: int = 512,
    version: str = "0.33.0",
) -> dict[str, Remedy]:
    """Remedies by kind where the context asked for is a little longer than what fits on one card."""
    fits = planned(model, host("a", card, 1), arguments=arguments, concurrency=concurrency, version=version)
    best = candidate_of(fits)
    assert best is not None
    assert best.memory is not None
    length = best.memory.max_model_len + more
    made = planned(
        model,
        host("a", card, 1, ram=8),
        arguments=arguments,
        concurrency=concurrency,
        context=length,
        version=version,
    )
    result = of(made, StrategyName.SINGLE_GPU)
    assert result.verdict is Verdict.NO_FIT
    return {remedy.kind: remedy for remedy in result.remedies}


def test_a_little_memory_comes_from_graphs_batches_and_sequences() -> None:
    found = tight(SMALL, "4090", more=32)
    assert {"context", "graphs", "enforce_eager", "max_num_batched_tokens", "max_num_seqs"} <= set(found)
    assert found["graphs"].change["--max-cudagraph-capture-size"] < 512
    assert found["graphs"].size < found["enforce_eager"].size
    assert found["enforce_eager"].change == {"--enforce-eager": True}


def test_graphs_are_no_remedy_where_the_engine_does_not_count_them() -> None:
    assert not {"graphs", "enforce_eager"} & set(tight(SMALL, "4090", more=32, version="0.19.0"))
    assert not {"graphs", "enforce_eager"} & set(tight(SMALL, "4090", more=32, arguments="--enforce-eager"))


def test_the_users_list_of_graphs_is_cut_short() -> None:
    sizes = "--cudagraph-capture-sizes 1 2 4 8 16 32 64 128 256 512"
    step = tight(SMALL, "4090", more=32, arguments=sizes)["graphs"]
    assert step.change["--cudagraph-capture-sizes"][-1] < 512
    both = f"{sizes} --max-cudagraph-capture-size 512"
    step = tight(SMALL, "4090", more=32, arguments=both)["graphs"]
    assert step.change["--max-cudagraph-capture-size"] == step.change["--cudagraph-capture-sizes"][-1]


def test_fewer_and_smaller_adapters() -> None:
    found = tight(SMALL, "L40S", arguments="--enable-lora --max-loras 8 --max-lora-rank 64")
    assert 1 <= found["max_loras"].change["--max-loras"] < 8
    assert 1 <= found["max_lora_rank"].change["--max-lora-rank"] < 64


def test_a_model_that_sees_can_be_served_blind() -> None:
    found = tight("Qwen__Qwen3-VL-8B-Instruct", "L40S", concurrency=4)
    assert found["mm_limit"].change == {"--limit-mm-per-prompt": {"image": 0, "video": 0}}
    limited = tight("Qwen__Qwen3-VL-8B-Instruct", "L40S", concurrency=4, arguments="--language-model-only")
    assert "mm_limit" not in limited


def test_offload_stays_within_the_ram_of_the_host() -> None:
    step = tight(SMALL, "4090")["cpu_offload_gb"]
    assert 1 <= step.change["--cpu-offload-gb"] <= 8
    made = planned(SMALL, host("a", "4090", 1), context=40960, concurrency=8)
    kinds = {remedy.kind for remedy in of(made, StrategyName.SINGLE_GPU).remedies}
    assert "cpu_offload_gb" not in kinds


def test_a_pair_where_no_single_change_helps() -> None:
    made = planned("Qwen__Qwen3-32B", host("a", "L40S", 1, ram=40), context=40960, concurrency=2)
    remedies = {remedy.kind: remedy for remedy in of(made, StrategyName.SINGLE_GPU).remedies}
    assert not {"context", "concurrency", "cpu_offload_gb", "kv_cache_dtype"} & set(remedies)
    pair = remedies["pair"]
    assert "--cpu-offload-gb" in pair.change
    assert len(pair.change) == 2
    assert pair.size == pytest.approx(sum(part.size for part in pair.figures["parts"]) + 0.25)
    assert pair.change["--cpu-offload-gb"] <= 40


def shared(**container: object) -> Host:
    """A card of which a deployment of ours holds half, and somebody's process a quarter."""
    bare = host("h1", "H100", 1)
    card = bare.gpus[0]
    total = card.total_bytes or 0
    process = GpuProcess(pid=123, name="python", used_bytes=total // 4, user="ann")
    card = replace(card, uuid="GPU-1", free_bytes=total // 4, processes=(process,))
    ours = OurContainer(
        id="c" * 64,
        name="gpuplan-old-n0",
        deployment="old",
        state="running",
        gpus=("GPU-1",),
        claims=(("GPU-1", total // 2),),
    )
    docker = Docker(containers=(replace(ours, **container),))  # type: ignore[arg-type]
    return replace(bare, gpus=(card,), facts=HostFacts(docker=docker))


def test_stop_x_and_end_y_are_named() -> None:
    made = planned(SMALL, shared(), context=4096, arguments="--gpu-memory-utilization 0.7")
    remedies = {remedy.kind: remedy for remedy in of(made, StrategyName.SINGLE_GPU).remedies}
    assert remedies["stop"].change == {"stop": "old"}
    assert remedies["stop"].figures["places"] == ("h1:0",)
    assert "process" not in remedies  # what it holds is not enough by itself
    made = planned(SMALL, shared(), context=4096, arguments="--gpu-memory-utilization 0.48")
    remedies = {remedy.kind: remedy for remedy in of(made, StrategyName.SINGLE_GPU).remedies}
    assert remedies["process"].figures["pid"] == 123
    assert remedies["process"].figures["user"] == "ann"
    assert remedies["stop"].size < remedies["process"].size


def test_both_are_ended_where_one_is_not_enough() -> None:
    made = planned(SMALL, shared(), context=4096, arguments="--gpu-memory-utilization 0.9 --max-num-seqs 64")
    remedies = of(made, StrategyName.SINGLE_GPU).remedies
    pairs = [remedy for remedy in remedies if remedy.kind == "pair"]
    singles = [remedy.size for remedy in remedies if remedy.kind != "pair"]
    assert all(pair.size < min(singles, default=100) for pair in pairs)
    assert not {"stop", "process"} & {remedy.kind for remedy in remedies}


@pytest.mark.parametrize("container", [{"loading": True}, {"keep_alive_seconds": -1}, {"state": "created"}])
def test_nobody_is_named_who_is_pinned_or_starts(container: dict[str, object]) -> None:
    fleet = (shared(**container), host("h2", "T4", 1))
    made = planned(SMALL, *fleet, context=4096, arguments="--gpu-memory-utilization 0.7")
    told = [
        part
        for one in of(made, StrategyName.SINGLE_GPU).remedies
        for part in one.figures.get("parts", (one,))
    ]
    assert "stop" not in {one.kind for one in told}


def test_other_hosts_where_a_replica_was_kept_on_one() -> None:
    fleet = (host("a", "L40S", 1), host("b", "L40S", 1))
    made = planned("Qwen__Qwen3-32B", *fleet, context=4096, allow_distributed=False)
    assert of(made, StrategyName.MULTI_HOST).verdict is Verdict.SKIPPED
    (remedy,) = [one for one in of(made, StrategyName.SINGLE_HOST).remedies if one.kind == "other_hosts"]
    assert remedy.change == {"without": "--no-distributed"}
    again = planned("Qwen__Qwen3-32B", *fleet, context=4096)
    assert of(again, StrategyName.MULTI_HOST).verdict is Verdict.FITS


def test_fewer_replicas() -> None:
    made = planned(SMALL, host("a", "4090", 3), replicas=5, context=4096)
    (remedy,) = [one for one in of(made, StrategyName.DATA_PARALLEL).remedies if one.kind == "replicas"]
    assert remedy.change == {"--replicas": 3}


def request(model: str, **engine: object) -> PlanRequest:
    asked = PlanRequest(fleet=Fleet(hosts=(host("a", "H100", 2),)), profile=profile(model), utilization=0.9)
    workload = asked.workload
    return replace(asked, workload=replace(workload, engine=replace(workload.engine, **engine)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "already", "offered"),
    [("Qwen__Qwen3-30B-A3B", False, 1), ("Qwen__Qwen3-30B-A3B", True, 0), (SMALL, False, 0)],
)
def test_expert_parallel_is_tried_for_experts_alone(model: str, already: bool, offered: int) -> None:
    asked = request(model, enable_expert_parallel=already)
    supply = supply_of(asked.fleet)
    case = Case(
        request=asked,
        supply=supply,
        strategy=StrategyName.SINGLE_GPU,
        evaluate=single_gpu.evaluate,
        codes=frozenset(),
    )
    assert len(list(experts(case))) == offered


def test_few_hosts_of_a_kind_are_looked_at_and_all_that_were_selected() -> None:
    hosts = tuple(host(f"h{number:02}", "T4", 1) for number in range(12))
    asked = replace(request(SMALL), fleet=Fleet(hosts=hosts))
    assert [one.host for one in few_of_each(supply_of(asked.fleet), asked).hosts] == [
        "h00",
        "h01",
        "h02",
        "h03",
    ]
    chosen = (GpuSelection(host="h11", devices=("0",)),)
    asked = replace(asked, workload=replace(asked.workload, selection=chosen))
    assert "h11" in [one.host for one in few_of_each(supply_of(asked.fleet), asked).hosts]
    made = planned("Qwen__Qwen3-32B", *hosts, selection=chosen)
    assert of(made, StrategyName.MANUAL).verdict is Verdict.OVERCOMMIT


def test_work_is_bounded() -> None:
    asked = replace(request("Qwen__Qwen3-32B"), fleet=Fleet(hosts=(host("a", "T4", 1),)))
    case = Case(
        request=asked,
        supply=supply_of(asked.fleet),
        strategy=StrategyName.SINGLE_GPU,
        evaluate=single_gpu.evaluate,
        codes=frozenset(),
        left=0,
    )
    assert case.tried(asked).fitting is None
    assert case.tried(asked).near == ()
    assert plan(asked).recommended is None
