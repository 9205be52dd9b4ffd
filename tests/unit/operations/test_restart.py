"""A restart against engines in this process: what is asked of them in which order, and what is told when it fails."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from gpuplan.deploying.observed import Container, Group, container_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import Deployment, Prediction, State
from gpuplan.domain.events import Event, MemberSeen, Phase, PhaseDone, PhaseStarted, StateChanged
from gpuplan.domain.inventory import HostEntry
from gpuplan.operations import ray_again
from gpuplan.operations.observation import observe
from gpuplan.operations.reached import ReachedFleet, Seen
from gpuplan.operations.restart import (
    NotRestarted,
    Restart,
    RestartChoice,
    RestartFailed,
    _require_whole,
    restart_over,
    waves,
)
from gpuplan.operations.status_watch import KeptCauses
from gpuplan.present.findings import word
from gpuplan.remote.connection import Connection, ConnectionFailed, Stage
from gpuplan.remote.docker_engine import Engine, engine
from gpuplan.remote.local import LocalConnection
from tests.engine_server import EngineServer, Request, frame, serving

if TYPE_CHECKING:
    from gpuplan.domain.fleet import HostFailure

QUICK = RestartChoice(drain=0, ready=20, gather=0.0, host_lost=0.5, poll=0.02)
MEMBERS = [
    {"host": "a", "container": "m-n0", "role": "leader", "rank": 0, "server": 0},
    {"host": "b", "container": "m-n1", "role": "follower", "rank": 1, "server": 0},
]


class Machine:
    """A host with an engine: containers by id, and a journal all machines share."""

    def __init__(self, name: str, journal: list[str]) -> None:
        self.name = name
        self.journal = journal
        self.containers: dict[str, dict[str, Any]] = {}
        self.refused: dict[str, str] = {}
        """`start ID` to the engine's words."""
        self.on_start: Callable[[dict[str, Any]], object] = id

    def add(self, identity: str, role: str, rank: int, **given: str) -> None:
        self.containers[identity] = {
            "Id": identity,
            "Name": f"/m-n{rank}",
            "Created": "2026-11-22T01:00:00Z",
            "State": {"Status": "running", "StartedAt": "2026-11-22T01:00:00Z"},
            "Config": {
                "Labels": {
                    labels.MANAGED: "true",
                    labels.DEPLOYMENT: "m",
                    labels.ROLE: role,
                    labels.RANK: str(rank),
                    labels.SERVER: "0",
                    labels.GENERATION: "g",
                    labels.MEMBERS: json.dumps(MEMBERS),
                    **given,
                },
                "Tty": False,
            },
        }

    def answers(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {
            "GET /containers/json": self._list,
            "GET /info": {"ID": f"test-restart-{self.name}"},
        }
        for identity in self.containers:
            found[f"GET /containers/{identity}/json"] = lambda request, one=identity: request.document(
                self.containers[one]
            )
            found[f"GET /containers/{identity}/logs"] = self._log
            for verb in ("stop", "start"):
                found[f"POST /containers/{identity}/{verb}"] = lambda request, one=identity, verb=verb: (
                    self._do(request, one, verb)
                )
        return found

    def _list(self, request: Request) -> None:
        request.document([{"Id": identity} for identity in self.containers])

    def _log(self, request: Request) -> None:
        request.start_chunks()
        request.chunk(frame(b"2026-11-22T01:00:01.000000000Z ValueError: no such thing\n"))
        request.chunk(b"")

    def _do(self, request: Request, identity: str, verb: str) -> None:
        request.body()
        self.journal.append(f"{verb} {identity}")
        said = self.refused.get(f"{verb} {identity}")
        if said is not None:
            request.document({"message": said}, 500)
            return
        state = self.containers[identity]["State"]
        state["Status"] = "exited" if verb == "stop" else "running"
        state["ExitCode"] = 0
        if verb == "start":
            self.on_start(self.containers[identity])
        request.whole(b"", 204)


class Fleet:
    """The machines, reached."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self.engines = engines
        self.silent: dict[str, HostFailure] = {}
        self.connection = LocalConnection()
        self.gone: set[str] = set()
        self.reached = 0

    @property
    def entries(self) -> Mapping[str, HostEntry]:
        return {name: HostEntry(name=name, address=name) for name in self.engines}

    @property
    def connections(self) -> Mapping[str, Connection]:
        return {name: self.connection for name in self.engines if name not in self.gone}

    def engine_of(self, name: str) -> Engine:
        return self.engines[name]

    def seen(self, name: str) -> Seen:
        return Seen(connection=self.connection)

    def gpus_now(self, name: str) -> tuple[()]:
        return ()

    def reach(self, name: str, instead_of: Connection | None = None) -> None:
        self.reached += 1
        if name in self.gone:
            raise ConnectionFailed(Stage.CONNECT, "no route")


class Served(BaseHTTPRequestHandler):
    """What answers `/health`, when it is loaded."""

    loaded = False

    def do_GET(self) -> None:
        self.send_response(200 if self.loaded else 503)
        body = b'{"data": [{"id": "m"}]}' if self.path == "/v1/models" else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: Any) -> None:
        pass


class World:
    """Two machines with a leader and a follower, and the server."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.handler = type("Handler", (Served,), {})
        server = stack.enter_context(_http(self.handler))
        self.journal: list[str] = []
        self.a, self.b = Machine("a", self.journal), Machine("b", self.journal)
        endpoint = f"http://127.0.0.1:{server.server_port}"
        self.a.add("a0", "leader", 0, **{labels.ENDPOINT: endpoint, labels.SERVED_NAME: "m"})
        self.b.add("b1", "follower", 1)
        self.servers: dict[str, EngineServer] = {}
        engines = {}
        for machine in (self.a, self.b):
            path = directory / f"{machine.name}.sock"
            self.servers[machine.name] = stack.enter_context(serving(path, machine.answers()))
            engines[machine.name] = engine(LocalConnection(), socket_path=str(path), cli=False, timeout=10)
        self.hosts = Fleet(engines)
        self.events: list[Event] = []

    @property
    def fleet(self) -> ReachedFleet:
        return cast("ReachedFleet", self.hosts)

    def group(self) -> Group:
        found = observe(self.fleet).group("m")
        assert found is not None, observe(self.fleet).silent
        return found

    def loads(self, document: dict[str, Any]) -> None:
        """The server is up when its container was started."""
        if "leader" in document["Config"]["Labels"].values():
            self.handler.loaded = True  # type: ignore[attr-defined]

    def restart(self, choice: RestartChoice = QUICK, lost: Callable[[], tuple[str, ...]] = tuple) -> Restart:
        return Restart(self.fleet, self.group(), choice, lost, self.events.append)

    def failed(self, restart: Restart) -> RestartFailed:
        with pytest.raises(RestartFailed) as raised:
            restart.run()
        for fact in raised.value.facts:
            assert word(fact).headline
        return raised.value


@contextmanager
def _http(handler: type[BaseHTTPRequestHandler]) -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_it_ends_starts_leaders_first_and_waits_for_the_answer(world: World) -> None:
    world.a.on_start = world.loads
    deployment = world.restart().run()
    assert deployment.state is State.RUNNING
    assert sorted(world.journal[:2]) == ["stop a0", "stop b1"]
    assert world.journal[2:] == ["start a0", "start b1"]
    phases = [event.phase for event in world.events if isinstance(event, PhaseStarted)]
    assert phases == [Phase.STOP, Phase.START, Phase.LOAD]
    assert [event.phase for event in world.events if isinstance(event, PhaseDone)] == phases
    states = [
        (event.member.id, event.member.state) for event in world.events if isinstance(event, MemberSeen)
    ]
    assert sorted(states) == [("a0", "exited"), ("a0", "running"), ("b1", "exited"), ("b1", "running")]
    assert isinstance(world.events[-1], StateChanged)


def test_a_member_that_ends_is_told_with_the_state_it_is_left_in(world: World) -> None:
    def end(document: dict[str, Any]) -> None:
        document["State"] |= {"Status": "exited", "ExitCode": 1}

    world.b.on_start = end
    failed = world.failed(world.restart())
    assert failed.facts[-1].code == "GP859"
    assert failed.facts[-1].figures["state"] == "error"
    assert "follower 1 on b: exited" in failed.facts[-1].figures["members"]
    assert failed.deployment.state is State.ERROR
    finding = word(failed.facts[-1])
    assert "follower 1 on b ended with exit code 1" in finding.headline
    assert "gpuplan logs m" in str(finding.hint)


def test_one_that_cannot_be_started_leaves_the_rest_unstarted(world: World) -> None:
    world.a.refused["start a0"] = "could not select device driver"
    failed = world.failed(world.restart())
    assert "start b1" not in world.journal, "a follower would wait for its leader in vain"
    assert "could not select device driver" in word(failed.facts[-1]).headline


def test_one_that_cannot_be_ended_is_named_and_nothing_is_started(world: World) -> None:
    world.b.refused["stop b1"] = "it hangs in the driver"
    failed = world.failed(world.restart())
    assert [fact.code for fact in failed.facts] == ["GP856", "GP859"]
    assert "m-n1 on b was not stopped: it hangs in the driver" in word(failed.facts[0]).headline
    assert not [line for line in world.journal if line.startswith("start")]


def test_no_answer_in_time(world: World) -> None:
    failed = world.failed(world.restart(replace(QUICK, ready=0.1)))
    assert "no answer after 0 s" in word(failed.facts[-1]).headline


def test_without_the_lock_nothing_is_touched_any_more(world: World) -> None:
    failed = world.failed(world.restart(lost=lambda: ("a",)))
    assert [fact.code for fact in failed.facts] == ["GP857", "GP859"]
    assert world.journal == []


def test_a_host_that_falls_silent_is_called_again_and_then_named(world: World) -> None:
    def vanish(_document: dict[str, Any]) -> None:
        world.hosts.gone.add("b")

    world.b.on_start = vanish
    failed = world.failed(world.restart())
    assert world.hosts.reached
    assert "from b" in word(failed.facts[-1]).headline
    assert "follower 1 on b: unknown" in failed.facts[-1].figures["members"]


def test_others_containers_are_not_waited_for(world: World) -> None:
    def replaced(_document: dict[str, Any]) -> None:
        world.b.containers.pop("b1", None)

    world.b.on_start = replaced
    failed = world.failed(world.restart())
    assert "its containers are others now" in word(failed.facts[-1]).headline


@pytest.mark.parametrize(
    ("silent", "words"), [(False, "makes it anew"), (True, "once its host answers again")]
)
def test_what_is_not_whole_is_not_touched(world: World, silent: bool, words: str) -> None:
    if silent:
        world.hosts.gone.add("b")
    else:
        world.b.containers.clear()
    with pytest.raises(NotRestarted) as raised:
        _require_whole(world.group(), {"b": "no route"})
    finding = word(raised.value.facts[0])
    assert finding.code == "GP858"
    assert "follower 1 on b" in finding.headline
    assert words in str(finding.hint)
    assert world.journal == []


def test_who_is_asked_sees_it_as_it_is_and_no_leaves_it_so(world: World) -> None:
    asked: list[Deployment] = []

    def no(deployment: Deployment) -> bool:
        asked.append(deployment)
        return False

    assert restart_over(world.fleet, "m", QUICK, world.events.append, no) is None
    assert [one.name for one in asked] == ["m"]
    assert [one.id for one in asked[0].members] == ["a0", "b1"]
    assert world.journal == []
    assert world.events == []


def test_others_containers_than_those_that_were_shown_are_not_touched(world: World) -> None:
    def replaced(_deployment: Deployment) -> bool:
        world.b.containers["b2"] = world.b.containers.pop("b1") | {"Id": "b2"}
        world.servers["b"].answers |= world.b.answers()
        return True

    with pytest.raises(NotRestarted) as raised:
        restart_over(world.fleet, "m", QUICK, world.events.append, replaced)
    finding = word(raised.value.facts[0])
    assert finding.code == "GP858"
    assert "its containers became others" in finding.headline
    assert "gpuplan restart m, if these are meant" in str(finding.hint)
    assert world.journal == []


def _part(role: str, rank: int, server: int = 0) -> Container:
    given = {labels.ROLE: role, labels.RANK: str(rank), labels.SERVER: str(server)}
    name = f"{role}{server}{rank}"
    return container_of("h", {"Id": name, "Name": name, "State": {}, "Config": {"Labels": given}})


def test_waves_are_those_of_a_deploy() -> None:
    native = [_part("follower", 1), _part("leader", 0), _part("replica", 0, 1)]
    assert [[one.id for one in wave] for wave in waves(native, set())] == [
        ["leader00", "replica10"],
        ["follower01"],
        [],
        [],
        [],
    ]
    ray = [_part("leader", 0), _part("ray-head", 0), _part("follower", 1)]
    assert [[one.id for one in wave] for wave in waves(ray, {0})] == [
        [],
        [],
        ["ray-head00"],
        ["follower01"],
        ["leader00"],
    ]


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (["ray", "start", "--node-ip-address=10.0.0.1", "--block"], "10.0.0.1"),
        (["sh", "-c", "exec ray start --node-ip-address=fd00::1 --block"], "fd00::1"),
        (["vllm", "serve"], None),
        (None, None),
    ],
)
def test_the_address_of_a_node_is_in_its_own_words(words: list[str] | None, address: str | None) -> None:
    assert ray_again._address({"Config": {"Entrypoint": words, "Cmd": None}}) == address
    assert ray_again._address({"Config": "x"}) is None
    assert ray_again._address(None) is None


@pytest.mark.parametrize(
    ("label", "port"),
    [('{"ray": [41000, 41099]}', 41000), ("{}", None), ("[]", None), ("", None), ('{"ray": []}', None)],
)
def test_the_port_of_a_cluster_is_in_its_label(label: str, port: int | None) -> None:
    head = replace(_part("ray-head", 0), labels={labels.PORTS: label})
    assert ray_again._port(head) == port


def test_causes_are_read_once_for_each_end() -> None:
    read: list[str] = []

    def causes(_fleet: ReachedFleet, group: Group, _predicted: object) -> tuple[()]:
        read.append(group.name)
        return ()

    kept = KeptCauses(causes)
    nobody = cast("ReachedFleet", None)
    group = Group(name="m", current=(_part("leader", 0),))
    for _ in range(3):
        kept(nobody, group, Prediction())
    assert read == ["m"]
    one = group.current[0]
    ended = replace(one, member=replace(one.member, finished_at="2026-11-22T02:00:00Z"))
    kept(nobody, replace(group, current=(ended,)), Prediction())
    assert read == ["m", "m"]
