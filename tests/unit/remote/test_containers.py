"""Containers through a server of ours: what is asked, what is never touched, and every way an answer can fail."""

import io
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.labels import DEPLOYMENT, MANAGED
from gpuplan.remote import containers
from gpuplan.remote.connection import ConnectionFailed, HostCallFailed, SocketRefused, Stage
from gpuplan.remote.containers import LogLine, NameTaken, NotOurs, Output
from gpuplan.remote.docker_engine import Engine, EngineFailed, RequestRefused, engine
from gpuplan.remote.local import LocalConnection
from tests.engine_server import EngineServer, Request, frame, hang, serving

LONG = 60.0
SHORT = 0.3
ID = "c0ffee" + 58 * "0"
STAMP = "2026-11-01T12:00:00.000000001Z"
STAMPED = f"{STAMP} ".encode()


def inspected(*, ours: bool = True, running: bool = True, **more: Any) -> dict[str, Any]:
    labels = {MANAGED: "true", DEPLOYMENT: "qwen3"} if ours else {"other": "x"}
    state = {"Running": running, "ExitCode": 0 if running else 3}
    return {
        "Id": ID,
        "Name": "/gpuplan-x",
        "Config": {"Labels": labels, "Tty": False},
        "State": state,
        **more,
    }


Reached = Callable[..., tuple[Engine, EngineServer]]


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[Reached]:
    """An engine that answers as told, and the server that plays it."""
    connection = LocalConnection()
    ends: list[Any] = []

    def reach(answers: Mapping[str, Any], *, timeout: float = LONG) -> tuple[Engine, EngineServer]:
        path = tmp_path / f"{len(ends)}.sock"
        served = serving(path, {f"GET /containers/{ID}/json": inspected(), **answers})
        server = served.__enter__()
        found = engine(connection, socket_path=str(path), cli=False, timeout=timeout)
        ends.append((found, served))
        return found, server

    yield reach
    for found, served in ends:
        found.close()
        served.__exit__(None, None, None)
    connection.close()


def refusing(status: int, message: str) -> Callable[[Request], None]:
    def answer(request: Request) -> None:
        request.body()
        request.document({"message": message}, status)

    return answer


def nothing(request: Request) -> None:
    request.body()
    request.whole(b"", 204)


def test_a_container_is_created_from_its_body(reached: Reached) -> None:
    bodies: list[bytes] = []

    def created(request: Request) -> None:
        bodies.append(request.body())
        request.document({"Id": ID, "Warnings": []}, 201)

    docker, server = reached({"POST /containers/create": created})
    body = {"Image": "sha256:1", "Labels": {MANAGED: "true"}, "HostConfig": {"NetworkMode": "host"}}

    assert containers.create(docker, body, "gpuplan-x") == ID
    assert bodies == [
        b'{"Image": "sha256:1", "Labels": {"io.gpuplan.managed": "true"}, "HostConfig": {"NetworkMode": "host"}}'
    ]
    assert server.asked[-1].endswith("/containers/create?name=gpuplan-x")


def test_a_container_that_could_not_be_known_as_ours_is_never_made(reached: Reached) -> None:
    docker, server = reached({})

    with pytest.raises(ValueError, match="managed"):
        containers.create(docker, {"Image": "x"}, "gpuplan-x")

    assert server.asked == ["GET /version"]


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (409, 'Conflict. The container name "/gpuplan-x" is already in use by container "1"', NameTaken),
        (409, "something else", RequestRefused),
        (404, "No such image: sha256:1", RequestRefused),
        (500, "disk\nfull", RequestRefused),
    ],
)
def test_a_refused_creation_is_told_in_the_engines_words(
    reached: Reached, status: int, message: str, kind: type[RequestRefused]
) -> None:
    docker, _ = reached({"POST /containers/create": refusing(status, message)})

    with pytest.raises(HostCallFailed) as failed:
        containers.create(docker, {"Labels": {MANAGED: "true"}}, "gpuplan-x")

    assert type(failed.value) is kind
    assert isinstance(failed.value, RequestRefused)
    assert (failed.value.status, failed.value.detail) == (status, message.replace("\n", " "))


CHANGES: tuple[Callable[[Engine], Any], ...] = (
    lambda docker: containers.put_files(docker, ID, {"a": b""}, directory="/run/x", uid=0, gid=0),
    lambda docker: containers.start(docker, ID),
    lambda docker: containers.stop(docker, ID, 1),
    lambda docker: containers.kill(docker, ID),
    lambda docker: containers.remove(docker, ID),
    lambda docker: containers.rename(docker, ID, "gpuplan-y"),
    lambda docker: containers.execute(docker, ID, ["true"], timeout=LONG),
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_ours_is_never_changed(reached: Reached, change: Callable[[Engine], Any]) -> None:
    docker, server = reached({f"GET /containers/{ID}/json": inspected(ours=False)})

    with pytest.raises(NotOurs, match="not made by gpuplan"):
        change(docker)

    assert {asked.split()[0] for asked in server.asked} == {"GET"}


@pytest.mark.parametrize("change", [change for change in CHANGES if change is not CHANGES[4]])
def test_what_is_gone_cannot_be_changed(reached: Reached, change: Callable[[Engine], Any]) -> None:
    docker, _ = reached({f"GET /containers/{ID}/json": refusing(404, f"No such container: {ID}")})

    with pytest.raises(RequestRefused) as failed:
        change(docker)

    assert failed.value.status == 404


def test_a_name_is_looked_up_and_the_id_is_changed(reached: Reached) -> None:
    docker, server = reached(
        {"GET /containers/gpuplan-x/json": inspected(), f"POST /containers/{ID}/stop": nothing}
    )

    containers.stop(docker, "gpuplan-x", 7.2)

    assert server.asked[-1].endswith(f"/containers/{ID}/stop?t=8")


def test_stopping_may_take_longer_than_other_requests(reached: Reached) -> None:
    slow = threading.Event()

    def stopping(request: Request) -> None:
        slow.wait(3 * SHORT)
        nothing(request)

    docker, _ = reached({f"POST /containers/{ID}/stop": stopping}, timeout=SHORT)

    containers.stop(docker, ID, LONG)


def test_removing_what_is_gone_is_fine(reached: Reached) -> None:
    docker, server = reached(
        {
            "GET /containers/gone/json": refusing(404, "No such container"),
            f"DELETE /containers/{ID}": refusing(404, "No such container"),
        }
    )

    containers.remove(docker, "gone")
    containers.remove(docker, ID)

    assert server.asked[-1].endswith(f"DELETE /v1.45/containers/{ID}?v=True&link=False&force=True")


def test_removing_what_someone_else_removes_waits_for_the_end(reached: Reached) -> None:
    looks = iter([inspected(), inspected(), None])

    def look(request: Request) -> None:
        found = next(looks)
        request.document(found or {"message": "No such container"}, 200 if found else 404)

    docker, _ = reached(
        {
            f"GET /containers/{ID}/json": look,
            f"DELETE /containers/{ID}": refusing(409, f"removal of container {ID} is already in progress"),
        }
    )

    containers.remove(docker, ID)

    assert next(looks, "all") == "all"


def test_a_name_that_is_taken_is_told_when_renaming(reached: Reached) -> None:
    docker, _ = reached({f"POST /containers/{ID}/rename": refusing(409, 'name "/y" is already in use by 1')})

    with pytest.raises(NameTaken):
        containers.rename(docker, ID, "y")


def test_ours_are_listed_and_those_that_vanish_meanwhile_left_out(reached: Reached) -> None:
    docker, server = reached(
        {
            "GET /containers/json": [{"Id": ID}, {"Id": "vanished"}, {"Id": "foreign"}],
            "GET /containers/vanished/json": refusing(404, "No such container"),
            "GET /containers/foreign/json": inspected(ours=False),
        }
    )

    assert [each["Id"] for each in containers.list_ours(docker, deployment="qwen3")] == [ID]
    asked = next(line for line in server.asked if "/containers/json" in line)
    assert "io.gpuplan.managed%3Dtrue" in asked
    assert "io.gpuplan.deployment%3Dqwen3" in asked


def test_secret_files_are_for_their_owner_and_directories_that_are_there_stay_as_they_are(
    reached: Reached,
) -> None:
    archives: list[bytes] = []

    def put(request: Request) -> None:
        archives.append(request.body())
        request.whole(b"")

    def stat(request: Request) -> None:
        there = request.path.endswith("path=%2Frun")
        request.whole(b"", 200 if there else 404)

    docker, server = reached({f"PUT /containers/{ID}/archive": put, f"HEAD /containers/{ID}/archive": stat})

    containers.put_files(
        docker, ID, {"HF_TOKEN": b"hf_x"}, directory="/run/gpuplan/secrets", uid=1000, gid=2000
    )

    assert server.asked[-1].endswith("?path=%2F")
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as tar:
        members = [(each.name, each.mode, each.uid, each.gid, each.isdir()) for each in tar]
        file = tar.extractfile("run/gpuplan/secrets/HF_TOKEN")
        assert file is not None
        assert file.read() == b"hf_x"
    assert members == [
        ("run/gpuplan", 0o755, 0, 0, True),
        ("run/gpuplan/secrets", 0o700, 1000, 2000, True),
        ("run/gpuplan/secrets/HF_TOKEN", 0o400, 1000, 2000, False),
    ]


@pytest.mark.parametrize(
    ("name", "directory"), [("../x", "/run/x"), ("a", "run/x"), ("a", "/"), ("a", "/a/../b")]
)
def test_files_go_nowhere_else(reached: Reached, name: str, directory: str) -> None:
    docker, server = reached({f"HEAD /containers/{ID}/archive": refusing(404, "no")})

    with pytest.raises(ValueError, match=r"is no "):
        containers.put_files(docker, ID, {name: b""}, directory=directory, uid=0, gid=0)

    assert not any(asked.startswith("PUT") for asked in server.asked)


# ---------------------------------------------------------------------------------------------------------- logs


def printing(*chunks: bytes, cut: bool = False, then: Callable[[Request], None] | None = None) -> Any:
    """A log in pieces, as they are given."""

    def answer(request: Request) -> None:
        request.start_chunks()
        for data in chunks:
            request.chunk(data)
        if then is not None:
            then(request)
        if cut:
            request.cut()
        else:
            request.chunk(b"")

    return answer


def read(docker: Engine, *, follow: bool = False, **options: Any) -> list[LogLine]:
    return list(containers.logs(docker, ID, follow=follow, **options))


def log(*chunks: bytes, **options: Any) -> dict[str, Any]:
    return {f"GET /containers/{ID}/logs": printing(*chunks, **options)}


def test_lines_are_put_together_from_frames_pieces_and_both_outputs(reached: Reached) -> None:
    whole = frame(STAMPED + b"first\n") + frame(STAMPED + b"half", 2) + frame(STAMPED + b"second\n")
    whole += (
        frame(STAMPED + b" and half \xff\n", 2)
        + frame(STAMPED + b"\r\x1b[1mlast\r\n")
        + frame(STAMPED + b"end")
    )
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    docker, _ = reached(log(*pieces))

    assert [(line.at, line.text, line.stream) for line in read(docker)] == [
        (STAMP, "first", Output.STDOUT),
        (STAMP, "second", Output.STDOUT),
        (STAMP, "half and half �", Output.STDERR),
        (STAMP, "\r\x1b[1mlast", Output.STDOUT),
        (STAMP, "end", Output.STDOUT),
    ]


def test_the_log_of_a_terminal_has_no_frames(reached: Reached) -> None:
    answers = log(STAMPED + b"fi", b"rst\r\n" + STAMPED + b"second\r\n")
    found = inspected()
    found["Config"]["Tty"] = True
    docker, _ = reached({**answers, f"GET /containers/{ID}/json": found})

    assert [(line.at, line.text) for line in read(docker)] == [(STAMP, "first"), (STAMP, "second")]


def test_without_time_stamps_a_line_keeps_what_looks_like_one(reached: Reached) -> None:
    docker, server = reached(log(frame(STAMPED + b"x\n")))

    (line,) = read(docker, timestamps=False, tail=3)

    assert (line.at, line.text) == ("", f"{STAMP} x")
    assert server.asked[-1].endswith("logs?stdout=1&stderr=1&timestamps=0&follow=0&tail=3")


@pytest.mark.parametrize(
    ("since", "asked"),
    [
        (STAMP, "1793534400.000000001"),
        ("2026-11-01T12:00:00Z", "1793534400.0"),
        (1793534400.25, "1793534400.250000000"),
    ],
)
def test_a_log_is_taken_up_where_it_was_left(reached: Reached, since: float | str, asked: str) -> None:
    docker, server = reached(log())

    assert read(docker, since=since) == []
    assert server.asked[-1].endswith(f"&since={asked}")


def test_a_line_without_end_is_given_in_pieces(reached: Reached, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuplan.remote.container_logs.LONGEST_LINE", 40)
    docker, _ = reached(log(*(frame(STAMPED + b"x" * 16) for _ in range(4))))

    lines = read(docker)

    assert "".join(line.text for line in lines) == "x" * 64
    assert {line.at for line in lines} == {STAMP}
    assert len(lines) > 1


@pytest.mark.parametrize("after", [inspected(running=False), None], ids=["ended", "removed"])
def test_a_followed_log_ends_with_its_container(reached: Reached, after: Any) -> None:
    states = iter([inspected(), after])

    def look(request: Request) -> None:
        found = next(states)
        request.document(found or {"message": "No such container"}, 200 if found else 404)

    docker, _ = reached({**log(frame(STAMPED + b"x\n")), f"GET /containers/{ID}/json": look})

    assert [line.text for line in read(docker, follow=True)] == ["x"]


def test_a_container_may_be_told_as_running_a_moment_after_its_log_ended(reached: Reached) -> None:
    states = iter([inspected(), inspected(), inspected(), inspected(running=False)])
    docker, _ = reached(
        {**log(), f"GET /containers/{ID}/json": lambda request: request.document(next(states))}
    )

    assert read(docker, follow=True) == []


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("running", [True, False])
def test_a_log_that_breaks_off_is_told_after_its_last_line(
    reached: Reached, monkeypatch: pytest.MonkeyPatch, cut: bool, running: bool
) -> None:
    monkeypatch.setattr("gpuplan.remote.container_logs.ENDING_SECONDS", 0.0)
    docker, _ = reached(
        {
            **log(frame(STAMPED + b"x\n") + frame(STAMPED + b"ha"), cut=cut),
            f"GET /containers/{ID}/json": inspected(running=running),
        }
    )
    lines = containers.logs(docker, ID, follow=True)

    assert [next(lines).text, next(lines).text] == ["x", "ha"]
    if cut or running:
        with pytest.raises(ConnectionFailed, match="broke off"):
            next(lines)
    else:
        assert next(lines, None) is None


def test_a_log_that_breaks_off_with_its_engine_tells_the_engine(reached: Reached, tmp_path: Path) -> None:
    def die(_: Request) -> None:
        (tmp_path / "0.sock").unlink()

    docker, _ = reached(log(frame(STAMPED + b"x\n"), cut=True, then=die))
    lines = containers.logs(docker, ID, follow=True)

    assert next(lines).text == "x"
    with pytest.raises(EngineFailed):
        list(lines)


def test_a_log_breaks_off_when_it_is_not_followed_too(reached: Reached) -> None:
    docker, _ = reached(
        {**log(frame(b"x\n"), cut=True), f"GET /containers/{ID}/json": inspected(running=False)}
    )

    with pytest.raises(ConnectionFailed, match="broke off"):
        read(docker)


def test_a_followed_log_is_closed_from_another_thread(reached: Reached) -> None:
    docker, _ = reached(log(frame(STAMPED + b"x\n"), then=hang, cut=True), timeout=SHORT)
    lines = containers.logs(docker, ID, follow=True)
    got: list[str] = []
    first = threading.Event()

    def follow() -> None:
        for line in lines:
            got.append(line.text)
            first.set()

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    assert first.wait(LONG)
    reader.join(2 * SHORT)
    assert reader.is_alive()
    lines.close()
    reader.join(LONG)

    assert not reader.is_alive()
    assert got == ["x"]
    assert list(lines) == []


def test_a_silent_engine_is_told_when_the_log_is_not_followed(reached: Reached) -> None:
    docker, _ = reached(log(then=hang, cut=True), timeout=SHORT)

    with pytest.raises(ConnectionFailed):
        read(docker)


def test_the_log_of_no_container_is_refused(reached: Reached) -> None:
    docker, _ = reached({f"GET /containers/{ID}/json": refusing(404, "No such container")})

    with pytest.raises(RequestRefused):
        containers.logs(docker, ID, follow=True)


# --------------------------------------------------------------------------------------------- commands and helpers


def upgraded(*pieces: bytes, then: Callable[[Request], None] | None = None) -> Any:
    def answer(request: Request) -> None:
        request.body()
        request.send_response(101, "UPGRADED")
        request.send_header("Connection", "Upgrade")
        request.send_header("Upgrade", "tcp")
        request.end_headers()
        for piece in pieces:
            request.wfile.write(piece)
        if then is not None:
            then(request)
        request.close_connection = True

    return answer


def running_command(
    *pieces: bytes, code: int = 0, then: Callable[[Request], None] | None = None
) -> dict[str, Any]:
    return {
        f"POST /containers/{ID}/exec": {"Id": "e1"},
        "POST /exec/e1/start": upgraded(*pieces, then=then),
        "GET /exec/e1/json": {"Running": False, "ExitCode": code},
    }


def test_a_command_runs_in_a_container(reached: Reached) -> None:
    docker, _ = reached(running_command(frame(b"out"), frame(b"err", 2), frame(b"put"), code=3))

    done = containers.execute(docker, ID, ["sh"], timeout=LONG, env=[("A", "b")])

    assert (done.exit_code, done.stdout, done.stderr) == (3, b"output", b"err")
    assert not done.truncated


def test_the_output_of_a_command_is_limited(reached: Reached) -> None:
    docker, _ = reached(running_command(frame(b"x" * 10), frame(b"y" * 10)))

    done = containers.execute(docker, ID, ["sh"], timeout=LONG, limit=15)

    assert (done.stdout, done.truncated, done.exit_code) == (b"x" * 10 + b"y" * 5, True, 0)


def test_a_command_out_of_time_returns_what_it_printed(reached: Reached) -> None:
    docker, _ = reached(running_command(frame(b"x"), then=hang))

    done = containers.execute(docker, ID, ["sleep", "9"], timeout=SHORT)

    assert (done.exit_code, done.stdout, done.timed_out) == (None, b"x", True)


def test_a_command_in_a_stopped_container_is_refused(reached: Reached) -> None:
    docker, _ = reached({f"POST /containers/{ID}/exec": refusing(409, f"Container {ID} is not running")})

    with pytest.raises(RequestRefused) as failed:
        containers.execute(docker, ID, ["true"], timeout=LONG)

    assert failed.value.status == 409


BODY = {"Image": "x", "Labels": {MANAGED: "true"}}


def once(**more: Any) -> dict[str, Any]:
    return {
        "POST /containers/create": {"Id": ID},
        f"POST /containers/{ID}/start": nothing,
        f"POST /containers/{ID}/wait": {"StatusCode": 5},
        f"DELETE /containers/{ID}": nothing,
        **log(frame(b"out\n") + frame(b"err\n", 2)),
        **more,
    }


def test_a_container_runs_once_and_is_removed(reached: Reached) -> None:
    docker, server = reached(once())

    done = containers.run_once(docker, BODY, timeout=LONG, name="gpuplan-once")

    assert (done.exit_code, done.stdout, done.stderr) == (5, b"out\n", b"err\n")
    assert server.asked[-1].startswith("DELETE")


def test_a_container_out_of_time_is_removed_with_what_it_printed_told(reached: Reached) -> None:
    docker, server = reached(once(**{f"POST /containers/{ID}/wait": hang}))

    done = containers.run_once(docker, BODY, timeout=SHORT, name="gpuplan-once")

    assert (done.exit_code, done.timed_out, done.stdout) == (None, True, b"out\n")
    assert server.asked[-1].startswith("DELETE")


def test_a_container_that_does_not_start_is_removed_and_why_is_told(reached: Reached) -> None:
    docker, server = reached(once(**{f"POST /containers/{ID}/start": refusing(500, "no GPUs")}))

    with pytest.raises(RequestRefused, match="no GPUs"):
        containers.run_once(docker, BODY, timeout=LONG, name="gpuplan-once")

    assert server.asked[-1].startswith("DELETE")


def test_an_interrupt_removes_the_container(reached: Reached, monkeypatch: pytest.MonkeyPatch) -> None:
    docker, server = reached(once())

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(docker.api, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        containers.run_once(docker, BODY, timeout=LONG, name="gpuplan-once")

    assert server.asked[-1].startswith("DELETE")


def test_what_could_not_be_removed_is_noted_beside_the_first_failure(reached: Reached) -> None:
    docker, _ = reached(
        once(
            **{
                f"POST /containers/{ID}/start": refusing(500, "no GPUs"),
                f"DELETE /containers/{ID}": refusing(500, "device busy"),
            }
        )
    )

    with pytest.raises(RequestRefused, match="no GPUs") as failed:
        containers.run_once(docker, BODY, timeout=LONG, name="gpuplan-once")

    assert failed.value.__notes__ == ["container c0ffee000000 could not be removed: device busy"]


# --------------------------------------------------------------------------------------------------- lost engines


def test_a_request_that_breaks_off_is_told_with_what_became_of_the_engine(reached: Reached) -> None:
    docker, _ = reached({f"POST /containers/{ID}/start": lambda request: request.cut()})

    with pytest.raises(EngineFailed, match=f"start {ID}: the connection was closed without an answer"):
        containers.start(docker, ID)


def test_an_engine_that_is_silent_is_told(reached: Reached) -> None:
    docker, _ = reached({f"POST /containers/{ID}/start": hang}, timeout=SHORT)

    with pytest.raises(EngineFailed, match="no answer in time"):
        containers.start(docker, ID)


class Losing(LocalConnection):
    """A connection that is lost when told."""

    lost = False

    def open_socket(self, path: str, *, timeout: float) -> Any:
        if self.lost:
            raise ConnectionFailed(Stage.COMMAND, "the connection was lost")
        return super().open_socket(path, timeout=timeout)


def test_a_lost_connection_is_told_as_such(tmp_path: Path) -> None:
    connection = Losing()

    def lose(request: Request) -> None:
        connection.lost = True
        request.cut()

    answers = {f"GET /containers/{ID}/json": inspected(), f"POST /containers/{ID}/start": lose}
    with serving(tmp_path / "lost.sock", answers):
        docker = engine(connection, socket_path=str(tmp_path / "lost.sock"), cli=False, timeout=LONG)
        with pytest.raises(ConnectionFailed, match="was lost"):
            containers.start(docker, ID)
        docker.close()
    connection.close()


def test_every_failure_is_of_one_family() -> None:
    for kind in (ConnectionFailed, SocketRefused, EngineFailed, RequestRefused):
        assert issubclass(kind, HostCallFailed)
