"""The engine's API over streams, against a server of ours: versions, limits, streams, and ways that fail."""

import gc
import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuplan.remote.connection import ConnectionFailed, SocketRefused
from gpuplan.remote.docker_engine import (
    DIAL_SESSIONS,
    Cause,
    Engine,
    EngineFailed,
    RequestRefused,
    Transport,
    engine,
)
from gpuplan.remote.local import LocalConnection
from tests.engine_server import VERSION, Request, frame, hang, serving

LONG = 60.0
SHORT = 0.3


class ForwardingForbidden(LocalConnection):
    """This machine as it looks over an SSH server that opens no sockets."""

    def open_socket(self, path: str, *, timeout: float) -> Any:
        raise SocketRefused("the server refused the channel")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docker.sock"


@pytest.fixture
def connection() -> Iterator[LocalConnection]:
    opened = LocalConnection()
    yield opened
    opened.close()


def reached(connection: LocalConnection, path: Path, *, cli: bool = False, timeout: float = LONG) -> Engine:
    return engine(connection, socket_path=str(path), cli=cli, timeout=timeout)


def failure(
    connection: LocalConnection, path: Path, *, cli: bool = False, timeout: float = LONG
) -> EngineFailed:
    with pytest.raises(EngineFailed) as failed:
        reached(connection, path, cli=cli, timeout=timeout)
    return failed.value


@pytest.mark.parametrize(("newest", "spoken"), [("1.40", "1.40"), ("1.41", "1.41"), ("1.51", "1.45")])
def test_the_version_is_asked_first_and_the_older_of_both_spoken(
    connection: LocalConnection, path: Path, newest: str, spoken: str
) -> None:
    version = {**VERSION, "ApiVersion": newest}
    with serving(path, {"GET /version": version, "GET /info": {"Driver": "overlay2"}}) as server:
        docker = reached(connection, path)
        assert docker.get("/info") == {"Driver": "overlay2"}
        docker.get("/info", {"a": "b c"}, newest=True)
        assert docker.api.info() == {"Driver": "overlay2"}
        docker.close()

    assert docker.transport is Transport.LOCAL
    assert server.asked == [
        "GET /version",
        f"GET /v{spoken}/info",
        f"GET /v{newest}/info?a=b+c",
        f"GET /v{spoken}/info",
    ]


@pytest.mark.parametrize(
    ("oldest", "newest", "told"), [("1.46", "1.60", "1.46"), ("1.12", "1.39", "1.39"), ("2.0", "2.1", "2.0")]
)
def test_a_version_nobody_shares_is_refused(
    connection: LocalConnection, path: Path, oldest: str, newest: str, told: str
) -> None:
    version = {**VERSION, "ApiVersion": newest, "MinAPIVersion": oldest}
    with serving(path, {"GET /version": version}):
        failed = failure(connection, path)

    assert (failed.cause, failed.api_version) == (Cause.API_VERSION, told)
    assert "Engine 28.3.2" in failed.detail


@pytest.mark.parametrize("answer", [[], {}, {"ApiVersion": 1.41}, {"ApiVersion": "x.y"}, "pong"])
def test_what_is_no_engine_is_told(connection: LocalConnection, path: Path, answer: Any) -> None:
    with serving(path, {"GET /version": answer}):
        assert failure(connection, path).cause is Cause.OTHER


def test_requests_share_one_stream_and_a_stream_the_engine_closed_is_replaced(
    connection: LocalConnection, path: Path
) -> None:
    def last(request: Request) -> None:
        request.document("last")
        request.close_connection = True

    with serving(path, {"GET /info": "more", "GET /last": last}) as server:
        docker = reached(connection, path)
        for _ in range(5):
            assert docker.get("/info") == "more"
        assert server.connections == 1
        assert docker.get("/last") == "last"
        assert docker.get("/info") == "more"
        assert server.connections == 2
        docker.close()


def test_an_error_is_told_in_the_engines_words_and_the_engine_stays_usable(
    connection: LocalConnection, path: Path
) -> None:
    with serving(path, {"GET /info": "well", "GET /x": lambda request: request.whole(b"<html>", 503)}):
        docker = reached(connection, path)
        with pytest.raises(RequestRefused, match=r"404: page not found: /v1\.45/nowhere"):
            docker.get("/nowhere")
        with pytest.raises(RequestRefused, match="503: <html>"):
            docker.get("/x")
        assert docker.get("/info") == "well"
        docker.close()


PIECES = 40
"""Of an answer that comes in piece by piece and takes eight times as long as it may, each piece soon enough."""


def drip_head(request: Request) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Slow: ")
    for _ in range(PIECES):
        request.server.released.wait(SHORT / 5)
        request.wfile.write(b"x")
    request.wfile.write(b"\r\n\r\n{}")


def drip_body(request: Request) -> None:
    request.start_chunks("application/json")
    for _ in range(PIECES):
        request.server.released.wait(SHORT / 5)
        request.chunk(b" ")
    request.chunk(b"{}")
    request.chunk(b"")


def cut_short(request: Request) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b"{")
    request.close_connection = True


def junk(request: Request) -> None:
    request.wfile.write(b"\x00\xffSSH-2.0-dropbear\r\n" * 10)
    request.close_connection = True


def silent(request: Request) -> None:
    request.close_connection = True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (hang, "no answer in time"),
        (drip_head, "no answer in time"),
        (drip_body, "no answer in time"),
        (cut_short, "the connection was closed in the middle of the answer"),
        (junk, "the answer is not HTTP"),
        (silent, "the connection was closed without an answer"),
        (lambda request: request.whole(b"{", 200), "the answer is not JSON"),
        (lambda request: request.whole(b"[" * 100_000, 200), "the answer is not JSON"),
    ],
    ids=["hang", "drip-head", "drip-body", "cut", "junk", "silent", "half-json", "deep-json"],
)
def test_a_bad_answer_takes_no_longer_than_its_time_and_is_told(
    connection: LocalConnection, path: Path, answer: Any, words: str
) -> None:
    with serving(path, {"GET /info": answer, "GET /good": "good"}):
        docker = reached(connection, path)
        with pytest.raises(EngineFailed, match=words) as failed:
            docker.get("/info", timeout=SHORT)
        assert failed.value.cause is Cause.OTHER
        assert docker.get("/good") == "good"
        docker.close()


def test_an_engine_that_hangs_at_once_is_given_up(connection: LocalConnection, path: Path) -> None:
    with serving(path, {"GET /version": hang}):
        failed = failure(connection, path, timeout=SHORT)

    assert (failed.cause, failed.detail) == (Cause.OTHER, "GET /version: no answer in time")


def test_an_endless_answer_ends_at_the_limit(connection: LocalConnection, path: Path) -> None:
    from gpuplan.remote.docker_transport import EngineSession, NoAnswer

    def endless(request: Request) -> None:
        request.start_chunks("application/json")
        while not request.server.released.is_set():
            request.chunk(b"x" * 65536)

    with serving(path, {"GET /info": endless}):
        session = EngineSession(
            lambda timeout: connection.open_socket(str(path), timeout=timeout), timeout=LONG
        )
        with pytest.raises(NoAnswer, match="longer than 1000000 bytes"):
            session.fetch("/info", None, deadline=time.monotonic() + LONG, limit=1_000_000)
        session.close()


def test_no_proxy_no_netrc_and_no_redirect_leads_elsewhere(
    connection: LocalConnection, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine engine login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    heads: list[str | None] = []

    def elsewhere(request: Request) -> None:
        heads.append(request.headers.get("Authorization"))
        request.whole(b"", 302, Location="http://127.0.0.1:1/v1.45/info")

    with serving(path, {"GET /moved": elsewhere, "GET /info": {"Driver": "overlay2"}}):
        docker = reached(connection, path)
        with pytest.raises(EngineFailed, match="not JSON"):
            docker.get("/moved")
        # the SDK follows it, to the engine and nowhere else
        assert docker.api.get(f"{docker.api.base_url}/v1.45/moved").json() == {"Driver": "overlay2"}
        docker.close()

    assert heads == [None, None]


def test_the_sdk_creates_containers_with_device_requests(connection: LocalConnection, path: Path) -> None:
    from docker.types import DeviceRequest

    created: list[Any] = []

    def create(request: Request) -> None:
        created.append(json.loads(request.body()))
        request.document({"Id": "c1", "Warnings": []}, 201)

    with serving(path, {"POST /containers/create": create}):
        docker = reached(connection, path)
        api = docker.api
        gpus = DeviceRequest(driver="nvidia", device_ids=["GPU-1"], capabilities=[["gpu"]])
        made = api.create_container("vllm", host_config=api.create_host_config(device_requests=[gpus]))
        docker.close()

    assert made["Id"] == "c1"
    assert created[0]["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == ["GPU-1"]


def test_the_sdk_streams_the_progress_of_a_pull(connection: LocalConnection, path: Path) -> None:
    def pull(request: Request) -> None:
        request.start_chunks("application/json")
        for done in (1, 2):
            request.chunk(json.dumps({"status": "Downloading", "progressDetail": {"current": done}}).encode())
        request.chunk(b"")

    with serving(path, {"POST /images/create": pull}):
        docker = reached(connection, path)
        events = list(docker.api.pull("vllm/vllm-openai", tag="v1", stream=True, decode=True))
        docker.close()

    assert [event["progressDetail"]["current"] for event in events] == [1, 2]


def log_lines(request: Request) -> None:
    request.start_chunks()
    request.chunk(frame(b"one\n") + frame(b"two\n", 2))
    request.chunk(frame(b"three\n"))
    hang(request)


CONTAINER = {"Id": "c1", "Config": {"Tty": False}}


def test_followed_logs_have_no_time_limit_and_end_with_the_engine(
    connection: LocalConnection, path: Path
) -> None:
    with serving(path, {"GET /containers/c1/json": CONTAINER, "GET /containers/c1/logs": log_lines}):
        docker = reached(connection, path, timeout=1)
        lines: list[bytes] = []
        all_there = threading.Event()
        ended = threading.Event()

        def follow() -> None:
            try:
                for line in docker.api.logs("c1", stream=True, follow=True):
                    lines.append(line)
                    if len(lines) == 3:
                        all_there.set()
            finally:
                ended.set()

        threading.Thread(target=follow, daemon=True).start()
        assert all_there.wait(LONG)
        assert not ended.wait(1.5), "the time limit of requests must not hold for a log that is followed"
        docker.close()
        assert ended.wait(LONG)

    assert lines == [b"one\n", b"two\n", b"three\n"]


def test_a_followed_log_can_be_closed_by_itself(connection: LocalConnection, path: Path) -> None:
    with serving(path, {"GET /containers/c1/json": CONTAINER, "GET /containers/c1/logs": log_lines}):
        docker = reached(connection, path)
        stream = docker.api.logs("c1", stream=True, follow=True)
        assert next(stream) == b"one\n"
        stream.close()
        assert docker.get("/containers/c1/json") == CONTAINER
        docker.close()


@pytest.mark.parametrize("demux", [False, True])
def test_the_sdk_runs_commands_in_containers(connection: LocalConnection, path: Path, demux: bool) -> None:
    def start(request: Request) -> None:
        request.body()
        request.send_response(101)
        request.send_header("Connection", "Upgrade")
        request.send_header("Upgrade", "tcp")
        request.end_headers()
        request.wfile.write(frame(b"out ") + frame(b"err", 2) + frame(b"more"))
        request.close_connection = True

    with serving(path, {"POST /exec/e1/start": start}):
        docker = reached(connection, path)
        output = docker.api.exec_start("e1", demux=demux)
        docker.close()

    assert output == ((b"out more", b"err") if demux else b"out errmore")


def test_closing_leaves_no_descriptor_and_no_thread(connection: LocalConnection, path: Path) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the directory is not the file system's

    answers = {
        "GET /info": "well",
        "GET /hang": hang,
        "GET /containers/c1/json": CONTAINER,
        "GET /containers/c1/logs": log_lines,
    }
    with serving(path, answers) as server:
        reached(connection, path).close()
        before, threads = descriptors(), threading.active_count()
        docker = reached(connection, path)
        docker.get("/info")
        with pytest.raises(EngineFailed):
            docker.get("/hang", timeout=0.05)
        logs = docker.api.logs("c1", stream=True, follow=True)
        next(logs)
        docker.close()
        del logs
        server.released.set()
        server.shutdown()
    # the server's own ends close when its threads see the end
    deadline = time.monotonic() + LONG
    while descriptors() > before - 1 and time.monotonic() < deadline:
        threading.Event().wait(0.01)

    assert descriptors() == before - 1, "all but the server's own socket"
    assert threading.active_count() < threads + 1


def test_an_engine_that_went_away_is_told(connection: LocalConnection, path: Path) -> None:
    with serving(path, {"GET /last": silent}):
        docker = reached(connection, path)
        with pytest.raises(EngineFailed, match="closed without an answer"):
            docker.get("/last")
    with pytest.raises(EngineFailed) as failed:
        docker.get("/info")
    docker.close()

    assert failed.value.cause is Cause.NOT_RUNNING


def test_a_closed_connection_is_told_as_such(connection: LocalConnection, path: Path) -> None:
    with serving(path, {"GET /info": "well"}):
        docker = reached(connection, path)
        connection.close()
        with pytest.raises(ConnectionFailed):
            docker.get("/info")
        docker.close()


def test_the_system_tells_why_a_local_socket_is_refused(
    connection: LocalConnection, path: Path, tmp_path: Path
) -> None:
    with serving(path):
        pass

    assert failure(connection, path, cli=True).cause is Cause.NOT_RUNNING
    assert failure(connection, tmp_path / "missing.sock", cli=True).cause is Cause.NO_SOCKET


DOCKER = """\
    #!{python}
    import os, socket, sys, threading
    mode, arguments = "{mode}", sys.argv[1:]
    assert arguments[0] == "-H" and arguments[1].startswith("unix://"), arguments
    if arguments[2:] != ["system", "dial-stdio"]:
        assert arguments[2] == "version", arguments
        print("{words}", file=sys.stderr)
        sys.exit(1)
    if mode == "silent":
        sys.exit(1)
    engine = socket.socket(socket.AF_UNIX)
    engine.connect(arguments[1].removeprefix("unix://"))
    def copy(read, write):
        while data := read():
            write(data)
    there = lambda: copy(lambda: os.read(0, 65536), engine.sendall)
    threading.Thread(target=there, daemon=True).start()
    copy(lambda: engine.recv(65536), lambda data: os.write(1, data))
"""


@pytest.fixture
def docker_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a `docker` of ours on the PATH: it carries streams, or fails with the words given."""

    def install(mode: str = "carry", words: str = "") -> None:
        program = tmp_path / "bin" / "docker"
        program.parent.mkdir(exist_ok=True)
        program.write_text(textwrap.dedent(DOCKER).format(python=sys.executable, mode=mode, words=words))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return install


@pytest.fixture
def far() -> Iterator[LocalConnection]:
    opened = ForwardingForbidden()
    yield opened
    opened.close()


def test_where_sockets_are_forbidden_the_docker_cli_carries_the_requests(
    far: LocalConnection, path: Path, docker_cli: Any
) -> None:
    docker_cli()
    with serving(path, {"GET /info": "well"}) as server:
        docker = reached(far, path, cli=True)
        assert docker.transport is Transport.DIAL_STDIO
        assert [docker.get("/info") for _ in range(3)] == ["well"] * 3
        assert server.connections == 1
        docker.close()


def test_the_sessions_of_the_docker_cli_are_counted(
    far: LocalConnection, path: Path, docker_cli: Any
) -> None:
    docker_cli()
    with serving(path, {"GET /info": "well", "GET /follow": log_lines}):
        docker = reached(far, path, cli=True)
        follow = f"{docker.api.base_url}/v1.45/follow"
        followed = [docker.api.get(follow, stream=True) for _ in range(DIAL_SESSIONS)]
        with pytest.raises(EngineFailed, match="all 7 sessions"):
            docker.get("/info", timeout=SHORT)
        followed[0].close()
        assert docker.get("/info") == "well"
        docker.close()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (
            "Got permission denied while trying to connect to the Docker daemon socket at unix:///x: permission denied",
            Cause.PERMISSION,
        ),
        (
            "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock",
            Cause.PERMISSION,
        ),
        (
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
            Cause.NOT_RUNNING,
        ),
        (
            "failed to connect to the docker API at unix:///x; check if the path is correct: no such file or directory",
            Cause.NO_SOCKET,
        ),
        ("error during connect: something new", Cause.OTHER),
    ],
    ids=["permission-20.10", "permission-29", "not-running", "no-socket-29", "other"],
)
def test_the_docker_cli_tells_why_it_cannot_reach_the_engine_either(
    far: LocalConnection, path: Path, docker_cli: Any, words: str, cause: Cause
) -> None:
    docker_cli("silent", words)

    failed = failure(far, path, cli=True)

    assert (failed.cause, failed.detail) == (cause, words)


def test_without_a_docker_cli_a_forbidden_socket_is_the_end(far: LocalConnection, path: Path) -> None:
    failed = failure(far, path, cli=False)

    assert (failed.cause, failed.detail) == (Cause.FORWARDING, "the server refused the channel")
