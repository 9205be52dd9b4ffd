"""The Docker probe: recorded answers of engines, what a login may reach, and why an engine is out of reach."""

import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fact import Severity
from gpuplan.probing import docker
from gpuplan.probing.docker_access import DockerAccess, SocketSeen
from gpuplan.probing.docker_images import may_run_vllm, repository
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.probing.script import script, sections
from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage
from gpuplan.remote.docker_engine import Cause, EngineFailed, Transport
from gpuplan.remote.local import LocalConnection
from gpuplan.remote.recorded import RecordedConnection, Recording
from tests.engine_server import VERSION, hang, serving

CASES = Path(__file__).parents[2] / "data" / "probes" / "docker"
LONG = 60.0


def case_names() -> list[str]:
    return sorted(path.name for path in CASES.iterdir())


def access_of(text: str) -> DockerAccess:
    return docker.access({"docker_access": Output(text=text)})


@pytest.fixture(params=case_names())
def case(request: pytest.FixtureRequest) -> Path:
    return CASES / str(request.param)


def plain(value: Any) -> Any:
    """As JSON has it: no tuples."""
    return json.loads(json.dumps(value))


def test_what_an_engine_answered_is_read(case: Path) -> None:
    documents = json.loads((case / "documents.json").read_text())
    expected = json.loads((case / "expected.json").read_text())
    documents["unanswered"] = tuple((what, words) for what, words in documents.get("unanswered", ()))
    way = access_of((case / "access.txt").read_text())

    report = docker.report(
        docker.DockerDocuments(**documents), way, nvidia=expected["nvidia"], transport=Transport.SOCKET
    )

    found = plain(asdict(report.docker)) if report.docker is not None else {}
    for listed in (*found["images"], *found["containers"]):
        listed.pop("id")
    assert found == {**expected["docker"], "transport": "socket"}
    assert [[fact.code, dict(fact.figures)] for fact in report.conditions] == expected["conditions"]
    assert sorted(name for _, name in report.containers) == sorted(expected["containers"])
    assert way.permitted
    if "socket" in expected:
        assert way.socket is not None
        assert way.socket.path == expected["socket"]
    if "toolkit_version" in expected:
        assert way.toolkit_version == expected["toolkit_version"]


def test_every_case_names_its_source(case: Path) -> None:
    assert (case / "source.txt").read_text().strip()


@pytest.mark.parametrize(
    ("tags", "labels", "wanted"),
    [
        (["vllm/vllm-openai:v0.11.0"], None, True),
        (["gpustack/runner:cuda12.8-vllm0.11.0"], None, True),
        (["acme/model:1"], {"ai.vllm.image.tag": "x"}, True),
        (["acme/model:1"], {"org.opencontainers.image.source": "https://github.com/vllm-project/vllm"}, True),
        (["rayproject/ray:2.49.1-gpu"], None, True),
        (["registry:5000/ray:2"], None, True),
        (["arrayfire/arrayfire:3"], {"maintainer": "ray"}, False),
        (["nginx/xray:1", "lmsysorg/sglang:v0.5"], None, False),
        (None, None, False),
    ],
)
def test_images_that_may_run_vllm_are_chosen_by_their_names_and_labels(
    tags: Any, labels: Any, wanted: bool
) -> None:
    assert may_run_vllm({"Id": "x", "RepoTags": tags, "RepoDigests": None, "Labels": labels}) is wanted


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ("vllm/vllm-openai:v0.11.0", "vllm/vllm-openai"),
        ("registry:5000/vllm", "registry:5000/vllm"),
        ("registry:5000/a/vllm:1@sha256:ab", "registry:5000/a/vllm"),
        ("vllm@sha256:ab", "vllm"),
    ],
)
def test_the_repository_of_a_reference(reference: str, wanted: str) -> None:
    assert repository(reference) == wanted


SYSTEM = "/var/run/docker.sock"


def seen(path: str = SYSTEM, origin: str = "system", **changes: Any) -> SocketSeen:
    return SocketSeen(path=path, origin=origin, **changes)


def test_the_first_socket_that_may_be_used_is_taken() -> None:
    way = access_of(
        "user me\ngroups me video\ncli /usr/bin/docker\n"
        "socket system socket no no yes /var/run/docker.sock\n"
        "socket rootless socket yes yes no /run/user/1000/docker.sock\n"
        "context unix:///var/run/docker.sock\n"
        "socket context socket no no yes /var/run/docker.sock\n"
    )

    assert way.user == "me"
    assert way.groups == ("me", "video")
    assert [each.path for each in way.sockets] == [SYSTEM, "/run/user/1000/docker.sock"]
    assert way.socket == seen("/run/user/1000/docker.sock", "rootless", listening=None)


def test_a_socket_given_in_the_environment_comes_first() -> None:
    way = access_of(
        "user me\nhost unix:///srv/a b/docker.sock\n"
        "socket system socket yes yes yes /var/run/docker.sock\n"
        "socket environment socket yes yes yes /srv/a b/docker.sock\n"
    )

    assert way.socket == seen("/srv/a b/docker.sock", "environment", listening=True)
    assert way.endpoint == ""


@pytest.mark.parametrize(
    "text", ["", "\x00\xff junk\nsocket\nsocket x\nsocket a b c d e f g\n", "daemon maybe\n"]
)
def test_an_access_section_of_junk_tells_nothing(text: str) -> None:
    assert access_of(text) == DockerAccess()


def unreached(way: DockerAccess) -> tuple[str, Severity, Mapping[str, Any]]:
    """The one condition of a host on which nothing is to be connected to."""
    report = docker.probe(RecordedConnection(), way, nvidia=True, timeout=LONG)
    (fact,) = report.conditions
    assert (report.docker, report.containers) == (None, ())
    return fact.code, fact.severity, fact.figures


def test_a_host_without_docker() -> None:
    assert unreached(DockerAccess(user="me")) == ("GP621", Severity.ERROR, {})


def test_a_host_whose_probe_told_nothing_is_tried_and_then_told() -> None:
    assert unreached(docker.access({"docker_access": NOT_RUN}))[0] == "GP621"


def test_docker_is_installed_and_has_no_socket() -> None:
    way = DockerAccess(user="me", installed=True, cli="/usr/bin/docker", sockets=(seen(present=False),))

    assert unreached(way)[::2] == ("GP623", {"detail": f"no socket at {SYSTEM}"})


def test_a_docker_host_elsewhere_is_not_the_hosts_own_engine() -> None:
    code, _, figures = unreached(access_of("user me\ncli /usr/bin/docker\nhost tcp://10.0.0.9:2375\n"))

    assert code == "GP629"
    assert "tcp://10.0.0.9:2375" in figures["detail"]


def test_a_login_outside_the_group_is_told_with_its_groups() -> None:
    way = DockerAccess(user="me", groups=("me", "video"), sockets=(seen(permitted=False),), installed=True)

    code, severity, figures = unreached(way)

    assert (code, severity) == ("GP622", Severity.ERROR)
    assert figures == {
        "user": "me",
        "groups": ["me", "video"],
        "path": SYSTEM,
        "detail": f"{SYSTEM}: permission denied",
    }


@pytest.mark.parametrize(
    ("failed", "way", "code"),
    [
        (Cause.FORWARDING, DockerAccess(user="me", sockets=(seen(listening=True),)), "GP625"),
        (Cause.FORWARDING, DockerAccess(user="me", sockets=(seen(listening=False),), daemon=True), "GP625"),
        (Cause.FORWARDING, DockerAccess(user="me", sockets=(seen(listening=False),), daemon=False), "GP623"),
        (Cause.NOT_RUNNING, DockerAccess(user="me", sockets=(seen(),)), "GP623"),
        (Cause.NO_SOCKET, DockerAccess(user="me", installed=True), "GP623"),
        (Cause.NO_SOCKET, DockerAccess(user="me"), "GP621"),
        (Cause.PERMISSION, DockerAccess(user="me", sockets=(seen(),)), "GP622"),
        (Cause.OTHER, DockerAccess(user="me", sockets=(seen(),)), "GP629"),
        (Cause.API_VERSION, DockerAccess(user="me", sockets=(seen(),)), "GP627"),
    ],
)
def test_why_an_engine_is_out_of_reach(failed: Cause, way: DockerAccess, code: str) -> None:
    fact = docker.unreachable(EngineFailed(failed, "its\nwords", api_version="1.60"), way)

    assert (fact.code, fact.severity) == (code, Severity.ERROR)
    assert "\n" not in str(fact.figures.get("detail", ""))
    if code == "GP627":
        assert fact.figures["api_version"] == "1.60"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docker.sock"


@pytest.fixture
def connection() -> Iterator[LocalConnection]:
    opened = LocalConnection()
    yield opened
    opened.close()


def way_to(path: Path, **changes: Any) -> DockerAccess:
    return DockerAccess(user="me", sockets=(seen(str(path)),), **changes)


def recorded(case: str) -> dict[str, Any]:
    """A case as the documents of an engine by request."""
    documents = json.loads((CASES / case / "documents.json").read_text())
    answers = {
        "/version": documents["version"],
        "/info": documents["info"],
        "/images/json": documents["images"],
        "/containers/json": documents["running"],
    }
    for identity, inspected in documents["inspected"].items():
        answers[f"/images/{identity}/json"] = inspected
        answers[f"/images/{identity}/history"] = documents["histories"][identity]
    return answers


def test_an_engine_is_asked_for_little_and_over_one_stream(connection: LocalConnection, path: Path) -> None:
    answers = {f"GET {url}": document for url, document in recorded("engine-20.10-no-toolkit").items()}
    with serving(path, answers) as server:
        report = docker.probe(connection, way_to(path), nvidia=True, timeout=LONG)

    assert report.docker is not None
    assert [image.vllm_version for image in report.docker.images] == ["0.11.0"]
    assert [fact.code for fact in report.conditions] == ["GP626"]
    assert server.connections == 1
    assert len(server.asked) == 7, server.asked
    assert any("filters=" in asked and "io.gpuplan.managed" in asked for asked in server.asked)


def test_a_younger_engine_is_asked_for_its_devices_in_its_own_version(
    connection: LocalConnection, path: Path
) -> None:
    answers: dict[str, Any] = {"GET /info": {}, "GET /images/json": [], "GET /containers/json": []}
    with serving(path, answers) as server:
        docker.probe(connection, way_to(path), nvidia=False, timeout=LONG)

    assert server.asked[:2] == ["GET /version", f"GET /v{VERSION['ApiVersion']}/info"]
    assert server.asked[-1] == "GET /v1.45/images/json"


def test_a_part_that_does_not_answer_costs_its_time_only(connection: LocalConnection, path: Path) -> None:
    answers = {"GET /info": {"Driver": "overlay2"}, "GET /images/json": hang, "GET /containers/json": []}
    with serving(path, answers):
        report = docker.probe(connection, way_to(path), nvidia=False, timeout=0.3)

    assert report.docker is not None
    assert report.docker.storage_driver == "overlay2"
    assert [(fact.code, fact.figures["what"]) for fact in report.conditions] == [("GP636", "docker images")]


def test_an_engine_that_hangs_altogether_ends_with_the_budget(
    connection: LocalConnection, path: Path
) -> None:
    answers: dict[str, Any] = dict.fromkeys(("GET /info", "GET /images/json", "GET /containers/json"), hang)
    with serving(path, answers):
        report = docker.probe(connection, way_to(path), nvidia=True, timeout=LONG, budget=0.3)

    assert {fact.code for fact in report.conditions} == {"GP636"}
    assert report.docker is not None
    assert report.docker.gpu_support is None


class ForwardingForbidden(LocalConnection):
    def open_socket(self, path: str, *, timeout: float) -> Any:
        raise SocketRefused("the server refused the channel")


def test_without_forwarding_and_without_a_cli_there_is_no_way(path: Path) -> None:
    connection = ForwardingForbidden()

    report = docker.probe(connection, way_to(path), nvidia=True, timeout=LONG)

    connection.close()
    assert [(fact.code, fact.figures["detail"]) for fact in report.conditions] == [
        ("GP625", "the server refused the channel")
    ]


class CliCarries(ForwardingForbidden):
    def open_command(self, command: Any, *, timeout: float) -> Any:
        self.started = tuple(command)
        return LocalConnection.open_socket(self, command[2].removeprefix("unix://"), timeout=timeout)


def test_that_the_docker_cli_carries_the_requests_is_told(path: Path) -> None:
    connection = CliCarries()
    with serving(path, {"GET /info": {}, "GET /images/json": [], "GET /containers/json": []}):
        report = docker.probe(connection, way_to(path, cli="/usr/bin/docker"), nvidia=False, timeout=LONG)
    connection.close()

    assert connection.started == ("docker", "-H", f"unix://{path}", "system", "dial-stdio")
    assert report.docker is not None
    assert report.docker.transport == "dial-stdio"
    assert [(fact.code, fact.severity) for fact in report.conditions] == [("GP624", Severity.INFO)]


class Lost(LocalConnection):
    def open_socket(self, path: str, *, timeout: float) -> Any:
        raise ConnectionFailed(Stage.COMMAND, "the host went away")


def test_a_lost_connection_is_no_state_of_docker(path: Path) -> None:
    with pytest.raises(ConnectionFailed):
        docker.probe(Lost(), way_to(path), nvidia=True, timeout=LONG)


def test_a_recorded_engine_is_read_like_a_live_one() -> None:
    recording = Recording(sockets={SYSTEM: recorded("engine-20.10-no-toolkit")})

    report = docker.probe(
        RecordedConnection(recording), DockerAccess(user="me", sockets=(seen(),)), nvidia=True, timeout=LONG
    )

    assert report.docker is not None
    assert (report.docker.version, report.docker.transport) == ("20.10.24+dfsg1", "socket")
    assert [image.ray for image in report.docker.images] == [True]


def test_the_commands_of_the_probe_tell_what_this_login_may_reach(
    connection: LocalConnection, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, says in (
        ("docker", "unix:///elsewhere/docker.sock"),
        ("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.8"),
        ("nvidia-container-runtime-hook", ""),
    ):
        (programs / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        engine.listen()
        completed = connection.run(("sh", "-s"), stdin=script(docker.COMMANDS, "mark"), timeout=LONG)
    dead = connection.run(("sh", "-s"), stdin=script(docker.COMMANDS, "mark"), timeout=LONG)

    way = docker.access(sections(completed.stdout, docker.COMMANDS, "mark"))
    assert way.socket == seen(str(path), "environment", listening=True)
    assert way.user
    assert way.groups
    assert way.cli == str(programs / "docker")
    assert way.hook == str(programs / "nvidia-container-runtime-hook")
    assert way.toolkit_version == "1.17.8"
    assert "/elsewhere/docker.sock" in {each.path for each in way.sockets if not each.present}
    without = docker.access(sections(dead.stdout, docker.COMMANDS, "mark")).sockets[0]
    assert without == seen(str(path), "environment", listening=False)


@pytest.mark.skipif(shutil.which("dash") is None, reason="there is no dash")
def test_the_commands_of_the_probe_are_plain_posix_shell(connection: LocalConnection) -> None:
    completed = connection.run(("dash", "-eu", "-n"), stdin=docker.COMMANDS[0].shell.encode(), timeout=LONG)

    assert completed == Completed(exit_code=0, stdout=b"")
