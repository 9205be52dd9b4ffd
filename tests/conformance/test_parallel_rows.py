"""The rows S3.1 to S3.7, parallel configuration: what results, what is refused before anything starts, in which words."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.cli.app import run
from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence, RetryOtherPort
from gpuplan.deploying.ports import DATA_PARALLEL_BLOCK, RAY_BLOCK
from gpuplan.domain.deployment import ContainerSpec, Launch
from gpuplan.domain.inventory import VllmSettings
from gpuplan.domain.plan import Plan, Role, StrategyName, Verdict
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.arguments import parse
from gpuplan.engine.parallel_config import Circumstances, RuleCode, check
from gpuplan.errors import ExitCode, UsageError
from gpuplan.operations.lint import Linted, LintOptions, lint
from gpuplan.planning.planner import candidate_of
from gpuplan.present.findings import word
from tests.fleets import CONFIGS, host, of, planned
from tests.unit.deploying.shapes import PAIRS

DENSE = "Qwen__Qwen3-32B"
EXPERTS = "Qwen__Qwen3-30B-A3B"
LATENT = "deepseek-ai__DeepSeek-R1"
FLEET = "tests/golden/cases/fleets/four-h100-hosts.yaml"


def judged(arguments: str, model: str | None = None, **around: Any) -> Linted:
    """`gpuplan lint -- vllm serve …`, with a model's own config where one is named."""
    config = None if model is None else str(CONFIGS / f"{model}.json")
    return lint(["vllm", "serve", "m", *arguments.split()], LintOptions(config=config, **around))


def result(arguments: str, model: str | None = None, **around: Any) -> dict[str, Any]:
    """The parallel configuration that the engine would end up with."""
    made = judged(arguments, model, **around)
    assert made.parallel_config is not None, [word(fact).headline for fact in made.facts]
    return made.parallel_config


def refusal(arguments: str, rule: RuleCode, model: str | None = None, **around: Any) -> tuple[str, str]:
    """Headline and hint of a rule that the arguments break."""
    made = judged(arguments, model, **around)
    assert not made.ok
    assert made.parallel_config is None
    (fact,) = [fact for fact in made.facts if fact.subject.get("rule") == rule.value]
    told = word(fact)
    return told.headline, told.hint or ""


def picked(config: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(config[name] for name in names)


def placed(made: Plan) -> list[tuple[str, int]]:
    best = candidate_of(made)
    assert best is not None
    return [(place.host, len(place.gpus)) for place in best.placement]


# -- S3.1: sizes --------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "world", "across"),
    [
        ("", 1, 1),
        ("-tp 4 -pp 2", 8, 8),
        ("-tp 2 -pp 2 --prefill-context-parallel-size 2", 8, 8),
        ("-tp 4 -dcp 2", 4, 4),
        ("-tp 4 -dp 3 -dpl 3", 4, 12),
        ("-tp 4 -pp 2 -dp 4 -dpl 2 -n 2 -r 0", 8, 32),
    ],
)
def test_s3_1_world_size_is_pipeline_times_tensor_times_prefill_context(
    arguments: str, world: int, across: int
) -> None:
    """Decode context reuses the ranks there are, and the local size of dp says where replicas run, not how many."""
    made = result(arguments)
    assert picked(made, "world_size", "world_size_across_dp") == (world, across)


def test_s3_1_every_size_is_kept() -> None:
    made = result("-tp 4 -pp 3 --prefill-context-parallel-size 2 -dcp 8 -dp 6 -dpl 6")
    sizes = ("tensor", "pipeline", "prefill_context", "decode_context", "data")
    assert picked(made, *(f"{size}_parallel_size" for size in sizes)) == (4, 3, 2, 8, 6)
    assert made["data_parallel_size_local"] == 6


def test_s3_1_a_plan_takes_as_many_gpus_as_the_world_has_ranks() -> None:
    made = planned(DENSE, host("h1", "H100", 8), arguments="-tp 2 -pp 2")
    assert placed(made) == [("h1", 4)]
    experts = planned(EXPERTS, host("h1", "H100", 8), arguments="-tp 2 -dp 3 --enable-expert-parallel")
    assert sum(gpus for _, gpus in placed(experts)) == 6


# -- S3.2: data parallel ------------------------------------------------


def test_s3_2_local_replicas_are_out_of_all() -> None:
    headline, hint = refusal("-dp 2 -dpl 4", RuleCode.LOCAL_AT_MOST_DATA)
    assert headline == "--data-parallel-size-local 4 is more than --data-parallel-size 2"
    assert "replicas of this node" in hint
    with pytest.raises(UsageError, match="--data-parallel-size-local 4 is more than --data-parallel-size 2"):
        planned(EXPERTS, host("h1", "H100", 8), arguments="-dp 2 -dpl 4")


def test_s3_2_external_load_balancing_needs_replicas_and_a_rank() -> None:
    headline, _ = refusal("--data-parallel-rank 0", RuleCode.EXTERNAL_NEEDS_DATA, moe=True)
    assert headline == "external load balancing needs --data-parallel-size above 1"
    headline, hint = refusal("-dp 2 --data-parallel-external-lb", RuleCode.EXTERNAL_NEEDS_RANK, moe=True)
    assert "does not know which replica this process is" in headline
    assert "--data-parallel-rank" in hint
    made = result("-dp 4 --data-parallel-rank 3", moe=True)
    lb = ("data_parallel_external_lb", "data_parallel_hybrid_lb")
    assert picked(made, "data_parallel_rank", "data_parallel_size_local", *lb) == (3, 1, True, False)


def test_s3_2_hybrid_load_balancing_says_how_many_replicas_are_here() -> None:
    headline, hint = refusal("-dp 4 --data-parallel-hybrid-lb", RuleCode.HYBRID_NEEDS_LOCAL, moe=True)
    assert "how many replicas run on this node" in headline
    assert hint == "give --data-parallel-size-local"
    made = result("-dp 4 -dpl 2 --data-parallel-hybrid-lb --data-parallel-start-rank 2", moe=True)
    lb = ("data_parallel_external_lb", "data_parallel_hybrid_lb")
    assert picked(made, "data_parallel_rank", "data_parallel_size_local", *lb) == (2, 2, False, True)
    headline, _ = refusal(
        "-dp 4 -dpl 2 --data-parallel-hybrid-lb --data-parallel-rank 1",
        RuleCode.LOAD_BALANCING_MODES,
        moe=True,
    )
    assert "more than one data-parallel load-balancing mode" in headline


@pytest.mark.parametrize(("rank", "taken"), [(0, True), (3, True), (4, False), (9, False)])
def test_s3_2_a_rank_lies_within_the_replicas(rank: int, taken: bool) -> None:
    arguments = f"-dp 4 --data-parallel-rank {rank}"
    if taken:
        assert result(arguments, moe=True)["data_parallel_rank"] == rank
        return
    headline, hint = refusal(arguments, RuleCode.DATA_RANK, moe=True)
    assert headline == f"data-parallel rank {rank} is not in 0 to 3"
    assert hint == "number the replicas from 0"


def test_s3_2_ranks_of_a_dense_model_are_independent_replicas() -> None:
    headline, hint = refusal("-dp 2 --data-parallel-rank 0", RuleCode.DENSE_EXTERNAL, DENSE)
    assert headline == "a model without experts cannot use external data-parallel load balancing"
    assert "independent servers" in hint
    (told,) = [word(fact) for fact in judged("-dp 3", DENSE).facts if fact.code == "GP306"]
    assert told.headline == "data parallel of a dense model is 3 independent replicas"
    assert not [fact for fact in judged("-dp 3", EXPERTS).facts if fact.code == "GP306"]
    best = candidate_of(planned(DENSE, host("h1", "H100", 4), arguments="-dp 3"))
    assert best is not None
    assert [place.role for place in best.placement] == [Role.REPLICA] * 3
    assert "GP306" in {fact.code for fact in best.facts}
    started = PAIRS["replicas-dense-by-data-parallel-size"].spec()
    assert len(started.servers) == 2
    assert not [one for one in started.containers if "--data-parallel-size" in one.command]


# -- S3.3: experts ------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rule", "words"),
    [
        ("--enable-eplb -tp 2", RuleCode.BALANCING_NEEDS_EXPERTS, "without expert parallelism"),
        ("--enable-eplb -ep", RuleCode.BALANCING_NEEDS_RANKS, "more than one rank in tp × pcp × dp"),
        (
            "-tp 2 --eplb-config.num_redundant_experts 8",
            RuleCode.REDUNDANT_NEEDS_BALANCING,
            "8 redundant experts are only used by expert load balancing",
        ),
    ],
)
def test_s3_3_balancing_needs_experts_spread_over_ranks(arguments: str, rule: RuleCode, words: str) -> None:
    headline, hint = refusal(arguments, rule, EXPERTS)
    assert words in headline
    assert hint


def test_s3_3_balancing_runs_on_gpus_like_cudas() -> None:
    arguments = parse(["--enable-eplb", "-ep", "-tp", "2"])
    for backend in ("cuda", "rocm"):
        assert not check(arguments, Circumstances(backend=backend))
    (broken,) = check(arguments, Circumstances(backend="cann"))
    assert broken.code is RuleCode.BALANCING_NEEDS_DEVICE
    assert "not on cann" in broken.message


def test_s3_3_the_balancers_settings_are_kept_and_checked() -> None:
    made = result("-tp 2 -ep --enable-eplb --eplb-config.window_size 500", EXPERTS)
    assert made["enable_eplb"]
    assert picked(made["eplb_config"], "window_size", "step_interval", "num_redundant_experts", "policy") == (
        500,
        3000,
        0,
        "default",
    )
    for setting, words in (
        ("window_size 0", "window_size must be a whole number of at least 1"),
        ("policy random", "use_async works with the default policy only"),
    ):
        made_of = judged(f"-tp 2 -ep --enable-eplb --eplb-config.{setting}", EXPERTS)
        assert not made_of.ok
        assert words in word(made_of.facts[0]).headline


@pytest.mark.parametrize(
    ("arguments", "parallel"),
    [
        ("-tp 2 -dp 2 -ep", True),
        ("-tp 2 -dp 2 -ep --all2all-backend pplx", True),
        ("-tp 2 -dp 2 -ep --all2all-backend flashinfer_nvlink_two_sided", False),
        ("-tp 2 -dp 2", False),
        ("-tp 1 -dp 2 -ep", False),
        ("-tp 2 -ep", False),
    ],
)
def test_s3_3_experts_share_the_sequence_where_ranks_would_repeat_it(arguments: str, parallel: bool) -> None:
    assert result(arguments, EXPERTS)["use_sequence_parallel_moe"] is parallel


def test_s3_3_placement_and_exchange_of_experts() -> None:
    assert picked(result("-tp 2 -ep"), "expert_placement_strategy", "all2all_backend") == (
        "linear",
        "allgather_reducescatter",
    )
    made = result("-tp 2 -ep --expert-placement-strategy round_robin --all2all-backend deepep_low_latency")
    assert picked(made, "expert_placement_strategy", "all2all_backend") == (
        "round_robin",
        "deepep_low_latency",
    )
    assert result("-tp 2 -ep --all2all-backend naive")["all2all_backend"] == "allgather_reducescatter"
    for flag in ("--expert-placement-strategy spiral", "--all2all-backend bogus"):
        refused = judged(f"-tp 2 -ep {flag}")
        assert not refused.ok
        assert flag.split()[1] in word(refused.facts[0]).headline


def test_s3_3_a_plan_refuses_first_what_the_engine_would() -> None:
    """At every size, in the plan's own words; a single GPU has no ranks to balance between, two have."""
    with pytest.raises(UsageError, match="vLLM would refuse these arguments: --enable-eplb") as caught:
        planned(EXPERTS, host("h1", "H100", 2), arguments="--enable-eplb")
    assert caught.value.hint == "add --enable-expert-parallel"
    made = planned(EXPERTS, host("h1", "H100", 2), arguments="--enable-eplb -ep")
    (fact,) = of(made, StrategyName.SINGLE_GPU).facts
    assert fact.code == "GP330"
    assert "needs more than one rank" in word(fact).headline
    assert made.recommended == (StrategyName.SINGLE_HOST, 0)


# -- S3.4: the executor -------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "gpus", "executor"),
    [
        ("", 1, "uni"),
        ("-tp 8", 8, "mp"),
        ("-tp 8 -pp 2 -n 2 -r 0", 8, "mp"),
        ("-tp 8 --distributed-executor-backend ray", 8, "ray"),
        ("-tp 16 --distributed-executor-backend ray", 8, "ray"),
        ("-tp 2 -dp 2 --data-parallel-backend ray", 4, "ray"),
    ],
)
def test_s3_4_which_executor_it_is(arguments: str, gpus: int, executor: str) -> None:
    assert result(arguments, gpus=gpus)["distributed_executor_backend"] == executor


def test_s3_4_more_ranks_than_gpus_is_told_with_both_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    headline, hint = refusal("-tp 16", RuleCode.TOO_FEW_GPUS, gpus=8)
    assert headline == "16 ranks (tp × pp × pcp) need 16 GPUs, this node has 8"
    assert "--nnodes N" in hint
    assert "--distributed-executor-backend ray" in hint
    assert run(["lint", "--gpus", "8", "--", "vllm", "serve", "m", "-tp", "16"]) == ExitCode.USAGE
    assert "refused by vLLM 0.33.0: 1 error" in capsys.readouterr().out


@pytest.mark.parametrize(("executor", "taken"), [("mp", True), ("uni", True), ("ray", False)])
def test_s3_4_several_nodes_without_ray_only(executor: str, taken: bool) -> None:
    arguments = f"-tp 4 -n 2 -r 0 --distributed-executor-backend {executor}"
    if taken:
        assert result(arguments)["nnodes"] == 2
        return
    headline, hint = refusal(arguments, RuleCode.NODES_NEED_EXECUTOR)
    assert "works with the mp, uni and external_launcher executors, not ray" in headline
    assert "--nnodes out for Ray" in hint


def test_s3_4_ray_needs_an_image_that_has_it() -> None:
    headline, hint = refusal("-tp 2 --distributed-executor-backend ray", RuleCode.RAY_MISSING, ray=False)
    assert "the image has no Ray" in headline
    assert "--nnodes" in hint


# -- S3.5: nodes without Ray --------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "within", "rank_within", "local", "first_replica"),
    [
        ("-tp 8 -pp 2 -n 2 -r 1", 2, 1, 8, 0),
        ("-tp 4 -dp 4 -n 2 -r 1", 1, 0, 4, 2),
        ("-tp 4 -pp 2 -dp 2 -n 4 -r 3", 2, 1, 4, 1),
        ("-tp 8", 1, 0, 8, 0),
    ],
)
def test_s3_5_each_node_knows_its_place(
    arguments: str, within: int, rank_within: int, local: int, first_replica: int
) -> None:
    made = result(f"{arguments} --master-addr 10.0.0.1 --master-port 29600")
    names = ("nnodes_within_dp", "node_rank_within_dp", "local_world_size", "data_parallel_rank")
    assert picked(made, *names) == (within, rank_within, local, first_replica)
    assert picked(made, "master_addr", "master_port") == ("10.0.0.1", 29600)


def test_s3_5_nodes_are_numbered_and_alike() -> None:
    assert "not in 0 to 1" in refusal("-tp 4 -n 2 -r 2", RuleCode.NODE_RANK)[0]
    headline, hint = refusal("-tp 4 -n 3 -r 0", RuleCode.NODES_DIVIDE_WORLD)
    assert "4 ranks (dp × pp × tp × pcp) do not divide over --nnodes 3" in headline
    assert "multiple of 3" in hint


def test_s3_5_a_deployment_writes_what_its_nodes_need() -> None:
    spec = PAIRS["mp-3-hosts"].spec()
    read = [_read(one) for one in spec.containers]
    assert [one.node_rank for one in read] == [0, 1, 2]
    assert {(one.nnodes, one.master_addr, one.master_port) for one in read} == {
        (3, "192.168.0.1", read[0].master_port)
    }
    assert [one.headless for one in read] == [False, True, True]


def _read(container: ContainerSpec) -> EngineArguments:
    started = (*container.entrypoint, *container.command)
    return parse(started[started.index("serve") + 1 :])


# -- S3.6: context parallel, all-reduce, micro-batches ------------------


def test_s3_6_decode_context_divides_tensor_parallel() -> None:
    headline, hint = refusal("-tp 4 -dcp 3", RuleCode.DECODE_CONTEXT_DIVIDES)
    assert headline == "--decode-context-parallel-size 3 does not divide --tensor-parallel-size 4"
    assert hint == "choose one of 1, 2, 4"
    with pytest.raises(UsageError, match="--decode-context-parallel-size 3 does not divide"):
        planned(LATENT, host("h1", "H100", 8), arguments="-tp 4 -dcp 3")
    # four KV heads: from eight ranks on a head is on two of them, which decode context can share
    made = planned(EXPERTS, host("h1", "H100", 8), arguments="-dcp 2")
    assert placed(made) == [("h1", 8)]
    assert of(made, StrategyName.SINGLE_GPU).verdict is Verdict.NO_FIT


@pytest.mark.parametrize(
    ("interleave", "block", "taken"), [(1, 16, True), (16, 16, True), (32, 16, False), (6, 16, False)]
)
def test_s3_6_a_block_holds_whole_interleaves(interleave: int, block: int, taken: bool) -> None:
    arguments = f"-tp 8 -dcp 2 --cp-kv-cache-interleave-size {interleave} --block-size {block}"
    if taken:
        assert result(arguments)["cp_kv_cache_interleave_size"] == interleave
        return
    headline, hint = refusal(arguments, RuleCode.INTERLEAVE_BLOCK)
    assert headline == f"--cp-kv-cache-interleave-size {interleave} does not divide --block-size {block}"
    assert f"at most {block}" in hint


def test_s3_6_an_interleave_is_judged_where_context_is_shared_and_blocks_are_known() -> None:
    assert judged("-tp 8 --cp-kv-cache-interleave-size 32 --block-size 16").ok
    assert judged("-tp 8 -dcp 2 --cp-kv-cache-interleave-size 32").ok


@pytest.mark.parametrize(
    ("arguments", "used"),
    [
        ("-tp 8", True),
        ("-tp 8 -pp 2 -n 2 -r 0", True),
        ("-tp 8 -n 2 -r 0", False),
        ("-tp 8 --disable-custom-all-reduce", False),
        ("-tp 3", False),
        ("", False),
    ],
)
def test_s3_6_custom_all_reduce_stays_on_one_node(arguments: str, used: bool) -> None:
    assert result(arguments)["custom_all_reduce"] is used


def test_s3_6_micro_batches_have_thresholds_and_backends() -> None:
    made = result("-tp 2 -dp 2 -ep --enable-dbo --all2all-backend deepep_low_latency", EXPERTS)
    names = ("micro_batches", "dbo_decode_token_threshold", "dbo_prefill_token_threshold")
    assert picked(made, *names) == (2, 32, 512)
    assert result("-tp 2")["micro_batches"] == 1
    arguments = "-tp 2 -dp 2 -ep --ubatch-size 4 --dbo-decode-token-threshold 3"
    headline, hint = refusal(arguments, RuleCode.MICROBATCH_THRESHOLD)
    assert "below the number of micro-batches (4)" in headline
    assert "at least 4" in hint
    headline, hint = refusal("-tp 2 -dp 2 -ep --enable-dbo", RuleCode.MICROBATCH_BACKEND, EXPERTS)
    assert "allgather_reducescatter all-to-all backend" in headline
    assert "deepep_low_latency" in hint


# -- S3.7: ports --------------------------------------------------------


def test_s3_7_the_engines_own_ports_where_none_is_given() -> None:
    names = ("data_parallel_rpc_port", "master_port")
    assert picked(result("-dp 2"), *names) == (29550, 29501)
    given = "-dp 2 --data-parallel-rpc-port 31000 --master-port 31001"
    assert picked(result(given), *names) == (31000, 31001)


def test_s3_7_a_deployment_gets_ports_nobody_uses() -> None:
    """HTTP, the RPC of data-parallel ranks, the block their groups meet in; one in use on any member is passed over."""
    shape = PAIRS["experts-over-hosts"]
    assert shape.spec().servers[0].launch is Launch.NATIVE_DP
    first = _ports(shape.spec().containers[0])
    assert first == (40000, 40001, 40002)
    taken = {"h1": frozenset({40000}), "h2": frozenset({40002})}
    moved = _ports(replace(shape, compile={"taken": taken}).spec().containers[0])
    assert moved == (40001, 40003, 40004)
    assert all(port not in taken["h1"] | taken["h2"] for port in moved)
    assert DATA_PARALLEL_BLOCK == 10
    assert RAY_BLOCK == 100


def _ports(container: ContainerSpec) -> tuple[int | None, int | None, int]:
    """HTTP, RPC, and the first of the data-parallel block."""
    read = _read(container)
    return read.port, read.data_parallel_rpc_port, int(dict(container.env)["VLLM_DP_MASTER_PORT"])


def test_s3_7_a_port_of_the_users_in_use_is_told() -> None:
    shape = replace(PAIRS["mp-2-hosts"], arguments=("-tp 2 -pp 2 --master-port 40005",))
    assert _read(shape.spec().containers[1]).master_port == 40005
    with pytest.raises(UsageError, match="--master-port 40005: the port is in use on h1") as caught:
        replace(shape, compile={"taken": {"h1": frozenset({40005})}}).spec()
    assert "leave --master-port out" in (caught.value.hint or "")
    narrow = replace(PAIRS["mp-2-hosts"], settings=VllmSettings(service_ports=(40000, 40000)))
    with pytest.raises(UsageError, match=r"no port in vllm\.service_ports \(40000-40000\) is free"):
        narrow.spec()


@pytest.mark.parametrize(
    ("line", "port"),
    [
        (
            "The server socket has failed to listen on any local network address. port: 29501, useIpv6: false",
            29501,
        ),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.11:29550')", 29550),
        ("torch.distributed.DistNetworkError: EADDRINUSE", None),
    ],
)
def test_s3_7_an_address_in_use_is_retried_with_another_port(line: str, port: int | None) -> None:
    ended = MemberEvidence(host="h1", container="c", state="exited", exit_code=1, lines=((1.0, line),))
    assert diagnose([ended], None).remedy == RetryOtherPort(port=port)
