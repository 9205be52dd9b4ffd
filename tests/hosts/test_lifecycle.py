"""What runs, its logs, its end: containers of ours on real engines over real SSH, and the locks of real hosts."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuplan.cli.schema import schema_of
from gpuplan.deploying import host_lock
from gpuplan.deploying.host_lock import Busy, Free
from gpuplan.domain import labels
from gpuplan.domain.deployment import State
from gpuplan.domain.inventory import Inventory
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.host_locks import TERMS, hold, read_locks, this_run
from gpuplan.operations.observation import observe
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.reached import ReachedFleet, reach_fleet
from gpuplan.operations.status import read_status
from gpuplan.remote.containers import create, list_ours, start
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from gpuplan.sources import inventory_yaml
from gpuplan.units import GIB
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.images import VLLM
from tests.hosts.python_image import stand_in
from tests.hosts.test_probe import gpuplan
from tests.hosts.waiting import wait_for

ENGINE = stand_in("gpuplan-test/engine:1")
PORT = 40123
LOOP = 'n=0; while true; do n=$((n+1)); echo "$NAME line $n token=correct-horse"; sleep 0.2; done'
TRAPPED = f"trap 'exit 0' TERM; {LOOP}"
NAME = "qwen3"
PREDICTED = {"weights_bytes": 12 * GIB, "kv_cache_bytes": 60 * GIB, "per_gpu_bytes": 75 * GIB}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One container to be made."""

    host: str
    role: str = "leader"
    rank: int = 0
    command: Sequence[str] = ("sh", "-c", TRAPPED)
    image: str = VLLM.tag
    started: bool = True
    more: tuple[tuple[str, str], ...] = ()
    stop_seconds: int = 2


@pytest.fixture
def options(tmp_path: Path) -> ProbeOptions:
    return ProbeOptions(
        ssh=SshSettings(
            known_hosts=tmp_path / "known_hosts",
            home=tmp_path,
            policy=HostKeyPolicy.ACCEPT_NEW,
            environ={"PATH": os.environ["PATH"]},
            system_config=tmp_path / "none",
            system_known_hosts=(),
        )
    )


@pytest.fixture
def written(fleet: Fleet, tmp_path: Path) -> Path:
    return fleet.inventory(tmp_path / "inventory.yaml", "h100-a", "h100-b", "mixed")


@pytest.fixture
def inventory(written: Path) -> Inventory:
    return inventory_yaml.load(written)


@pytest.fixture
def reached(inventory: Inventory, options: ProbeOptions) -> Iterator[ReachedFleet]:
    with reach_fleet(inventory, options) as opened:
        yield opened


@pytest.fixture
def made(fleet: Fleet, reached: ReachedFleet) -> Iterator[Callable[..., list[str]]]:
    """Makes the containers of a deployment; all of ours are gone afterwards."""

    def make(*parts: Part, name: str = NAME, generation: str = "g1") -> list[str]:
        members = json.dumps(
            [
                {"host": p.host, "container": called(p), "role": p.role, "rank": p.rank, "server": 0}
                for p in parts
            ]
        )
        return [_make(reached, part, name, generation, members) for part in parts]

    yield make
    for host in ("h100-a", "h100-b", "mixed"):
        ours = f"docker ps -aq --filter label={labels.MANAGED}=true"
        fleet[host].run("sh", "-c", f"{ours} | xargs -r docker rm -f", check=False)


def called(part: Part, name: str = NAME) -> str:
    return f"gpuplan-{name}-{part.role}{part.rank}"


def _make(reached: ReachedFleet, part: Part, name: str, generation: str, members: str) -> str:
    gpu = next((one for one in reached.seen(part.host).gpus if one.index == part.rank), None)
    uuid = gpu.uuid if gpu is not None and gpu.uuid is not None else "GPU-none"
    given: Mapping[str, str] = {
        labels.MANAGED: "true",
        labels.DEPLOYMENT: name,
        labels.ROLE: part.role,
        labels.RANK: str(part.rank),
        labels.SERVER: "0",
        labels.MEMBERS: members,
        labels.GENERATION: generation,
        labels.SPEC_HASH: "s1",
        labels.MODEL: "Qwen/Qwen3-32B",
        labels.SERVED_NAME: name,
        labels.GPUS: json.dumps([uuid]),
        labels.CLAIMS: json.dumps({uuid: 75 * GIB}),
        labels.PREDICTED: json.dumps(PREDICTED),
        labels.VLLM_VERSION: "0.33.0",
        **dict(part.more),
    }
    body: dict[str, Any] = {
        "Image": part.image,
        "Entrypoint": list(part.command),
        "Cmd": [],
        "Env": [f"NAME={part.role}"],
        "Labels": dict(given),
        "StopTimeout": part.stop_seconds,
        "HostConfig": {
            "NetworkMode": "host",
            "Binds": ["/srv/models:/srv/models:ro"],
            "DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": [uuid], "Capabilities": [["gpu"]]}],
        },
    }
    engine = reached.engine_of(part.host)
    suffix = "" if generation == "g1" else f"-{generation}"
    identity = create(engine, body, f"{called(part, name)}{suffix}")
    if part.started:
        start(engine, identity)
    return identity


def fleet_options(written: Path, options: ProbeOptions, **more: Any) -> FleetOptions:
    return FleetOptions(
        environ={"HOME": str(written.parent), "XDG_STATE_HOME": str(written.parent / "state")},
        cwd=written.parent,
        inventory=written,
        reach=lambda: replace(options),
        **more,
    )


def status(fleet: Fleet, written: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = gpuplan(fleet, "status", *words, "-i", str(written), "-o", "json", status=code)
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, schema_of("deployment"))
    return document


def only(document: dict[str, Any]) -> dict[str, Any]:
    assert [one["name"] for one in document["deployments"]] == [NAME]
    found: dict[str, Any] = document["deployments"][0]
    return found


@contextmanager
def process(fleet: Fleet, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A gpuplan that runs beside the test."""
    command = [sys.executable, "-m", "gpuplan", *words, "--host-key", "accept-new"]
    with subprocess.Popen(
        command, env=fleet.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


# ---------------------------------------------------------------------- status


def test_nothing_is_deployed(fleet: Fleet, written: Path) -> None:
    document = status(fleet, written)
    assert document == {"schema_version": 1, "deployments": [], "silent_hosts": []}
    assert "nothing is deployed on 3 hosts" in gpuplan(fleet, "status", "-i", str(written)).stdout


def test_states_follow_the_members(fleet: Fleet, written: Path, made: Callable[..., list[str]]) -> None:
    leader = Part(host="h100-a", more=((labels.ENDPOINT, f"http://{fleet['h100-a'].address}:{PORT}"),))
    follower = Part(host="h100-b", role="follower", rank=1)
    made(replace(leader, started=False), replace(follower, started=False))
    seen = only(status(fleet, written))
    assert seen["state"] == "preparing"
    assert [finding["code"] for finding in seen["findings"]] == ["GP852"]
    fleet["h100-a"].run("docker", "start", called(leader))
    assert only(status(fleet, written))["state"] == "starting"
    fleet["h100-b"].run("docker", "start", called(follower))
    assert only(status(fleet, written))["state"] == "starting", "nobody answers on its port yet"
    fleet["h100-b"].run("docker", "kill", called(follower))
    seen = only(status(fleet, written))
    assert seen["state"] == "error"
    assert seen["message"]
    for host, part in (("h100-a", leader), ("h100-b", follower)):
        fleet[host].run("docker", "start", called(part))
        fleet[host].run("docker", "stop", "-t", "5", called(part))
    assert only(status(fleet, written))["state"] == "stopped"
    fleet["h100-b"].run("docker", "rm", called(follower))
    fleet["h100-a"].run("docker", "start", called(leader))
    seen = only(status(fleet, written))
    assert seen["state"] == "error"
    assert [one["state"] for one in seen["members"]] == ["running", "missing"]
    assert "follower 1 on h100-b is missing" in seen["message"]


def test_a_serving_engine_is_told_in_full(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    serving(fleet, made)
    wait_for("the server", lambda: only(status(fleet, written))["state"] == "running")
    seen = only(status(fleet, written, NAME))
    assert seen["endpoint"] == f"http://{fleet['h100-a'].address}:{PORT}"
    assert seen["load"] == {"running": 0, "waiting": 0, "kv_cache_share": 0.0, "requests": 0}
    assert seen["uptime_seconds"] >= 0
    assert seen["actual"]["weights_bytes"] is not None
    assert seen["actual"]["kv_cache_tokens"] > 0
    assert seen["predicted"]["weights_bytes"] == 12 * GIB
    assert seen["members"][0]["gpu_indexes"] == [0]
    text = gpuplan(fleet, "status", NAME, "-i", str(written)).stdout
    assert "GiB (" in text, "the difference in GiB and per cent"
    assert max(map(len, text.splitlines())) <= 100
    table = gpuplan(fleet, "status", "-i", str(written)).stdout
    assert max(map(len, table.splitlines())) <= 100
    assert "Qwen/Qwen3-32B on h100-a:0" in table


def serving(fleet: Fleet, made: Callable[..., list[str]], **more: Any) -> None:
    """The stand-in engine, on h100-a."""
    host = fleet["h100-a"]
    host.load(ENGINE)
    model = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "intermediate_size": 512,
        "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
    }  # fmt: skip
    host.write("/srv/models/tiny/config.json", json.dumps(model))
    words = [
        "vllm",
        "serve",
        "/srv/models/tiny",
        "--load-format",
        "dummy",
        "--port",
        str(PORT),
        "--host",
        host.address,
    ]
    made(
        Part(
            host="h100-a",
            role="single",
            command=[*words, "--served-model-name", NAME],
            image=ENGINE.tag,
            more=((labels.ENDPOINT, f"http://{host.address}:{PORT}"),),
            **more,
        )
    )


def test_a_silent_host_is_told_and_its_members_are_unknown(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    fleet["h100-b"].kill_sshd()
    document = status(fleet, written)
    assert [one["name"] for one in document["silent_hosts"]] == ["h100-b"]
    seen = only(document)
    assert (seen["state"], [one["state"] for one in seen["members"]]) == ("unhealthy", ["running", "unknown"])
    table = gpuplan(fleet, "status", "-i", str(written)).stdout
    assert "1 host did not answer: what runs there is not known" in table


def test_a_dead_engine_is_not_an_empty_host(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    fleet["h100-b"].stop_dockerd()
    document = status(fleet, written)
    assert [(one["name"], one["stage"]) for one in document["silent_hosts"]] == [("h100-b", "docker")]
    assert only(document)["members"][1]["state"] == "unknown"
    fleet["h100-b"].restore()


def test_the_generation_that_runs_counts(fleet: Fleet, written: Path, made: Callable[..., list[str]]) -> None:
    made(Part(host="h100-a", role="single"))
    made(Part(host="h100-a", role="single", started=False), generation="g2")
    seen = only(status(fleet, written))
    assert [one["container"] for one in seen["members"]] == [called(Part(host="", role="single"))]
    codes = {finding["code"]: finding for finding in seen["findings"]}
    assert "gpuplan stop" in codes["GP851"]["hint"]


def test_an_unknown_name_is_told_with_the_nearest(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"))
    fleet["mixed"].kill_sshd()
    done = gpuplan(fleet, "status", "qwen", "-i", str(written), status=2)
    assert "did you mean" in done.stderr
    assert "not reached: mixed" in done.stderr


# ---------------------------------------------------------------------- logs


def test_logs_are_merged_by_time_and_masked(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    wait_for("lines", lambda: lines_of(fleet, written).count("line 5") == 2)
    done = gpuplan(fleet, "logs", NAME, "-i", str(written), "-o", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["at"] for one in lines] == sorted(one["at"] for one in lines)
    assert {one["role"] for one in lines} == {"leader", "follower"}
    text = lines_of(fleet, written, "--tail", "2", "--member", "follower")
    assert len(text.splitlines()) == 2
    assert text.startswith("h100-b/follower1  follower line")
    assert "correct-horse" not in text
    assert "token=***" in text
    assert lines_of(fleet, written, "--since", "2026-01-01T00:00:00Z", "--tail", "0") == ""


def lines_of(fleet: Fleet, written: Path, *words: str) -> str:
    return gpuplan(fleet, "logs", NAME, "-i", str(written), *words).stdout


def test_following_goes_on_through_a_lost_connection(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    with process(fleet, "logs", NAME, "-f", "-o", "json", "-i", str(written)) as running:
        heard: list[dict[str, Any]] = []
        assert running.stdout is not None
        reader = threading.Thread(
            target=lambda: heard.extend(json.loads(line) for line in running.stdout or ())
        )
        reader.start()

        def number(role: str) -> int:
            return max((counted(one) for one in tuple(heard) if one["role"] == role), default=0)

        wait_for("both", lambda: number("leader") > 3 and number("follower") > 3)
        fleet["h100-b"].kill_sshd()
        before = number("follower")
        wait_for("the others", lambda: number("leader") > before + 10)
        fleet["h100-b"].restore()
        wait_for("the lost one", lambda: number("follower") > before + 15)
        for role, host in (("leader", "h100-a"), ("follower", "h100-b")):
            part = Part(host=host, role=role, rank=int(role == "follower"))
            fleet[host].run("docker", "stop", "-t", "5", called(part))
        assert running.wait(60) == 0, "all members have ended"
        reader.join()
        for role in ("leader", "follower"):
            numbers = [counted(one) for one in heard if one["role"] == role]
            assert numbers == list(range(1, numbers[-1] + 1)), "none lost, none twice"
        assert running.stderr is not None
        assert "h100-b: the connection was lost" in running.stderr.read()


def counted(line: dict[str, Any]) -> int:
    return int(str(line["text"]).split()[2])


def test_an_interrupt_ends_following(fleet: Fleet, written: Path, made: Callable[..., list[str]]) -> None:
    made(Part(host="h100-a"))
    with process(fleet, "logs", NAME, "-f", "-i", str(written)) as running:
        assert running.stdout is not None
        assert "line" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130


# ---------------------------------------------------------------------- stop


def test_stop_removes_every_member_and_nothing_else(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    foreign = fleet["h100-a"].text("docker", "run", "-d", "--entrypoint", "sleep", VLLM.tag, "1000")
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    made(Part(host="h100-a", role="helper", rank=7), name="llama")
    done = gpuplan(fleet, "stop", NAME, "-i", str(written), status=2)
    assert "--yes" in done.stderr, "nobody to ask"
    assert len(only_named(fleet, written)["members"]) == 2
    done = gpuplan(fleet, "stop", NAME, "--yes", "-i", str(written), "-o", "json")
    document = json.loads(done.stdout)
    assert document["complete"]
    assert {one["host"] for one in document["removed"]} == {"h100-a", "h100-b"}
    for path in document["logs"]:
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert "correct-horse" not in Path(path).read_text()
        assert "line 1" in Path(path).read_text()
    assert len(document["logs"]) == 2
    left = status(fleet, written)["deployments"]
    assert [one["name"] for one in left] == ["llama"]
    assert fleet["h100-a"].text("docker", "inspect", "-f", "{{.State.Running}}", foreign) == "true"
    fleet["h100-a"].run("docker", "rm", "-f", foreign)


def only_named(fleet: Fleet, written: Path, name: str = NAME) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in status(fleet, written)["deployments"] if one["name"] == name)
    return found


ASKING = """
import json, sys, urllib.request
body = json.dumps({"model": "qwen3", "prompt": "Hi", "max_tokens": int(sys.argv[2])}).encode()
asked = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"Content-Type": "application/json"})
answer = urllib.request.urlopen(asked, timeout=100).status
open("/srv/logs/answered", "w").write(str(answer))
"""


def ask_slowly(fleet: Fleet, written: Path, made: Callable[..., list[str]], words: int) -> None:
    """A request that takes a second for each word, under way."""
    host = fleet["h100-a"]
    host.write("/srv/models/tiny/gpuplan-faults.json", json.dumps({"all": {"token_seconds": 1}}))
    host.later(lambda: host.run("rm", "-f", "/srv/models/tiny/gpuplan-faults.json", "/srv/logs/answered"))
    serving(fleet, made)
    wait_for("the server", lambda: only(status(fleet, written))["state"] == "running")
    host.start(sys.executable, "-c", ASKING, f"http://{host.address}:{PORT}", str(words))
    wait_for("the request", lambda: only(status(fleet, written))["load"]["running"] == 1)


def test_requests_in_flight_are_waited_for(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    ask_slowly(fleet, written, made, 12)
    done = gpuplan(fleet, "stop", NAME, "--yes", "--drain", "90", "-i", str(written), "-o", "json")
    assert "1 request in flight" in done.stderr
    assert [one["code"] for one in json.loads(done.stdout)["findings"]] == []
    assert fleet["h100-a"].text("cat", "/srv/logs/answered") == "200"


def test_requests_that_do_not_end_are_told(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    ask_slowly(fleet, written, made, 80)
    done = gpuplan(fleet, "stop", NAME, "--yes", "--drain", "1", "-i", str(written), "-o", "json")
    assert "GP855" in [one["code"] for one in json.loads(done.stdout)["findings"]]
    assert status(fleet, written)["deployments"] == []


def test_a_host_that_does_not_answer_keeps_its_part(
    fleet: Fleet, written: Path, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    fleet["h100-b"].link_down()
    done = gpuplan(fleet, "stop", NAME, "--yes", "-i", str(written), status=5)
    assert "gpuplan status" in done.stdout
    assert "gpuplan-qwen3-follower1 on h100-b was not stopped" in done.stdout
    fleet["h100-b"].link_up()
    assert [one["host"] for one in only(status(fleet, written))["members"]] == ["h100-a", "h100-b"]
    done = gpuplan(fleet, "stop", NAME, "--yes", "-i", str(written))
    assert status(fleet, written)["deployments"] == []


# ---------------------------------------------------------------------- locks

HOLDING = """
import sys, time
from pathlib import Path
from gpuplan.operations.host_locks import hold, this_run
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.reached import reach_fleet
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from gpuplan.sources import inventory_yaml

home = Path(sys.argv[2])
ssh = SshSettings(known_hosts=home / "k", home=home, policy=HostKeyPolicy.ACCEPT_NEW, system_known_hosts=(),
                  system_config=home / "none")
with reach_fleet(inventory_yaml.load(Path(sys.argv[1])), ProbeOptions(ssh=ssh)) as fleet:
    with hold(fleet, sys.argv[3:], this_run("qwen3")):
        print("held", flush=True)
        time.sleep(600)
"""


@contextmanager
def holding(written: Path, *hosts: str) -> Iterator[subprocess.Popen[str]]:
    """Another gpuplan that holds locks."""
    words = [sys.executable, "-c", HOLDING, str(written), str(written.parent), *hosts]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "held\n"
        try:
            yield running
        finally:
            running.kill()


def free(reached: ReachedFleet, *hosts: str) -> bool:
    return all(isinstance(lock, Free) for lock in read_locks(reached, hosts).values())


def test_a_lock_keeps_others_out_and_dies_with_its_holder(
    fleet: Fleet, written: Path, reached: ReachedFleet, made: Callable[..., list[str]]
) -> None:
    made(Part(host="h100-a"), Part(host="h100-b", role="follower", rank=1))
    with holding(written, "h100-b", "mixed") as other:
        done = gpuplan(fleet, "stop", NAME, "--yes", "-i", str(written), status=5)
        assert "h100-b is locked" in done.stderr
        assert "gpuplan unlock --host h100-b" in done.stderr
        seen = only(status(fleet, written))
        assert [finding["code"] for finding in seen["findings"]] == ["GP853"]
        assert free(reached, "h100-a"), "all or none"
        other.send_signal(signal.SIGKILL)
        wait_for("the end of the lock", lambda: free(reached, "h100-b", "mixed"), 30)
    assert json.loads(gpuplan(fleet, "stop", NAME, "--yes", "-i", str(written), "-o", "json").stdout)[
        "complete"
    ]


def test_a_cut_cable_frees_the_lock_after_the_silence(fleet: Fleet, reached: ReachedFleet) -> None:
    terms = replace(TERMS, silence_seconds=6, beat_seconds=1.0)
    with hold(reached, ["h100-a", "h100-b"], this_run(NAME), terms=terms) as locks:
        place = host_lock.prefix(str(reached.engine_of("h100-a").get("/info")["ID"]))
        fleet["h100-a"].link_down()
        wait_for("the loss", lambda: locks.lost() == ("h100-a",))
        directory = f"{place}-$(head -c 8 /etc/machine-id)-$(readlink /proc/self/ns/net | tr -cd 0-9).lock"
        asked = ["sh", "-c", f"d={directory}; test ! -d $d || {{ exec 9<$d && flock -n 9; }}"]
        wait_for("the lock itself", lambda: fleet["h100-a"].run(*asked, check=False).returncode == 0)
        assert locks.lost() == ("h100-a",)
        fleet["h100-a"].link_up()


@pytest.mark.parametrize("shell", ["bash", "csh", "fish"])
def test_any_login_shell_locks_and_another_login_is_told(
    fleet: Fleet, tmp_path: Path, options: ProbeOptions, shell: str
) -> None:
    host = fleet["h100-a"]
    path = f"/usr/bin/{shell}" if (Path("/usr/bin") / shell).exists() else f"/bin/{shell}"
    host.add_user("ops", shell=path, groups=("docker",), greeting="Welcome")
    inventories = [
        inventory_yaml.load(
            fleet.inventory(tmp_path / f"{user}.yaml", "h100-a", entries={"h100-a": {"user": user}})
        )
        for user in ("ops", "root")
    ]
    with (
        reach_fleet(inventories[0], options) as theirs,
        reach_fleet(inventories[1], replace(options)) as ours,
        hold(theirs, ["h100-a"], this_run(NAME)),
    ):
        lock = read_locks(ours, ["h100-a"])["h100-a"]
        assert isinstance(lock, Busy)
        assert lock.holder.login == "ops"
    with reach_fleet(inventories[0], replace(options)) as theirs:
        assert free(theirs, "h100-a")
        with reach_fleet(inventories[1], replace(options)) as ours, hold(ours, ["h100-a"], this_run(NAME)):
            assert isinstance(read_locks(theirs, ["h100-a"])["h100-a"], Busy)


def test_unlock_shows_and_breaks(fleet: Fleet, written: Path, reached: ReachedFleet) -> None:
    assert "free" in gpuplan(fleet, "unlock", "-i", str(written)).stdout
    with holding(written, "h100-a"):
        done = gpuplan(fleet, "unlock", "-i", str(written), status=2)
        assert "deploys qwen3" in done.stderr
        done = gpuplan(fleet, "unlock", "--host", "h100-a", "--yes", "-i", str(written), "-o", "json")
        locks = json.loads(done.stdout)["locks"]
        assert [(one["host"], one["broken"]) for one in locks] == [("h100-a", True)]
        assert free(reached, "h100-a")


def test_nothing_is_left_open(written: Path, options: ProbeOptions, made: Callable[..., list[str]]) -> None:
    made(Part(host="h100-a"))
    before = threading.active_count()
    report = read_status(fleet_options(written, options))
    assert [one.deployment.state for one in report.deployments] == [State.RUNNING]
    wait_for("the threads to end", lambda: threading.active_count() <= before)


def test_our_containers_are_found_by_label_only(reached: ReachedFleet, fleet: Fleet) -> None:
    host: TestHost = fleet["h100-a"]
    host.run("docker", "create", "--name", "gpuplan-fake-n0", VLLM.tag, "true")
    try:
        assert list_ours(reached.engine_of("h100-a")) == []
        assert observe(reached).groups == ()
    finally:
        host.run("docker", "rm", "-f", "gpuplan-fake-n0")
