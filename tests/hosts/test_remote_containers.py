"""Containers and images of real engines over SSH: made, filled, followed, cut off, carried over and pulled."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.inventory import HostEntry
from gpuplan.domain.labels import DEPLOYMENT, MANAGED
from gpuplan.remote import containers, http, images
from gpuplan.remote.connection import Connection, ConnectionFailed, HostCallFailed
from gpuplan.remote.containers import LogLine, LogStream, NameTaken, NotOurs
from gpuplan.remote.docker_engine import DIAL_SESSIONS, Engine, RequestRefused, Transport, engine
from gpuplan.remote.images import LoadFailed, PullCause, PullFailed
from gpuplan.remote.registry_login import RegistryLogin
from gpuplan.remote.ssh import connect
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.images import VLLM, ImageSpec, archive
from tests.hosts.waiting import wait_for
from tests.registry import Pushed, Registry, registry_at

LONG = 60.0
SOCKET = "/var/run/docker.sock"
MIB = 1024**2
ONLY = ImageSpec(tag="gpuplan/only-here:1", env=(("MADE", "here"),))


@dataclass(frozen=True, slots=True)
class Reach:
    """Ways to the hosts of the fleet."""

    fleet: Fleet
    settings: SshSettings
    opened: list[Any]

    def ssh(self, name: str) -> Connection:
        host = self.fleet[name]
        entry = HostEntry(
            name=host.name, address=host.address, user="root", identity_file=str(self.fleet.identity)
        )
        self.opened.append(connect(entry, self.settings))
        connection: Connection = self.opened[-1]
        return connection

    def engine(self, name: str, connection: Connection | None = None) -> Engine:
        self.opened.append(engine(connection or self.ssh(name), socket_path=SOCKET, cli=True, timeout=LONG))
        found: Engine = self.opened[-1]
        return found


@pytest.fixture
def reach(fleet: Fleet, tmp_path: Path) -> Iterator[Reach]:
    settings = SshSettings(
        known_hosts=tmp_path / "known_hosts",
        home=tmp_path,
        policy=HostKeyPolicy.ACCEPT_NEW,
        environ={"PATH": os.environ["PATH"]},
        system_config=tmp_path / "none",
        system_known_hosts=(),
    )
    for host in ("h100-a", "h100-b"):
        fleet[host].remove_containers()
    ways = Reach(fleet, settings, [])
    yield ways
    for opened in reversed(ways.opened):
        opened.close()


def body(
    script: str, *, image: str = VLLM.tag, host: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "Image": image,
        "Entrypoint": ["sh", "-c"],
        "Cmd": [script],
        "Labels": {MANAGED: "true", DEPLOYMENT: "qwen3"},
        "HostConfig": {"NetworkMode": "host", "RestartPolicy": {"Name": "no"}, **(host or {})},
        **more,
    }


def running(docker: Engine, script: str, name: str = "gpuplan-x", **more: Any) -> str:
    made = containers.create(docker, body(script, **more), name)
    containers.start(docker, made)
    return made


# ------------------------------------------------------------------------------------------------------- containers


def test_every_field_of_a_body_arrives(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    limits = [
        {"Name": "nofile", "Soft": 4096, "Hard": 4096}
    ]  # raising one takes rights a test machine may lack
    request = {"Driver": "nvidia", "DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]]}
    made = running(
        docker,
        "echo gpus=$NVIDIA_VISIBLE_DEVICES; ulimit -n; df -k /dev/shm | tail -1; sleep 600",
        host={"ShmSize": 96 * MIB, "Ulimits": limits, "DeviceRequests": [request], "Init": True},
    )
    log = containers.logs(docker, made, follow=True)
    told = [next(log).text for _ in range(3)]
    log.close()

    assert told[:2] == ["gpus=0,1", "4096"]
    assert told[2].split()[1] == str(96 * 1024)
    (found,) = containers.list_ours(docker, deployment="qwen3")
    assert (found["Id"], found["Name"]) == (made, "/gpuplan-x")
    assert containers.list_ours(docker, deployment="other") == []


def test_names_are_unique_and_can_be_changed(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    first = containers.create(docker, body("true"), "gpuplan-x")

    with pytest.raises(NameTaken):
        containers.create(docker, body("true"), "gpuplan-x")
    containers.rename(docker, first, "gpuplan-x-old")
    second = containers.create(docker, body("true"), "gpuplan-x")
    with pytest.raises(NameTaken):
        containers.rename(docker, second, "gpuplan-x-old")

    containers.remove(docker, "gpuplan-x-old")
    containers.remove(docker, "gpuplan-x-old")
    assert [each["Id"] for each in containers.list_ours(docker)] == [second]


def test_a_container_needs_an_image_that_is_there(reach: Reach) -> None:
    with pytest.raises(RequestRefused) as failed:
        containers.create(reach.engine("h100-a"), body("true", image="nowhere:1"), "gpuplan-x")

    assert failed.value.status == 404


def test_a_program_that_is_missing_is_told_at_the_start(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    made = containers.create(docker, body("x", Entrypoint=["/nothing"]), "gpuplan-x")

    with pytest.raises(RequestRefused, match="/nothing"):
        containers.start(docker, made)
    assert (containers.inspect(docker, made) or {})["State"]["ExitCode"] == 127


@pytest.mark.parametrize("started", [False, True])
def test_secret_files_are_put_into_a_container(reach: Reach, started: bool) -> None:
    docker = reach.engine("h100-a")
    made = containers.create(docker, body("sleep 600", User="1234:99"), "gpuplan-x")
    if started:
        containers.start(docker, made)
    containers.put_files(
        docker, made, {"HF_TOKEN": b"hf_x", "B": b""}, directory="/run/gpuplan/secrets", uid=1234, gid=99
    )
    containers.put_files(docker, made, {"C": b"c"}, directory="/tmp/c", uid=0, gid=0)
    if not started:
        containers.start(docker, made)

    script = "cat /run/gpuplan/secrets/HF_TOKEN; cd /run; stat -c ' %a:%u:%g' . gpuplan gpuplan/secrets gpuplan/secrets/* /tmp"
    done = containers.execute(docker, made, ["sh", "-c", script], timeout=LONG)

    assert done.exit_code == 0, done.stderr
    assert done.stdout.decode().split() == [
        *("hf_x", "755:0:0", "755:0:0", "700:1234:99", "400:1234:99", "400:1234:99"),
        "1777:0:0",
    ]


def test_commands_in_containers_have_outputs_exit_codes_and_ends(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    made = running(docker, "sleep 600")

    done = containers.execute(
        docker, made, ["sh", "-c", "echo out $A; echo err >&2; exit 7"], timeout=LONG, env=[("A", "b")]
    )
    late = containers.execute(docker, made, ["sh", "-c", "echo out; sleep 600"], timeout=2)
    none = containers.execute(docker, made, ["/nothing"], timeout=LONG)

    assert (done.exit_code, done.stdout, done.stderr) == (7, b"out b\n", b"err\n")
    assert (late.exit_code, late.stdout, late.timed_out) == (None, b"out\n", True)
    assert none.exit_code in {126, 127}


def test_stopping_gives_the_time_that_was_asked_for(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    deaf = running(docker, "trap '' TERM; echo up; while :; do sleep 1; done", "gpuplan-deaf")
    willing = running(docker, "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done", "gpuplan-willing")
    for made in (deaf, willing):
        assert next(containers.logs(docker, made, follow=True)).text == "up"

    containers.stop(docker, deaf, 1)
    containers.stop(docker, willing, 60)
    containers.stop(docker, willing, 60)

    codes = [(containers.inspect(docker, made) or {})["State"]["ExitCode"] for made in (deaf, willing)]
    assert codes == [137, 5]
    with pytest.raises(RequestRefused) as failed:
        containers.kill(docker, deaf)
    assert failed.value.status == 409


def test_what_others_made_is_left_alone(fleet: Fleet, reach: Reach) -> None:
    docker = reach.engine("h100-a")
    host = fleet["h100-a"]
    host.run("docker", "run", "-d", "--net=none", "--name=theirs", "--entrypoint=sleep", VLLM.tag, "600")

    for change in (containers.remove, containers.kill, containers.start):
        with pytest.raises(NotOurs):
            change(docker, "theirs")

    assert host.text("docker", "inspect", "-f", "{{.State.Running}}", "theirs") == "true"
    assert containers.list_ours(docker) == []


# ------------------------------------------------------------------------------------------------------------- logs


class Follower:
    """Reads a log in a thread of its own; how it ended is kept."""

    def __init__(self, log: LogStream) -> None:
        self.lines: list[LogLine] = []
        self.failed: HostCallFailed | None = None
        self.first = threading.Event()
        self._log = log
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            for line in self._log:
                self.lines.append(line)
                self.first.set()
        except HostCallFailed as failed:
            self.failed = failed

    def wait(self) -> None:
        self._thread.join(LONG)
        assert not self._thread.is_alive()


def test_a_log_is_followed_to_the_end_of_its_container(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    long = "x" * 40_000
    made = running(docker, f"echo first; echo error >&2; echo {long}; printf end; exit 3")

    lines = list(containers.logs(docker, made, follow=True))

    assert sorted(line.text for line in lines) == sorted(["first", "error", long, "end"])
    assert [line.stream for line in lines if line.text == "error"] == ["stderr"]
    assert all(line.at.endswith("Z") and len(line.at) == 30 for line in lines)
    assert [line.text for line in containers.logs(docker, made, follow=False, tail=1)] == ["end"]


def test_a_log_is_taken_up_again_at_a_line(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    made = running(docker, "for i in 1 2 3 4; do echo $i; sleep 0.05; done")
    whole = list(containers.logs(docker, made, follow=True))

    again = list(containers.logs(docker, made, follow=False, since=whole[2].at))

    assert again == whole[2:]


def test_the_log_of_a_terminal_is_read(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    made = running(docker, "echo first; echo second", Tty=True)

    assert [line.text for line in containers.logs(docker, made, follow=True)] == ["first", "second"]


def talking(docker: Engine, name: str = "gpuplan-x") -> Follower:
    made = running(docker, "echo up; while :; do sleep 1; done", name)
    follower = Follower(containers.logs(docker, made, follow=True))
    assert follower.first.wait(LONG)
    return follower


def test_a_connection_that_is_cut_is_no_end_of_a_log(fleet: Fleet, reach: Reach) -> None:
    follower = talking(reach.engine("h100-a"))
    fleet["h100-a"].kill_sshd()
    follower.wait()

    assert isinstance(follower.failed, ConnectionFailed)
    assert [line.text for line in follower.lines] == ["up"]


def test_a_daemon_that_is_killed_is_no_end_of_a_log(fleet: Fleet, reach: Reach) -> None:
    follower = talking(reach.engine("h100-a"))
    fleet["h100-a"].stop_dockerd()
    follower.wait()

    assert follower.failed is not None


def test_a_log_is_closed_while_it_is_followed(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    made = running(docker, "echo up; while :; do sleep 1; done")
    log = containers.logs(docker, made, follow=True)
    follower = Follower(log)
    assert follower.first.wait(LONG)
    log.close()
    follower.wait()

    assert follower.failed is None
    containers.remove(docker, made)


def test_all_of_it_works_through_the_docker_cli(fleet: Fleet, reach: Reach) -> None:
    """Where the server opens no sockets."""
    fleet["h100-a"].restart_sshd(AllowStreamLocalForwarding="no")
    fleet["h100-a"].load(ONLY)
    docker, other = reach.engine("h100-a"), reach.engine("h100-b")
    assert docker.transport is Transport.DIAL_STDIO
    there = images.inspect_image(docker, ONLY.tag)
    assert there is not None

    for number in range(DIAL_SESSIONS + 1):
        follower = talking(docker, f"gpuplan-{number}")
        assert containers.execute(docker, f"gpuplan-{number}", ["true"], timeout=LONG).exit_code == 0
        containers.remove(docker, f"gpuplan-{number}")
        follower.wait()
        assert follower.failed is None
    copied = images.copy_image(docker, other, there.id, total_bytes=None, on_progress=lambda *_: None)

    assert copied == there.id
    for host in ("h100-a", "h100-b"):
        fleet[host].run("docker", "image", "rm", "-f", there.id)


def test_a_container_that_is_removed_ends_its_log(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    follower = talking(docker)
    containers.remove(docker, "gpuplan-x")
    follower.wait()

    assert follower.failed is None


def test_a_container_runs_once(reach: Reach) -> None:
    docker = reach.engine("h100-a")

    done = containers.run_once(
        docker, body("echo out; echo err >&2; exit 4"), timeout=LONG, name="gpuplan-once"
    )
    late = containers.run_once(docker, body("echo out; sleep 600"), timeout=3, name="gpuplan-once")

    assert (done.exit_code, done.stdout, done.stderr) == (4, b"out\n", b"err\n")
    assert (late.exit_code, late.timed_out, late.stdout) == (None, True, b"out\n")
    assert containers.inspect(docker, "gpuplan-once") is None


# ----------------------------------------------------------------------------------------------------------- images


def test_an_image_is_carried_to_another_host(reach: Reach, tmp_path: Path) -> None:
    reach.fleet["h100-a"].load(ONLY)
    source, target = reach.engine("h100-a"), reach.engine("h100-b")
    there = images.inspect_image(source, ONLY.tag)
    assert there is not None
    told: list[tuple[int, int | None, str]] = []

    copied = images.copy_image(
        source, target, there.id, total_bytes=there.size_bytes, on_progress=lambda *each: told.append(each)
    )

    here = images.inspect_image(target, there.id)
    assert here is not None
    assert copied == here.id == there.id
    assert ("MADE", "here") in here.env
    assert here.tags == ()
    assert told[0][2] == "copying"
    assert max(done for done, _, about in told if about == "copying") > MIB
    running(target, "true", image=copied)

    (tmp_path / "image.tar").write_bytes(archive(ONLY))
    assert images.load_file(target, tmp_path / "image.tar", lambda *_: None) == (ONLY.tag,)
    containers.remove(target, "gpuplan-x")
    for host in ("h100-a", "h100-b"):
        reach.fleet[host].run("docker", "image", "rm", "-f", there.id)


def test_a_target_without_space_is_told(reach: Reach) -> None:
    big = ImageSpec(tag="gpuplan/big:1", files=(("big", "x" * 40 * MIB),))
    source, target = reach.engine("h100-a"), reach.engine("h100-b")
    reach.fleet["h100-a"].load(big)
    there = images.inspect_image(source, big.tag)
    assert there is not None
    reach.fleet["h100-b"].fill(leave=8 * MIB)

    with pytest.raises(LoadFailed) as failed:
        images.copy_image(source, target, there.id, total_bytes=None, on_progress=lambda *_: None)

    assert (failed.value.cause, failed.value.at_source) == (PullCause.NO_SPACE, False)
    reach.fleet["h100-a"].run("docker", "image", "rm", "-f", there.id)


@pytest.fixture
def registry(fleet: Fleet) -> Iterator[Registry]:
    with registry_at(str(fleet.bridge.network[254])) as running_registry:
        yield running_registry


@pytest.fixture
def pushed(fleet: Fleet, registry: Registry) -> Iterator[Pushed]:
    """An image of 8 MiB and more that no host has."""
    made = registry.push("team/engine", "1.0", archive(VLLM), padding=8 * MIB)
    yield made
    fleet["h100-a"].run("sh", "-c", f"docker image rm -f {made.id}", check=False)


def pulled(docker: Engine, reference: str, **options: Any) -> list[tuple[int, int | None, str]]:
    told: list[tuple[int, int | None, str]] = []
    more: dict[str, Any] = {"auth": None, "silence": LONG, **options}
    images.pull(docker, reference, on_progress=lambda *each: told.append(each), **more)
    return told


def failure(docker: Engine, reference: str, **options: Any) -> PullCause:
    with pytest.raises(PullFailed) as failed:
        pulled(docker, reference, **options)
    assert failed.value.detail
    return failed.value.cause


def test_a_pull_tells_its_bytes_up_to_the_last(reach: Reach, pushed: Pushed) -> None:
    docker = reach.engine("h100-a")

    told = pulled(docker, pushed.reference)

    done = [each[0] for each in told]
    assert done == sorted(done)
    assert told[-1][:2] == (pushed.packed_bytes, pushed.packed_bytes)
    found = images.inspect_image(docker, pushed.reference)
    assert found is not None
    assert found.id == pushed.id
    assert found.digests == (pushed.by_digest,)
    assert pulled(docker, pushed.by_digest)[-1][0] == 0  # it is there


@pytest.mark.parametrize("wrong", ["team/engine:2.0", "nobody/nothing:1.0", f"team/engine@sha256:{64 * '0'}"])
@pytest.mark.usefixtures("pushed")
def test_what_the_registry_does_not_have_is_not_found(reach: Reach, registry: Registry, wrong: str) -> None:
    assert failure(reach.engine("h100-a"), f"{registry.place}/{wrong}") is PullCause.NOT_FOUND


@pytest.mark.parametrize(
    ("status", "cause"),
    [(403, PullCause.DENIED), (429, PullCause.RATE_LIMITED), (503, PullCause.NO_REGISTRY)],
)
def test_a_registry_that_refuses_is_told(
    reach: Reach, registry: Registry, pushed: Pushed, status: int, cause: PullCause
) -> None:
    registry.faults.status = status

    assert failure(reach.engine("h100-a"), pushed.reference) is cause


def test_a_private_image_is_pulled_with_a_login_and_without_it_denied(
    reach: Reach, registry: Registry, pushed: Pushed
) -> None:
    registry.faults.login = ("me", "hunter2")
    docker = reach.engine("h100-a")
    wrong, right = (
        RegistryLogin(registry=registry.place, secret={"username": "me", "password": word})
        for word in ("no", "hunter2")
    )

    assert failure(docker, pushed.reference) is PullCause.DENIED
    assert failure(docker, pushed.reference, auth=wrong) is PullCause.DENIED
    assert pulled(docker, pushed.reference, auth=right)
    assert "hunter2" not in reach.fleet["h100-a"].text("sh", "-c", "cat ~/.docker/config.json 2>/dev/null; :")


def test_an_image_for_other_machines_is_told(reach: Reach, registry: Registry) -> None:
    made = registry.push("team/arm", "1.0", archive(VLLM), only_for="arm64")

    assert failure(reach.engine("h100-a"), made.reference) is PullCause.WRONG_ARCHITECTURE


def test_a_registry_that_is_not_there_is_told(reach: Reach) -> None:
    docker = reach.engine("h100-a")
    gateway = reach.fleet.bridge.network[254]

    assert failure(docker, f"{gateway}:1/team/engine:1.0") is PullCause.NO_REGISTRY
    assert failure(docker, "registry.invalid/team/engine:1.0") is PullCause.NO_REGISTRY


def test_a_full_disk_is_told(reach: Reach, pushed: Pushed) -> None:
    reach.fleet["h100-a"].fill(leave=4 * MIB)

    assert failure(reach.engine("h100-a"), pushed.reference) is PullCause.NO_SPACE


def test_a_registry_that_stalls_is_given_up_and_the_engine_stops_too(
    reach: Reach, registry: Registry, pushed: Pushed
) -> None:
    registry.faults.stall_after = 64 * 1024

    assert failure(reach.engine("h100-a"), pushed.reference, silence=3) is PullCause.STALLED

    registry.faults.stall_after = None
    done, total, _ = pulled(reach.engine("h100-a"), pushed.reference)[-1]
    assert done == total


def pulling(reach: Reach, registry: Registry, reference: str) -> Callable[[], PullCause]:
    """A pull that is in the middle; what is returned waits for its end."""
    docker = reach.engine("h100-a")
    registry.faults.stall_after = 4 * MIB
    causes: list[PullCause] = []
    begun = threading.Event()

    def pull() -> None:
        try:
            images.pull(docker, reference, auth=None, silence=LONG, on_progress=note)
        except PullFailed as failed:
            causes.append(failed.cause)

    def note(done: int, *_: object) -> None:
        if done:
            begun.set()

    thread = threading.Thread(target=pull, daemon=True)
    thread.start()
    assert begun.wait(LONG)

    def ended() -> PullCause:
        thread.join(LONG)
        assert not thread.is_alive()
        return causes[0]

    return ended


def test_a_pull_ends_with_its_daemon(reach: Reach, registry: Registry, pushed: Pushed) -> None:
    ended = pulling(reach, registry, pushed.reference)
    reach.fleet["h100-a"].stop_dockerd()

    assert ended() is PullCause.LOST


def test_a_pull_ends_with_its_connection(reach: Reach, registry: Registry, pushed: Pushed) -> None:
    ended = pulling(reach, registry, pushed.reference)
    reach.fleet["h100-a"].kill_sshd()

    assert ended() is PullCause.LOST


# ------------------------------------------------------------------------------------------------------------- http


@pytest.mark.parametrize(
    "options",
    [{}, {"AllowTcpForwarding": "local"}, {"AllowTcpForwarding": "no"}, {"DisableForwarding": "yes"}],
    ids=["any", "local", "no-ports", "no-forwarding"],
)
def test_a_server_on_a_host_is_asked_whatever_is_forwarded(
    reach: Reach, options: dict[str, str], fleet: Fleet
) -> None:
    host = fleet["h100-a"]
    if options:
        host.restart_sshd(**options)
    serve(host)
    connection = reach.ssh("h100-a")

    assert http.ask(connection, "127.0.0.1", 4000, path="/health", timeout=LONG) == http.Answer(
        status=200, body=b"ok"
    )
    with pytest.raises(http.NoAnswer) as failed:
        http.ask(connection, "127.0.0.1", 4001, path="/health", timeout=LONG)
    assert failed.value.reason is http.Missing.REFUSED


def serve(host: TestHost) -> None:
    program = (
        "import http.server as h\n"
        "class R(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'ok')\n"
        "    def log_message(self, *a): pass\n"
        "h.HTTPServer(('', 4000), R).serve_forever()"
    )
    host.start("python3", "-c", program)
    wait_for("port 4000", lambda: bool(host.text("ss", "-Hltn", "sport = :4000")))
