"""What each shape is compiled to: its containers, their words, variables, devices and labels."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.deploying.compile import compile_deployment, default_name
from gpuplan.deploying.image_probe import ImageFacts
from gpuplan.domain import labels
from gpuplan.domain.deployment import (
    SECRETS_DIRECTORY,
    ContainerRole,
    ContainerSpec,
    DeploymentSpec,
    DirectoryModel,
    Launch,
)
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.inventory import VllmSettings
from gpuplan.domain.plan import PlacedHost, Role
from gpuplan.domain.workload import EngineArguments, ExecutorChoice
from gpuplan.engine.arguments import parse
from gpuplan.engine.parallel_config import Circumstances, check, resolve
from gpuplan.engine.versions import version_of
from gpuplan.errors import UsageError
from tests.unit.deploying.shapes import (
    EXPERTS,
    LARGE,
    PAIRS,
    SECRETS,
    SHAPES,
    SMALL,
    TWO,
    VERSIONED,
    WITH_RAY,
    Shape,
    host,
)


def words(container: ContainerSpec) -> tuple[str, ...]:
    """Behind `vllm serve`."""
    started = (*container.entrypoint, *container.command)
    return started[started.index("serve") + 1 :]


def servers(spec: DeploymentSpec) -> list[ContainerSpec]:
    return [one for one in spec.containers if "serve" in (*one.entrypoint, *one.command)]


def read(container: ContainerSpec, version: str = "0.33.0") -> EngineArguments:
    return parse([word for word in words(container) if word != "--omni"], version=version_of(version))


def label(container: ContainerSpec, name: str) -> Any:
    return json.loads(dict(container.labels)[name])


def refused(shape: Shape, **changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        replace(shape, **changes).spec()
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("name", VERSIONED)
def test_every_release_is_given_what_it_knows(name: str) -> None:
    release = version_of(name.rpartition("-")[2])
    for one in servers(VERSIONED[name]()):
        arguments = read(one, str(release))
        assert not check(
            arguments, Circumstances(gpus=len(one.gpu_indexes), ray=one.volumes_from is not None)
        )
        assert not [notice for notice in arguments.notices if notice.code == "newer_flag"]


@pytest.mark.parametrize("name", SHAPES)
def test_vllm_accepts_the_words_of_every_container(name: str) -> None:
    shape = PAIRS[name]
    spec = shape.spec()
    assert servers(spec)
    for one in servers(spec):
        arguments = read(one, shape.version)
        around = Circumstances(
            gpus=len(one.gpu_indexes),
            ray=one.volumes_from is not None,
            moe=bool(shape.profile().expert_count),
            attention_heads=shape.profile().attention_heads,
            kv_heads=shape.profile().kv_heads,
        )
        assert not check(arguments, around)


@pytest.mark.parametrize("name", SHAPES)
def test_every_gpu_is_given_once_and_has_its_claim_once(name: str) -> None:
    shape = PAIRS[name]
    spec = shape.spec()
    placed = {
        (each.host, gpu.index): gpu.claim_bytes
        for each in shape.request().candidate.placement
        for gpu in each.gpus
    }
    claims: dict[tuple[str, str], int] = {}
    given: set[tuple[str, int]] = set()
    for one in spec.containers:
        if labels.CLAIMS not in dict(one.labels):
            assert one.role is ContainerRole.LEADER
            assert spec.servers[one.server].launch is Launch.RAY
            continue
        assert not given & {(one.host, index) for index in one.gpu_indexes}
        given |= {(one.host, index) for index in one.gpu_indexes}
        for uuid, claim in label(one, labels.CLAIMS).items():
            assert (one.host, uuid) not in claims
            claims[one.host, uuid] = claim
        assert label(one, labels.GPUS) == list(label(one, labels.GPUS))
    assert given == set(placed)
    assert sorted(claims.values()) == sorted(placed.values())


@pytest.mark.parametrize("name", SHAPES)
def test_containers_are_told_apart_and_know_each_other(name: str) -> None:
    spec = SHAPES[name]()
    assert len({(one.host, one.name) for one in spec.containers}) == len(spec.containers)
    for one in spec.containers:
        marks = dict(one.labels)
        assert list(marks) == sorted(marks)
        assert marks[labels.MANAGED] == "true"
        assert labels.GENERATION not in marks
        assert labels.SPEC_HASH not in marks
        assert [(each["host"], each["container"]) for each in json.loads(marks[labels.MEMBERS])] == [
            (each.host, each.name) for each in spec.containers
        ]
        assert one.health is not None
        assert one.health.command[-1] == f"http://{_peer(spec, one)}/health"
        assert one.env == tuple(sorted(one.env))
        assert len(dict(one.env)) == len(one.env)
        assert "VLLM_PORT" not in dict(one.env)
        assert "CUDA_VISIBLE_DEVICES" not in dict(one.env)
        assert [mount.target for mount in one.mounts] == sorted({mount.target for mount in one.mounts})
    answering = [one for one in spec.containers if labels.ENDPOINT in dict(one.labels)]
    assert [dict(one.labels)[labels.ENDPOINT] for one in answering] == [
        each.endpoint for each in spec.servers
    ]


def _peer(spec: DeploymentSpec, one: ContainerSpec) -> str:
    server = spec.servers[one.server]
    return f"{server.address}:{server.port}"


@pytest.mark.parametrize("name", SHAPES)
def test_compiling_twice_gives_the_same(name: str) -> None:
    assert repr(SHAPES[name]()) == repr(SHAPES[name]())


@pytest.mark.parametrize("name", SHAPES)
def test_user_words_come_last_and_ours_are_told_apart(name: str) -> None:
    spec = SHAPES[name]()
    first = servers(spec)[0]
    rest = words(first)[1:]
    assert rest[: len(spec.injected)] == spec.injected
    shape = PAIRS[name]
    user = parse(shape.arguments, version=version_of(shape.version), model_given=True)
    behind = parse(rest[len(spec.injected) :], version=version_of(shape.version), model_given=True)
    taken = {"api_key", "hf_token", "spec_method", "spec_model", "spec_tokens"}
    dense = set() if shape.profile().expert_count else {"data_parallel_size"}
    assert behind.user_set - {"speculative_config"} == user.user_set - taken - dense - {"speculative_config"}
    assert behind.speculative_config == user.speculative_config


def test_single_gpu_writes_out_what_the_plan_assumed() -> None:
    (only,) = SHAPES["single"]().containers
    arguments = read(only)
    assert only.role is ContainerRole.SINGLE
    assert only.entrypoint == ("vllm", "serve")
    assert (arguments.model, arguments.host, arguments.port) == ("Qwen/Qwen3-4B", "10.0.0.1", 40000)
    assert arguments.served_model_name == ("Qwen/Qwen3-4B",)
    assert arguments.max_model_len == 40960
    assert arguments.gpu_memory_utilization == 0.92
    assert only.gpus == ("GPU-00000001-0000-0000-0000-000000000000",)
    assert only.devices == only.capabilities == only.security == ()
    assert only.ulimits == (("stack", 67108864),)
    assert "distributed_timeout_seconds" not in arguments.user_set
    assert not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & set(dict(only.env))


def test_prediction_is_of_the_plan() -> None:
    spec = SHAPES["single"]()
    memory = PAIRS["single"].request().candidate.memory
    assert memory is not None
    assert spec.predicted.max_model_len == memory.max_model_len
    assert spec.predicted.kv_cache_bytes == memory.ranks[0].kv_cache_bytes
    assert spec.predicted.gpu_memory_utilization == 0.92
    written = label(spec.containers[0], labels.PREDICTED)
    assert written["kv_cache_bytes"] == memory.ranks[0].kv_cache_bytes


def test_directory_is_mounted_read_only_at_one_place_on_all_hosts_and_the_hub_is_not_asked() -> None:
    spec = SHAPES["mp-2-hosts"]()
    for one in spec.containers:
        (model,) = [mount for mount in one.mounts if mount.target == "/models/Qwen3-32B"]
        assert model.source == f"/srv/{one.host}/models/Qwen3-32B"
        assert model.read_only
        assert not model.make
        assert words(one)[0] == "/models/Qwen3-32B"
        assert {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}.items() <= dict(one.env).items()
    assert spec.served_name == "Qwen3-32B"


def test_hub_model_reads_the_cache_of_the_host() -> None:
    (only,) = SHAPES["single"]().containers
    by_target = {mount.target: mount for mount in only.mounts}
    home = dict(only.env)["HF_HOME"]
    assert by_target[home].source == "/root/.cache/huggingface"
    assert by_target[home].make
    cache = dict(only.env)["VLLM_CACHE_ROOT"].rpartition("/")[0]
    assert by_target[cache].source == "/root/.cache/gpuplan/vllm_vllm-openai_v0.33.0"
    assert dict(only.env).get("HF_HUB_OFFLINE") is None


@pytest.mark.parametrize(
    ("name", "details", "filter_"),
    [
        ("single-0.8.5", False, False),
        ("single-0.11.2", True, False),
        ("single-0.16.0", True, True),
        ("single", True, True),
    ],
)
def test_comforts_follow_the_release(name: str, details: bool, filter_: bool) -> None:
    (only,) = SHAPES[name]().containers
    assert ("--enable-prompt-tokens-details" in words(only)) is details
    assert ("--disable-access-log-for-endpoints" in words(only)) is filter_


def test_comforts_the_user_denied_are_left_out() -> None:
    shape = replace(
        PAIRS["single"],
        arguments=("--no-enable-prompt-tokens-details --disable-access-log-for-endpoints /v1/models",),
    )
    (only,) = shape.spec().containers
    assert words(only).count("--disable-access-log-for-endpoints") == 1
    assert "--enable-prompt-tokens-details" not in words(only)


@pytest.mark.parametrize(("name", "hosts"), [("mp-2-hosts", 2), ("mp-3-hosts", 3)])
def test_native_multi_host(name: str, hosts: int) -> None:
    spec = SHAPES[name]()
    (server,) = spec.servers
    assert server.launch is Launch.NATIVE_MP
    roles = [ContainerRole.LEADER] + [ContainerRole.FOLLOWER] * (hosts - 1)
    assert [one.role for one in spec.containers] == roles
    for rank, one in enumerate(spec.containers):
        arguments, env = read(one), dict(one.env)
        assert (arguments.nnodes, arguments.node_rank, arguments.headless) == (hosts, rank, rank > 0)
        assert (arguments.master_addr, arguments.master_port) == ("192.168.0.1", 40001)
        assert arguments.distributed_executor_backend == "mp"
        assert arguments.values["distributed_timeout_seconds"] == 1800
        assert (arguments.host, arguments.port) == (("10.0.0.1", 40000) if rank == 0 else (None, None))
        assert env["VLLM_HOST_IP"] == f"192.168.0.{rank + 1}"
        assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("=eth1", "eth1")
        assert env["NCCL_IB_DISABLE"] == "1"
    assert resolve(read(spec.containers[0])).nnodes_within_dp == hosts
    assert label(spec.containers[0], labels.PORTS) == {"http": 40000, "master": 40001}
    assert label(spec.containers[1], labels.PORTS) == {}


def test_older_release_without_the_timeout_flag() -> None:
    for one in SHAPES["mp-2-hosts-0.11.2"]().containers:
        assert "--nnodes" in words(one)
        assert "--distributed-timeout-seconds" not in words(one)


def test_rdma_is_passed_in_where_every_member_has_it() -> None:
    for one in SHAPES["mp-rdma"]().containers:
        env = dict(one.env)
        assert one.devices == ("/dev/infiniband",)
        assert one.capabilities == ("IPC_LOCK",)
        assert dict(one.ulimits)["memlock"] == -1
        assert env["NCCL_IB_HCA"] == "=mlx5_0"
        assert "NCCL_IB_DISABLE" not in env
    shape = PAIRS["mp-rdma"]
    for one in replace(shape, hosts=(shape.hosts[0], TWO[1])).spec().containers:
        assert (one.devices, one.capabilities) == ((), ())
        assert dict(one.env)["NCCL_IB_DISABLE"] == "1"


def test_ray_head_beside_the_server_and_followers_that_join() -> None:
    spec = SHAPES["ray-2-hosts"]()
    head, follower, leader = spec.containers
    assert [one.role for one in spec.containers] == [
        ContainerRole.RAY_HEAD,
        ContainerRole.FOLLOWER,
        ContainerRole.LEADER,
    ]
    assert (leader.pid_from, leader.volumes_from, head.volumes) == (head.name, head.name, ("/tmp",))
    assert head.gpus == leader.gpus
    assert (head.name, leader.name) == ("gpuplan-qwen3-32b-s0n0-ray", "gpuplan-qwen3-32b-s0n0")
    assert head.entrypoint == ("ray", "start")
    assert "--head" in head.command
    assert "--address=192.168.0.1:41000" in follower.command
    for one, address in ((head, "192.168.0.1"), (follower, "192.168.0.2")):
        assert {"--block", "--num-gpus=2", f"--node-ip-address={address}"} <= set(one.command)
        assert {"--min-worker-port=41010", "--max-worker-port=41099"} <= set(one.command)
        assert dict(one.env)["VLLM_HOST_IP"] == address
    assert read(leader).distributed_executor_backend == "ray"
    assert "--nnodes" not in words(leader)
    assert dict(leader.env)["RAY_ADDRESS"] == "192.168.0.1:41000"
    assert [dict(one.env)["RAY_LOG_TO_STDERR"] for one in spec.containers] == ["1", "1", "0"]
    assert spec.servers[0].ray_addresses == (("h1", "192.168.0.1", 2), ("h2", "192.168.0.2", 2))
    assert all(one.stop_seconds >= 45 for one in spec.containers)
    assert label(follower, labels.PORTS) == {"ray": [41000, 41099]}


def test_ray_asks_for_a_token_that_is_in_a_file() -> None:
    for one in SHAPES["ray-2-hosts"]().containers:
        assert one.secrets == ("RAY_AUTH_TOKEN",)
        assert dict(one.env)["RAY_AUTH_MODE"] == "token"
        assert dict(one.env)["RAY_AUTH_TOKEN_PATH"] == f"{SECRETS_DIRECTORY}/RAY_AUTH_TOKEN"


def test_uneven_hosts_take_ray_and_a_release_without_nnodes_too() -> None:
    assert SHAPES["ray-uneven"]().servers[0].launch is Launch.RAY
    assert SHAPES["ray-0.8.5"]().servers[0].launch is Launch.RAY


def test_layer_partition_follows_the_order_ray_ranks_hosts_in() -> None:
    shape = PAIRS["ray-3-hosts-partition"]
    candidate = shape.request().candidate
    partition = candidate.parallelism.layer_partition
    assert partition is not None
    by_host = dict(zip((each.host for each in candidate.placement), partition, strict=True))
    leader = candidate.placement[0].host
    order = [leader, *sorted(set(by_host) - {leader})]
    assert order != [each.host for each in candidate.placement]
    for one in shape.spec().containers:
        env = dict(one.env)
        assert env["VLLM_PP_LAYER_PARTITION"] == ",".join(str(by_host[name]) for name in order)
        assert env["VLLM_USE_RAY_V2_EXECUTOR_BACKEND"] == "0"
    two = PAIRS["ray-uneven-partition"]
    planned = dict(two.request().candidate.env)
    assert all(planned.items() <= dict(one.env).items() for one in two.spec().containers)


def test_image_without_ray_is_refused_before_anything_starts() -> None:
    message = refused(PAIRS["ray-2-hosts"], facts=ImageFacts(ray=False))
    assert "has no Ray" in message
    assert "has no Ray" in refused(PAIRS["ray-uneven"], facts=ImageFacts(ray=False))
    notes = " ".join(replace(PAIRS["ray-2-hosts"], facts=ImageFacts()).spec().notes)
    assert "is not known" in notes
    old = " ".join(
        replace(PAIRS["ray-2-hosts"], facts=ImageFacts(ray=True, ray_version="2.40.0")).spec().notes
    )
    assert "asks for no token" in old


def test_replicas_of_a_dense_model_are_servers_of_their_own() -> None:
    spec = SHAPES["replicas-3-dense"]()
    assert [(each.host, each.port) for each in spec.servers] == [("h1", 40000), ("h2", 40000), ("h1", 40001)]
    assert [one.role for one in spec.containers] == [ContainerRole.REPLICA] * 3
    assert len({one.gpus for one in spec.containers}) == 3
    by_size = SHAPES["replicas-dense-by-data-parallel-size"]()
    assert len(by_size.servers) == 2
    assert not any("data-parallel" in word for one in by_size.containers for word in words(one))


def test_replicas_over_hosts_meet_apart() -> None:
    spec = SHAPES["replicas-2-over-hosts"]()
    assert [each.launch for each in spec.servers] == [Launch.NATIVE_MP] * 2
    assert [one.role for one in spec.of_server(1)] == [ContainerRole.LEADER, ContainerRole.FOLLOWER]
    assert {read(one).master_addr for one in spec.of_server(0)} == {"192.168.0.1"}
    assert {read(one).master_addr for one in spec.of_server(1)} == {"192.168.0.3"}


def test_experts_on_one_host_share_a_container() -> None:
    (only,) = SHAPES["experts-one-host"]().containers
    assert len(only.gpus) == 2
    assert resolve(read(only)).data_parallel_size_local == 2


@pytest.mark.parametrize(("name", "local"), [("experts-over-hosts", (2, 2)), ("experts-uneven", (2, 1))])
def test_data_parallel_ranks_over_hosts(name: str, local: tuple[int, ...]) -> None:
    spec = SHAPES[name]()
    assert spec.servers[0].launch is Launch.NATIVE_DP
    start = 0
    for rank, (one, ranks) in enumerate(zip(spec.containers, local, strict=True)):
        arguments = read(one)
        resolved = resolve(arguments)
        assert resolved.data_parallel_size == sum(local)
        assert (resolved.data_parallel_size_local, resolved.data_parallel_rank) == (ranks, start)
        assert not resolved.data_parallel_hybrid_lb
        assert not resolved.data_parallel_external_lb
        assert (arguments.data_parallel_address, arguments.data_parallel_rpc_port) == ("192.168.0.1", 40001)
        assert arguments.headless is (rank > 0)
        assert arguments.enable_expert_parallel
        assert dict(one.env)["VLLM_DP_MASTER_PORT"] == "40002"
        start += ranks
    assert label(spec.containers[0], labels.PORTS)["dp_master"] == [40002, 40011]


def test_nested_ranks_are_derived_from_the_node() -> None:
    spec = SHAPES["nested"]()
    assert spec.servers[0].launch is Launch.NATIVE_NESTED
    resolved = [resolve(read(one)) for one in spec.containers]
    assert [(each.data_parallel_rank, each.node_rank_within_dp) for each in resolved] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert [each.nnodes_within_dp for each in resolved] == [2] * 4


def test_data_parallel_ranks_by_ray() -> None:
    spec = SHAPES["ray-data-parallel"]()
    leader = spec.containers[-1]
    arguments = read(leader)
    assert (arguments.data_parallel_backend, arguments.data_parallel_size) == ("ray", 2)
    assert dict(leader.env)["VLLM_RAY_DP_PACK_STRATEGY"] == "strict"


def test_two_servers_of_two_ranks_each() -> None:
    spec = SHAPES["experts-two-servers"]()
    assert [(each.host, each.launch) for each in spec.servers] == [
        ("h1", Launch.SINGLE),
        ("h2", Launch.SINGLE),
    ]


def test_tensor_size_of_the_plan_is_written_beside_the_users_data_parallel_size() -> None:
    shape = replace(
        PAIRS["experts-tensor-over-hosts"],
        arguments=("--data-parallel-size 2 --enable-expert-parallel --max-model-len 131072",),
    )
    spec = shape.spec()
    tensor = shape.request().candidate.parallelism.tensor
    assert tensor > 1
    assert {read(one).tensor_parallel_size for one in servers(spec)} == {tensor}


def test_categories() -> None:
    omni = SHAPES["omni"]().containers[0]
    assert "--omni" in words(omni)
    assert "--max-model-len" not in words(omni)
    embedding = SHAPES["embedding"]().containers[0]
    assert "--max-model-len" not in words(embedding)
    assert "--omni" not in words(embedding)
    assert read(embedding).runner == "pooling"
    assert read(VERSIONED["embedding-0.9.2"]().containers[0], "0.9.2").task == "embed"


def test_speculative_decoding_is_one_argument_and_its_draft_is_mounted() -> None:
    (only,) = SHAPES["speculative-draft"]().containers
    assert words(only).count("--speculative-config") == 1
    assert "--spec-method" not in words(only)
    assert json.loads(words(only)[words(only).index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "model": "/srv/drafts/eagle",
        "num_speculative_tokens": 3,
    }
    (draft,) = [mount for mount in only.mounts if mount.source == "/srv/drafts/eagle"]
    assert (draft.target, draft.read_only, draft.make) == ("/srv/drafts/eagle", True, False)


def test_adapters_and_files_are_mounted_and_those_of_the_image_are_not() -> None:
    (only,) = SHAPES["lora"]().containers
    assert {"/srv/lora/sql", "/srv/lora/chat"} <= {mount.target for mount in only.mounts}
    arguments = (
        '--enable-lora --lora-modules {"name":"a","path":"/srv/lora/a"}',
        "--chat-template /vllm-workspace/examples/tool_chat_template_hermes.jinja",
        "--tokenizer /srv/tokenizer --download-dir /srv/downloads",
    )
    (only,) = replace(PAIRS["lora"], arguments=arguments).spec().containers
    by_target = {mount.target: mount for mount in only.mounts}
    assert {"/srv/lora/a", "/srv/tokenizer", "/srv/downloads"} <= set(by_target)
    assert not by_target["/srv/downloads"].read_only
    assert not any("hermes" in target for target in by_target)


def test_lmcache_has_its_variables_on_nvidia_and_a_note_elsewhere() -> None:
    (only,) = SHAPES["lmcache"]().containers
    assert dict(only.env)["LMCACHE_MAX_LOCAL_CPU_SIZE"] == "40.00"
    shape = replace(PAIRS["ascend"], arguments=PAIRS["lmcache"].arguments, workload=PAIRS["lmcache"].workload)
    spec = shape.spec()
    assert not any(name.startswith("LMCACHE") for name, _ in spec.containers[0].env)
    assert any("LMCache" in note for note in spec.notes)


def test_mig_slice_is_given_by_its_uuid() -> None:
    (only,) = SHAPES["mig"]().containers
    assert only.gpus == ("MIG-00000001-0000-0000-0000-000000000001",)


def test_amd_gets_device_files_and_no_device_request() -> None:
    (only,) = SHAPES["amd"]().containers
    assert only.gpus == ()
    assert only.devices == ("/dev/dri", "/dev/kfd")
    assert "video" in only.groups
    assert only.security == ("seccomp=unconfined",)
    assert only.capabilities == ("SYS_PTRACE",)
    assert dict(only.env)["HIP_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert SHAPES["amd-2-hosts"]().containers[0].groups == ("render", "video")


def test_ascend_gets_its_chips_and_the_drivers_files() -> None:
    (only,) = SHAPES["ascend"]().containers
    chips = [device for device in only.devices if device.removeprefix("/dev/davinci").isdigit()]
    assert chips == [f"/dev/davinci{index}" for index in only.gpu_indexes]
    assert {"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"} <= set(only.devices)
    assert {"/usr/local/dcmi", "/usr/local/bin/npu-smi"} <= {mount.source for mount in only.mounts}
    env = dict(only.env)
    assert env["ASCEND_RT_VISIBLE_DEVICES"] == ",".join(map(str, range(len(chips))))
    assert env["HCCL_OP_EXPANSION_MODE"] == "AIV"
    for one in SHAPES["ascend-2-hosts"]().containers:
        assert dict(one.env)["HCCL_SOCKET_IFNAME"] == "=eth1"
        assert "NCCL_SOCKET_IFNAME" not in dict(one.env)


def test_ascend_310p_is_eager_and_half() -> None:
    (only,) = SHAPES["ascend-310p"]().containers
    assert read(only, "0.23.0").enforce_eager
    assert read(only, "0.23.0").dtype == "float16"
    assert "HCCL_OP_EXPANSION_MODE" not in dict(only.env)


@pytest.mark.parametrize("name", ["secrets"])
def test_secrets_are_in_no_field(name: str) -> None:
    spec = SHAPES[name]()
    for value in (*SECRETS.values(), "planted-aws-value"):
        assert value not in repr(spec)
    (only,) = spec.containers
    assert only.secrets == ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "VLLM_API_KEY")
    assert dict(only.env)["HF_TOKEN_PATH"] == f"{SECRETS_DIRECTORY}/HF_TOKEN"
    assert dict(only.env)["NCCL_DEBUG"] == "INFO"
    assert words(only)[0] == "Qwen/Qwen3-4B"


def test_wrapper_reads_the_files_and_becomes_the_command(tmp_path: Path) -> None:
    (only,) = SHAPES["secrets"]().containers
    (tmp_path / "VLLM_API_KEY").write_text("key with 'quotes' and $dollars")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("other")
    shell, dash, script, name = only.entrypoint
    script = script.replace(SECRETS_DIRECTORY, str(tmp_path))
    program = ("sh", "-c", 'printf %s "$VLLM_API_KEY|$AWS_SECRET_ACCESS_KEY|$1"', "x", "an argument")
    ran = subprocess.run([shell, dash, script, name, *program], capture_output=True, text=True, check=True)
    assert ran.stdout == "key with 'quotes' and $dollars|other|an argument"
    (tmp_path / "VLLM_API_KEY").unlink()
    failed = subprocess.run([shell, dash, script, name, "true"], capture_output=True, text=True, check=False)
    assert failed.returncode != 0


def test_extra_packages_are_installed_before_the_server_starts() -> None:
    (only,) = SHAPES["packages"]().containers
    script = only.entrypoint[2]
    assert script.index("uv pip install") < script.index('exec "$@"')
    assert dict(only.env)["PYPI_PACKAGES_INSTALL"] == "timm==1.0.9"
    assert only.command[:2] == ("vllm", "serve")


def test_settings_of_the_inventory_hold() -> None:
    (only,) = SHAPES["mirror-user-keep-alive"]().containers
    assert only.image.startswith("mirror.lan:5000/vllm/vllm-openai:")
    assert only.user == "1000:1000"
    assert any(mount.source.startswith("/srv/cache/") for mount in only.mounts)
    assert dict(only.env)["HOME"] == "/tmp"
    assert label(only, labels.KEEP_ALIVE) == 600


def test_variables_that_differ_from_host_to_host_are_not_the_inventorys() -> None:
    shape = replace(
        PAIRS["mp-2-hosts"],
        settings=VllmSettings(
            env=(("VLLM_PORT", "5000"), ("VLLM_HOST_IP", "1.2.3.4"), ("OMP_NUM_THREADS", "8"))
        ),
    )
    spec = shape.spec()
    assert [dict(one.env)["VLLM_HOST_IP"] for one in spec.containers] == ["192.168.0.1", "192.168.0.2"]
    assert dict(spec.containers[0].env)["OMP_NUM_THREADS"] == "8"
    assert "VLLM_PORT" not in dict(spec.containers[0].env)
    assert any("VLLM_PORT" in note for note in spec.notes)


@pytest.mark.parametrize(
    "written",
    [
        "--nnodes 2",
        "--node-rank 1",
        "--master-addr 10.0.0.9",
        "--headless",
        "--data-parallel-rank 0",
        "--data-parallel-start-rank 1",
        "--data-parallel-hybrid-lb",
        "--uds /tmp/s",
        "--ssl-keyfile /k",
        "--device-ids 0",
        "--api-server-count 0",
        "--api-key a b",
    ],
)
def test_words_that_contradict_the_launch_are_refused(written: str) -> None:
    assert written.partition(" ")[0] in refused(PAIRS["single"], arguments=(written,))


def test_executor_that_cannot_run_the_placement_is_refused() -> None:
    shape = PAIRS["mp-2-hosts"]
    assert "--distributed-executor-backend uni" in refused(
        shape, arguments=("-tp 2 -pp 2 --distributed-executor-backend uni",)
    ) or "vLLM would refuse" in refused(shape, arguments=("-tp 2 -pp 2 --distributed-executor-backend uni",))
    request = PAIRS["ray-uneven"].request()
    with pytest.raises(UsageError, match="as many GPUs"):
        compile_deployment(replace(request, workload=replace(request.workload, executor=ExecutorChoice.MP)))
    assert "no multi-host mode" in refused(shape, version="0.8.5", workload={"executor": ExecutorChoice.MP})


def test_users_address_name_and_port_are_kept() -> None:
    shape = replace(PAIRS["single"], arguments=("--host 0.0.0.0 --port 9000 --served-model-name small tiny",))
    spec = shape.spec()
    assert (spec.servers[0].address, spec.servers[0].port) == ("0.0.0.0", 9000)
    assert spec.servers[0].endpoint == "http://10.0.0.1:9000"
    assert spec.served_name == "small"
    assert words(spec.containers[0]).count("--port") == 1
    assert any("every address" in note for note in spec.notes)
    assert "--port 9000" in refused(shape, compile={"taken": {"h1": frozenset({9000})}})
    assert "--port 9000" in refused(
        PAIRS["replicas-dense-by-data-parallel-size"], arguments=("--data-parallel-size 2 --port 9000",)
    )


def test_server_binds_to_the_address_users_reach_else_to_the_data_address() -> None:
    by_name = {"h1": {"address": "gpu1.example"}}
    assert replace(PAIRS["single"], entries=by_name).spec().servers[0].address == "192.168.0.1"
    assert "gpu1.example" in " ".join(replace(PAIRS["single"], entries=by_name).spec().notes)
    here = {"h1": {"address": "local"}}
    assert replace(PAIRS["single"], entries=here).spec().servers[0].endpoint == "http://192.168.0.1:40000"
    chosen = {"h1": {"data_address": "10.0.0.1"}}
    (only,) = replace(PAIRS["single"], entries=chosen).spec().containers
    assert dict(only.env)["VLLM_HOST_IP"] == "10.0.0.1"


def test_member_without_an_address_is_refused() -> None:
    request = PAIRS["mp-2-hosts"].request()
    blind = tuple(
        replace(each, address="gpu.example", facts=replace(each.facts, interfaces=()))
        for each in request.fleet.hosts
    )
    entries = tuple(replace(entry, address="gpu.example") for entry in request.inventory.hosts)
    with pytest.raises(UsageError, match="no IP address"):
        compile_deployment(
            replace(
                request,
                fleet=Fleet(hosts=blind),
                inventory=replace(request.inventory, hosts=entries),
            )
        )


def test_directory_that_a_host_has_not_is_refused() -> None:
    request = PAIRS["mp-2-hosts"].request()
    model = DirectoryModel(paths={"h1": "/srv/models/x"}, inside="/models/x")
    with pytest.raises(UsageError, match="h2"):
        compile_deployment(replace(request, model=model))


def test_expert_replicas_that_share_hosts_need_ray() -> None:
    shape = Shape(
        model=EXPERTS,
        hosts=(host(1, "L40S", 2), host(2, "L40S", 2)),
        arguments=("--data-parallel-size 2 -pp 2 --enable-expert-parallel",),
        facts=WITH_RAY,
    )
    request = shape.request()
    gpus = {
        (each.name, gpu.index): next(placed for h in request.candidate.placement for placed in h.gpus)
        for each in shape.hosts
        for gpu in each.gpus
    }
    placement = tuple(
        PlacedHost(host=name, role=role, gpus=(replace(gpus[name, index], index=index),))
        for index in (0, 1)
        for name, role in (("h1", Role.LEADER), ("h2", Role.FOLLOWER))
    )
    spec = compile_deployment(replace(request, candidate=replace(request.candidate, placement=placement)))
    assert spec.servers[0].launch is Launch.RAY
    assert dict(spec.containers[-1].env)["VLLM_RAY_DP_PACK_STRATEGY"] == "span"


def test_run_command_takes_the_place_of_the_default() -> None:
    shape = replace(
        PAIRS["single"],
        compile={"run_command": "my-server --model {{model_path}} --listen {{host_ip}}:{{port}} {{unknown}}"},
    )
    (only,) = shape.spec().containers
    assert (*only.entrypoint, *only.command)[:6] == (
        "my-server",
        "--model",
        "Qwen/Qwen3-4B",
        "--listen",
        "192.168.0.1:40000",
        "{{unknown}}",
    )


def test_image_with_the_package_and_not_the_command_is_started_by_python() -> None:
    facts = ImageFacts(vllm_version="0.33.0", vllm_command=False)
    (only,) = replace(PAIRS["single"], facts=facts).spec().containers
    assert (*only.entrypoint, *only.command)[:4] == ("python3", "-m", "vllm.entrypoints.cli.main", "serve")


def test_notes_tell_what_stays_open() -> None:
    notes = " ".join(SHAPES["single"]().notes)
    assert "no API key is set" in notes
    assert "/metrics" in " ".join(SHAPES["secrets"]().notes)
    assert "every TCP port" in " ".join(SHAPES["mp-2-hosts"]().notes)
    assert "every TCP port" not in notes
    shape = replace(PAIRS["single"], arguments=("--otlp-traces-endpoint https://me:planted@traces.lan",))
    notes = " ".join(shape.spec().notes)
    assert "--otlp-traces-endpoint" in notes
    assert "planted" not in notes
    assert "--config" in " ".join(
        replace(PAIRS["single"], arguments=("--config /srv/args.yaml",)).spec().notes
    )


def test_names() -> None:
    assert default_name("Qwen/Qwen3-32B") == "qwen3-32b"
    assert default_name("/srv/models/My Model_v1.5/") == "my-model-v1-5"
    assert "--name" in refused(PAIRS["single"], compile={"name": "Not A Name"})
    assert SHAPES["single"]().name == default_name(SMALL.replace("__", "/"))
    assert default_name(LARGE.replace("__", "/")) == "qwen3-32b"
