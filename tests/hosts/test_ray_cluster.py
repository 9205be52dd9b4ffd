"""A real Ray cluster over three hosts, with a token and every port in one block, as a deployer starts it."""

import pytest

from gpuplan.deploying.ray_nodes import PROGRAM, missing, parse
from tests.hosts.containers import Started, ask, start
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.models import lay_model
from tests.hosts.ray_image import NoRay, with_ray
from tests.hosts.waiting import wait_for

_BASE = 41000
_TOKEN = "0123456789abcdef" * 4
_GPUS = (8, 4, 2)
"""Of the three hosts: uneven, which only Ray can do."""


@pytest.fixture
def ray_fleet(deploy_fleet: Fleet) -> Fleet:
    """The deploy fleet, every host with the image that has Ray."""
    try:
        image = with_ray()
    except NoRay as error:
        pytest.skip(str(error))
    for host in deploy_fleet:
        host.load(image)
    return deploy_fleet


def _node(host: TestHost, head: TestHost, number: int) -> Started:
    where = [
        "--head",
        f"--port={_BASE}",
        f"--ray-client-server-port={_BASE + 1}",
        f"--dashboard-port={_BASE + 2}",
    ]
    words = [
        *(
            ["--dashboard-host", host.address, *where]
            if host is head
            else [f"--address={head.address}:{_BASE}"]
        ),
        *(
            "--block",
            "--disable-usage-stats",
            f"--node-ip-address={host.address}",
            f"--num-gpus={_GPUS[number]}",
        ),
        *("--object-store-memory=83886080", f"--dashboard-agent-grpc-port={_BASE + 4}"),
        *(f"--dashboard-agent-listen-port={_BASE + 5}", f"--metrics-export-port={_BASE + 6}"),
        *(f"--node-manager-port={_BASE + 7}", f"--object-manager-port={_BASE + 8}"),
        *(
            f"--runtime-env-agent-port={_BASE + 9}",
            f"--min-worker-port={_BASE + 10}",
            f"--max-worker-port={_BASE + 99}",
        ),
    ]
    options = ("--volume=/tmp", "--shm-size=1g", "--init")
    return start(
        host, f"ray{number}", "start", *words,
        image="vllm/vllm-openai:v0.33.0-ray", entrypoint="ray", env=_environment(host), options=options,
    )  # fmt: skip


def _environment(host: TestHost, token: str = "/srv/models/token") -> dict[str, str]:
    return {
        "VLLM_HOST_IP": host.address,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": token,
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def test_every_planned_address_and_gpu_is_registered(ray_fleet: Fleet) -> None:
    hosts = list(ray_fleet)
    for host in hosts:
        lay_model(host)
        host.write("/srv/models/token", _TOKEN, 0o600)
    started = [_node(host, hosts[0], number) for number, host in enumerate(hosts)]
    address = f"{hosts[0].address}:{_BASE}"
    planned = [(host.name, host.address, gpus) for host, gpus in zip(hosts, _GPUS, strict=True)]

    def lacking() -> object:
        assert all(member.state()["Running"] for member in started)
        done = hosts[0].run("docker", "exec", "ray0", "python3", "-c", PROGRAM, address, check=False)
        nodes = parse(done.stdout.decode())
        return planned if nodes is None else missing(nodes, planned)

    try:
        wait_for("every node", lambda: not lacking(), seconds=180)
    except BaseException as error:
        for member in started:
            error.add_note(f"{member.host.name}: {member.log()[-1500:]}")
        raise

    hosts[1].write("/srv/models/wrong", "f" * 64, 0o600)
    asked = [
        "docker",
        "exec",
        "--env",
        "RAY_AUTH_TOKEN_PATH=/srv/models/wrong",
        "ray1",
        "python3",
        "-c",
        PROGRAM,
        address,
    ]
    refused = hosts[1].run(*asked, check=False)
    assert parse(refused.stdout.decode()) is None
    assert b"InvalidAuthToken" in refused.stderr

    for host in hosts:
        taken = {int(line.split()[3].rpartition(":")[2]) for line in host.text("ss", "-Hltn").splitlines()}
        ours = taken - {22}
        assert {_BASE + 7, _BASE + 8} <= ours
        assert all(_BASE <= port < _BASE + 100 for port in ours), sorted(ours)

    words = [
        "--distributed-executor-backend",
        "ray",
        "--tensor-parallel-size",
        "2",
        "--pipeline-parallel-size",
        "7",
    ]
    server = start(
        hosts[0], "server", "/srv/models/tiny", *words, "--port", "40000", image="vllm/vllm-openai:v0.33.0-ray",
        env=_environment(hosts[0]), options=("--pid=container:ray0", "--volumes-from=ray0"),
    )  # fmt: skip
    server.await_line("Application startup complete.")
    assert ask(f"http://{hosts[0].address}:40000/health")[0] == 200

    hosts[2].run("docker", "kill", "ray2")
    started.pop()
    wait_for(
        "the loss of a node", lambda: lacking() == ((hosts[2].name, hosts[2].address, 2, 0),), seconds=120
    )
