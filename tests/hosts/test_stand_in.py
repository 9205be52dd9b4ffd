"""The stand-in engine does what an engine does as far as a deployer sees it; containers are started by hand."""

import json
from collections.abc import Mapping

import pytest

from gpuplan.deploying.ray_nodes import PROGRAM, RayNode, missing, parse
from tests.hosts.containers import Started, ask, start
from tests.hosts.fleet import STAND_IN, Fleet, TestHost
from tests.hosts.models import behave, lay_model, order, shorten
from tests.hosts.waiting import wait_for

_READY = "Application startup complete."
_PORT = 40000
_MASTER = 40001
_TOKEN = "0123456789abcdef" * 4


def test_one_host_serves(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    path, cards = lay_model(host), host.gpu_uuids()
    words = (
        "--tensor-parallel-size",
        "2",
        "--port",
        str(_PORT),
        "--served-model-name",
        "tiny",
        "--max-model-len",
        "1K",
    )
    one = start(host, "one", path, *words, gpus=cards[2:4])
    one.await_line(_READY)
    log = one.log()
    for text in (
        "world_size=2 rank=1 local_rank=1",
        "Loading weights took",
        "Model loading took 0.00 GiB memory",
        "Available KV cache memory: 72.27 GiB",
        "Maximum concurrency for 1,024 tokens per request",
        "Graph capturing finished",
        "init engine (profile, create kv cache, warmup model) took",
        f"Starting vLLM server on http://0.0.0.0:{_PORT}",
    ):
        assert text in log
    at = f"http://{host.address}:{_PORT}"
    assert ask(f"{at}/health")[0] == 200
    assert [model["id"] for model in ask(f"{at}/v1/models")[1]["data"]] == ["tiny"]
    status, answer = ask(f"{at}/v1/completions", {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 2})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 2)
    assert ask(f"{at}/v1/chat/completions", {"model": "other", "messages": []})[0] == 404
    assert ask(f"{at}/v1/embeddings", {"model": "tiny", "input": "a"})[0] == 404
    assert (
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 1.0'
        in ask(f"{at}/metrics")[1]
    )
    host.run("docker", "stop", "one")
    assert one.state()["ExitCode"] == 0


def test_its_port_is_taken_before_it_listens(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    path = lay_model(host)
    order(host, path, {"leader": {"hang_after": "weights"}})
    one = start(host, "one", path, "--port", str(_PORT))
    one.await_line("Loading weights took")
    assert f":{_PORT}" not in host.text("ss", "-Hltn")
    behave(host, path)
    other = start(host, "other", path, "--port", str(_PORT))
    other.await_line(_READY)
    host.run("docker", "rm", "-f", "one", "other")
    host.take_port(_PORT)
    late = start(host, "late", path, "--port", str(_PORT))
    assert late.await_end() == 1
    assert "Address already in use" in late.log()


def test_a_key_guards_what_it_guards_in_vllm(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    one = start(host, "one", lay_model(host), "--port", str(_PORT), env={"VLLM_API_KEY": "planted-key"})
    one.await_line(_READY)
    at = f"http://{host.address}:{_PORT}"
    assert [ask(f"{at}{path}")[0] for path in ("/health", "/metrics", "/v1/models")] == [200, 200, 401]
    assert ask(f"{at}/v1/models", key="planted-key")[0] == 200
    assert "planted-key" not in one.log()


@pytest.mark.parametrize(
    ("words", "gpus", "status", "text"),
    [
        (("--tensor-parallel-size", "4"), ["0", "1"], 1, "World size (4) is larger than the number of available GPUs (2)"),
        (("--tensor-parallel-size", "3"), None, 1, "attention heads (4) must be divisible by tensor parallel size (3)"),
        (("--max-model-len", "4096"), None, 1, "User-specified max_model_len (4096) is greater than the derived"),
        (("--swap-space", "4"), None, 2, "unrecognized arguments: --swap-space 4"),
        ((), (), 1, "Failed to infer device type"),
        (("--distributed-executor-backend", "ray"), None, 1, "Could not find any running Ray instance"),
    ],
)  # fmt: skip
def test_what_vllm_refuses(
    deploy_fleet: Fleet, words: tuple[str, ...], gpus: list[str] | None, status: int, text: str
) -> None:
    host = deploy_fleet["gpu-a"]
    one = start(host, "one", lay_model(host), *words, gpus=gpus)
    assert one.await_end() == status
    assert text in one.log()


def test_a_model_that_is_not_whole(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    path = lay_model(host)
    shorten(host, path)
    short = start(host, "short", path)
    assert (short.await_end(), "incomplete metadata, file not fully covered" in short.log()) == (1, True)
    absent = start(host, "absent", f"{path}-of-nobody")
    assert (absent.await_end(), "Repo id must be in the form" in absent.log()) == (1, True)


def test_memory_that_somebody_else_took(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    path = lay_model(host)
    host.take_gpu_memory(1, 40_000)
    one = start(host, "one", path, gpus=["1"])
    assert one.await_end() == 1
    assert (
        "Free memory on device cuda:0 (40.12/79.65 GiB) on startup is less than desired GPU memory"
        in one.log()
    )


@pytest.mark.parametrize(
    ("orders", "status", "text"),
    [
        (
            {"exit_after": "weights", "code": 3, "say": "torch.OutOfMemoryError: CUDA out of memory."},
            3,
            "OutOfMemory",
        ),
        (
            {"exit_after": "starting", "log_lines": ["[bold]\x1b[31m not markup"]},
            1,
            "[bold]\x1b[31m not markup",
        ),
        ({"oom": True}, 137, "Loading weights took"),
    ],
)
def test_faults_on_order(deploy_fleet: Fleet, orders: Mapping[str, object], status: int, text: str) -> None:
    host = deploy_fleet["gpu-a"]
    path = lay_model(host)
    order(host, path, {"leader": orders})
    one = start(host, "one", path)
    assert one.await_end() == status
    assert text in one.log()


def test_a_kernel_that_runs_out_of_memory(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    path = lay_model(host)
    order(host, path, {"leader": {"oom": True}})
    host.limit_memory(60)
    one = start(host, "one", path)
    assert one.await_end() == 137
    assert one.state()["OOMKilled"]


def test_a_leader_that_never_gets_ready(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    path = lay_model(host)
    order(host, path, {"leader": {"never_ready": True}})
    one = start(host, "one", path, "--port", str(_PORT))
    one.await_line("init engine")
    assert ask(f"http://{host.address}:{_PORT}/health")[0] == 0
    assert one.state()["Running"]


def _three(fleet: Fleet) -> dict[str, Started]:
    """One engine over all hosts by vLLM's own multi-node, four GPUs of each."""
    hosts = list(fleet)
    words = ["--tensor-parallel-size", "4", "--pipeline-parallel-size", "3", "--nnodes", "3"]
    words += ["--master-addr", hosts[0].address, "--master-port", str(_MASTER), "--port", str(_PORT)]
    started = {}
    for rank, host in enumerate(hosts):
        role = ["--node-rank", str(rank), *(["--headless"] if rank else [])]
        env = {"VLLM_HOST_IP": host.address}
        started[host.name] = start(
            host, f"n{rank}", "/srv/models/tiny", *words, *role, env=env, gpus=["0", "1", "2", "3"]
        )
    return started


def test_three_hosts_of_one_engine(deploy_fleet: Fleet) -> None:
    for host in deploy_fleet:
        lay_model(host)
    members = _three(deploy_fleet)
    leader, follower = members["gpu-a"], members["gpu-b"]
    leader.await_line(_READY)
    for rank, name in ((1, "gpu-b"), (2, "gpu-c")):
        assert f"node {rank} joined: address={deploy_fleet[name].address} gpus=4" in leader.log()
    assert "world_size=12 rank=7 local_rank=3" in follower.log()
    deploy_fleet["gpu-a"].run("docker", "kill", "n0")
    follower.await_line("Connection was likely closed. Did the remote server shutdown or crash?")
    assert follower.state()["Running"]  # for ever


def test_a_follower_that_dies_leaves_a_leader_that_waits(deploy_fleet: Fleet) -> None:
    for host in deploy_fleet:
        lay_model(host)
    order(
        deploy_fleet["gpu-b"], "/srv/models/tiny", {"follower": {"die_after_join": True, "say": "Bus error"}}
    )
    members = _three(deploy_fleet)
    assert members["gpu-b"].await_end() == 1
    members["gpu-a"].await_line("Model loading took")
    assert "Bus error" in members["gpu-b"].log()
    assert members["gpu-a"].state()["Running"]
    assert _READY not in members["gpu-a"].log()


def test_a_leader_that_is_alone(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-a"]
    words = ("--nnodes", "2", "-tp", "4", "-pp", "2", "--master-addr", host.address)
    one = start(
        host,
        "one",
        lay_model(host),
        *words,
        "--master-port",
        str(_MASTER),
        "--distributed-timeout-seconds",
        "1",
    )
    assert one.await_end() == 1
    assert "Timed out after 2 seconds waiting for clients. 1/2 clients joined." in one.log()


def test_data_parallel_engines_of_two_hosts(deploy_fleet: Fleet) -> None:
    first, second = deploy_fleet["gpu-a"], deploy_fleet["gpu-b"]
    words = (
        "--data-parallel-size",
        "5",
        "--data-parallel-address",
        first.address,
        "--data-parallel-rpc-port",
        "40005",
    )
    leader = start(
        first, "n0", lay_model(first), *words, "--data-parallel-size-local", "2", "--port", str(_PORT),
        gpus=["0", "1"], env={"VLLM_HOST_IP": first.address},
    )  # fmt: skip
    start(
        second, "n1", lay_model(second), *words, "--data-parallel-size-local", "3", "--data-parallel-start-rank", "2",
        "--headless", gpus=["0", "1", "2"], env={"VLLM_HOST_IP": second.address},
    )  # fmt: skip
    leader.await_line(_READY)
    assert [f"engine {rank} joined: address={second.address}" in leader.log() for rank in range(6)] == [
        False, False, True, True, True, False,
    ]  # fmt: skip


def _ray_words(host: TestHost, head: TestHost, base: int = 41000) -> list[str]:
    where = ["--head", f"--port={base}"] if host is head else [f"--address={head.address}:{base}"]
    return [
        "start",
        *where,
        "--block",
        f"--node-ip-address={host.address}",
        "--num-gpus=8",
        f"--node-manager-port={base + 7}",
    ]


def _ray_env(host: TestHost) -> dict[str, str]:
    return {
        "VLLM_HOST_IP": host.address,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/srv/models/token",
    }


def _ray_cluster(fleet: Fleet) -> list[Started]:
    """A head and two followers, with a token."""
    hosts = list(fleet)
    for host in hosts:
        lay_model(host)
        host.write("/srv/models/token", _TOKEN, 0o600)
    return [
        start(
            host,
            f"ray{number}",
            *_ray_words(host, hosts[0]),
            entrypoint="ray",
            env=_ray_env(host),
            options=["-v", "/tmp"],
        )
        for number, host in enumerate(hosts)
    ]


def _nodes(head: Started, address: str) -> tuple[RayNode, ...]:
    return parse(head.execute("python3", "-c", PROGRAM, address)) or ()


def test_a_cluster_of_the_stand_in_ray_and_its_engine(deploy_fleet: Fleet) -> None:
    head, follower, _ = _ray_cluster(deploy_fleet)
    address = f"{head.host.address}:41000"
    planned = [(host.name, host.address, 8) for host in deploy_fleet]
    wait_for("every node", lambda: not missing(_nodes(head, address), planned))
    words = [
        "--distributed-executor-backend",
        "ray",
        "--tensor-parallel-size",
        "4",
        "--pipeline-parallel-size",
        "6",
    ]
    env = _ray_env(head.host) | {"RAY_ADDRESS": address}
    outside = start(head.host, "outside", "/srv/models/tiny", *words, env=env)
    assert (outside.await_end(), "No node info found matching attributes" in outside.log()) == (1, True)
    beside = ("--pid=container:ray0", "--volumes-from=ray0")
    server = start(
        head.host, "server", "/srv/models/tiny", *words, "--port", str(_PORT), env=env, options=beside
    )
    server.await_line(_READY)
    follower.host.run("docker", "kill", "ray1")
    wait_for("the loss", lambda: bool(missing(_nodes(head, address), planned)))
    assert server.await_end() == 1
    assert "died unexpectedly, shutting down executor" in server.log()


def test_a_cluster_takes_nobody_without_its_token(deploy_fleet: Fleet) -> None:
    head, *_ = _ray_cluster(deploy_fleet)
    other = deploy_fleet["gpu-c"]
    other.run("docker", "rm", "-f", "ray2")
    env = _ray_env(other) | {"RAY_AUTH_TOKEN": "wrong"}
    lost = start(other, "lost", *_ray_words(other, head.host), entrypoint="ray", env=env)
    assert (lost.await_end(), "AuthenticationError: RPC error: InvalidAuthToken" in lost.log()) == (1, True)


def test_a_host_without_power_forgets_nothing(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-b"]
    one = start(host, "one", lay_model(host), "--port", str(_PORT))
    one.await_line(_READY)
    host.power_off()
    assert deploy_fleet.ssh(host, "true", options=("-o", "ConnectTimeout=2")).returncode == 255
    host.power_on()
    assert deploy_fleet.ssh(host, "docker ps -aq").returncode == 0
    assert one.state()["Status"] == "exited"
    assert _READY in one.log()
    host.run("docker", "start", "one")
    wait_for("it serves again", lambda: ask(f"http://{host.address}:{_PORT}/health")[0] == 200)


def test_an_engine_that_is_restarted_with_and_without_its_containers(deploy_fleet: Fleet) -> None:
    host = deploy_fleet["gpu-b"]
    one = start(host, "one", lay_model(host), "--port", str(_PORT))
    one.await_line(_READY)
    host.restart_dockerd(keep=True)
    assert one.state()["Running"]
    assert ask(f"http://{host.address}:{_PORT}/health")[0] == 200
    host.restart_dockerd()
    assert not one.state()["Running"]


def test_images_that_differ(deploy_fleet: Fleet) -> None:
    from tests.hosts.python_image import stand_in

    host = deploy_fleet["gpu-b"]
    ids = "docker image inspect --format '{{.Id}} {{.Architecture}}' " + STAND_IN.tag
    before = host.text("sh", "-c", ids)
    host.load(stand_in(ray="2.53.0", marker="another"))
    other = host.text("sh", "-c", ids)
    host.load(stand_in(ray="2.53.0", architecture="arm64"))
    assert len({before, other, host.text("sh", "-c", ids)}) == 3
    assert host.text("sh", "-c", ids).endswith(" arm64")
    deploy_fleet.clean()
    assert host.text("sh", "-c", ids) == before


def test_hosts_of_a_fleet_have_gpus_and_models_of_their_own(deploy_fleet: Fleet) -> None:
    cards = [uuid for host in deploy_fleet for uuid in host.gpu_uuids()]
    assert len(set(cards)) == len(cards) == 24
    first, *others = deploy_fleet
    lay_model(first)
    assert json.loads(first.text("cat", "/srv/models/tiny/config.json"))["model_type"] == "qwen2"
    assert [host.run("test", "-e", "/srv/models/tiny", check=False).returncode for host in others] == [1, 1]
